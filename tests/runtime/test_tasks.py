import asyncio
import itertools
import logging

import pytest

from proreus.runtime import metrics
from proreus.runtime.backoff import Backoff
from proreus.runtime.tasks import supervise
from proreus.testing.clock import virtual_time

BACKOFF = Backoff(first=1, cap=8)


class Flaky:
    """Crashes after the given run times, one after the other; then runs for ever."""

    def __init__(self, *run_times: float) -> None:
        self.run_times = list(run_times)
        self.starts: list[float] = []
        self.told: list[tuple[float, str | None]] = []

    async def run(self) -> None:
        self.starts.append(asyncio.get_running_loop().time())
        if not self.run_times:
            await asyncio.Event().wait()
        await asyncio.sleep(self.run_times.pop(0))
        raise OSError("crashed")

    def on_crash(self, exc: Exception | None) -> None:
        self.told.append((asyncio.get_running_loop().time(), None if exc is None else str(exc)))


async def supervised_for(seconds: float, flaky: Flaky) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds):
            await supervise("flaky", flaky.run, backoff=BACKOFF, on_crash=flaky.on_crash)


@virtual_time
async def test_a_crashed_task_starts_again_after_growing_delays() -> None:
    flaky = Flaky(0, 0, 0)
    await supervised_for(100, flaky)
    assert flaky.starts == [0, 1, 3, 7]


@virtual_time
async def test_it_counts_as_recovered_once_it_has_run_for_the_cap() -> None:
    flaky = Flaky(0, 20, 0)
    await supervised_for(100, flaky)
    # Crash at 0, start at 1, recovered at 9; crash at 21, counted anew: starts at 22 and 24.
    assert flaky.starts == [0, 1, 22, 24]
    assert flaky.told == [
        (0, "crashed"), (9, None), (21, "crashed"), (22, "crashed"), (32, None),
    ]  # fmt: skip


@virtual_time
async def test_a_task_that_returns_has_ended() -> None:
    runs = 0

    async def once() -> None:
        nonlocal runs
        runs += 1

    await supervise("once", once, backoff=BACKOFF, on_crash=lambda _: None)
    assert runs == 1


@virtual_time
async def test_a_cancellation_that_nobody_asked_for_is_a_crash() -> None:
    told: list[Exception | None] = []
    runs = 0

    async def cancelled_once() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise asyncio.CancelledError

    await supervise("stray", cancelled_once, backoff=BACKOFF, on_crash=told.append)
    assert runs == 2
    assert [type(exc) for exc in told] == [RuntimeError, type(None)]


@virtual_time
async def test_cancelling_the_supervisor_ends_the_task() -> None:
    flaky = Flaky()
    task = asyncio.create_task(
        supervise("flaky", flaky.run, backoff=BACKOFF, on_crash=flaky.on_crash)
    )
    await asyncio.sleep(5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert flaky.starts == [0]
    assert not flaky.told


@virtual_time
async def test_an_expected_failure_is_a_warning_and_no_crash(
    caplog: pytest.LogCaptureFixture,
) -> None:
    flaky = Flaky(0, 0, 20, 0)

    async def run() -> None:
        await supervise(
            "away", flaky.run, backoff=BACKOFF, on_crash=flaky.on_crash, expected=(OSError,)
        )

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(100):
            await run()
    assert flaky.starts == [0, 1, 3, 24, 26], "as after crashes, counted anew after the cap"
    assert {error for _, error in flaky.told} == {None}
    assert {one.levelno for one in caplog.records} == {logging.WARNING}
    assert metrics.REGISTRY.get_sample_value("proreus_crashes_total", {"task": "away"}) is None


@virtual_time
async def test_chance_takes_away_of_the_delay_what_the_jitter_allows() -> None:
    flaky = Flaky(*[0] * 20)
    jittery = Backoff(first=8, cap=8, jitter=0.5)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1000):
            await supervise("jittery", flaky.run, backoff=jittery, on_crash=flaky.on_crash)
    gaps = [after - before for before, after in itertools.pairwise(flaky.starts)]
    assert all(4 <= gap <= 8 for gap in gaps)
    assert len(set(gaps)) > 1
