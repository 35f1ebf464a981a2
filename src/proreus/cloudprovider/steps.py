"""Take the steps of a plan until there are none, or pretend to.

    observed = await converge(
        observed, lambda observed: plan(desired, observed), self._take, before=record.clear
    )
    lines, expected = preview_plan(observed, lambda observed: plan(desired, observed))

`ensure` does the first, `preview` the second, of one and the same plan: so a preview cannot say
anything else than what is done then. A plan yields `PlannedCall`s, which say in one place what each
step calls, what there is after it, and how a preview shows it. A cloud whose calls take minutes
takes one round with `take_round`, and answers `Pending`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.load_balancers import PartChange

Observed = TypeVar("Observed")
Step = TypeVar("Step")
Call = TypeVar("Call")

MOST_ROUNDS: Final = 12
"""The most rounds of steps: the longest way deletes in three and makes in three."""

_ENDLESS: Final = (
    "the cloud still differs from what is desired after {} rounds of steps: it does not keep "
    "a change, or somebody else undoes it; compare `proreus plan` with the cloud's own log"
)


class PlannedCall(msgspec.Struct, Generic[Call, Observed], frozen=True):
    """A step as a value: one call of the cloud, its effect, and its lines in `proreus plan`.

    Attributes:
        call: The call in the cloud's own form, such as a `Request`: plain data, which tests
            compare.
        after: Returns the state after the call from the state observed before it, as far as it can
            be known without the answer. Pure. A value that only the cloud chooses, such as the id
            of a new part, is replaced by one that says so.
        lines: The lines that `proreus plan` shows of the step.
    """

    call: Call
    after: Callable[[Observed], Observed]
    lines: tuple[PartChange, ...] = ()


async def nothing() -> None:
    """Do nothing: the default for what `converge` awaits before its first step."""


async def converge(
    observed: Observed,
    steps: Callable[[Observed], Sequence[Step]],
    take: Callable[[Observed, Step], Awaitable[Callable[[Observed], Observed]]],
    *,
    before: Callable[[], Awaitable[None]] = nothing,
) -> Observed:
    """Take steps until the plan has none, those of a round side by side; return the new state.

    Args:
        observed: The observed state in the cloud.
        steps: Returns the steps to take next. Pure.
        take: Takes one step; returns a function from the state observed before it to the state
            after it.
        before: Called before the first round, and before each other one, such as `Record.clear`;
            not called if there is nothing to do.

    Raises:
        CloudError: A step failed, after the others of its round were done; or the steps do not end.
    """
    for _ in range(MOST_ROUNDS):
        next_steps = steps(observed)
        if not next_steps:
            return observed
        await before()
        observed = await take_round(observed, next_steps, take)
    raise CloudError(_ENDLESS.format(MOST_ROUNDS))


async def take_round(
    observed: Observed,
    steps: Sequence[Step],
    take: Callable[[Observed, Step], Awaitable[Callable[[Observed], Observed]]],
) -> Observed:
    """Take the steps of one round side by side; return the new state.

    For a cloud that answers before its work is done: plan, take one round, answer `Pending`.

    Args:
        observed: The observed state in the cloud.
        steps: The steps of the round.
        take: As for `converge`.

    Raises:
        CloudError: A step failed, after the others were done.
    """
    # All run to their end, so that none is cut off in mid-call by another's failure.
    results = await asyncio.gather(
        *(take(observed, step) for step in steps), return_exceptions=True
    )
    for result in results:
        if isinstance(result, BaseException):
            raise result
        observed = result(observed)
    return observed


def foresee(
    observed: Observed,
    steps: Callable[[Observed], Sequence[Step]],
    pretend: Callable[[Observed, Step], Observed],
    *,
    rounds: int = MOST_ROUNDS,
) -> tuple[tuple[Step, ...], Observed]:
    """Return the steps that `converge` would take, in its order, and the state after them.

    Pure.

    Args:
        observed: The observed state in the cloud.
        steps: Returns the steps to take next. Pure.
        pretend: Returns the state after a step, as far as it can be known before it. Pure. A value
            that only the cloud chooses, such as the id of a new part, is replaced by one that says
            so.
        rounds: The most rounds of steps; more than `MOST_ROUNDS` where each round is one step.

    Raises:
        CloudError: The steps do not end.
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


def preview_plan(
    observed: Observed,
    steps: Callable[[Observed], Sequence[PlannedCall[Call, Observed]]],
    *,
    rounds: int = MOST_ROUNDS,
) -> tuple[tuple[PartChange, ...], Observed]:
    """Return the lines of the steps that `converge` would take, and the state after them.

    Pure.

    Args:
        observed: The observed state in the cloud.
        steps: Returns the steps to take next. Pure.
        rounds: The most rounds of steps; more than `MOST_ROUNDS` where each round is one step.

    Raises:
        CloudError: The steps do not end.
    """
    foreseen, expected = foresee(
        observed, steps, lambda observed, step: step.after(observed), rounds=rounds
    )
    return tuple(line for step in foreseen for line in step.lines), expected
