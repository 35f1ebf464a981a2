"""Show what the process is doing: CPU time, tasks, memory."""

import asyncio
import gc
import signal
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath
from types import CoroutineType, FrameType
from typing import Any, Final

from proreus.runtime import threads

INTERVAL: Final = 0.01
"""Seconds of CPU time between two samples of the profiler, as Go's."""

TOP: Final = 50
"""How many lines a memory report has."""


async def profile(seconds: float) -> str:
    """Profile where the main thread, which runs the event loop, spends its CPU time.

    A signal looks, and no thread: that would see the loop only where it lets other threads run.
    One profile at a time: there is one timer in a process.

    Returns:
        Collapsed stacks, as flame graph tools read them: `outer;inner COUNT` a line.
    """
    counts: Counter[str] = Counter()

    def look(_: int, frame: FrameType | None) -> None:
        counts[_collapsed(frame)] += 1

    signal.signal(signal.SIGPROF, look)
    signal.siginterrupt(signal.SIGPROF, False)  # noqa: FBT003 - spare C code its EINTR
    signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
    try:
        await asyncio.sleep(seconds)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        # Not the default, which ends the process: one signal may still be under way.
        signal.signal(signal.SIGPROF, signal.SIG_IGN)
    return "".join(f"{stack} {count}\n" for stack, count in counts.most_common())


def _collapsed(frame: FrameType | None) -> str:
    names: list[str] = []
    while frame is not None:
        code = frame.f_code
        names.append(f"{code.co_qualname} ({PurePath(code.co_filename).name}:{frame.f_lineno})")
        frame = frame.f_back
    return ";".join(reversed(names)).replace("\n", " ")


def tasks_and_threads() -> str:
    """List each task with what it awaits, outermost first, then each thread's stack."""
    lines = [f"{len(asyncio.all_tasks())} tasks"]
    for task in sorted(asyncio.all_tasks(), key=asyncio.Task.get_name):
        lines.append(f"\n{task.get_name()}:")
        lines += (f"    {place}" for place in _awaited(task.get_coro()))
    lines.append(f"\n{threading.active_count()} threads")
    lines += (
        f"\n{thread.name}{' (daemon)' if thread.daemon else ''}:\n"
        f"    {threads.stack(thread.ident or 0)}"
        for thread in threading.enumerate()
    )
    return "\n".join(lines) + "\n"


def _awaited(awaitable: object) -> Iterator[str]:
    """Return the chain of coroutines from a task's own down to what it waits for."""
    while isinstance(awaitable, CoroutineType):
        code = awaitable.cr_code
        line = awaitable.cr_frame.f_lineno if awaitable.cr_frame else code.co_firstlineno
        yield f"{code.co_qualname} ({PurePath(code.co_filename).name}:{line})"
        awaitable = awaitable.cr_await
    if awaitable is not None:
        yield type(awaitable).__qualname__


async def memory() -> str:
    """Count the objects of each type; with tracemalloc on, list what allocated most.

    It is counted in a thread, but holds up the loop now and then: Python runs one at a time.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[str] = loop.create_future()

    def set_found(text: str) -> None:
        if not found.done():
            found.set_result(text)

    def work() -> None:
        loop.call_soon_threadsafe(set_found, _memory())

    threading.Thread(target=work, name="proreus-memory", daemon=True).start()
    return await found


def _memory() -> str:
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for one in gc.get_objects():
        kind: type[Any] = type(one)
        name = f"{kind.__module__}.{kind.__qualname__}"
        counts[name] += 1
        sizes[name] += sys.getsizeof(one, 0)
    lines = [f"{sum(counts.values())} tracked objects of {len(counts)} types", "count bytes type"]
    lines += (f"{counts[name]} {size} {name}" for name, size in sizes.most_common(TOP))
    if tracemalloc.is_tracing():
        lines.append("\nallocations by line")
        lines += map(str, tracemalloc.take_snapshot().statistics("lineno")[:TOP])
    else:
        lines.append("\nstart it with PYTHONTRACEMALLOC=1 to see allocations by line")
    return "\n".join(lines) + "\n"
