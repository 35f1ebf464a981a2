"""Takes the steps of a plan until there are none, or pretends to.

    observed = await converge(
        observed, lambda observed: plan(desired, observed), self._take, before=record.clear
    )
    steps, expected = foresee(observed, lambda observed: plan(desired, observed), pretend)

`ensure` does the first, `preview` the second, of one and the same plan: so a preview cannot say
anything else than what is done then.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from proreus.cloudprovider.errors import CloudError

Observed = TypeVar("Observed")
Step = TypeVar("Step")

MOST_ROUNDS: Final = 12
"""More than the longest way has: delete in three rounds, make in three."""

_ENDLESS: Final = (
    "the cloud still differs from what is desired after {} rounds of steps: it does not keep "
    "a change, or somebody else undoes it; compare `proreus plan` with the cloud's own log"
)


async def nothing() -> None:
    """Do nothing before the first step."""


async def converge(
    observed: Observed,
    steps: Callable[[Observed], Sequence[Step]],
    take: Callable[[Observed, Step], Awaitable[Callable[[Observed], Observed]]],
    *,
    before: Callable[[], Awaitable[None]] = nothing,
) -> Observed:
    """Take steps until none is left, those of a round side by side; return what there is then.

    Args:
        observed: What the cloud has.
        steps: Returns the steps to take next; pure.
        take: Takes one step; returns a function from what was observed before it to what is after.
        before: Called before each round, such as `Record.clear`; not if there is nothing to do.

    Raises:
        CloudError: A step failed; the others of its round are done. Or there is no end to them.
    """
    for _ in range(MOST_ROUNDS):
        next_steps = steps(observed)
        if not next_steps:
            return observed
        await before()
        # All run to their end, so that none is cut off in mid-call by another's failure.
        results = await asyncio.gather(
            *(take(observed, step) for step in next_steps), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result
            observed = result(observed)
    raise CloudError(_ENDLESS.format(MOST_ROUNDS))


def foresee(
    observed: Observed,
    steps: Callable[[Observed], Sequence[Step]],
    pretend: Callable[[Observed, Step], Observed],
    *,
    rounds: int = MOST_ROUNDS,
) -> tuple[tuple[Step, ...], Observed]:
    """Return the steps that `converge` would take, in its order, and what there would be then.

    Pure.

    Args:
        observed: What the cloud has.
        steps: Returns the steps to take next; pure.
        pretend: Returns what there is after a step, as far as that can be known before it; pure.
            What only the cloud chooses, such as the id of a new part, gets a value that says so.
        rounds: How often there may be steps; more than `MOST_ROUNDS` where each round is one step.

    Raises:
        CloudError: There is no end to them.
    """
    foreseen: list[Step] = []
    for _ in range(rounds):
        next_steps = steps(observed)
        if not next_steps:
            return tuple(foreseen), observed
        foreseen += next_steps
        for step in next_steps:
            observed = pretend(observed, step)
    raise CloudError(_ENDLESS.format(rounds))
