"""Take locks that one process of a network namespace has at a time, whatever container it is in.

A lock is the name of an abstract Unix socket (unix(7)): it is the namespace's, as the kernel's
routes and tables are, and free as soon as its process has ended, however that came; and with it any
program that has got the socket to finish a change.
"""

import asyncio
import contextlib
import socket
import struct
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from proreus.cloudprovider.errors import CloudError

PATIENCE: Final = 60.0
"""Seconds that the changes of another manager may take."""

_KERNEL: Final = "proreus-gateway"
_LOOK: Final = 0.02
_CREDENTIALS: Final = struct.Struct("3i")
_ASKING: Final = 64


class Turn:
    """The turn to change this machine's kernel: that of one manager, and of one of its verbs.

    Managers of several clusters may share a table. Each change is made from what the kernel showed
    before: of two that are made side by side, one would undo parts of the other.

    Attributes:
        own: The turn among this manager's verbs alone, for what is not made from what was read.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        """Keep the seconds to wait for other managers."""
        self._patience = patience
        self.own = asyncio.Lock()
        self._lock: socket.socket | None = None

    @property
    def held(self) -> tuple[int, ...]:
        """What a program has to have open that goes on with the turn: the lock's descriptor."""
        return (self._lock.fileno(),) if self._lock is not None else ()

    async def __aenter__(self) -> Self:
        """Wait for the turn.

        Raises:
            CloudError: Another manager has it for too long.
        """
        await self.own.acquire()
        try:
            self._lock = await self._bound()
        except BaseException:
            self.own.release()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the turn to others."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        self.own.release()

    async def _bound(self) -> socket.socket:
        with contextlib.ExitStack() as stack:
            lock = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            begun = time.monotonic()
            while not is_bound(lock, _KERNEL):
                if time.monotonic() - begun >= self._patience:
                    raise CloudError(
                        f"another manager on this machine, {process(holder(_KERNEL))}, has been"
                        f" changing the kernel for {self._patience:g} s: if it hangs, end it"
                    )
                await asyncio.sleep(_LOOK)
            stack.pop_all()
            return lock


def is_bound(lock: socket.socket, name: str) -> bool:
    """Take the lock of this name for a socket, if it is free; tell whether it was."""
    try:
        lock.bind(f"\0{name}")
    except OSError:
        return False
    lock.listen(_ASKING)  # so that others can ask whose it is
    return True


def holder(name: str) -> int:
    """Return the process that has the lock; 0 if that cannot be seen from here."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(0.0)
        try:
            asking.connect(f"\0{name}")
            found = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return 0
    return int(_CREDENTIALS.unpack(found)[0])


def process(holder: int) -> str:
    """Return a process in words, with its program if that can be read; 0 is an unknown one."""
    if not holder:
        return "whose process cannot be seen from here"
    who = f"the process {holder}"
    with contextlib.suppress(OSError):
        who += f" ({Path(f'/proc/{holder}/comm').read_text(encoding='utf-8').strip()})"
    return who
