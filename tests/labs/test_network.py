"""The network in memory behaves as loopback does, and takes no time."""

import asyncio
import contextvars
import errno
import functools
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from labs.network import run
from labs.network.loop import ANY
from labs.network.streams import KERNEL

HOME = "127.0.0.1"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def in_memory(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run_test(*args: object, **kwargs: object) -> None:
        run(test(*args, **kwargs))

    return run_test


async def listen(serve: Serve, port: int = 0) -> tuple[asyncio.AbstractServer, int]:
    server = await asyncio.start_server(serve, HOME, port)
    return server, server.sockets[0].getsockname()[1]


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer all that came, after its end."""
    writer.write(await reader.read())
    writer.close()


@in_memory
async def test_what_is_written_arrives_whole_and_in_order_and_then_the_end() -> None:
    _, port = await listen(echo)
    pieces = [bytes([n]) * 50_000 for n in range(20)]
    reader, writer = await asyncio.open_connection(HOME, port)
    writer.writelines(pieces)
    writer.write_eof()
    assert await reader.read() == b"".join(pieces)
    writer.close()
    await writer.wait_closed()
    assert asyncio.get_running_loop().time() == 0


@in_memory
async def test_each_end_knows_where_both_are() -> None:
    seen: asyncio.Queue[Any] = asyncio.Queue()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.put_nowait([writer.get_extra_info(name) for name in ("peername", "sockname")])
        writer.close()

    _, port = await listen(serve)
    _, writer = await asyncio.open_connection(HOME, port, local_addr=("127.0.0.9", 0))
    here, there = await seen.get()
    assert (here[0], there) == ("127.0.0.9", (HOME, port))
    assert writer.get_extra_info("sockname") == here
    assert writer.get_extra_info("peername") == there
    writer.close()


@in_memory
async def test_a_writer_waits_for_who_reads_slowly() -> None:
    received: list[int] = []

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            received.append(len(data))
            await asyncio.sleep(1)
        writer.close()

    _, port = await listen(slow)
    _, writer = await asyncio.open_connection(HOME, port)
    for _ in range(8):
        writer.write(bytes(KERNEL))
        await writer.drain()
    assert asyncio.get_running_loop().time() > 10
    assert writer.transport.get_write_buffer_size() == 0
    writer.close()
    await asyncio.sleep(60)
    assert sum(received) == 8 * KERNEL


@in_memory
async def test_who_writes_to_a_closed_end_loses_the_connection() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    _, port = await listen(hang_up)
    reader, writer = await asyncio.open_connection(HOME, port)
    assert await reader.read() == b""
    writer.write(b"is anybody there?")
    with pytest.raises(ConnectionResetError):
        await writer.wait_closed()
    assert writer.is_closing()


@in_memory
async def test_nobody_is_reached_where_nobody_listens() -> None:
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(HOME, 80)
    server, port = await listen(echo)
    server.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(HOME, port)


@pytest.mark.parametrize(
    ("first", "second", "error"),
    [
        (HOME, HOME, errno.EADDRINUSE),
        (ANY, HOME, errno.EADDRINUSE),
        (HOME, None, errno.EADDRINUSE),
        (HOME, "127.0.0.2", None),
        (HOME, "192.0.2.1", errno.EADDRNOTAVAIL),
    ],
)
@pytest.mark.parametrize("protocol", ["TCP", "UDP"])
def test_a_port_of_an_address_is_taken_once(
    protocol: str, first: str, second: str | None, error: int | None
) -> None:
    async def bind(host: str | None) -> Any:
        loop = asyncio.get_running_loop()
        if protocol == "TCP":
            return await loop.create_server(asyncio.Protocol, host, 80)
        made, _ = await loop.create_datagram_endpoint(
            asyncio.DatagramProtocol, local_addr=(host or ANY, 80)
        )
        return made

    async def main() -> None:
        taken = await bind(first)
        if error is None:
            await bind(second)
            return
        with pytest.raises(OSError) as refused:
            await bind(second)
        assert refused.value.errno == error
        taken.close()
        if error == errno.EADDRINUSE:
            await bind(second)

    run(main())


class Kept(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.received: list[tuple[bytes, Any]] = []
        self.errors: list[Exception] = []

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.received.append((data, addr))

    def error_received(self, exc: Exception) -> None:
        self.errors.append(exc)


@in_memory
async def test_datagrams_arrive_and_are_answered() -> None:
    loop = asyncio.get_running_loop()
    server, heard = await loop.create_datagram_endpoint(Kept, local_addr=(HOME, 53))
    client, answered = await loop.create_datagram_endpoint(Kept, remote_addr=(HOME, 53))
    client.sendto(b"who?")
    await asyncio.sleep(0)
    ((question, asker),) = heard.received
    assert (question, asker) == (b"who?", client.get_extra_info("sockname"))
    server.sendto(b"you", asker)
    await asyncio.sleep(0)
    assert answered.received == [(b"you", (HOME, 53))]
    server.close()
    client.sendto(b"who?")
    await asyncio.sleep(0)
    assert isinstance(answered.errors[0], ConnectionRefusedError)


@in_memory
async def test_a_server_is_in_its_own_context() -> None:
    where = contextvars.ContextVar("where", default="nowhere")
    seen: asyncio.Queue[str] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        seen.put_nowait(where.get())
        writer.close()

    where.set("server")
    _, port = await listen(serve)
    where.set("client")
    _, writer = await asyncio.open_connection(HOME, port)
    writer.close()
    assert await seen.get() == "server"


@in_memory
async def test_names_are_not_looked_up() -> None:
    with pytest.raises(socket.gaierror):
        await asyncio.get_running_loop().getaddrinfo("example.com", 80)


@in_memory
async def test_http_goes_through_it() -> None:
    async def answer(request: web.Request) -> web.Response:
        await asyncio.sleep(3600)
        return web.Response(body=await request.read())

    app = web.Application(client_max_size=1 << 24)
    app.router.add_post("/", answer)
    runner = web.AppRunner(app, keepalive_timeout=5)
    await runner.setup()
    await web.TCPSite(runner, HOME, 0).start()
    url = f"http://{HOME}:{runner.addresses[0][1]}/"
    sent = bytes(range(256)) * 4000
    timeout = aiohttp.ClientTimeout(total=86400)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for _ in range(2):
            async with session.post(url, data=sent) as response:
                assert await response.read() == sent
    await runner.cleanup()
    assert asyncio.get_running_loop().time() == 7200
