"""UDP in memory."""

import asyncio
import contextvars
import errno
import os
from collections.abc import Callable
from typing import Any

from labs.network.streams import Address


class Datagrams(asyncio.DatagramTransport):
    """A UDP socket at an address, connected if `there` is given.

    `receiver` finds who receives at an address; `leave` is called when this one no more does.
    """

    def __init__(
        self,
        protocol: Any,
        here: Address,
        there: Address | None,
        *,
        receiver: "Callable[[Address], Datagrams | None]",
        leave: Callable[[], object],
    ) -> None:
        """Receive from now on."""
        super().__init__({"sockname": here, "peername": there})
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._here = here
        self._there = there
        self._receiver = receiver
        self._leave = leave
        self._context = contextvars.copy_context()
        self._is_closing = False
        self._tell(protocol.connection_made, self)

    def sendto(self, data: bytes | bytearray | memoryview, addr: Any = None) -> None:
        """Send; where nobody receives, a socket that is connected is told so."""
        to = addr or self._there
        if self._is_closing or to is None:
            return
        target = self._receiver(to)
        if target is not None:
            target.receive(bytes(data), self._here)
        elif self._there is not None:
            text = os.strerror(errno.ECONNREFUSED)
            self._tell(self._protocol.error_received, OSError(errno.ECONNREFUSED, text))

    def receive(self, data: bytes, origin: Address) -> None:
        """Take a datagram, unless the socket is connected to somebody else."""
        if self._there in {None, origin}:
            self._tell(self._hand_over, data, origin)

    def close(self) -> None:
        """Leave the port."""
        if not self._is_closing:
            self._is_closing = True
            self._leave()
            self._tell(self._protocol.connection_lost, None)

    def abort(self) -> None:
        """Close at once, as `close` does."""
        self.close()

    def is_closing(self) -> bool:
        """Tell whether it is closed."""
        return self._is_closing

    def _hand_over(self, data: bytes, origin: Address) -> None:
        if not self._is_closing:
            self._protocol.datagram_received(data, origin)

    def _tell(self, what: Callable[..., object], *arguments: object) -> None:
        """Call the protocol in the loop's next turn."""
        self._loop.call_soon(what, *arguments, context=self._context)
