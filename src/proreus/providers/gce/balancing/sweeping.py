"""Keep deletions of shared parts apart from load balancers that have just found these parts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakValueDictionary

from proreus.providers.gce.place import Place


class Sweeps:
    """A count of the deletions of shared parts.

    Whoever makes a load balancer looks at the count before and after: if it differs, what was
    observed may be gone since, such as the firewall rule for a health check that was made anew.

    Attributes:
        turn: The lock that is held while a shared part is read and changed.
        projects: The projects of the clouds that have the network.
    """

    def __init__(self) -> None:
        """Begin with no deletion."""
        self.turn = asyncio.Lock()
        self.projects: set[str] = set()
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


def sweeps_of(place: Place) -> Sweeps:
    """Return the count that all clouds of this process share whose network is of one project.

    Health checks and firewall rules are of no region: clouds in two regions have the same ones.
    Where several projects share a network, they have the same firewall rules, too.
    """
    key = asyncio.get_running_loop(), place.network_project
    found = _KNOWN.setdefault(key, Sweeps())
    found.projects.add(place.project)
    return found
