import asyncio

import pytest
from prometheus_client import generate_latest

from proreus.runtime import metrics
from proreus.runtime.backoff import Backoff
from proreus.runtime.priority import Priority
from proreus.runtime.workqueue import ShutDown, WorkQueue
from proreus.testing.clock import virtual_time

BACKOFF = Backoff(first=5, cap=300)


def queue(name: str = "test") -> WorkQueue[str]:
    return WorkQueue(name, backoff=BACKOFF, chance=lambda: 0.0)


def now() -> float:
    return asyncio.get_running_loop().time()


@virtual_time
async def test_take_hands_out_every_ready_key_at_once() -> None:
    q = queue()
    for key in "abc":
        q.add(key)
        q.add(key)
    assert await q.take(10) == ["a", "b", "c"]
    assert set(q.in_flight) == {"a", "b", "c"}
    assert len(q) == 0


@virtual_time
async def test_take_waits_for_the_first_key_and_lingers_for_more() -> None:
    q = queue()
    loop = asyncio.get_running_loop()
    loop.call_at(10.0, q.add, "a")
    loop.call_at(10.4, q.add, "b")
    loop.call_at(11.5, q.add, "late")
    assert await q.take(10, linger=1.0) == ["a", "b"]
    assert now() == 11.0


@virtual_time
async def test_take_does_not_linger_once_the_limit_is_reached() -> None:
    q = queue()
    loop = asyncio.get_running_loop()
    for at, key in ((1.0, "a"), (1.5, "b"), (1.6, "c")):
        loop.call_at(at, q.add, key)
    assert await q.take(2, linger=60.0) == ["a", "b"]
    assert now() == 1.5


@virtual_time
async def test_urgent_keys_come_first_then_the_oldest() -> None:
    q = queue()
    q.add("resync", Priority.RESYNC)
    q.add("check", Priority.CHECK)
    q.add("user 1")
    q.add("user 2")
    assert await q.take(10) == ["user 1", "user 2", "check", "resync"]
    assert q.priority("check") is Priority.CHECK


@virtual_time
async def test_waiting_makes_up_for_priority() -> None:
    q = queue()
    q.add("old", Priority.RESYNC)
    await asyncio.sleep(59)
    q.add("young")
    await asyncio.sleep(2)
    q.add("younger")
    assert await q.take(3) == ["young", "old", "younger"]


@virtual_time
async def test_a_key_is_upgraded_but_never_downgraded() -> None:
    q = queue()
    q.add("a", Priority.RESYNC)
    q.add("b", Priority.CHECK)
    q.add("a", Priority.USER)
    q.add("a", Priority.RESYNC)
    assert await q.take(10) == ["a", "b"]
    assert q.priority("a") is Priority.USER


@virtual_time
async def test_an_edit_overtakes_a_delay_and_a_later_delay_changes_nothing() -> None:
    q = queue()
    q.add("a", after=300)
    q.add("a", after=20)
    q.add("a", after=100)
    assert await q.take(1) == ["a"]
    assert now() == 20


@virtual_time
async def test_a_key_added_in_flight_comes_back_when_done() -> None:
    q = queue()
    q.add("a")
    await q.take(1)
    q.add("a", Priority.CHECK)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(q.take(1), 60)
    q.done("a")
    assert await q.take(1) == ["a"]
    assert q.priority("a") is Priority.CHECK


@virtual_time
async def test_a_key_done_without_being_added_is_gone() -> None:
    q = queue()
    q.add("a")
    await q.take(1)
    q.done("a")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(q.take(1), 60)


@virtual_time
async def test_the_delay_of_a_key_in_flight_counts_from_the_add() -> None:
    q = queue()
    q.add("a")
    await q.take(1)
    q.add("a", after=10)
    await asyncio.sleep(7)
    q.done("a")
    await q.take(1)
    assert now() == 10


@virtual_time
async def test_failures_grow_the_delay_until_forgotten() -> None:
    q = queue()
    delays = []
    for _ in range(3):
        q.add("a")
        await q.take(1)
        delays.append(q.retry("a", priority=Priority.CHECK))
        q.done("a")
        await q.take(1)
        q.done("a")
    assert delays == [5, 10, 20]
    assert q.failures("a") == 3
    q.forget("a")
    assert q.failures("a") == 0
    assert q.retry("a", priority=Priority.CHECK) == 5


@virtual_time
async def test_a_retry_may_have_an_exact_time() -> None:
    q = queue()
    assert q.retry("a", priority=Priority.CHECK, after=77.0) == 77.0
    await q.take(1)
    assert now() == 77
    assert q.failures("a") == 1


@virtual_time
async def test_done_twice_is_refused_since_it_could_hand_a_key_out_twice() -> None:
    q = queue()
    q.add("a")
    await q.take(1)
    q.done("a")
    with pytest.raises(ValueError, match="'a' is not in flight in queue test"):
        q.done("a")


@virtual_time
async def test_shutting_down_ends_takers_and_ignores_adds() -> None:
    q = queue()
    taker = asyncio.create_task(q.take(1))
    await asyncio.sleep(1)
    q.shut_down()
    with pytest.raises(ShutDown):
        await taker
    q.add("a")
    with pytest.raises(ShutDown):
        await q.take(1)


@virtual_time
async def test_a_cancelled_taker_loses_no_key() -> None:
    q = queue()
    taker = asyncio.create_task(q.take(2, linger=5))
    await asyncio.sleep(1)
    q.add("a")
    await asyncio.sleep(1)
    taker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taker
    assert await q.take(1) == ["a"]


@virtual_time
async def test_two_takers_share_the_keys() -> None:
    q = queue()
    takers = [asyncio.create_task(q.take(1)) for _ in range(2)]
    await asyncio.sleep(1)
    q.add("a")
    q.add("b")
    assert sorted(key for taken in await asyncio.gather(*takers) for key in taken) == ["a", "b"]


def value(name: str, queue_name: str) -> float | None:
    return metrics.REGISTRY.get_sample_value(name, {"name": queue_name})


@virtual_time
async def test_metrics_follow_the_queue() -> None:
    q = queue("metered")
    q.add("a")
    q.add("a")
    q.add("b", after=100)
    assert value("workqueue_depth", "metered") == 1
    assert value("workqueue_adds_total", "metered") == 2
    await asyncio.sleep(3)
    await q.take(1)
    await asyncio.sleep(4)
    assert value("workqueue_queue_duration_seconds_sum", "metered") == 3
    assert value("workqueue_unfinished_work_seconds", "metered") == 4
    assert value("workqueue_longest_running_processor_seconds", "metered") == 4
    q.retry("a", priority=Priority.CHECK)
    q.done("a")
    assert value("workqueue_retries_total", "metered") == 1
    assert value("workqueue_work_duration_seconds_sum", "metered") == 4
    assert value("workqueue_unfinished_work_seconds", "metered") == 0


def test_metrics_can_be_read_without_a_loop() -> None:
    queue("idle")
    assert b'workqueue_depth{name="idle"} 0.0' in generate_latest(metrics.REGISTRY)


@virtual_time
async def test_an_upgrade_leaves_nothing_behind_that_ends_a_later_delay() -> None:
    q = queue()
    q.add("a", Priority.RESYNC)
    assert len(q) == 1
    q.add("a", Priority.USER)
    await q.take(1)
    q.done("a")
    q.add("a", after=100)
    q.add("b")
    assert await q.take(2) == ["b"]
    assert await q.take(2) == ["a"]
    assert now() == 100
