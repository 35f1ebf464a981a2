"""Keeps those who take shared parts away apart from those who have just found them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Sweeps:
    """A count of the times that something shared was taken away.

    Whoever makes a load balancer looks at the count before and after: if it differs, what was
    observed may be gone since, such as the firewall rule for a health check that was made anew.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._count = 0
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def count(self) -> int:
        """Return the count, once nothing is being taken away."""
        await self._idle.wait()
        return self._count

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Count what is taken away within."""
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._count += 1
            self._running -= 1
            if not self._running:
                self._idle.set()
