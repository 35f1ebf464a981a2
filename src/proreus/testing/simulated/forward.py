"""Forward TCP connections and UDP datagrams for the simulated cloud."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

_CONNECT_TIMEOUT = 2.0
_CHUNK = 65536
_UDP_IDLE = 30.0

Choose = Callable[[str], list[tuple[str, int]]]


class Gate(Protocol):
    """An open port of a load balancer."""

    async def open(self, address: str, port: int) -> None:
        """Listen for connections, or raise OSError if that is impossible."""

    async def close(self) -> None:
        """Stop listening and cut all connections; then the port is free."""


class TCPGate:
    """A TCP port. `choose` returns a client's targets, `proxy` whether to send PROXY v1 first."""

    def __init__(self, choose: Choose, proxy: Callable[[], bool]) -> None:
        """Keep `choose` and `proxy`; open nothing yet."""
        self._choose = choose
        self._proxy = proxy
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def open(self, address: str, port: int) -> None:
        """Listen on the address and port."""
        self._server = await asyncio.start_server(self._serve, address, port)

    async def close(self) -> None:
        """Stop listening and cut all connections."""
        if self._server is not None:
            self._server.close()
        for writer in tuple(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            upstream = await self._connect(writer)
            if upstream is None:
                writer.transport.abort()
                return
            await self._join(reader, writer, *upstream)
        finally:
            self._open.discard(writer)
            writer.close()

    async def _connect(
        self, writer: asyncio.StreamWriter
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        source, here = writer.get_extra_info("peername"), writer.get_extra_info("sockname")
        for target in self._choose(source[0]):
            try:
                async with asyncio.timeout(_CONNECT_TIMEOUT):
                    upstream = await asyncio.open_connection(*target)
            except (OSError, TimeoutError):
                continue
            if self._proxy():
                line = f"PROXY TCP4 {source[0]} {here[0]} {source[1]} {here[1]}\r\n"
                upstream[1].write(line.encode())
            return upstream
        return None

    async def _join(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        up_reader: asyncio.StreamReader,
        up_writer: asyncio.StreamWriter,
    ) -> None:
        self._open.add(up_writer)
        try:
            await asyncio.gather(_copy(reader, up_writer), _copy(up_reader, writer))
        finally:
            self._open.discard(up_writer)
            up_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes until their end, and send that on; if one connection breaks, close both."""
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.transport.abort()


class UDPGate(asyncio.DatagramProtocol):
    """A UDP port. Each client keeps its target until it is silent for 30 s."""

    def __init__(self, choose: Choose, proxy: Callable[[], bool]) -> None:
        """Keep `choose`; PROXY v1 has no UDP, so `proxy` is not used."""
        del proxy
        self._choose = choose
        self._transport: asyncio.DatagramTransport | None = None
        self._clients: dict[tuple[str, int], _Upstream] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = asyncio.Event()

    async def open(self, address: str, port: int) -> None:
        """Listen on the address and port."""
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(
            lambda: self, local_addr=(address, port)
        )

    async def close(self) -> None:
        """Stop listening and forget all clients."""
        for upstream in tuple(self._clients.values()):
            upstream.end()
        for task in self._tasks:
            task.cancel()
        if self._transport is not None:
            self._transport.abort()
            await self._closed.wait()  # the loop closes the socket in its next turn

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the socket, which is closed."""
        del exc
        self._closed.set()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Forward a client's datagram."""
        upstream = self._clients.get(addr)
        if upstream is not None:
            upstream.send(data)
            return
        task = asyncio.create_task(self._first(data, addr))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _first(self, data: bytes, client: tuple[str, int]) -> None:
        targets = self._choose(client[0])
        if not targets or self._transport is None:
            return
        upstream = _Upstream(self._transport, client, lambda: self._clients.pop(client, None))
        with contextlib.suppress(OSError):
            await upstream.open(targets[0])
            self._clients[client] = upstream
            upstream.send(data)


class _Upstream(asyncio.DatagramProtocol):
    """A socket towards a target on behalf of one client."""

    def __init__(
        self,
        downstream: asyncio.DatagramTransport,
        client: tuple[str, int],
        forget: Callable[[], object],
    ) -> None:
        self._downstream = downstream
        self._client = client
        self._forget = forget
        self._transport: asyncio.DatagramTransport | None = None
        self._idle: asyncio.TimerHandle | None = None

    async def open(self, target: tuple[str, int]) -> None:
        loop = asyncio.get_running_loop()
        # From here and not from connection_made, whose argument is of no declared type.
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, remote_addr=target)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        del addr
        self._touch()
        self._downstream.sendto(data, self._client)

    def error_received(self, exc: Exception) -> None:
        """Close, since the target refused (ICMP): the next datagram may choose another."""
        del exc
        self.end()

    def send(self, data: bytes) -> None:
        self._touch()
        if self._transport is not None:
            self._transport.sendto(data)

    def end(self) -> None:
        self._forget()
        if self._idle is not None:
            self._idle.cancel()
        if self._transport is not None:
            self._transport.close()

    def _touch(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(_UDP_IDLE, self.end)
