"""Print what happens, line by line, with the seconds since the start."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TextIO, TypeVar

from proreus.testing.waiting import until

T = TypeVar("T")

QUIET_PROGRESS = 10.0


class Narrator:
    """A writer of lines to `out`; on a terminal, progress stays on one line."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        """Start the clock."""
        self._out = out
        self._start = time.monotonic()
        self._is_terminal = out.isatty()
        self._progress_said = 0.0
        self._is_open = False

    def say(self, text: str = "", *more: str) -> None:
        """Print a line with the time, and indented ones below it."""
        self._close_progress()
        print(f"{time.monotonic() - self._start:7.1f} s  {text}", file=self._out, flush=True)
        for line in more:
            print(f"           {line}", file=self._out, flush=True)

    def progress(self, text: str) -> None:
        """Print what is being waited for: rewritten in place, or now and then in a pipe."""
        if self._is_terminal:
            print(f"\r\033[K           {text}", end="", file=self._out, flush=True)
            self._is_open = True
        elif time.monotonic() - self._progress_said >= QUIET_PROGRESS:
            self._progress_said = time.monotonic()
            print(f"           {text}", file=self._out, flush=True)

    def _close_progress(self) -> None:
        if self._is_open:
            print("\r\033[K", end="", file=self._out)
            self._is_open = False

    async def until(
        self,
        what: str,
        attempt: Callable[[], Awaitable[T | None]],
        *,
        seconds: float = 60.0,
        progress: Callable[[], str] | None = None,
    ) -> T:
        """Try again and again until the answer of `attempt` is true.

        Raises:
            NotInTime: The answer was not true within `seconds`.
        """

        async def try_once() -> T | None:
            found = await attempt()
            if not found and progress is not None:
                self.progress(progress())
            return found

        return await until(what, try_once, seconds, pause=0.1)


@asynccontextmanager
async def running(*tasks: asyncio.Task[None]) -> AsyncIterator[None]:
    """Run tasks beside the block; cancel them at its end."""
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
