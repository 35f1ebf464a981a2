"""The adaptive bucket against simulated quotas, in virtual time: calls are counted, not timed."""

import asyncio
import math
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proreus.runtime.bucket import AGEING, MINIMUM_RATE, AdaptiveBucket
from proreus.runtime.priority import Priority
from proreus.testing import clock


class Quota:
    """A server's token bucket; counts the calls that it refuses."""

    def __init__(
        self, rate: float, burst: float, retry_after: Callable[[float], float | None]
    ) -> None:
        self.rate = rate
        self._burst = self.tokens = burst
        self._at = 0.0
        self._retry_after = retry_after
        self.refusals = 0

    def call(self) -> tuple[bool, float | None]:
        now = asyncio.get_running_loop().time()
        self.tokens = min(self._burst, self.tokens + (now - self._at) * self.rate)
        self._at = now
        if self.tokens < 1 - 1e-9:
            self.refusals += 1
            return False, self._retry_after((1 - self.tokens) / self.rate)
        self.tokens -= 1
        return True, None


RETRY_AFTER: dict[str, Callable[[float], float | None]] = {
    "none": lambda _: None,
    "exact": lambda wait: wait,
    "whole seconds": lambda wait: float(math.ceil(wait)),
}


async def crowd(
    bucket: AdaptiveBucket,
    quota: Quota,
    calls: int,
    *,
    workers: int = 64,
    latency: float = 0.02,
    priority: Priority = Priority.USER,
) -> float:
    """Make `calls` calls, each repeated until it is admitted; the seconds that took."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    left = iter(range(calls))

    async def worker() -> None:
        for _ in left:
            admitted = False
            while not admitted:
                grant = await bucket.take(priority)
                await asyncio.sleep(latency / 2)
                admitted, after = quota.call()
                await asyncio.sleep(latency / 2)
                if admitted:
                    bucket.succeeded()
                else:
                    bucket.refused(grant, after)

    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(worker())
    return loop.time() - start


@pytest.mark.parametrize("latency", [0.0, 0.005, 0.02, 0.1])
@pytest.mark.parametrize("retry_after", RETRY_AFTER)
def test_a_thousand_calls_of_64_workers_use_a_quota_of_20_with_hardly_a_refusal(
    retry_after: str, latency: float
) -> None:
    quota = Quota(20, 20, RETRY_AFTER[retry_after])
    took = clock.run(crowd(AdaptiveBucket(), quota, 1000, latency=latency))
    assert took <= 1.2 * 1000 / 20
    assert quota.refusals < 0.02 * 1000


@pytest.mark.parametrize("retry_after", RETRY_AFTER)
@pytest.mark.parametrize(("rate", "burst"), [(20, 100), (20, 5), (10, 20), (5, 5), (50, 50)])
def test_other_quotas_are_learned_as_well(rate: float, burst: float, retry_after: str) -> None:
    quota = Quota(rate, burst, RETRY_AFTER[retry_after])
    took = clock.run(crowd(AdaptiveBucket(), quota, 2000))
    assert took <= 1.2 * 2000 / rate
    assert quota.refusals < 0.025 * 2000


# Within 1.2 times what the quota itself takes. Whole seconds cost a quota of 100 more: each refusal
# is 100 calls, and where no burst is allowed, the first one comes before anything is known.
SHARES = {(100, 1, "whole seconds"): 1.35}


@pytest.mark.parametrize("retry_after", RETRY_AFTER)
@pytest.mark.parametrize("seconds", [0, 1, 10])
@pytest.mark.parametrize("rate", [5, 20, 100])
def test_two_thousand_calls_use_a_quota_whatever_its_burst(
    rate: int, seconds: int, retry_after: str
) -> None:
    burst = max(1, seconds * rate)
    quota = Quota(rate, burst, RETRY_AFTER[retry_after])
    took = clock.run(crowd(AdaptiveBucket(), quota, 2000))
    share = SHARES.get((rate, burst, retry_after), 1.2)
    assert took <= share * max((2000 - burst) / rate, 1.0)
    assert quota.refusals < 0.02 * 2000


@pytest.mark.parametrize("retry_after", RETRY_AFTER)
@pytest.mark.parametrize("rate", [5, 20])
def test_a_quota_that_somebody_has_used_up_before_is_learned(rate: float, retry_after: str) -> None:
    quota = Quota(rate, 10 * rate, RETRY_AFTER[retry_after])
    quota.tokens = 1.0
    took = clock.run(crowd(AdaptiveBucket(), quota, 2000))
    assert took <= 1.1 * 2000 / rate
    assert quota.refusals < 0.02 * 2000


@pytest.mark.parametrize("retry_after", RETRY_AFTER)
@pytest.mark.parametrize("rate", [5, 20])
def test_urgent_calls_overtake_a_crowd_that_meets_a_quota(rate: float, retry_after: str) -> None:
    async def scenario() -> list[float]:
        bucket, quota = AdaptiveBucket(), Quota(rate, rate, RETRY_AFTER[retry_after])
        refreshes = asyncio.create_task(
            crowd(bucket, quota, 1000, priority=Priority.RESYNC), name="refreshes"
        )
        waits = []
        for _ in range(20):
            await asyncio.sleep(2)
            waits.append(await crowd(bucket, quota, 1, workers=1, priority=Priority.USER))
        refreshes.cancel()
        await asyncio.wait([refreshes])
        return waits

    waits = sorted(clock.run(scenario()))
    # Of 64 refreshes in line none goes first; a refusal, and the pause that it asks for, do.
    assert waits[len(waits) // 2] <= 2 / rate + 0.1
    assert waits[-1] <= 3


@pytest.mark.parametrize("retry_after", ["none", "exact"])
@pytest.mark.parametrize(("rate", "burst"), [(50, 5), (100, 5)])
def test_a_quota_that_allows_hardly_a_burst_is_found_quickly(
    rate: float, burst: float, retry_after: str
) -> None:
    quota = Quota(rate, burst, RETRY_AFTER[retry_after])
    took = clock.run(crowd(AdaptiveBucket(), quota, 1000))
    assert took <= 1.3 * 1000 / rate
    assert quota.refusals < 0.02 * 1000


@settings(max_examples=25, deadline=None)
@given(
    rate=st.floats(2, 100),
    burst=st.floats(1, 200),
    latency=st.floats(0, 0.3),
    workers=st.integers(1, 64),
    retry_after=st.sampled_from(sorted(RETRY_AFTER)),
)
def test_any_quota_is_used_and_every_call_gets_through(
    rate: float, burst: float, latency: float, workers: int, retry_after: str
) -> None:
    quota = Quota(rate, burst, RETRY_AFTER[retry_after])
    took = clock.run(crowd(AdaptiveBucket(), quota, 500, workers=workers, latency=latency))
    alone = 500 / min(rate, workers / max(latency, 1e-3))
    assert took <= 4 * alone + 40
    assert quota.refusals <= 0.5 * 500


def test_a_single_caller_finds_the_quota_too() -> None:
    quota = Quota(34, 1, RETRY_AFTER["exact"])
    took = clock.run(crowd(AdaptiveBucket(), quota, 500, workers=1, latency=0.0))
    assert took <= 2 * 500 / 34


def test_nothing_is_limited_until_the_first_refusal() -> None:
    bucket = AdaptiveBucket()
    took = clock.run(crowd(bucket, Quota(1e6, 1e6, RETRY_AFTER["none"]), 2000))
    assert bucket.rate == math.inf
    # 2000 calls of 20 ms by 64 workers take 0.63 s; the first window may cost half as much again.
    assert took <= 1.5 * 2000 * 0.02 / 64


def test_calls_that_never_answer_do_not_hold_up_the_others() -> None:
    async def scenario() -> float:
        bucket = AdaptiveBucket()
        for _ in range(200):
            await bucket.take()
        return asyncio.get_running_loop().time()

    assert clock.run(scenario()) <= 20


def test_a_larger_quota_is_found_and_a_smaller_one_respected() -> None:
    async def scenario() -> tuple[float, float, int]:
        bucket, quota = AdaptiveBucket(), Quota(10, 10, RETRY_AFTER["none"])
        await crowd(bucket, quota, 500)
        quota.rate = 100
        await crowd(bucket, quota, 5000)
        found = bucket.rate
        quota.rate = 10
        await crowd(bucket, quota, 200)
        quota.refusals = 0
        await crowd(bucket, quota, 500)
        return found, bucket.rate, quota.refusals

    found, low, refusals = clock.run(scenario())
    assert 80 <= found <= 130
    assert 8 <= low <= 13
    assert refusals <= 0.02 * 500


def test_the_retry_after_of_the_server_is_kept() -> None:
    async def scenario() -> tuple[float, float]:
        bucket = AdaptiveBucket()
        bucket.refused(await bucket.take(), after=7.0)
        held = bucket.held_for
        await bucket.take()
        return held, asyncio.get_running_loop().time()

    assert clock.run(scenario()) == (7.0, 7.0)


def test_a_server_that_refuses_everything_is_still_asked_now_and_then() -> None:
    async def scenario() -> tuple[float, float]:
        bucket = AdaptiveBucket()
        for _ in range(100):
            bucket.refused(await bucket.take())
        rate, start = bucket.rate, asyncio.get_running_loop().time()
        await bucket.take()
        return rate, asyncio.get_running_loop().time() - start

    rate, waited = clock.run(scenario())
    assert rate == MINIMUM_RATE
    assert waited <= 1 / MINIMUM_RATE + 1e-6


def test_late_refusals_of_calls_sent_before_a_cut_do_not_cut_again() -> None:
    async def scenario() -> tuple[float, float]:
        bucket = AdaptiveBucket(initial_rate=100)
        grants = [await bucket.take() for _ in range(60)]
        bucket.refused(grants[0])
        once = bucket.rate
        for grant in grants[1:]:
            bucket.refused(grant)
        return once, bucket.rate

    once, after_all = clock.run(scenario())
    assert once == after_all


def test_a_refused_burst_shrinks_the_burst_and_keeps_the_rate() -> None:
    async def scenario() -> tuple[float, list[float]]:
        loop = asyncio.get_running_loop()
        bucket = AdaptiveBucket(initial_rate=20)
        await asyncio.sleep(10)
        grants = [await bucket.take() for _ in range(8)]
        bucket.refused(grants[1])
        rate = bucket.rate
        await asyncio.sleep(10)
        start, times = loop.time(), []
        for _ in range(8):
            await bucket.take()
            times.append(loop.time() - start)
        return rate, times

    rate, times = clock.run(scenario())
    assert rate == 20
    assert times[:5] == [0.0] * 5
    assert times[5] > 0


def test_a_burst_that_was_cut_grows_back_but_not_beyond_what_is_allowed() -> None:
    async def scenario() -> list[int]:
        loop = asyncio.get_running_loop()
        bucket = AdaptiveBucket(initial_rate=40, burst=12)
        bursts: list[int] = []
        for _ in range(30):
            await asyncio.sleep(60)
            start, at_once = loop.time(), 0
            for number in range(20):
                grant = await bucket.take()
                at_once += loop.time() == start
                if not bursts and number == 1:
                    bucket.refused(grant)
                else:
                    bucket.succeeded()
            bursts.append(at_once)
        return bursts

    bursts = clock.run(scenario())
    assert bursts[1] == 6
    assert bursts == [bursts[0], *sorted(bursts[1:])]
    assert bursts[-1] == 12


class Order(msgspec.Struct):
    """Who came when, at which priority."""

    arrivals: list[tuple[float, Priority]]

    async def grants(self) -> list[int]:
        """The order in which they are granted by a bucket of one call a minute."""
        bucket = AdaptiveBucket.fixed(1 / 60, 1)
        await bucket.take()
        order: list[int] = []

        async def caller(number: int, delay: float, priority: Priority) -> None:
            await asyncio.sleep(delay)
            await bucket.take(priority)
            order.append(number)

        async with asyncio.TaskGroup() as group:
            for number, (delay, priority) in enumerate(self.arrivals):
                group.create_task(caller(number, delay, priority))
        return order


@pytest.mark.parametrize(
    ("arrivals", "order"),
    [
        ([(0, Priority.RESYNC), (1, Priority.CHECK), (2, Priority.USER)], [2, 1, 0]),
        ([(0, Priority.USER), (1, Priority.USER), (2, Priority.USER)], [0, 1, 2]),
        ([(2, Priority.CHECK), (1, Priority.CHECK), (3, Priority.USER)], [2, 1, 0]),
        ([(0, Priority.RESYNC), (AGEING + 1, Priority.CHECK)], [0, 1]),
        ([(0, Priority.RESYNC), (2 * AGEING - 1, Priority.USER)], [1, 0]),
    ],
)
def test_the_more_urgent_call_goes_first_then_the_older_and_waiting_makes_urgent(
    arrivals: list[tuple[float, Priority]], order: list[int]
) -> None:
    assert clock.run(Order(arrivals).grants()) == order


@settings(max_examples=50, deadline=None)
@given(
    qps=st.floats(0.5, 50),
    burst=st.integers(1, 20),
    delays=st.lists(st.floats(0, 5), min_size=1, max_size=60),
)
def test_a_fixed_bucket_never_exceeds_its_rate_and_burst(
    qps: float, burst: int, delays: list[float]
) -> None:
    async def scenario() -> list[float]:
        bucket = AdaptiveBucket.fixed(qps, burst)
        times: list[float] = []

        async def caller(delay: float) -> None:
            await asyncio.sleep(delay)
            await bucket.acquire()
            times.append(asyncio.get_running_loop().time())

        async with asyncio.TaskGroup() as group:
            for delay in delays:
                group.create_task(caller(delay))
        return times

    times = sorted(clock.run(scenario()))
    assert len(times) == len(delays)
    for first, start in enumerate(times):
        for last in range(first, len(times)):
            allowed = burst + (times[last] - start) * qps
            assert last - first + 1 <= allowed + 1e-3


def test_a_fixed_bucket_learns_nothing() -> None:
    async def scenario() -> float:
        bucket = AdaptiveBucket.fixed(10, 5)
        bucket.refused(await bucket.take())
        return bucket.rate

    assert clock.run(scenario()) == 10


def test_a_cancelled_caller_leaves_the_line() -> None:
    async def scenario() -> tuple[int, int, bool]:
        bucket = AdaptiveBucket.fixed(1, 1)
        await bucket.take()
        callers = [asyncio.create_task(bucket.take()) for _ in range(3)]
        await asyncio.sleep(0.5)
        before = bucket.waiting
        callers[0].cancel()
        await asyncio.sleep(0)
        after = bucket.waiting
        await asyncio.sleep(0.6)
        served = callers[1].done()
        await callers[2]
        return before, after, served

    assert clock.run(scenario()) == (3, 2, True)


def test_a_caller_cancelled_while_it_is_granted_gives_its_place_back() -> None:
    async def scenario() -> float:
        bucket = AdaptiveBucket()
        for _ in range(5):
            await bucket.take()
        waiting = asyncio.create_task(bucket.take())
        await asyncio.sleep(0)
        bucket.abandoned()  # Grants the waiting call, which is cancelled before it runs.
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await bucket.take()
        return asyncio.get_running_loop().time()

    assert clock.run(scenario()) == 0.0
