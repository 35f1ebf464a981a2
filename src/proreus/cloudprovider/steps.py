"""Takes the steps of a plan until there are none, or pretends to.

    actual = await converge(actual, lambda now: plan(desired, now), self._take, before=record.clear)
    steps, then = foresee(actual, lambda now: plan(desired, now), pretend)

`ensure` does the first, `preview` the second, of one and the same plan: so a preview cannot say
anything else than what is done then.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from proreus.cloudprovider.errors import CloudError

Actual = TypeVar("Actual")
Step = TypeVar("Step")

MOST_ROUNDS: Final = 12
"""More than the longest way has: delete in three rounds, make in three."""

_ENDLESS: Final = "the cloud does not keep what it is told: the plan never becomes empty"


async def nothing() -> None:
    """Do nothing before the first step."""


async def converge(
    actual: Actual,
    steps: Callable[[Actual], Sequence[Step]],
    take: Callable[[Actual, Step], Awaitable[Callable[[Actual], Actual]]],
    *,
    before: Callable[[], Awaitable[None]] = nothing,
) -> Actual:
    """Take steps, those of a round side by side; what there is in the end.

    Args:
        actual: What there is.
        steps: What is to be done next; pure.
        take: Takes one step; answers how what there is differs then.
        before: Called before each round, such as `Record.clear`; not if there is nothing to do.

    Raises:
        CloudError: A step failed; the others of its round are done. Or there is no end to them.
    """
    for _ in range(MOST_ROUNDS):
        now = steps(actual)
        if not now:
            return actual
        await before()
        # All run to their end, so that none is cut off in mid-call by another's failure.
        results = await asyncio.gather(
            *(take(actual, step) for step in now), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
            actual = result(actual)
    raise CloudError(_ENDLESS)


def foresee(
    actual: Actual,
    steps: Callable[[Actual], Sequence[Step]],
    pretend: Callable[[Actual, Step], Actual],
    *,
    rounds: int = MOST_ROUNDS,
) -> tuple[tuple[Step, ...], Actual]:
    """The steps that `converge` would take, in its order, and what there would be then. Pure.

    Args:
        actual: What there is.
        steps: What is to be done next; pure.
        pretend: What there is after a step, as far as that can be known before it; pure. What only
            the cloud chooses, such as the id of a new part, gets a value that says so.
        rounds: How often there may be steps; more than `MOST_ROUNDS` where each round is one step.

    Raises:
        CloudError: There is no end to them.
    """
    found: list[Step] = []
    for _ in range(rounds):
        now = steps(actual)
        if not now:
            return tuple(found), actual
        found += now
        for step in now:
            actual = pretend(actual, step)
    raise CloudError(_ENDLESS)
