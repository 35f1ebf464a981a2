"""Which leases a process campaigns for, and what it may do by those it holds."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from tests.runtime.leases import LeaseStore, Network

from proreus.app.election import SHARED_IDENTITY, Election, Lock, locks
from proreus.app.migration import DEFAULT, Migration
from proreus.controllers.table import ON_BY_DEFAULT as CONTROLLERS
from proreus.kube.errors import RefusedByGate
from proreus.runtime import metrics
from proreus.runtime.leaderelection import LeaderElector
from proreus.testing.clock import virtual_time

MAIN, SECOND = "ccm", "cloud-provider-extraction-migration"
ALL = frozenset(one.name for one in CONTROLLERS)
MIGRATED = frozenset(DEFAULT.components)
RETRY = 2.0


def test_one_lease_is_for_all_controllers() -> None:
    assert locks(MAIN, CONTROLLERS, None, per_controller=False) == (Lock(MAIN, ALL),)


def test_migrated_controllers_run_under_the_second_lease_that_comes_after_the_main_one() -> None:
    assert locks(MAIN, CONTROLLERS, DEFAULT, per_controller=False) == (
        Lock(MAIN, ALL - MIGRATED),
        Lock(SECOND, MIGRATED, after=MAIN),
    )


def test_what_another_component_runs_has_no_lease_here() -> None:
    theirs = Migration(SECOND, dict.fromkeys(MIGRATED, "kube-controller-manager"))
    found = locks(MAIN, CONTROLLERS, theirs, per_controller=False)
    assert found == (Lock(MAIN, ALL - MIGRATED),)


def test_each_controller_has_a_lease_by_its_alias_under_one_that_replicas_share() -> None:
    main, *others = locks(MAIN, CONTROLLERS, None, per_controller=True)
    assert main == Lock(MAIN, frozenset(), shared=True)
    assert others == [
        Lock(f"{MAIN}-{one.alias}", frozenset({one.name}), after=MAIN, modest=True)
        for one in CONTROLLERS
    ]


def test_migration_goes_with_a_lease_for_each_other_controller() -> None:
    found = locks(MAIN, CONTROLLERS, DEFAULT, per_controller=True)
    assert [lock.name for lock in found] == [
        MAIN, SECOND, f"{MAIN}-cloud-node", f"{MAIN}-nodeipam",
    ]  # fmt: skip
    assert frozenset().union(*(lock.controllers for lock in found)) == ALL


class Cluster:
    """The leases of an API server, and processes that campaign for them."""

    def __init__(self) -> None:
        self.stores: dict[str, LeaseStore] = {}
        self.lost: list[Exception] = []

    def holder(self, lease: str) -> str:
        store = self.stores.get(lease)
        return store.spec["holderIdentity"] if store is not None and store.lease else ""

    def election(
        self,
        identity: str,
        found: tuple[Lock, ...],
        shuffle: Callable[[list[str]], None] = list.sort,
    ) -> Election:
        def elector(lock: Lock, deference: Callable[[], float]) -> LeaderElector:
            store = self.stores.setdefault(lock.name, LeaseStore())
            return LeaderElector(
                Network(store), namespace="kube-system", name=lock.name,
                identity=SHARED_IDENTITY if lock.shared else identity,
                clock=asyncio.get_running_loop().time, deference=deference,
                exclusive=not lock.shared,
            )  # fmt: skip

        async def follow(lock: Lock, look: Callable[[], None]) -> None:
            while True:
                await asyncio.sleep(0.1)
                look()

        return Election(found, elector=elector, follow=follow, retry_period=RETRY, shuffle=shuffle)

    @asynccontextmanager
    async def campaigning(self, election: Election) -> AsyncIterator[asyncio.Event]:
        stop = asyncio.Event()
        task = asyncio.create_task(
            election.run(stop, won=lambda lock, elector: None, lost=self.lost.append)
        )
        try:
            yield stop
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def held(election: Election) -> set[str]:
    return {lock.name for lock, _ in election.held}


def test_without_leases_everything_may_be_done() -> None:
    election = Election()
    election.check()
    assert election.runs("service-lb-controller")
    assert election.overdue() is None
    assert election.health() is None


@virtual_time
async def test_the_second_lease_waits_for_the_main_one_and_its_controllers_for_it() -> None:
    cluster = Cluster()
    found = locks(MAIN, CONTROLLERS, DEFAULT, per_controller=False)
    kcm = cluster.election("kcm", (Lock(SECOND, frozenset()),))
    first, second = (cluster.election(name, found) for name in ("first", "second"))
    async with cluster.campaigning(kcm), cluster.campaigning(first):
        await first.entered()
        async with cluster.campaigning(second):
            await asyncio.sleep(60)
            assert held(first) == {MAIN}
            assert held(second) == set()
            first.check()
            assert first.runs("cloud-node-controller")
            assert not first.runs("service-lb-controller")
            with pytest.raises(RefusedByGate, match="holds no lease"):
                second.check()
    assert (cluster.holder(MAIN), cluster.holder(SECOND)) == ("", "")


@virtual_time
async def test_the_migrated_controllers_start_when_the_other_manager_has_gone() -> None:
    cluster = Cluster()
    found = locks(MAIN, CONTROLLERS, DEFAULT, per_controller=False)
    kcm = cluster.election("kcm", (Lock(SECOND, frozenset()),))
    ours = cluster.election("ours", found)
    async with cluster.campaigning(ours):
        async with cluster.campaigning(kcm):
            await ours.entered()
            await asyncio.sleep(30)
            assert not ours.runs("service-lb-controller")
            await ours.news()
        await ours.news()
        assert cluster.holder(SECOND) == "ours"
        assert all(ours.runs(name) for name in ALL)


@virtual_time
async def test_replicas_that_start_together_share_the_controllers_and_one_takes_what_is_left() -> (
    None
):
    cluster = Cluster()
    found = locks(MAIN, CONTROLLERS, None, per_controller=True)
    first, second = cluster.election("1", found), cluster.election("2", found, list.reverse)
    async with cluster.campaigning(first):
        async with cluster.campaigning(second):
            await asyncio.sleep(60)
            counts = sorted((len(first.held), len(second.held)))
            assert counts == [2, 3]
            assert not held(first) & held(second)
            assert cluster.holder(MAIN) == SHARED_IDENTITY
        assert metrics.REGISTRY.get_sample_value(
            "leader_election_master_status", {"name": MAIN}
        ) in {0, None}
        await asyncio.sleep(2 * RETRY + len(CONTROLLERS) * RETRY / 4)
        assert all(first.runs(name) for name in ALL)
        first.check()
    assert not cluster.lost


@virtual_time
async def test_a_replica_that_wants_the_main_lease_alone_never_works_beside_those_that_share() -> (
    None
):
    cluster = Cluster()
    shared = cluster.election("new", locks(MAIN, CONTROLLERS, None, per_controller=True))
    alone = cluster.election("old", locks(MAIN, CONTROLLERS, None, per_controller=False))
    async with cluster.campaigning(alone):
        await alone.entered()
        async with cluster.campaigning(shared):
            await asyncio.sleep(60)
            assert not held(shared)
            assert alone.runs("service-lb-controller")
    async with cluster.campaigning(shared := cluster.election("new", shared.locks)):
        await shared.entered()
        async with cluster.campaigning(again := cluster.election("old", alone.locks)):
            await asyncio.sleep(60)
            assert not held(again)


@virtual_time
async def test_one_lost_lease_closes_the_gate_of_everything_and_is_reported_at_once() -> None:
    cluster = Cluster()
    election = cluster.election("a", locks(MAIN, CONTROLLERS, None, per_controller=True))
    async with cluster.campaigning(election):
        await asyncio.sleep(60)
        assert len(election.held) == len(CONTROLLERS)
        store = cluster.stores[f"{MAIN}-service"]
        stolen = store.get()
        stolen["spec"]["holderIdentity"] = "thief"
        store.replace(stolen)
        await asyncio.sleep(RETRY)
        assert [str(one) for one in cluster.lost] == [
            f"the lease kube-system/{MAIN}-service is now held by thief"
        ]
        assert "does not hold" in str(election.overdue())
        with pytest.raises(RefusedByGate):
            election.check()


@virtual_time
async def test_after_the_stop_no_more_leases_are_taken_and_those_held_stay_until_the_end() -> None:
    cluster = Cluster()
    found = locks(MAIN, CONTROLLERS, None, per_controller=True)
    first, second = cluster.election("1", found), cluster.election("2", found, list.reverse)
    async with cluster.campaigning(first) as stop:
        async with cluster.campaigning(second):
            await asyncio.sleep(60)
            stop.set()
            before = held(first)
        await asyncio.sleep(60)
        assert held(first) == before
        first.check()
    assert {cluster.holder(lock.name) for lock in found} == {"", SHARED_IDENTITY}
