"""Check the health of nodes again and again, and report when the answer changes."""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

import msgspec

from proreus.providers.local.config import HealthChecks
from proreus.providers.local.pings import Pinger
from proreus.providers.local.plan import Condition, Target

_GOOD: Final = range(200, 400)
_LONGEST_LINE: Final = 256
_AT_ONCE: Final = 200
_IN_DOUBT: Final = 0.5
"""Seconds that a machine may take that has left echoes unanswered."""


class Answer(msgspec.Struct, frozen=True):
    """The answer to one health check; `clear` if the node itself has said so."""

    condition: Condition
    clear: bool


class Streak(msgspec.Struct, frozen=True):
    """The number of unclear answers in a row, and the condition reported last."""

    reported: Condition | None = None
    failures: int = 0


def weighed(streak: Streak, answer: Answer, threshold: int) -> Streak:
    """Return the streak after one more answer, with what to report. Pure.

    What a node says itself counts at once: that it serves, or by a status of 503 that it does
    not. What may be the network's fault counts after `threshold` times in a row.
    """
    if answer.clear:
        return Streak(answer.condition)
    failures = streak.failures + 1
    if failures < threshold:
        return Streak(streak.reported, failures)
    return Streak(answer.condition, failures)


async def ask(target: Target, seconds: float) -> Answer:
    """Check once: HTTP, or only a TCP connection where the check has no path."""
    try:
        async with asyncio.timeout(seconds):
            status = await _status(target)
    except ConnectionRefusedError:
        # The machine lives, and what its kernel was told before may go on without kube-proxy.
        return Answer(Condition.REFUSING, clear=False)
    except (OSError, ValueError):
        return Answer(Condition.SILENT, clear=False)
    return Answer(Condition.SERVING if status in _GOOD else Condition.REFUSING, clear=True)


async def _status(target: Target) -> int:
    check = target.check
    reader, writer = await asyncio.open_connection(
        target.address, check.port, limit=_LONGEST_LINE
    )  # fmt: skip
    try:
        if not check.path:
            return _GOOD.start
        host = f"[{target.address}]" if ":" in target.address else target.address
        writer.write(
            f"GET {check.path} HTTP/1.1\r\nHost: {host}:{check.port}\r\n"
            "User-Agent: proreus\r\nConnection: close\r\n\r\n".encode()
        )
        await writer.drain()
        line = await reader.readline()
        return int(line.split()[1]) if line.startswith(b"HTTP/") else 0
    except IndexError:
        return 0
    finally:
        writer.transport.abort()  # nothing is left to say, and no port waits


class Checker:
    """A checker of all targets, each at its own time; one that is in doubt, at once."""

    def __init__(self, settings: HealthChecks, report: Callable[[Target, Condition], None]) -> None:
        """Keep `report`, which is called with the first answer of each target and each change."""
        self._interval = settings.interval.total_seconds()
        self._timeout = settings.timeout.total_seconds()
        self._threshold = settings.threshold
        self._report = report
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._tasks: dict[Target, asyncio.Task[None]] = {}
        self._pauses: dict[Target, asyncio.Event] = {}
        self._doubtful: frozenset[str] = frozenset()
        self._pinger = Pinger(settings.ping.total_seconds(), self._doubt)

    def watch(self, targets: Collection[Target]) -> None:
        """Check these targets from now on, new ones at once, and no others."""
        for target in self._tasks.keys() - set(targets):
            self._tasks.pop(target).cancel()
        for target in targets:
            if target not in self._tasks:
                self._tasks[target] = asyncio.create_task(self._ask_on(target))
        self._pinger.watch({target.address for target in targets})

    async def close(self) -> None:
        """Stop all checks."""
        tasks = [*self._tasks.values()]
        self.watch(())
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._pinger.close()

    def _doubt(self, addresses: frozenset[str]) -> None:
        """Ask at once what is at addresses that have become silent, or answer again."""
        changed = addresses ^ self._doubtful
        self._doubtful = addresses
        for target, ended in self._pauses.items():
            if target.address in changed:
                ended.set()

    async def _ask_on(self, target: Target) -> None:
        streak = Streak()
        while True:
            seconds = self._timeout
            if target.address in self._doubtful:
                seconds = min(seconds, _IN_DOUBT)
            async with self._slots:
                answer = await ask(target, seconds)
            is_dead = answer.condition is Condition.SILENT and target.address in self._doubtful
            threshold = 1 if is_dead else self._threshold
            before, streak = streak.reported, weighed(streak, answer, threshold)
            if streak.reported is not None and streak.reported is not before:
                self._report(target, streak.reported)
            await self._pause(target)

    async def _pause(self, target: Target) -> None:
        """Wait for the interval, or until the machine's echoes change."""
        self._pauses[target] = ended = asyncio.Event()
        try:
            async with asyncio.timeout(self._interval):
                await ended.wait()
        except TimeoutError:
            pass
        finally:
            self._pauses.pop(target, None)
