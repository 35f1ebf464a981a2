"""Virtual time for tests: an event loop whose clock jumps to the next timer when all is idle.

    @virtual_time
    async def test_gives_up_after_an_hour():
        ...                            # sleeps and timeouts of hours pass in milliseconds

Time stands still while anything is ready to run, so results do not depend on the machine. The
loop knows no more than itself: it does not wait for threads or for other processes before it
jumps. Sockets within the process work, since loopback delivers at once.
"""

import asyncio
import functools
import math
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Deadlock(Exception):
    """The error that no timer is set and nothing happens: the test would hang for ever."""


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that moves the clock to the next timer instead of sleeping until then."""

    def __init__(self, now: float, deadlock_after: float) -> None:
        super().__init__()
        self.now = now
        self._deadlock_after = deadlock_after

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the ready file objects.

        `timeout` is None without timers, 0 if a callback waits.
        """
        if timeout is None:
            events = super().select(self._deadlock_after)
            if not events:
                raise Deadlock("no timer is set, and no I/O or thread has woken the loop")
            return events
        events = super().select(0)
        if not events:
            self.now += max(timeout, 0.0)
        return events


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop with virtual time, which starts at `start` seconds.

    Without a timer, and with no I/O for `deadlock_after` real seconds, it raises `Deadlock`.
    """

    def __init__(self, start: float = 0.0, *, deadlock_after: float = 30.0) -> None:
        """Set the clock to `start`."""
        self._jumping = _JumpingSelector(start, deadlock_after)
        super().__init__(self._jumping)

    @property
    def _clock_resolution(self) -> float:
        """The time by which asyncio runs a timer early: none, or time could stand still.

        While timers that ran early are set anew, by those who look at the clock, something is
        ready all the time.
        """
        return math.ulp(self._jumping.now)

    @_clock_resolution.setter
    def _clock_resolution(self, _: float) -> None:
        """The time by which asyncio runs a timer early: none, or time could stand still."""

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._jumping.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine in virtual time from 0 on, as `asyncio.run` does in real time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)


def virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Turn a coroutine function, such as an async test, into a plain one run in virtual time."""

    @functools.wraps(test)
    def run_test(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(test(*args, **kwargs))

    return run_test
