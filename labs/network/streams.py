"""The two ends of a TCP connection in memory."""

import asyncio
import contextvars
import errno
import os
from collections.abc import Callable, Iterable
from typing import Any, Final, Self

Address = tuple[str, int]
"""An IPv4 address and a port."""

KERNEL: Final = 1 << 18
"""Bytes that are on their way, or not read yet, before a writer is told to pause."""
READ: Final = 1 << 18
"""Bytes that are handed to a protocol at most in one turn, as asyncio reads sockets."""


def nothing() -> None:
    """Return what happens at an end that is not there yet."""


class Pipe:
    """A direction of a connection.

    Attributes:
        data: What was written and is not read.
        ends: Whether nothing more will be written.
        is_broken: Whether nobody reads any more.
        arrived: Called when there is something to read.
        left: Called when something was read.
    """

    def __init__(self) -> None:
        """Begin with nothing on its way."""
        self.data = bytearray()
        self.ends = False
        self.is_broken = False
        self.arrived: Callable[[], None] = nothing
        self.left: Callable[[], None] = nothing

    def put(self, data: bytes | bytearray | memoryview) -> None:
        """Send something."""
        self.data += data
        self.arrived()

    def end(self) -> None:
        """Send the end."""
        self.ends = True
        self.arrived()

    def take(self) -> bytes:
        """Read what is there, up to what is read in one turn."""
        data = bytes(self.data[:READ])
        del self.data[:READ]
        self.left()
        return data

    def break_off(self) -> None:
        """Read nothing more."""
        self.is_broken = True
        self.data.clear()

    @property
    def excess(self) -> int:
        """The bytes that a kernel would not take yet."""
        return max(0, len(self.data) - KERNEL)


class Stream(asyncio.Transport):
    """An end of a connection; the other end has `incoming` and `outgoing` the other way round."""

    def __init__(
        self,
        protocol: Any,
        places: tuple[Address, Address],
        pipes: tuple[Pipe, Pipe],
        context: contextvars.Context,
    ) -> None:
        """Lead from here to there; the protocol is told in `context` of what comes."""
        super().__init__({"sockname": places[0], "peername": places[1]})
        self._protocol = protocol
        self._incoming, self._outgoing = pipes
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._is_reading = True
        self._is_due = False
        self._is_paused = False
        self._is_closing = False
        self._incoming.arrived = self._look
        self._outgoing.left = self._go_on

    @classmethod
    def pair(
        cls,
        near: tuple[Any, Address, contextvars.Context],
        far: tuple[Any, Address, contextvars.Context],
    ) -> tuple[Self, Self]:
        """Both ends of a new connection, each of a protocol, its address and its context."""
        there, back = Pipe(), Pipe()
        ends = (
            cls(near[0], (near[1], far[1]), (back, there), near[2]),
            cls(far[0], (far[1], near[1]), (there, back), far[2]),
        )
        for end in reversed(ends):  # who listens knows first, as a server accepts in the kernel
            end.start()
        return ends

    def start(self) -> None:
        """Tell the protocol that it is connected, in the loop's next turn."""
        self._loop.call_soon(self._protocol.connection_made, self, context=self._context)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that receives the data."""
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Tell another one."""
        self._protocol = protocol

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send; after the other end was closed, lose the connection."""
        if self._outgoing.ends and not self._is_closing:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not data or self._is_closing:
            return
        if self._outgoing.is_broken:
            self._end(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))
            return
        self._outgoing.put(data)
        if self._outgoing.excess and not self._is_paused:
            self._is_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Send several pieces as one."""
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        """Send nothing more, and go on reading."""
        if not self._outgoing.ends:
            self._outgoing.end()

    def can_write_eof(self) -> bool:
        """TCP can."""
        return True

    def get_write_buffer_size(self) -> int:
        """Return what the kernel would not take yet."""
        return self._outgoing.excess

    def is_reading(self) -> bool:
        """Tell whether the protocol is told of data."""
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        """Keep what comes."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Hand over what was kept."""
        self._is_reading = True
        self._look()

    def is_closing(self) -> bool:
        """Tell whether it is closed, or about to be."""
        return self._is_closing

    def close(self) -> None:
        """End both ways; what was sent arrives before the end."""
        if not self._is_closing:
            self._end(None)

    def abort(self) -> None:
        """Close at once, as `close` does: nothing that was sent is still here."""
        self.close()

    def _look(self) -> None:
        """Hand over what is there, in the loop's next turn."""
        if self._is_due or self._is_closing or not (self._incoming.data or self._incoming.ends):
            return
        self._is_due = True
        self._loop.call_soon(self._deliver, context=self._context)

    def _deliver(self) -> None:
        self._is_due = False
        if not self._is_reading or self._is_closing:
            return
        if self._incoming.data:
            self._protocol.data_received(self._incoming.take())
            self._look()
        elif not self._protocol.eof_received():
            self.close()

    def _go_on(self) -> None:
        """Return the other end has read."""
        if self._is_paused and not self._is_closing and not self._outgoing.excess:
            self._is_paused = False
            self._protocol.resume_writing()

    def _end(self, error: Exception | None) -> None:
        """Close, and tell the protocol in the loop's next turn."""
        self._is_closing = True
        self._incoming.break_off()
        self.write_eof()
        self._loop.call_soon(self._protocol.connection_lost, error, context=self._context)
