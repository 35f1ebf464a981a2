"""Answers of HTTP/1.1 are read alike however they come in pieces; what is none is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.kube.replies import HEAD_LIMIT, BadReply, Reply, ReplyReader

CHUNKED = (
    b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'5\r\n{"a":\r\n9;x=y\r\n"\r\n0\r\n\r\n"\r\n1 \r\n}\r\n0\r\nTrailer: t\r\n\r\n'
)
REPLIES: dict[bytes, Reply] = {
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}": Reply(200, "", b"{}", may_go_on=True),
    b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n": Reply(200, "", b"", may_go_on=True),
    b"HTTP/1.1 429 Too Many Requests\r\nretry-after:  7 \r\nCONTENT-LENGTH:1\r\n\r\nx": Reply(
        429, "7", b"x", may_go_on=True
    ),
    b"HTTP/1.1 200 OK\r\nConnection: keep-alive, Close\r\nContent-Length: 1\r\n\r\nx": Reply(
        200, "", b"x", may_go_on=False
    ),
    b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx": Reply(200, "", b"x", may_go_on=False),
    b"HTTP/1.1 204 No Content\r\n\r\n": Reply(204, "", b"", may_go_on=True),
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\n"
    b"HTTP/1.1 409 Conflict\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx": Reply(
        409, "", b"x", may_go_on=True
    ),
    CHUNKED: Reply(201, "", b'{"a":"\r\n0\r\n\r\n"}', may_go_on=True),
}


def read(pieces: list[bytes]) -> Reply | None:
    """What a reader makes of bytes that come in these pieces; it is asked no more once it has all."""
    reader = ReplyReader()
    for number, piece in enumerate(pieces):
        reply = reader.feed(piece)
        if reply is not None:
            assert number == len(pieces) - 1
            return reply
    return reader.end()


@given(st.sampled_from([*REPLIES]), st.data())
def test_an_answer_is_the_same_in_whatever_pieces_it_comes(
    whole: bytes, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=6)))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]

    assert read(pieces) == REPLIES[whole]
    assert read([bytes([one]) for one in whole]) == REPLIES[whole]


@pytest.mark.parametrize("whole", REPLIES)
def test_an_answer_that_is_cut_is_none(whole: bytes) -> None:
    for length in range(len(whole)):
        assert read([whole[:length]]) is None


@pytest.mark.parametrize("whole", REPLIES)
def test_what_comes_behind_an_answer_ends_the_connection(whole: bytes) -> None:
    reply = read([whole + b"HTTP/1.1 200 OK\r\n"])

    assert reply is not None
    assert (reply.status, reply.body) == (REPLIES[whole].status, REPLIES[whole].body)
    assert not reply.may_go_on


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    assert read([b"HTTP/1.1 200 OK\r\n\r\n{", b"}"]) == Reply(200, "", b"{}", may_go_on=False)


@pytest.mark.parametrize(
    "bad",
    [
        b"<html>\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"x" * (HEAD_LIMIT + 1),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * (HEAD_LIMIT + 1),
    ],
)
def test_what_is_no_answer_is_refused(bad: bytes) -> None:
    with pytest.raises(BadReply):
        read([bad])


@given(st.sampled_from([*REPLIES]), st.integers(0, 80), st.binary(min_size=1, max_size=6))
def test_bytes_that_are_changed_are_an_answer_none_or_refused(
    whole: bytes, at: int, new: bytes
) -> None:
    try:
        reply = ReplyReader().feed(whole[:at] + new + whole[at + len(new) :])
    except BadReply:
        return
    assert reply is None or reply.status >= 200
