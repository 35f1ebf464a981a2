"""The event loop of the network in memory: who listens where, and who is connected with whom."""

import asyncio
import contextvars
import errno
import ipaddress
import os
import socket
import weakref
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Final, TypeVar

from labs.network.datagrams import Datagrams
from labs.network.streams import Address, Stream
from proreus.testing.clock import VirtualTimeLoop

T = TypeVar("T")

ANY: Final = "0.0.0.0"  # noqa: S104 - nobody outside the process can reach it
HOME: Final = "127.0.0.1"
FIRST_PORT: Final = 32768
"""The first port for who asks for any, as Linux has it."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine in virtual time from 0 on, in a network of its own."""
    with asyncio.Runner(loop_factory=MemoryNetworkLoop) as runner:
        return runner.run(main)


class MemoryNetworkLoop(VirtualTimeLoop):
    """An event loop with virtual time whose TCP and UDP stay in memory."""

    def __init__(self, start: float = 0.0, *, deadlock_after: float = 30.0) -> None:
        """Nobody listens."""
        super().__init__(start, deadlock_after=deadlock_after)
        self._servers: dict[Address, Server] = {}
        self._datagrams: dict[Address, Datagrams] = {}
        self._next = FIRST_PORT
        self._dialled = weakref.WeakKeyDictionary[socket.socket, Address]()

    async def getaddrinfo(self, host: Any, port: Any, **hints: int) -> list[Any]:
        """Only numbers: a name would have to be asked for outside, in a thread.

        Raises:
            socket.gaierror: It is a name.
        """
        hints["flags"] = hints.get("flags", 0) | socket.AI_NUMERICHOST
        return socket.getaddrinfo(host, port, **hints)

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Note where a socket leads, for `create_connection`; it is not used itself.

        Raises:
            ConnectionRefusedError: Nobody listens there.
        """
        await asyncio.sleep(0)
        self._server(address[:2])
        self._dialled[sock] = address[:2]

    async def create_connection(
        self,
        protocol_factory: Callable[[], Any],
        host: str | None = None,
        port: int | None = None,
        *,
        sock: socket.socket | None = None,
        local_addr: Address | None = None,
        ssl: object = None,
        **_: object,
    ) -> tuple[asyncio.Transport, Any]:
        """Connect to a server of this network.

        Raises:
            ConnectionRefusedError: Nobody listens there.
        """
        _without_tls(ssl)
        if sock is None:
            there = (_loopback(host or HOME), port or 0)
        else:
            there = self._dialled.pop(sock)
            sock.close()
        server = self._server(there)
        here = local_addr or (HOME, 0)
        here = (_loopback(here[0]), here[1] or self._free_port(self._servers))
        protocol = protocol_factory()
        near, _far = Stream.pair(
            (protocol, here, contextvars.copy_context()),
            (server.factory(), there, server.context.copy()),
        )
        await asyncio.sleep(0)  # the protocols are told
        return near, protocol

    async def create_server(  # type: ignore[override]  # one way for all of its forms
        self,
        protocol_factory: Callable[[], Any],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        **_: object,
    ) -> "Server":
        """Listen.

        Raises:
            OSError: The port is taken, or the address is not of loopback.
        """
        _without_tls(ssl)
        here = self._bound(host, port, self._servers)
        server = Server(protocol_factory, here, lambda: self._servers.pop(here, None))
        self._servers[here] = server
        return server

    async def create_datagram_endpoint(  # type: ignore[override]  # without sockets made before
        self,
        protocol_factory: Callable[[], Any],
        local_addr: Address | None = None,
        remote_addr: Address | None = None,
        **_: object,
    ) -> tuple[asyncio.DatagramTransport, Any]:
        """Send and receive datagrams.

        Raises:
            OSError: The port is taken, or the address is not of loopback.
        """
        here = self._bound(*(local_addr or (HOME, 0)), self._datagrams)
        protocol = protocol_factory()
        self._datagrams[here] = Datagrams(
            protocol,
            here,
            remote_addr,
            receiver=lambda to: _at(to, self._datagrams),
            leave=lambda: self._datagrams.pop(here, None),
        )
        await asyncio.sleep(0)  # the protocol is told
        return self._datagrams[here], protocol

    def _server(self, address: Address) -> "Server":
        found = _at(address, self._servers)
        if found is None:
            raise _os_error(errno.ECONNREFUSED, address)
        return found

    def _bound(self, host: str | None, port: int | None, taken: Collection[Address]) -> Address:
        here = (_loopback(host or ANY), port or self._free_port(taken))
        for other in taken:
            if here[1] == other[1] and (here[0] == other[0] or ANY in {here[0], other[0]}):
                raise _os_error(errno.EADDRINUSE, here)
        return here

    def _free_port(self, taken: Collection[Address]) -> int:
        ports = {port for _, port in taken}
        while self._next in ports:
            self._next += 1
        self._next += 1
        return self._next - 1


class Server:
    """A server that listens at an address of the network in memory.

    It is no `asyncio.AbstractServer`: of that it has what all Pythons have, and the newer ones want
    it to know its connections.

    Attributes:
        factory: Makes the protocol of each connection.
        context: That of who made it, in which its protocols are told of what comes.
    """

    def __init__(
        self, factory: Callable[[], Any], address: Address, leave: Callable[[], object]
    ) -> None:
        """Listen until `close`, which calls `leave`."""
        self.factory = factory
        self.context = contextvars.copy_context()
        self._loop = asyncio.get_running_loop()
        self._address = address
        self._leave = leave
        self._is_open = True

    @property
    def sockets(self) -> tuple["Bound", ...]:
        """The sockets at which the server listens."""
        return (Bound(self._address),) if self._is_open else ()

    def close(self) -> None:
        """Listen no more; connections stay."""
        if self._is_open:
            self._is_open = False
            self._leave()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of the network."""
        return self._loop

    def is_serving(self) -> bool:
        """Tell whether it listens."""
        return self._is_open

    async def start_serving(self) -> None:
        """Do nothing: the server listens from the start."""

    async def serve_forever(self) -> None:
        """Listen until cancelled."""
        try:
            await self._loop.create_future()
        finally:
            self.close()

    async def wait_closed(self) -> None:
        """Wait for nothing: a port is free as soon as it is left."""


class Bound:
    """A stand-in for a server's socket."""

    def __init__(self, address: Address) -> None:
        """Keep the address."""
        self._address = address

    def getsockname(self) -> Address:
        """Return the address to which the socket is bound."""
        return self._address


def _at(address: Address, taken: dict[Address, T]) -> T | None:
    """Return the server at an address, or at its port on all addresses."""
    return taken.get(address) or taken.get((ANY, address[1]))


def _without_tls(ssl: object) -> None:
    if ssl:
        raise NotImplementedError("there is no TLS in the network in memory")


def _loopback(host: str) -> str:
    number = HOME if host == "localhost" else host
    if number != ANY and not ipaddress.IPv4Address(number).is_loopback:
        raise _os_error(errno.EADDRNOTAVAIL, (number, 0))
    return number


def _os_error(number: int, address: Address) -> OSError:
    return OSError(number, f"{os.strerror(number)}: {address[0]}:{address[1]}")
