"""Operations that take their time, in virtual time."""

import asyncio

import pytest

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.load_balancers import Pending
from proreus.cloudprovider.operations import finished
from proreus.testing import clock


class Operation:
    """Is done after so many seconds; `asked` are the times at which it was asked about."""

    def __init__(self, seconds: float, after: float = 0.0) -> None:
        self.seconds = seconds
        self.after = after
        self.asked: list[float] = []

    async def poll(self) -> str | Pending:
        self.asked.append(asyncio.get_running_loop().time())
        if self.asked[-1] - self.asked[0] >= self.seconds:
            return "made"
        return Pending(self.after, "being made")


def played(operation: Operation, patience: float) -> tuple[str | Pending, list[float]]:
    answer = clock.run(finished(operation.poll, patience=patience))
    return answer, [time - operation.asked[0] for time in operation.asked]


def test_what_is_done_at_once_costs_one_request() -> None:
    assert played(Operation(0), patience=0) == ("made", [0])


def test_without_patience_the_verb_answers_pending_after_one_request() -> None:
    assert played(Operation(60, after=15), patience=0) == (Pending(15, "being made"), [0])
    assert played(Operation(60), patience=0) == (Pending(0.5, "being made"), [0])


def test_pauses_grow_up_to_the_longest() -> None:
    answer, times = played(Operation(30), patience=100)
    assert answer == "made"
    assert times == pytest.approx([0, 0.5, 1.5, 3.5, 7.5, 15.5, 25.5, 35.5])


def test_the_clouds_own_pause_counts_if_it_is_longer() -> None:
    assert played(Operation(30, after=20), patience=100)[1] == pytest.approx([0, 20, 40])


def test_where_patience_ends_the_next_pause_is_answered() -> None:
    answer, times = played(Operation(60), patience=4)
    assert answer == Pending(4.0, "being made")
    assert times == pytest.approx([0, 0.5, 1.5, 3.5])


async def test_the_error_of_the_operation_is_raised() -> None:
    async def poll() -> str | Pending:
        raise CloudError("no quota")

    with pytest.raises(CloudError, match="no quota"):
        await finished(poll, patience=60)
