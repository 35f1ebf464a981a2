"""Nodes and machines of Photon Controller: which is which, what is said of it, what it costs."""

import asyncio
from datetime import timedelta

import pytest

from proreus.cloudprovider.errors import (
    CloudError,
    IdentityConflict,
    InvalidRequest,
    RetryAfter,
    Throttled,
)
from proreus.cloudprovider.instances import Instance, InstanceState, NotFound, Ownership
from proreus.kube.objects import NodeAddress
from proreus.providers.photon import networks
from proreus.providers.photon.plan import ABSENT_AGE, AGE, EMPTY_AGE, REFRESHES

from ..surroundings import Clock  # noqa: TID252 - pytest imports tests by path
from .emulator.server import LOST, Age, Emulator, served
from .emulator.world import INSIDE, OUTSIDE
from .site import addresses, config, describe, node, one, started


async def test_the_oldest_word_for_networks_is_found_by_many_at_once() -> None:
    async with served(Emulator(Age.NETWORKS)) as emulator:
        names = [f"node-{number}" for number in range(10)]
        for name in names:
            emulator.world.add_vm(name)
        async with started(emulator) as provider:
            found = await describe(provider, *map(node, names))
            assert all(addresses(machine) for machine in found.values())
            emulator.world.add_vm("late")
            emulator.missing.clear()
            assert addresses(await one(provider, node("late")))
            assert not emulator.missing


@pytest.mark.parametrize("age", Age)
async def test_each_age_of_the_api_is_found_and_tells_a_machine(age: Age) -> None:
    async with served(Emulator(age)) as emulator:
        id_ = emulator.world.add_vm("node-1", [(OUTSIDE, "203.0.113.7"), (INSIDE, "10.0.0.7")])
        async with started(emulator) as provider:
            found = await one(provider, node("node-1"))
    assert isinstance(found, Instance)
    assert (found.provider_id, found.name) == (f"photon://{id_}", "node-1")
    assert sorted(addresses(found)) == [("ExternalIP", "203.0.113.7"), ("InternalIP", "10.0.0.7")]
    assert (found.instance_type, found.zone, found.region) == ("", "", "")
    assert found.state is InstanceState.RUNNING


async def test_a_provider_id_counts_alone(emulator: Emulator) -> None:
    id_ = emulator.world.add_vm("other-name")
    emulator.world.add_vm("node-1")
    async with started(emulator) as provider:
        found = await one(provider, node("node-1", id_))
        assert found.name == "other-name"
        wrong = await one(provider, node("node-1", "../vms"))
        assert isinstance(wrong, InvalidRequest)
        assert "spec.providerID" in str(wrong)
        assert provider.instances is not None
        assert provider.instances.owns(node("node-1")) is Ownership.UNKNOWN
        assert provider.instances.owns(node("node-1", id_)) is Ownership.YES
        assert provider.instances.owns(node("node-1", "a/b")) is Ownership.NO


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("CREATING", InstanceState.RUNNING),
        ("STARTED", InstanceState.RUNNING),
        ("SUSPENDED", InstanceState.STOPPED),
        ("STOPPED", InstanceState.STOPPED),
        ("ERROR", InstanceState.UNKNOWN),
    ],
)
async def test_the_state_of_a_machine_is_that_of_its_node(
    emulator: Emulator, state: str, expected: InstanceState
) -> None:
    id_ = emulator.world.add_vm("node-1", state=state)
    async with started(emulator) as provider:
        found = await one(provider, node("node-1", id_, addresses=["10.0.0.9"]))
    assert found.state is expected
    # Photon Controller leaves STOPPED where a start got no answer of the host, and there it runs.
    assert not found.powered_off


async def test_a_deleted_machine_that_is_still_shown_is_gone(emulator: Emulator) -> None:
    id_ = emulator.world.add_vm("node-1", state="DELETED")
    async with started(emulator) as provider:
        assert await one(provider, node("node-1", id_)) == NotFound(tombstone=True)
        assert await one(provider, node("node-1")) == NotFound()


async def test_a_machine_is_gone_only_if_photon_controller_says_so_of_it(
    emulator: Emulator,
) -> None:
    elsewhere = emulator.world.add_project("elsewhere", emulator.world.tenant)
    moved = emulator.world.add_vm("moved", project=elsewhere)
    gone = emulator.world.add_vm("gone")
    emulator.world.add_vm("here")
    emulator.world.remove_vm(gone)
    nodes = [node("moved", moved), node("gone", gone), node("here")]
    async with started(emulator) as provider:
        found = await describe(provider, *nodes)
        assert isinstance(found["moved"], Instance)
        assert found["gone"] == NotFound()
        assert isinstance(found["here"], Instance)
        for status, code in ((404, "NotFound"), (404, "PageExpired"), (403, "AccessForbidden"),
                             (404, "ClusterTypeNotConfigured"), (404, "NOT_FOUND"),
                             (500, "VmNotFound"), (500, "InternalError"), (LOST, "")):  # fmt: skip
            emulator.fail("vms.get", status, code, times=5)
            found = await describe(provider, *nodes)
            assert isinstance(found["gone"], CloudError), code
            emulator.failures.clear()
        assert (await describe(provider, *nodes))["gone"] == NotFound()


async def test_of_machines_of_one_name_none_is_guessed(emulator: Emulator) -> None:
    first, second = emulator.world.add_vm("node-1"), emulator.world.add_vm("node-1")
    async with started(emulator) as provider:
        found = await one(provider, node("node-1"))
        assert isinstance(found, IdentityConflict)
        assert first in str(found)
        assert second in str(found)
        emulator.world.vms[first]["state"] = "DELETED"
        assert (await one(provider, node("node-1"))).provider_id == f"photon://{second}"


async def test_many_nodes_cost_a_list_in_pages_and_two_calls_each_once(emulator: Emulator) -> None:
    emulator.page = 30
    names = [f"node-{number}" for number in range(75)]
    ids = [emulator.world.add_vm(name) for name in names]
    nodes = [node(name, id_) for name, id_ in zip(names, ids, strict=True)]
    emulator.world.works = 0.05
    async with started(emulator) as provider:
        found = await describe(provider, *nodes)
        assert all(addresses(machine) for machine in found.values())
        assert emulator.calls.pop("tasks.get") >= 75
        assert emulator.calls == {"vms.list": 3, "vms.networks": 75}
        assert emulator.world.most_at_once <= networks.CONCURRENCY
        emulator.calls.clear()
        await describe(provider, *nodes)
        assert emulator.calls == {"vms.list": 3}


async def test_a_single_node_is_asked_about_by_itself(emulator: Emulator) -> None:
    id_ = emulator.world.add_vm("node-1")
    emulator.world.add_vm("node-2")
    async with started(emulator) as provider:
        await one(provider, node("node-1", id_, addresses=["10.0.0.9"]))
        emulator.calls.clear()
        await one(provider, node("node-1", id_))
        assert emulator.calls == {"vms.get": 1}
        emulator.calls.clear()
        emulator.world.add_vm("node-3")
        await one(provider, node("node-3"))
        assert emulator.calls["vms.list"] == 1


async def test_addresses_are_kept_until_the_machine_changes(emulator: Emulator) -> None:
    clock = Clock()
    id_ = emulator.world.add_vm("node-1", [(INSIDE, "10.0.0.1")])
    async with started(emulator, clock=clock) as provider:
        at = node("node-1", id_)
        assert addresses(await one(provider, at)) == [("InternalIP", "10.0.0.1")]
        emulator.world.nics[id_] = [(INSIDE, "10.0.0.2")]
        assert addresses(await one(provider, at)) == [("InternalIP", "10.0.0.1")]
        emulator.world.vms[id_]["host"] = "10.0.0.77"
        assert addresses(await one(provider, at)) == [("InternalIP", "10.0.0.2")]

        # A lease that changes cannot be seen: the addresses are read anew after a while, and who
        # asks meanwhile is not kept waiting.
        emulator.world.nics[id_] = [(INSIDE, "10.0.0.3")]
        clock.ahead += timedelta(seconds=AGE)
        assert addresses(await one(provider, at)) == [("InternalIP", "10.0.0.2")]
        await asyncio.sleep(0.3)
        while addresses(await one(provider, at)) != [("InternalIP", "10.0.0.3")]:
            await asyncio.sleep(0.1)


async def test_what_was_asked_before_a_machine_changed_is_no_answer(emulator: Emulator) -> None:
    id_ = emulator.world.add_vm("node-1", [(INSIDE, "10.0.0.1")])
    emulator.world.works = 3600.0
    async with started(emulator) as provider:
        first = asyncio.create_task(one(provider, node("node-1", id_)))
        while not emulator.calls["vms.networks"]:
            await asyncio.sleep(0.02)
        emulator.world.works = 0.0
        emulator.world.vms[id_]["host"] = "another"
        assert addresses(await one(provider, node("node-1", id_))) == [("InternalIP", "10.0.0.1")]
        first.cancel()


async def test_old_addresses_are_read_anew_some_at_a_time_and_kept_if_that_fails(
    emulator: Emulator,
) -> None:
    clock = Clock()
    ids = [emulator.world.add_vm(f"node-{number}") for number in range(REFRESHES + 5)]
    nodes = [node(f"node-{number}", id_) for number, id_ in enumerate(ids)]
    async with started(emulator, clock=clock) as provider:
        before = await describe(provider, *nodes)
        emulator.calls.clear()
        clock.ahead += timedelta(seconds=AGE)
        emulator.fail("vms.networks", 500, times=REFRESHES)
        assert await describe(provider, *nodes) == before
        while emulator.calls["vms.networks"] < REFRESHES:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.2)
        assert await describe(provider, *nodes) == before
        while emulator.calls["vms.networks"] < REFRESHES + 5:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.2)
        assert await describe(provider, *nodes) == before
        assert emulator.calls["vms.networks"] == REFRESHES + 5


async def test_the_order_of_addresses_stays_that_of_the_node(emulator: Emulator) -> None:
    """Photon Controller answers with a set: the Node would be written again and again."""
    nics = [(INSIDE, f"10.0.0.{number}") for number in range(1, 9)]
    id_ = emulator.world.add_vm("node-1", nics)
    known = [f"10.0.0.{number}" for number in (5, 3, 1, 2, 4, 8, 7, 6)]
    async with started(emulator) as provider:
        found = await one(provider, node("node-1", id_, addresses=known))
        assert [address for _, address in addresses(found)] == known
        emulator.world.nics[id_] = [*nics[1:], (INSIDE, "10.0.0.9")]
        emulator.world.vms[id_]["host"] = "another"
        found = await one(provider, node("node-1", id_, addresses=known))
        assert [address for _, address in addresses(found)] == [
            *(one for one in known if one != "10.0.0.1"), "10.0.0.9",
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("mac", "type_"),
    [
        ("00:50:56:aa:00:01", "ExternalIP"),
        ("00:0c:29:aa:00:01", "ExternalIP"),
        ("00:0C:29:aa:00:01", "InternalIP"),
        ("fa:16:3e:00:00:01", "InternalIP"),
        ("-", "InternalIP"),
    ],
)
async def test_the_mac_address_tells_what_is_outside(
    emulator: Emulator, mac: str, type_: str
) -> None:
    emulator.world.add_vm("node-1", [(mac, "10.0.0.1"), (INSIDE, None), (INSIDE, "-"), (mac, "")])
    async with started(emulator) as provider:
        assert addresses(await one(provider, node("node-1"))) == [(type_, "10.0.0.1")]


async def test_a_new_node_waits_for_addresses_and_another_keeps_its_own(
    emulator: Emulator,
) -> None:
    clock = Clock()
    id_ = emulator.world.add_vm("node-1", [(INSIDE, None)])
    hostname = NodeAddress("Hostname", "node-1")
    async with started(emulator, clock=clock) as provider:
        found = await one(provider, node("node-1", addresses=[hostname]))
        assert isinstance(found, CloudError)
        assert "VMware Tools" in str(found)
        at = node("node-1", id_, addresses=["10.0.0.5"])
        assert addresses(await one(provider, at)) == []
        emulator.world.nics[id_] = [(INSIDE, "10.0.0.6")]
        clock.ahead += timedelta(seconds=10)
        assert addresses(await one(provider, at)) == [("InternalIP", "10.0.0.6")]
        emulator.world.vms[id_]["state"] = "STOPPED"
        emulator.calls.clear()
        found = await one(provider, at)
        assert (addresses(found), found.state) == ([], InstanceState.STOPPED)
        assert not emulator.calls["vms.networks"]


async def test_a_task_that_fails_or_hangs_is_the_answer_of_its_node_alone(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(networks, "PATIENCE", 1.5)
    world = emulator.world
    ids = {name: world.add_vm(name) for name in ("fine", "broken", "stuck", "unknown")}
    world.broken = {ids["broken"]: ("HostNotFound", "no such host")}
    # The host does not know the machine: Photon Controller does, so it is not gone.
    world.broken[ids["unknown"]] = ("VmNotFound", "VM not found on the host")
    world.stuck = {ids["stuck"]}
    async with started(emulator) as provider:
        found = await describe(provider, *(node(name, id_) for name, id_ in ids.items()))
        assert addresses(found["fine"])
        assert isinstance(found["stuck"], RetryAfter)
        for name, text in (("broken", "no such host"), ("unknown", "VM not found")):
            assert isinstance(found[name], CloudError)
            assert text in str(found[name])
        # A Node that has addresses already is none the worse for it.
        known = [node(name, id_, addresses=["10.0.0.1"]) for name, id_ in ids.items()]
        world.stuck.clear()
        assert all(isinstance(one, Instance) for one in (await describe(provider, *known)).values())


async def test_nodes_may_be_called_by_addresses(emulator: Emulator) -> None:
    world = emulator.world
    first = world.add_vm("a", [(OUTSIDE, "203.0.113.1"), (INSIDE, "10.0.0.1")])
    second = world.add_vm("b", [(INSIDE, "10.0.0.2")])
    text = config(emulator, overrideIP="true")
    async with started(emulator, text) as provider:
        names = ("10.0.0.1", "203.0.113.1", "10.0.0.2", "10.0.0.3", "a")
        found = await describe(provider, *map(node, names), node("whatever", second))
        ids = [getattr(found[name], "provider_id", found[name]) for name in names]
        assert ids[:3] == [f"photon://{first}"] * 2 + [f"photon://{second}"]
        assert ids[3:] == [NotFound(), NotFound()]
        assert getattr(found["whatever"], "provider_id", "") == f"photon://{second}"

        # A machine of another project is in no list of this one.
        elsewhere = world.add_vm("c", [(INSIDE, "10.0.9.9")], project="other")
        found = await describe(provider, node("10.0.0.1"), node("moved", elsewhere))
        assert getattr(found["10.0.0.1"], "provider_id", "") == f"photon://{first}"
        assert addresses(found["moved"]) == [("InternalIP", "10.0.9.9")]

        # While one machine does not show its addresses, nobody lacks one.
        hidden = world.add_vm("hidden", [(INSIDE, "10.0.0.3")], state="STOPPED")
        unknown = await one(provider, node("10.0.0.3"))
        assert isinstance(unknown, CloudError)
        assert "hidden" in str(unknown)
        world.vms[hidden]["state"] = "STARTED"
        assert (await one(provider, node("10.0.0.3"))).provider_id == f"photon://{hidden}"
        world.add_vm("twin", [(INSIDE, "10.0.0.3")])
        assert isinstance(await one(provider, node("10.0.0.3")), IdentityConflict)


@pytest.mark.parametrize("set_back", [0, EMPTY_AGE, 3600])
async def test_a_node_takes_no_machine_by_an_address_that_another_one_has_by_now(
    emulator: Emulator, set_back: float
) -> None:
    """What is known of a machine's addresses may be minutes old, and the other's Tools start late.

    The wall clock may be set back meanwhile.
    """
    world, clock = emulator.world, Clock()
    former = world.add_vm("a", [(INSIDE, "10.0.0.1")])
    text = config(emulator, overrideIP="true")
    async with started(emulator, text, clock) as provider:
        assert (await one(provider, node("10.0.0.1"))).provider_id == f"photon://{former}"
        world.nics[former] = [(INSIDE, "10.0.0.2")]
        own = world.add_vm("b", [(INSIDE, "")])
        clock.wrong = timedelta(seconds=-set_back)
        clock.ahead += timedelta(seconds=EMPTY_AGE)
        found = await one(provider, node("10.0.0.1"))
        assert isinstance(found, CloudError)
        assert "b (" in str(found)
        world.nics[own] = [(INSIDE, "10.0.0.1")]
        clock.ahead += timedelta(seconds=EMPTY_AGE)
        assert (await one(provider, node("10.0.0.1"))).provider_id == f"photon://{own}"


async def test_addresses_that_could_not_be_read_anew_are_none_the_younger_for_it(
    emulator: Emulator,
) -> None:
    """A new Node would be taken for the machine that had its address before, at the second try."""
    world, clock = emulator.world, Clock()
    former = world.add_vm("a", [(INSIDE, "10.0.0.1")])
    text = config(emulator, overrideIP="true")
    async with started(emulator, text, clock) as provider:
        assert (await one(provider, node("10.0.0.1"))).provider_id == f"photon://{former}"
        world.nics[former] = [(INSIDE, "10.0.0.2")]
        own = world.add_vm("b", [(INSIDE, "")])
        world.broken[former] = ("HostNotFound", "no such host")
        clock.ahead += timedelta(seconds=EMPTY_AGE)
        for _ in range(2):
            assert isinstance(await one(provider, node("10.0.0.1")), CloudError)
        world.broken.clear()
        assert isinstance(await one(provider, node("10.0.0.1")), CloudError)
        world.nics[own] = [(INSIDE, "10.0.0.1")]
        clock.ahead += timedelta(seconds=EMPTY_AGE)
        assert (await one(provider, node("10.0.0.1"))).provider_id == f"photon://{own}"


async def test_no_node_lacks_a_machine_by_addresses_that_were_read_before_it_came(
    emulator: Emulator,
) -> None:
    """A lease changes unseen; with `--delete-nodes-by-name` a Node went whose machine lives."""
    world, clock = emulator.world, Clock()
    own, other = (world.add_vm(name, [(INSIDE, f"10.0.0.{name}")]) for name in ("1", "2"))
    text = config(emulator, overrideIP="true")
    async with started(emulator, text, clock) as provider:
        assert await one(provider, node("10.0.0.3")) == NotFound()
        world.nics[own] = [(INSIDE, "10.0.0.3")]
        clock.ahead += timedelta(seconds=ABSENT_AGE)
        world.broken[own] = ("HostNotFound", "no such host")
        assert isinstance(await one(provider, node("10.0.0.3")), CloudError)
        world.broken.clear()
        found = await one(provider, node("10.0.0.3"))
        assert (found.provider_id, addresses(found)) == (
            f"photon://{own}", [("InternalIP", "10.0.0.3")],
        )  # fmt: skip

        # What is asked again and again costs no tasks each time, nor does what is no address.
        emulator.calls.clear()
        assert await one(provider, node("10.0.0.4")) == NotFound()
        clock.ahead += timedelta(seconds=ABSENT_AGE)
        assert await one(provider, node("a")) == NotFound()
        assert not emulator.calls["vms.networks"]
        world.remove_vm(other)
        assert await one(provider, node("10.0.0.2")) == NotFound()
        assert emulator.calls.pop("vms.networks") == 1


@pytest.mark.parametrize("status", [500, 503, LOST])
async def test_a_list_that_lacks_a_page_is_none(emulator: Emulator, status: int) -> None:
    emulator.page = 2
    ids = [emulator.world.add_vm(f"node-{number}") for number in range(5)]
    nodes = [node(f"node-{number}") for number in range(5)]
    async with started(emulator) as provider:
        assert all(addresses(found) for found in (await describe(provider, *nodes)).values())
        emulator.fail("vms.page", status, times=9)
        with pytest.raises(CloudError):
            await describe(provider, *nodes)
        emulator.failures.clear()
        assert len(await describe(provider, *nodes)) == len(ids)


async def test_a_page_that_has_expired_is_no_absence(emulator: Emulator) -> None:
    emulator.page = 2
    for number in range(5):
        emulator.world.add_vm(f"node-{number}")
    nodes = [node(f"node-{number}") for number in range(5)]
    async with started(emulator) as provider:
        emulator.fail("vms.page", 404, "PageExpired")
        with pytest.raises(CloudError, match="PageExpired"):
            await describe(provider, *nodes)


async def test_a_quota_is_told_as_one(emulator: Emulator) -> None:
    emulator.world.add_vm("node-1")
    async with started(emulator) as provider:
        emulator.fail("vms.list", 429, "TooManyRequests", times=50)
        with pytest.raises(Throttled):
            await asyncio.wait_for(describe(provider, node("node-1")), 60)


async def test_an_exchanged_photon_controller_is_found_again(emulator: Emulator) -> None:
    ids = [emulator.world.add_vm(name) for name in ("node-1", "node-2")]
    nodes = [node("node-1", ids[0]), node("node-2", ids[1])]
    emulator.age = Age.NETWORKS
    async with started(emulator) as provider:
        assert addresses((await describe(provider, *nodes))["node-1"])
        emulator.age = Age.SYSTEM
        with pytest.raises(CloudError):
            await describe(provider, *nodes)
        emulator.world.vms[ids[0]]["host"] = "another"
        assert addresses((await describe(provider, *nodes))["node-1"])
