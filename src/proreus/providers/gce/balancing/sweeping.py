"""Keep deletions of shared parts apart from load balancers that have just found these parts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Sweeps:
    """A count of the deletions of shared parts.

    Whoever makes a load balancer looks at the count before and after: if it differs, what was
    observed may be gone since, such as the firewall rule for a health check that was made anew.
    """

    def __init__(self) -> None:
        """Begin with no deletion."""
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
