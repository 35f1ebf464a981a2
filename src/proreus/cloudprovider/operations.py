"""Wait for operations or jobs with which a cloud answers a change."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from proreus.cloudprovider.load_balancers import Pending

T = TypeVar("T")

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 10.0
"""Seconds between two requests about an operation; each pause is twice the one before."""


async def finished(
    poll: Callable[[], Awaitable[T | Pending]], *, patience: float = 0.0
) -> T | Pending:
    """Poll an operation until it is done, or until that takes too long.

    Args:
        poll: Asks once. Returns the result, or `Pending` with the seconds that the cloud asks to
            wait, or 0 where it does not say. Raises the error that the operation ended with.
        patience: Seconds to wait at most. With 0 the operation is asked about once: a verb that
            answers `Pending` is called again, and its place is free for others meanwhile.

    Returns:
        The result, or `Pending` with the next pause.

    Raises:
        CloudError: `poll` raised this error.
    """
    loop = asyncio.get_running_loop()
    end, pause = loop.time() + patience, FIRST_PAUSE
    while isinstance(answer := await poll(), Pending):
        wait = max(answer.after, pause)
        if loop.time() + wait > end:
            return msgspec.structs.replace(answer, after=wait)
        await asyncio.sleep(wait)
        pause = min(2 * pause, LONGEST_PAUSE)
    return answer
