"""Virtual time for tests: an event loop whose clock jumps to the next timer when all is idle.

    def test_retries_for_an_hour():
        clock.run(scenario())          # hours of sleep() and timeouts pass in milliseconds

Time stands still while anything is ready to run, so results do not depend on the machine. The
loop knows no more than itself: it does not wait for threads or for other processes before it
jumps. Sockets within the process work, since loopback delivers at once.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

DEADLOCK_SECONDS = 30.0
"""Real seconds after which a loop without timers and without I/O counts as deadlocked."""


class Deadlock(Exception):
    """No timer is set and nothing happened: the test would hang for ever."""


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of sleeping until the next timer, moves `now` there."""

    def __init__(self, now: float) -> None:
        super().__init__()
        self.now = now

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready; `timeout` is None without timers, and 0 when a callback is ready."""
        if timeout is None:
            events = super().select(DEADLOCK_SECONDS)
            if not events:
                raise Deadlock("no timer is set, and no I/O or thread has woken the loop")
            return events
        events = super().select(0)
        if not events:
            self.now += max(timeout, 0.0)
        return events


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop with virtual time, which starts at `start` seconds."""

    def __init__(self, start: float = 0.0) -> None:
        """Start the clock; nothing runs yet."""
        self._jumping = _JumpingSelector(start)
        super().__init__(self._jumping)

    def time(self) -> float:
        """The virtual time in seconds."""
        return self._jumping.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine in virtual time from 0 on, as `asyncio.run` does in real time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
