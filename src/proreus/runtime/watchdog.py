"""Notice when the event loop is blocked, and name the code that blocks it.

One function that computes or waits without `await` stops everything: leader election, health and
all other keys. Nothing within the process can end it, but it can be named. A function that does
not let other threads run either (a C extension that keeps the GIL) is named once it does.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from proreus.runtime import klog, metrics, threads

log = klog.logger(__name__)

PATIENCE: Final = 1.0
"""Seconds without a tick after which the loop counts as blocked."""

_STEP: Final = 0.25


@asynccontextmanager
async def watched(patience: float = PATIENCE) -> AsyncIterator[None]:
    """Watch the running loop while the body runs."""
    watchdog = _Watchdog(asyncio.get_running_loop(), threading.get_ident(), patience)
    watchdog.start()
    try:
        yield
    finally:
        watchdog.stop()


class _Watchdog:
    """A daemon thread that asks the loop for a sign of life, again and again."""

    def __init__(self, loop: asyncio.AbstractEventLoop, thread: int, patience: float) -> None:
        self._loop = loop
        self._watched = thread
        self._patience = patience
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="proreus-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(self._patience):
            ticked = threading.Event()
            try:
                self._loop.call_soon_threadsafe(ticked.set)
            except RuntimeError:  # the loop is closed: the process ends
                return
            if not self._is_well(ticked):
                self._blocked(ticked)

    def _is_well(self, ticked: threading.Event) -> bool:
        """Wait for the tick in small steps: a pause of the whole process counts as one step."""
        return any(ticked.wait(_STEP) for _ in range(max(1, round(self._patience / _STEP))))

    def _blocked(self, ticked: threading.Event) -> None:
        began = time.monotonic() - self._patience
        stack = threads.stack(self._watched)
        klog.error(log, "The event loop is blocked; nothing else runs", by=stack)
        ticked.wait()
        seconds = time.monotonic() - began
        metrics.LOOP_BLOCKED.inc(seconds)
        klog.warning(log, "The event loop was blocked", seconds=round(seconds, 1), by=stack)
