"""List the threads that are not ours, and show what threads are doing."""

import sys
import threading
from collections.abc import Iterator
from pathlib import PurePath
from types import FrameType
from typing import Final

OURS: Final = "proreus"
"""The prefix of the names of our own threads."""

FRAMES: Final = 12
"""How many frames of a stack are named."""


def foreign() -> list[threading.Thread]:
    """Return the threads that a provider, or an SDK in it, started; the newest last."""
    main = threading.main_thread()
    return [
        thread
        for thread in threading.enumerate()
        if thread is not main and not thread.name.startswith(OURS)
    ]


def stack(thread: int) -> str:
    """Return a thread's frames without those of asyncio, the innermost first."""
    return " < ".join(
        f"{frame.f_code.co_qualname} ({PurePath(frame.f_code.co_filename).name}:{frame.f_lineno})"
        for frame in _frames(sys._current_frames().get(thread))  # noqa: SLF001 - the only way
    )


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    count = 0
    while frame is not None and count < FRAMES:
        if PurePath(frame.f_code.co_filename).parent.name != "asyncio":
            yield frame
            count += 1
        frame = frame.f_back
