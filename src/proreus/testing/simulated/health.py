"""Check the health of the targets of the simulated cloud's load balancers."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable

import msgspec

_TIMEOUT = 1.0
_AT_ONCE = 64
_GATHER = 0.02  # new probes come in bursts


class Probe(msgspec.Struct, frozen=True):
    """A health check of one target: an HTTP GET of `path`, or a TCP connect if `path` is ""."""

    address: str
    port: int
    path: str


class Health:
    """A checker that sends every probe in turn; load balancers share equal probes.

    `needed` says which probes there are now, `interval` the seconds between two rounds, 0 for
    no checks at all.
    """

    def __init__(
        self, needed: Callable[[], Iterable[Probe]], interval: Callable[[], float]
    ) -> None:
        """Know no target's health at first."""
        self._needed = needed
        self._interval = interval
        self._known: dict[Probe, bool] = {}
        self._wake = asyncio.Event()

    def of(self, probe: Probe | None) -> str:
        """Return a target's health: healthy, unhealthy or unknown.

        None stands for a target without a health check.
        """
        if probe is None or self._interval() <= 0:
            return "healthy"
        known = self._known.get(probe)
        if known is None:
            return "unknown"
        return "healthy" if known else "unhealthy"

    def wake(self) -> None:
        """Send new probes at once."""
        self._wake.set()

    async def run(self) -> None:
        """Send probes until cancelled."""
        loop = asyncio.get_running_loop()
        round_at = 0.0
        while True:
            interval = self._interval()
            if interval > 0:
                needed = set(self._needed())
                self._known = {p: ok for p, ok in self._known.items() if p in needed}
                due = needed if loop.time() >= round_at else needed - self._known.keys()
                if due is needed:
                    round_at = loop.time() + interval
                await self._ask_all(due)
            # Without an interval there is nothing to do before a change of the settings.
            wait = max(0.01, min(interval, round_at - loop.time())) if interval > 0 else None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), wait)
                await asyncio.sleep(_GATHER)
            self._wake.clear()

    async def _ask_all(self, probes: Iterable[Probe]) -> None:
        slots = asyncio.Semaphore(_AT_ONCE)

        async def ask(probe: Probe) -> None:
            async with slots:
                self._known[probe] = await _answers(probe)

        await asyncio.gather(*(ask(probe) for probe in probes))


async def _answers(probe: Probe) -> bool:
    try:
        async with asyncio.timeout(_TIMEOUT):
            reader, writer = await asyncio.open_connection(probe.address, probe.port)
            try:
                if not probe.path:
                    return True
                writer.write(
                    f"GET {probe.path} HTTP/1.1\r\nHost: {probe.address}:{probe.port}\r\n"
                    "User-Agent: simulated-cloud\r\nConnection: close\r\n\r\n".encode()
                )
                status = (await reader.readline()).split()
                return len(status) > 1 and status[1][:1] in {b"2", b"3"}
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
