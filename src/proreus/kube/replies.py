"""Read answers of HTTP/1.1 off bytes as they come. Pure: no sockets here.

Only what answers to writes need: a head, then a body by its length, in chunks, or up to the end of
the connection (RFC 9112).
"""

import re
from typing import Final

import msgspec

HEAD_LIMIT: Final = 65536
"""The most bytes that a head, or one line between chunks, may have."""

_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: .*)?")
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")
_FINAL: Final = 200
_WITHOUT_BODY: Final = frozenset({204, 304})
_END: Final = b"\r\n"


class BadReply(Exception):
    """The error that the bytes are no answer of HTTP/1.1."""


class Reply(msgspec.Struct, frozen=True):
    """An answer; `may_go_on` says whether the connection can carry another request."""

    status: int
    retry_after: str
    body: bytes
    may_go_on: bool


class _Head(msgspec.Struct, frozen=True):
    """The part of a head that is read; `length` is None for a body up to the connection's end."""

    status: int
    retry_after: str
    may_go_on: bool
    is_chunked: bool
    length: int | None


class ReplyReader:
    """A reader of one answer."""

    def __init__(self) -> None:
        """Begin before the head."""
        self._data = bytearray()
        self._head: _Head | None = None
        self._at = 0
        self._chunks: list[bytes] = []
        self._is_last = False

    def feed(self, data: bytes) -> Reply | None:
        """Take in what came; return the answer once it is whole.

        Raises:
            BadReply: The bytes are no HTTP answer.
        """
        self._data += data
        while self._head is None:
            end = self._data.find(_END * 2)
            if end < 0:
                self._check_limit()
                return None
            head = _head(bytes(self._data[:end]))
            del self._data[: end + 2 * len(_END)]
            if head.status >= _FINAL:
                self._head = head
        return self._chunked() if self._head.is_chunked else self._by_length(self._head)

    def end(self) -> Reply | None:
        """Return the answer that the end of the connection completes, or None."""
        head = self._head
        if head is None or head.is_chunked or head.length is not None:
            return None
        return Reply(head.status, head.retry_after, bytes(self._data), may_go_on=False)

    def _by_length(self, head: _Head) -> Reply | None:
        if head.length is None or len(self._data) < head.length:
            return None
        return self._reply(
            head, bytes(self._data[: head.length]), rest=len(self._data) - head.length
        )

    def _chunked(self) -> Reply | None:
        """Read the chunks that are whole; the last one has no bytes, and trailers may follow it."""
        while (end := self._data.find(_END, self._at)) >= 0:
            line = bytes(self._data[self._at : end])
            if self._is_last:
                self._at = end + len(_END)
                if not line and self._head is not None:
                    rest = len(self._data) - self._at
                    return self._reply(self._head, b"".join(self._chunks), rest=rest)
                continue
            found = _SIZE.fullmatch(line)
            if found is None:
                raise BadReply("a chunk has no size")
            begin = end + len(_END)
            after = begin + int(found[1], 16)
            if after == begin:
                self._is_last, self._at = True, begin
                continue
            if len(self._data) < after + len(_END):
                return None
            if self._data[after : after + len(_END)] != _END:
                raise BadReply("a chunk is longer than its size")
            self._chunks.append(bytes(self._data[begin:after]))
            self._at = after + len(_END)
        self._check_limit()
        return None

    def _check_limit(self) -> None:
        if len(self._data) - self._at > HEAD_LIMIT:
            raise BadReply("a line or the head has no end")

    @staticmethod
    def _reply(head: _Head, body: bytes, *, rest: int) -> Reply:
        # What comes unasked behind an answer must not be taken for the next one.
        return Reply(head.status, head.retry_after, body, head.may_go_on and not rest)


def _head(data: bytes) -> _Head:
    first, *lines = data.split(_END)
    status = _STATUS.fullmatch(first)
    if status is None:
        raise BadReply("it does not begin as an answer of HTTP/1.1")
    lengths: set[bytes] = set()
    codings: list[bytes] = []
    options: set[bytes] = set()
    retry_after = ""
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon:
            raise BadReply("a header has no colon")
        match name.lower():
            case b"content-length":
                lengths.add(value.strip())
            case b"transfer-encoding":
                codings.append(value.strip().lower())
            case b"connection":
                options |= {option.strip().lower() for option in value.split(b",")}
            case b"retry-after":
                retry_after = value.strip().decode("latin-1")
    code = int(status[2])
    if codings not in ([], [b"chunked"]) or len(lengths) > 1 or (codings and lengths):
        raise BadReply("the length of its body is not certain")
    length = int(_checked_length(*lengths)) if lengths else None
    if code in _WITHOUT_BODY:
        codings, length = [], 0
    return _Head(
        code,
        retry_after,
        may_go_on=status[1] == b"1" and b"close" not in options,
        is_chunked=bool(codings),
        length=length,
    )


def _checked_length(length: bytes) -> bytes:
    if _LENGTH.fullmatch(length) is None:
        raise BadReply("the length of its body is not a number")
    return length
