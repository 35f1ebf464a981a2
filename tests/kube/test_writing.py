"""The connections of writes: which are used again, and which never."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from proreus.kube import patch
from proreus.kube.client import Client, Written
from proreus.kube.clientconfig import ClientConfig, Impersonation
from proreus.kube.errors import RefusedByGate, TooManyRequests, Unreachable
from proreus.kube.requests import NODES
from proreus.kube.transport import KEEP_ALIVE
from proreus.testing.clock import virtual_time

CHANGE = patch.json_patch("u", patch.set_once("/spec/providerID", "x"))
BODY = b'{"metadata":{"uid":"u","resourceVersion":"12"}}'
DONE = Written("u", 12)
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n"
    % (9, BODY[:9], len(BODY) - 9, BODY[9:])
)
CLOSING = PLAIN.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
TO_THE_END = b"HTTP/1.1 200 OK\r\n\r\n" + BODY


class Server:
    """Answers each request by the next of its answers, the last one for ever.

    Attributes:
        requests: What came, by connection.
        ends: Closes the connection after each answer.
    """

    def __init__(self, *answers: bytes, ends: bool = False) -> None:
        self.requests: list[list[bytes]] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.url = ""
        self._answers = answers
        self._ends = ends

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mine: list[bytes] = []
        self.requests.append(mine)
        self.writers.append(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                mine.append(head + await reader.readexactly(length))
                number = sum(map(len, self.requests)) - 1
                writer.write(self._answers[min(number, len(self._answers) - 1)])
                if self._ends:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def serving(server: Server, **options: Any) -> AsyncIterator[Client]:
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        async with Client(ClientConfig(server=server.url), **options) as client:
            yield client
    finally:
        listener.close()


async def write(client: Client) -> Written:
    return await client.patch(NODES, "a", CHANGE)


@pytest.mark.parametrize("answer", [PLAIN, CHUNKED])
async def test_writes_one_after_another_share_a_connection(answer: bytes) -> None:
    server = Server(answer)
    async with serving(server) as client:
        assert [await write(client) for _ in range(3)] == [DONE] * 3

    assert [len(one) for one in server.requests] == [3]
    head = server.requests[0][0].partition(b"\r\n\r\n")[0].split(b"\r\n")
    assert head[0] == b"PATCH /api/v1/nodes/a HTTP/1.1"
    assert head[1] == b"Host: " + server.url.removeprefix("http://").encode()


@pytest.mark.parametrize(
    ("answer", "ends"), [(CLOSING, False), (TO_THE_END, True), (PLAIN + b"more", False)]
)
async def test_a_connection_that_cannot_go_on_is_not_used_again(
    answer: bytes, *, ends: bool
) -> None:
    server = Server(answer, ends=ends)
    async with serving(server) as client:
        assert [await write(client) for _ in range(2)] == [DONE] * 2

    assert [len(one) for one in server.requests] == [1, 1]


async def test_writes_at_once_have_a_connection_each_and_leave_them_to_others() -> None:
    server = Server(PLAIN)
    async with serving(server) as client:
        await asyncio.gather(*(write(client) for _ in range(5)))
        await asyncio.gather(*(write(client) for _ in range(5)))

    assert [len(one) for one in server.requests] == [2] * 5


async def test_what_comes_unasked_ends_the_connection_and_is_no_answer_to_the_next_write() -> None:
    server = Server(PLAIN)
    async with serving(server) as client:
        await write(client)
        server.writers[0].write(PLAIN.replace(b"12", b"13"))
        await asyncio.sleep(0.05)
        assert await write(client) == DONE

    assert [len(one) for one in server.requests] == [1, 1]


@pytest.mark.parametrize("answer", [b"<html>\r\n\r\n", PLAIN[:-3], b"HTTP/1.1 200 OK\r\n", b""])
async def test_an_answer_that_is_none_leaves_the_outcome_unknown(answer: bytes) -> None:
    server = Server(answer, PLAIN, ends=True)
    async with serving(server) as client:
        with pytest.raises(Unreachable) as caught:
            await write(client)
        assert caught.value.sent
        assert await write(client) == DONE

    assert [len(one) for one in server.requests] == [1, 1]


async def test_a_refusal_with_a_time_is_tried_again_then() -> None:
    slow = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\nContent-Length: 2\r\n\r\n{}"
    never = slow.replace(b"After: 0", b"After: 99")
    server = Server(slow, PLAIN, never)
    async with serving(server) as client:
        assert await write(client) == DONE
        with pytest.raises(TooManyRequests) as caught:
            await write(client)

    assert caught.value.retry_after == 99


async def test_a_gate_that_closes_leaves_the_connection_to_later_writes() -> None:
    server = Server(PLAIN)
    closed = iter([False, False, False, True, False, False])  # asked twice for each write

    def gate() -> None:
        if next(closed):
            raise RefusedByGate("closed")

    async with serving(server, gate=gate) as client:
        await write(client)
        with pytest.raises(RefusedByGate):
            await write(client)
        await write(client)

    assert [len(one) for one in server.requests] == [2]


@pytest.mark.parametrize("call", ["DELETE", "PATCH"])
@pytest.mark.parametrize("ask", [3, 4])  # asked twice for each try
async def test_a_gate_of_one_write_holds_back_a_later_try_of_it_alone(call: str, ask: int) -> None:
    answers = iter([*[None] * (ask - 1), RefusedByGate("denied")])
    put_off = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0\r\nContent-Length: 2\r\n\r\n{}"
    server = Server(put_off, PLAIN)

    def gate() -> None:
        if error := next(answers):
            raise error

    async with serving(server) as client:
        is_patch = call == "PATCH"
        send = partial(client.patch, patch=CHANGE) if is_patch else partial(client.delete)
        with pytest.raises(RefusedByGate, match="denied"):
            await send(NODES, "a", gate=gate)
        await write(client)

    ((first, second),) = server.requests
    assert first.startswith(call.encode())
    assert second.startswith(b"PATCH")


async def test_a_write_that_is_cancelled_takes_its_connection_with_it() -> None:
    server = Server(b"", PLAIN)
    async with serving(server) as client:
        work = asyncio.create_task(write(client))
        while not server.requests or not server.requests[0]:
            await asyncio.sleep(0.01)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert await write(client) == DONE

    assert [len(one) for one in server.requests] == [1, 1]


async def test_a_text_that_would_end_its_line_is_never_sent() -> None:
    server = Server(PLAIN)
    async with serving(server):
        config = ClientConfig(server=server.url, impersonation=Impersonation(user="a\r\nX: y"))
        async with Client(config) as client:
            with pytest.raises(ValueError, match="line break"):
                await write(client)

    assert server.requests == []


@pytest.mark.parametrize(("pause", "connections"), [(0.5, 1), (1.5, 2)])
def test_a_connection_is_kept_for_a_while(pause: float, connections: int) -> None:
    server = Server(PLAIN)

    @virtual_time
    async def play() -> None:
        async with serving(server) as client:
            await write(client)
            await asyncio.sleep(pause * KEEP_ALIVE)
            if connections > 1:
                assert server.writers[0].is_closing()
            await write(client)

    run: Callable[[], None] = play
    run()
    assert len(server.requests) == connections


@pytest.mark.parametrize("start", [0.1, 0.3, 0.7, 1.1, 2.3, 4.4])
def test_the_end_of_an_unused_connection_comes_once_whatever_the_time_is_rounded_to(
    start: float,
) -> None:
    """A timer that starts anew at its own time would let no time pass."""
    server = Server(PLAIN)

    @virtual_time
    async def play() -> None:
        async with serving(server) as client:
            await asyncio.sleep(start)
            await write(client)
            await asyncio.sleep(2 * KEEP_ALIVE)
            assert server.writers[0].is_closing()

    run: Callable[[], None] = play
    run()
