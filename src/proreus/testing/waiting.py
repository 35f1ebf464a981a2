"""Wait until a condition holds, with patience: a loaded machine is slow."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeVar, overload

T = TypeVar("T")

PATIENCE: Final = 60.0
"""Seconds to wait, unless told otherwise."""
PAUSE: Final = 0.05
"""Seconds between two attempts, unless told otherwise."""
# Looking must not slow down what is waited for.
_RELAXED: Final = 9.0
"""The least pause after an attempt, in the time that it took."""
_LATE: Final = 0.05
"""The least pause, in the time since the first attempt, up to `_LATEST`."""
_LATEST: Final = 0.5
"""Seconds."""


class NotInTime(TimeoutError):
    """The error that a condition did not come to hold in time; the message names it."""


@overload
async def until(
    what: str,
    attempt: Callable[[], Awaitable[T | None]],
    patience: float = PATIENCE,
    *,
    pause: float = PAUSE,
) -> T: ...


@overload
async def until(
    what: str, attempt: Callable[[], T | None], patience: float = PATIENCE, *, pause: float = PAUSE
) -> T: ...


async def until(
    what: str, attempt: Callable[[], Any], patience: float = PATIENCE, *, pause: float = PAUSE
) -> Any:
    """Try again and again until the attempt's answer is true, and return it.

    Args:
        what: A description of what is waited for, for the error.
        attempt: Looks once; a plain function or a coroutine function. A true result ends the
            waiting.
        patience: Seconds until this gives up.
        pause: Seconds between two attempts; more where an attempt takes long, or the waiting.

    Returns:
        The first answer that is true.

    Raises:
        NotInTime: No answer was true in time.
    """
    pauses = _pauses(what, time.monotonic(), patience, pause)
    while True:
        found = attempt()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        await asyncio.sleep(next(pauses))


def block_until(
    what: str, attempt: Callable[[], T | None], patience: float = PATIENCE, *, pause: float = PAUSE
) -> T:
    """Do as `until`, but block this thread meanwhile.

    Raises:
        NotInTime: No answer was true in time.
    """
    pauses = _pauses(what, time.monotonic(), patience, pause)
    while not (found := attempt()):
        time.sleep(next(pauses))
    return found


def _pauses(what: str, begun: float, patience: float, pause: float) -> Iterator[float]:
    """Yield the seconds to sleep after each attempt; the first one has begun at `begun`."""
    attempt = begun
    while (now := time.monotonic()) < begun + patience:
        yield max(pause, _RELAXED * (now - attempt), min(_LATE * (now - begun), _LATEST))
        attempt = time.monotonic()
    raise NotInTime(f"not within {patience:.0f} s: {what}")
