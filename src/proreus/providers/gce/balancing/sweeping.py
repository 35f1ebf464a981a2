"""Keep deletions of shared parts apart from load balancers that have just found these parts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakValueDictionary


class Sweeps:
    """A count of the deletions of shared parts.

    Whoever makes a load balancer looks at the count before and after: if it differs, what was
    observed may be gone since, such as the firewall rule for a health check that was made anew.

    Attributes:
        turn: The lock that is held while a shared part is read and changed.
    """

    def __init__(self) -> None:
        """Begin with no deletion."""
        self.turn = asyncio.Lock()
        self._count = 0
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def count(self) -> int:
        """Return the number of deletions so far, once none is under way."""
        await self._idle.wait()
        return self._count

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Count a deletion, which is under way while the body runs."""
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._count += 1
            self._running -= 1
            if not self._running:
                self._idle.set()


_KNOWN: Final[WeakValueDictionary[tuple[asyncio.AbstractEventLoop, str], Sweeps]] = (
    WeakValueDictionary()
)


def sweeps_of(project: str) -> Sweeps:
    """Return the count of a project, which all clouds of this process in the project share.

    Health checks and firewall rules are of no region: clouds in two regions have the same ones.
    """
    return _KNOWN.setdefault((asyncio.get_running_loop(), project), Sweeps())
