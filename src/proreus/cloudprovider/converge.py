"""Takes the steps of a plan until there are none.

actual = await converge(actual, lambda now: plan(wish, now), self._take)
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from proreus.cloudprovider.errors import CloudError

Actual = TypeVar("Actual")
Step = TypeVar("Step")

MOST_ROUNDS: Final = 12
"""More than the longest way has: delete in three rounds, make in three."""


async def converge(
    actual: Actual,
    steps: Callable[[Actual], Sequence[Step]],
    take: Callable[[Actual, Step], Awaitable[Callable[[Actual], Actual]]],
) -> Actual:
    """Take steps, those of a round side by side; what there is in the end.

    Args:
        actual: What there is.
        steps: What is to be done next; pure.
        take: Takes one step; answers how what there is differs then.

    Raises:
        CloudError: A step failed; the others of its round are done. Or there is no end to them.
    """
    for _ in range(MOST_ROUNDS):
        now = steps(actual)
        if not now:
            return actual
        # All run to their end, so that none is cut off in mid-call by another's failure.
        results = await asyncio.gather(
            *(take(actual, step) for step in now), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
            actual = result(actual)
    raise CloudError("the cloud does not keep what it is told: the plan never becomes empty")
