"""Report progress while something slow is done."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

Report: TypeAlias = Callable[[str], None]
"""Takes one line for the person who waits."""

PERIOD = 10.0
"""Seconds between two signs of life."""


def to_stderr(line: str) -> None:
    """Print a line of progress where it does not mix with a program's output."""
    print(f"control plane: {line}", file=sys.stderr, flush=True)


@asynccontextmanager
async def announced(report: Report, what: str) -> AsyncIterator[None]:
    """Report `what`, and every `PERIOD` seconds until the block ends how long it has taken."""
    report(what)
    begun = time.monotonic()

    async def tick() -> None:
        while True:
            await asyncio.sleep(PERIOD)
            report(f"{what}: {time.monotonic() - begun:.0f} s")

    ticking = asyncio.create_task(tick())
    try:
        yield
    finally:
        ticking.cancel()
