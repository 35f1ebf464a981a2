"""What is waited for is given back, and what does not come is named."""

from collections.abc import Callable, Iterator

import pytest

from proreus.testing.waiting import NotInTime, block_until, until

QUICK = 0.001


def answers(*given: str) -> Callable[[], str]:
    """One answer after another; the last one again and again."""
    left: Iterator[str] = iter(given)
    last = given[-1]
    return lambda: next(left, last)


async def test_the_first_true_answer_is_given_back() -> None:
    plain = answers("", "", "here", "too late")

    async def coroutine() -> str | None:
        return slow() or None

    slow = answers("", "here", "too late")
    assert await until("it", plain, pause=QUICK) == "here"
    assert await until("it", coroutine, pause=QUICK) == "here"
    assert block_until("it", answers("", "here"), pause=QUICK) == "here"


async def test_what_does_not_come_is_named() -> None:
    with pytest.raises(NotInTime, match="not within 0 s: the moon"):
        await until("the moon", answers(""), 0.01, pause=QUICK)
    with pytest.raises(NotInTime, match="not within 0 s: the moon"):
        block_until("the moon", answers(""), 0.01, pause=QUICK)


async def test_an_error_of_the_attempt_is_not_waited_for() -> None:
    def fail() -> str:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await until("it", fail)
