"""Which of several Services that name one object begins to use it."""

import pytest

from proreus.cloudprovider.errors import CloudError, InvalidRequest, RetryAfter
from proreus.cloudprovider.first_come import OPEN, FirstCome


class Time:
    """Seconds of a clock that nobody sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def begin(first: FirstCome, uid: str, error: Exception | None = None) -> None:
    with first.begin(uid, "192.0.2.1"):
        if error is not None:
            raise error


def test_the_second_one_waits_for_the_first_one_alone() -> None:
    first = FirstCome(Time())
    with first.begin("a", "192.0.2.1"):
        with pytest.raises(RetryAfter, match="another Service"):
            begin(first, "b")
        with first.begin("b", "192.0.2.2"):
            pass
    begin(first, "b")


@pytest.mark.parametrize(
    ("error", "is_open"),
    [(InvalidRequest("x"), False), (CloudError("x"), True), (RetryAfter("x", after=1.0), True)],
)
def test_an_attempt_whose_outcome_is_open_counts_for_a_minute(
    error: CloudError, *, is_open: bool
) -> None:
    time = Time()
    first = FirstCome(time)
    with pytest.raises(type(error)):
        begin(first, "a", error)
    if is_open:
        time.now += OPEN - 1.0
        with pytest.raises(RetryAfter):
            begin(first, "b")
        begin(first, "a")
    begin(first, "b")


def test_an_attempt_that_is_never_repeated_counts_no_longer() -> None:
    time = Time()
    first = FirstCome(time)
    with pytest.raises(CloudError):
        begin(first, "a", CloudError("x"))
    time.now += OPEN
    begin(first, "b")
