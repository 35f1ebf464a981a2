"""A provider's work in the background is begun again, whatever it raises, and ends with it."""

import asyncio
import itertools
import logging

import pytest

from proreus.cloudprovider import Background, CloudError
from proreus.runtime import metrics
from proreus.testing.clock import virtual_time


def crashes(task: str) -> float:
    return metrics.REGISTRY.get_sample_value("proreus_crashes_total", {"task": task}) or 0.0


class Work:
    """Raises these in turn, and then goes on for ever."""

    def __init__(self, *raised: BaseException) -> None:
        self.left = list(raised)
        self.begun: list[float] = []
        self.was_cancelled = False

    async def __call__(self) -> None:
        self.begun.append(asyncio.get_running_loop().time())
        if self.left:
            raise self.left.pop(0)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise


@virtual_time
async def test_a_cloud_that_fails_is_asked_again_ever_later_and_that_is_no_crash() -> None:
    work = Work(*(CloudError("away") for _ in range(9)))
    background = Background("tiny-away", work)
    await asyncio.sleep(1000)
    gaps = [after - before for before, after in itertools.pairwise(work.begun)]
    assert len(gaps) == 9
    assert 0.5 <= gaps[0] <= 1.0
    assert 30.0 <= gaps[-1] <= 60.0
    assert crashes("tiny-away") == 0
    await background.close()
    assert work.was_cancelled


@pytest.mark.parametrize(
    "raised", [ValueError("wrong"), SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError()]
)
def test_any_other_exception_is_a_crash_after_which_it_goes_on(
    raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"tiny-{type(raised).__name__}"

    @virtual_time
    async def play() -> None:
        work = Work(raised)
        background = Background(name, work)
        await asyncio.sleep(10)
        assert len(work.begun) == 2
        assert crashes(name) == 1
        await background.close()

    with caplog.at_level(logging.CRITICAL):
        play()


@virtual_time
async def test_work_that_does_not_end_is_left_behind() -> None:
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue

    background = Background("tiny-stubborn", stubborn)
    await asyncio.sleep(1)
    async with asyncio.timeout(5):
        await background.close()
    release.set()


@virtual_time
async def test_work_that_needs_longer_to_tidy_up_gets_the_time_that_it_asks_for() -> None:
    tidied = False

    async def slow() -> None:
        nonlocal tidied
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(3)
            tidied = True

    background = Background("tiny-slow", slow, grace=4.0)
    await asyncio.sleep(1)
    await background.close()
    assert tidied
