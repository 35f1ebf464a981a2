import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proreus.kube.errors import RefusedByGate
from proreus.runtime import metrics
from proreus.runtime.leaderelection import LeaderElector, LeadershipLost
from proreus.runtime.uptime import uptime
from proreus.testing.clock import virtual_time

from .leases import LeaseStore, Network

LEASE, RENEW, RETRY = 15.0, 10.0, 2.0


def now() -> float:
    return asyncio.get_running_loop().time()


def elector(network: Network, identity: str) -> LeaderElector:
    return LeaderElector(
        network, namespace="kube-system", name="lock", identity=identity,
        clock=asyncio.get_running_loop().time, chance=lambda: 0.0,
    )  # fmt: skip


def leads(candidate: LeaderElector) -> bool:
    try:
        candidate.check()
    except RefusedByGate:
        return False
    return True


@asynccontextmanager
async def holding(candidate: LeaderElector) -> AsyncIterator[asyncio.Task[None]]:
    await candidate.acquire()
    task = asyncio.create_task(candidate.hold())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@virtual_time
async def test_the_first_candidate_makes_the_lease_in_client_gos_form() -> None:
    store = LeaseStore()
    candidate = elector(Network(store), "a")
    assert not leads(candidate)
    await candidate.acquire()
    assert leads(candidate)
    assert store.spec["holderIdentity"] == "a"
    assert store.spec["leaseDurationSeconds"] == 15
    assert store.spec["leaseTransitions"] == 0
    assert store.spec["acquireTime"] == store.spec["renewTime"]


@virtual_time
async def test_a_leader_renews_with_one_write_each_retry_period() -> None:
    network = Network(LeaseStore())
    candidate = elector(network, "a")
    async with holding(candidate):
        acquired = network.store.spec["acquireTime"]
        network.calls.clear()
        await asyncio.sleep(60)
        assert leads(candidate)
        assert network.calls == ["replace"] * 29
        assert network.store.spec["acquireTime"] == acquired
        assert network.store.spec["leaseTransitions"] == 0


@virtual_time
async def test_fields_that_are_not_ours_are_kept() -> None:
    store = LeaseStore()
    async with holding(elector(Network(store), "a")):
        assert store.lease is not None
        store.lease["metadata"]["annotations"] = {"note": "hands off"}
        store.lease["metadata"]["resourceVersion"] = "edited"
        store.spec["strategy"] = "OldestEmulationVersion"
        await asyncio.sleep(10)
    assert store.lease["metadata"]["annotations"] == {"note": "hands off"}
    assert store.spec["strategy"] == "OldestEmulationVersion"


@virtual_time
async def test_a_released_lease_is_taken_within_a_retry_period() -> None:
    store = LeaseStore()
    first, second = elector(Network(store), "a"), elector(Network(store), "b")
    waiting = asyncio.create_task(second.acquire())
    async with holding(first):
        await asyncio.sleep(30)
        assert not waiting.done()
        released = now()
    assert not leads(first)
    await waiting
    assert now() - released <= RETRY
    assert leads(second)
    assert store.spec["leaseTransitions"] == 1


@virtual_time
async def test_the_gate_closes_before_the_lease_is_released() -> None:
    store = LeaseStore()
    candidate = elector(Network(store, delay=1.0), "a")
    await candidate.acquire()
    hold = asyncio.create_task(candidate.hold())
    await asyncio.sleep(0)
    hold.cancel()
    await asyncio.sleep(0)
    assert store.spec["holderIdentity"] == "a"
    assert not leads(candidate)
    await asyncio.gather(hold, return_exceptions=True)
    assert store.spec["holderIdentity"] == ""
    assert store.spec["leaseDurationSeconds"] == 1


@pytest.mark.parametrize("seed", range(20))
@virtual_time
async def test_a_renewal_that_is_still_on_its_way_does_not_keep_the_lease(seed: int) -> None:
    store = LeaseStore()
    candidate = elector(Network(store, delay=0.5, seed=seed), "a")
    await candidate.acquire()
    hold = asyncio.create_task(candidate.hold())
    await asyncio.sleep(RETRY - 0.4 + seed / 20)
    hold.cancel()
    await asyncio.gather(hold, return_exceptions=True)
    assert store.spec["holderIdentity"] == ""


@virtual_time
async def test_a_dead_leader_is_replaced_once_its_lease_has_not_changed_for_its_duration() -> None:
    store = LeaseStore()
    await elector(Network(store), "dead").acquire()
    await asyncio.sleep(100)
    # The timestamps in the lease are old, but they are another machine's: only what was observed
    # here counts.
    second = elector(Network(store), "b")
    began = now()
    await second.acquire()
    assert LEASE <= now() - began <= LEASE + RETRY


@virtual_time
async def test_the_duration_that_counts_is_the_holders() -> None:
    store = LeaseStore()
    await elector(Network(store), "dead").acquire()
    store.spec["leaseDurationSeconds"] = 60
    began = now()
    await elector(Network(store), "b").acquire()
    assert 60 <= now() - began <= 60 + RETRY


@virtual_time
async def test_the_gate_refuses_from_the_renew_deadline_on() -> None:
    network = Network(LeaseStore())
    candidate = elector(network, "a")
    await candidate.acquire()
    network.hanging = True
    renewed = now()
    await asyncio.sleep(RENEW - 0.125)
    candidate.check()
    await asyncio.sleep(0.125)
    assert now() == renewed + RENEW
    with pytest.raises(RefusedByGate, match=r"last renewed 10\.0 s ago"):
        candidate.check()


@virtual_time
async def test_time_counts_from_the_start_of_the_renewal() -> None:
    class Slow(Network):
        async def _call(self, verb, serve):  # type: ignore[no-untyped-def]
            lease = await super()._call(verb, serve)
            await asyncio.sleep(4)
            return lease

    candidate = elector(Slow(LeaseStore()), "a")
    await candidate.acquire()
    # GET said "none" at once; the create began at 0 and was answered at 4.
    assert now() == 4
    await asyncio.sleep(RENEW - 4 - 0.125)
    assert leads(candidate)
    await asyncio.sleep(0.125)
    assert not leads(candidate)


@virtual_time
async def test_a_leader_that_cannot_renew_gives_up_at_the_deadline() -> None:
    network = Network(LeaseStore())
    candidate = elector(network, "a")
    await candidate.acquire()
    network.hanging = True
    with pytest.raises(LeadershipLost, match="within 10 s"):
        await candidate.hold()
    assert now() == RENEW
    assert not leads(candidate)


@virtual_time
async def test_a_leader_survives_an_outage_shorter_than_the_deadline() -> None:
    network = Network(LeaseStore())
    candidate = elector(network, "a")
    async with holding(candidate) as hold:
        await asyncio.sleep(4)
        network.loss = 1.0
        await asyncio.sleep(5)
        network.loss = 0.0
        await asyncio.sleep(60)
        assert leads(candidate)
        assert not hold.done()


@virtual_time
async def test_a_renewal_whose_answer_was_lost_is_recognised_as_our_own() -> None:
    store = LeaseStore()
    candidate = elector(Network(store), "a")
    async with holding(candidate) as hold:
        await asyncio.sleep(3)
        store.replace(store.get())
        await asyncio.sleep(3)
        assert leads(candidate)
        assert not hold.done()
        assert store.spec["leaseTransitions"] == 0


@pytest.mark.parametrize("holder", ["b", ""])
@virtual_time
async def test_a_lease_in_other_hands_is_lost_at_the_next_renewal(holder: str) -> None:
    store = LeaseStore()
    candidate = elector(Network(store), "a")
    await candidate.acquire()
    taken = store.get()
    taken["spec"]["holderIdentity"] = holder
    store.replace(taken)
    with pytest.raises(LeadershipLost):
        await candidate.hold()
    assert now() <= RETRY
    assert not leads(candidate)
    assert store.spec["holderIdentity"] == holder


@virtual_time
async def test_deleting_the_lease_ends_its_holder_before_a_standby_that_knew_it_starts() -> None:
    store = LeaseStore()
    first, standby = elector(Network(store), "a"), elector(Network(store), "b")
    await first.acquire()
    waiting = asyncio.create_task(standby.acquire())
    await asyncio.sleep(1)
    store.lease = None
    with pytest.raises(LeadershipLost):
        await first.hold()
    assert not waiting.done()
    await waiting
    assert now() <= LEASE + RETRY
    assert leads(standby)


@virtual_time
async def test_holding_without_having_acquired_is_refused() -> None:
    with pytest.raises(LeadershipLost, match="acquire it first"):
        await elector(Network(LeaseStore()), "a").hold()


@virtual_time
async def test_a_candidate_cancelled_in_mid_write_leaves_no_lease_behind() -> None:
    store = LeaseStore()
    candidate = elector(Network(store, delay=0.5), "a")
    task = asyncio.create_task(candidate.acquire())
    while store.lease is None:
        await asyncio.sleep(0.001)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert store.spec["holderIdentity"] == ""


@virtual_time
async def test_a_standby_that_is_cancelled_leaves_the_leaders_lease_alone() -> None:
    store = LeaseStore()
    async with holding(elector(Network(store), "a")):
        standby = asyncio.create_task(elector(Network(store), "b").acquire())
        await asyncio.sleep(5)
        standby.cancel()
        await asyncio.gather(standby, return_exceptions=True)
        assert store.spec["holderIdentity"] == "a"


@virtual_time
async def test_the_metric_and_the_health_check_follow() -> None:
    network = Network(LeaseStore())
    candidate = elector(network, "a")

    def status() -> float | None:
        return metrics.REGISTRY.get_sample_value("leader_election_master_status", {"name": "lock"})

    assert status() == 0
    await candidate.acquire()
    assert status() == 1
    assert candidate.health() is None
    # Nobody runs hold(): the process would be stuck.
    await asyncio.sleep(LEASE + 21)
    assert "is still held here" in str(candidate.health())
    with pytest.raises(LeadershipLost):
        await candidate.hold()
    assert status() == 0
    assert candidate.health() is None


@pytest.mark.parametrize(
    ("lease", "renew", "retry"), [(10.0, 10.0, 2.0), (15.0, 2.0, 2.0), (15.0, 10.0, 0.0)]
)
@virtual_time
async def test_times_that_would_not_be_safe_are_refused(
    lease: float, renew: float, retry: float
) -> None:
    with pytest.raises(ValueError, match="longer than"):
        LeaderElector(
            Network(LeaseStore()), namespace="n", name="l", identity="i",
            lease_duration=lease, renew_deadline=renew, retry_period=retry,
        )  # fmt: skip


def test_the_default_clock_goes_forward() -> None:
    assert 0 < uptime() <= uptime()


@virtual_time
async def test_a_standby_that_sees_the_release_leads_at_once() -> None:
    store = LeaseStore()
    first, second = elector(Network(store), "a"), elector(Network(store), "b")
    waiting = asyncio.create_task(second.acquire())
    async with holding(first):
        await asyncio.sleep(30.5)
    released = now()
    second.try_now()
    await waiting
    assert now() == released


@virtual_time
async def test_a_standby_checks_when_the_lease_runs_out_and_not_up_to_a_period_later() -> None:
    store = LeaseStore()
    await elector(Network(store), "dead").acquire()
    store.spec["leaseDurationSeconds"] = 17
    began = now()
    await elector(Network(store), "b").acquire()
    assert now() - began == 17


@virtual_time
async def test_a_candidate_leaves_a_free_lease_to_others_for_a_while() -> None:
    store = LeaseStore()
    loop = asyncio.get_running_loop()
    modest = LeaderElector(
        Network(store), namespace="kube-system", name="lock", identity="b",
        clock=loop.time, deference=lambda: 0.5,
    )  # fmt: skip
    waiting = asyncio.create_task(modest.acquire())
    await asyncio.sleep(0.25)
    async with holding(elector(Network(store), "a")):
        await asyncio.sleep(30)
        assert not waiting.done()
    released = now()
    modest.try_now()
    await waiting
    assert now() - released == 0.5


@virtual_time
async def test_candidates_of_one_identity_hold_the_lease_together_and_against_others() -> None:
    store = LeaseStore()
    clock = asyncio.get_running_loop().time
    mates = [
        LeaderElector(
            Network(store), namespace="kube-system", name="lock", identity="all",
            clock=clock, exclusive=False,
        )
        for _ in range(3)
    ]  # fmt: skip
    stranger = elector(Network(store), "stranger")
    holds = []
    for mate in mates:
        await asyncio.sleep(0.5)
        await mate.acquire()
        holds.append(asyncio.create_task(mate.hold()))
    waiting = asyncio.create_task(stranger.acquire())
    await asyncio.sleep(120)
    assert all(leads(mate) for mate in mates)
    assert not any(hold.done() for hold in holds)
    assert not waiting.done()
    assert store.spec["leaseTransitions"] == 0
    for task in (*holds, waiting):
        task.cancel()
    await asyncio.gather(*holds, waiting, return_exceptions=True)
    assert store.spec["holderIdentity"] == "all"


@pytest.mark.parametrize("written", ["1970-01-01T00:00:00.000000Z", "2999-01-01T00:00:00.000000Z"])
@virtual_time
async def test_a_wall_clock_that_jumps_makes_no_lease_longer_or_shorter(written: str) -> None:
    store = LeaseStore()
    await elector(Network(store), "dead").acquire()
    store.spec["renewTime"] = store.spec["acquireTime"] = written
    began = now()
    await elector(Network(store), "b").acquire()
    assert now() - began == LEASE


@virtual_time
async def test_renewals_that_must_read_first_are_counted() -> None:
    def count() -> float:
        name = "leader_election_slowpath_total"
        return metrics.REGISTRY.get_sample_value(name, {"name": "lock"}) or 0.0

    store = LeaseStore()
    before = count()
    async with holding(elector(Network(store), "a")):
        await asyncio.sleep(5)
        assert count() == before
        store.replace(store.get())
        await asyncio.sleep(2)
        assert count() == before + 1
