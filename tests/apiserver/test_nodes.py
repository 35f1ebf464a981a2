"""Nodes come up and stay right: what is written, asked and said, counted at both servers."""

import asyncio
import contextlib
import itertools
from typing import Any

import aiohttp
import msgspec

from proreus.controllers.cloud_node.labels import ANNOTATION_OURS
from proreus.kube.errors import Conflict
from proreus.kube.objects import (
    LABEL_HOSTNAME,
    LABEL_INSTANCE_TYPE,
    LABEL_INSTANCE_TYPE_BETA,
    LABEL_REGION,
    LABEL_REGION_BETA,
    LABEL_ZONE,
    LABEL_ZONE_BETA,
    TAINT_UNINITIALIZED,
    Node,
    NodeAddress,
    Taint,
    condition,
)
from proreus.kube.patch import Patch, PatchType, json_patch, taints
from proreus.kube.requests import NODES
from proreus.testing.ports import free_port
from proreus.testing.simulated import Address, Instance
from proreus.testing.waiting import until

from .site import CONDITION, Site, is_initialised, names

OURS = {"key": TAINT_UNINITIALIZED, "value": "true", "effect": "NoSchedule"}
REFRESH = "--node-status-update-frequency=1s"


def machine(name: str, **fields: Any) -> Instance:
    """A machine that the cloud does not know yet."""
    return Instance(
        name=name,
        **{
            "id": "i-00000000abcd",
            "system_uuid": "0b6a5b1c-5a4e-4a53-8f0f-6d9f1a3c2e10",
            "zone": "sim-1a",
            "type": "sim.large",
            "addresses": (Address("InternalIP", "10.1.1.1"), Address("Hostname", name)),
            **fields,
        },
    )


async def test_one_new_node_costs_one_question_two_patches_and_one_event(site: Site) -> None:
    async with site.lone_manager():
        await site.join("old")
        await site.initialised("old")
        await site.event("Synced", "old")
        calls = len(await site.calls())

        (new,) = await site.machines("new")
        await site.register_node(new, ready=True)
        node = (await site.initialised("new"))["new"]
        await site.event("Synced", "new")
        await site.quiet(lambda: len(site.audit()))

        assert len(await site.calls()) == calls + 1
        assert site.patches()["new"] == {"status": 1, "": 1}
        assert [(event.reason, event.count) for event in await site.events(about="new")] == [
            ("Synced", 1)
        ]
        assert node.spec.provider_id == f"simulated://sim-1/{new.id}"
        assert node.status.addresses == tuple(
            NodeAddress(one.type, one.address) for one in new.addresses
        )
        state = condition(node.status.conditions, CONDITION)
        assert state is not None
        assert (state.status, state.reason) == ("True", "Initialized")


async def test_labels_are_set_with_their_beta_twins_and_those_of_others_stay(site: Site) -> None:
    cloud_labels = {"example.com/rack": "r7", "example.com/taken": "cloud", "a.k8s.io/no": "x"}
    (made,) = await site.machines("a", zone="sim-1b", type="sim.huge", labels=cloud_labels)
    await site.register_node(made)
    theirs = Patch(PatchType.MERGE, {"metadata": {"labels": {"example.com/taken": "user"}}})
    await site.client.patch(NODES, "a", theirs)
    async with site.lone_manager():
        node = (await site.initialised("a"))["a"]

    assert {**node.metadata.labels} == {
        LABEL_HOSTNAME: "a",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        LABEL_ZONE: "sim-1b",
        LABEL_ZONE_BETA: "sim-1b",
        LABEL_REGION: "sim-1",
        LABEL_REGION_BETA: "sim-1",
        LABEL_INSTANCE_TYPE: "sim.huge",
        LABEL_INSTANCE_TYPE_BETA: "sim.huge",
        "example.com/rack": "r7",
        "example.com/taken": "user",
    }
    assert ANNOTATION_OURS in node.metadata.annotations


async def test_the_kubelets_own_address_comes_first_and_is_alone_of_its_type(site: Site) -> None:
    addresses = (
        Address("InternalIP", "10.1.0.1"),
        Address("InternalIP", "10.2.0.1"),
        Address("ExternalIP", "198.18.0.1"),
        Address("Hostname", "a"),
    )
    (made,) = await site.machines("a", addresses=addresses)
    chosen = msgspec.structs.replace(made, addresses=(addresses[1],))
    await site.register([chosen], node_ip=True)
    async with site.lone_manager():
        node = (await site.initialised("a"))["a"]

    assert [one.address for one in node.status.addresses] == ["10.2.0.1", "198.18.0.1", "a"]


async def test_a_kubelet_address_that_the_cloud_does_not_know_keeps_the_node_out_until_it_does(
    site: Site,
) -> None:
    cloud_addresses = (Address("InternalIP", "10.1.0.1"), Address("Hostname", "a"))
    (made,) = await site.machines("a", addresses=cloud_addresses)
    unknown = Address("InternalIP", "10.9.9.9")
    await site.register([msgspec.structs.replace(made, addresses=(unknown,))], node_ip=True)
    async with site.lone_manager():
        state = await site.cloud_condition("a", "ProvidedNodeIPMismatch")
        assert state.status == "False"
        assert "10.9.9.9" in state.message
        event = await site.event("ProvidedNodeIPMismatch", "a")
        assert event.type == "Warning"
        assert not is_initialised(await site.existing("a"))

        await site.cloud.admin.change(made.id, addresses=[*cloud_addresses, unknown])
        node = (await site.initialised("a"))["a"]

    assert [one.address for one in node.status.addresses] == ["10.9.9.9", "a"]


async def test_a_changed_address_is_written_once_and_equal_ones_never(site: Site) -> None:
    machines = await site.join(*names("node", 5))
    async with site.lone_manager(REFRESH):
        await site.initialised()
        await site.further_calls(2)
        before = len(site.writes())
        new = [Address("InternalIP", "10.77.0.1"), Address("Hostname", "node-3")]
        await site.cloud.admin.change(machines[3].id, addresses=new)

        async def refreshed() -> bool:
            return (await site.existing("node-3")).status.addresses[0].address == "10.77.0.1"

        await until("the address is refreshed", refreshed)
        await site.further_calls(3)

    refs = [one.object_ref for one in site.writes()[before:]]
    assert [(ref.name, ref.subresource) for ref in refs] == [("node-3", "status")]


async def test_zone_and_region_stay_with_a_warning_and_the_instance_type_is_repaired(
    site: Site,
) -> None:
    (made,) = await site.join("a", zone="sim-1a", type="sim.large")
    async with site.lone_manager(REFRESH):
        await site.initialised("a")
        await site.cloud.admin.change(made.id, zone="sim-1c", type="sim.huge")

        state = await site.cloud_condition("a", "TopologyDiffers")
        event = await site.event("TopologyDiffers", "a")
        await site.further_calls(3)

        labels = (await site.existing("a")).metadata.labels
        assert (state.status, event.type, event.count) == ("True", "Warning", 1)
        assert "sim-1c" in state.message
        assert (labels[LABEL_ZONE], labels[LABEL_ZONE_BETA]) == ("sim-1a", "sim-1a")
        assert labels[LABEL_INSTANCE_TYPE] == "sim.huge"
        assert labels[LABEL_INSTANCE_TYPE_BETA] == "sim.huge"

        theirs = Patch(PatchType.MERGE, {"metadata": {"labels": {LABEL_INSTANCE_TYPE: "mine"}}})
        await site.client.patch(NODES, "a", theirs)

        async def repaired() -> bool:
            labels = (await site.existing("a")).metadata.labels
            return labels[LABEL_INSTANCE_TYPE] == labels[LABEL_INSTANCE_TYPE_BETA] == "sim.huge"

        await until("the instance type is repaired", repaired)
        await site.cloud.admin.change(made.id, zone="sim-1a")
        await site.cloud_condition("a", "Initialized")


async def test_a_node_without_machine_reports_it_once_and_comes_up_when_the_machine_does(
    site: Site,
) -> None:
    late = machine("late")
    await site.register([late])
    async with site.lone_manager():
        state = await site.cloud_condition("late", "InstanceNotFound")
        assert state.status == "False"
        event = await site.event("InstanceNotFound", "late")
        assert event.type == "Warning"
        await site.further_calls(2)
        assert site.patches()["late"] == {"status": 1}
        assert event.count == (await site.event("InstanceNotFound", "late")).count == 1

        await site.cloud.admin.create([late])
        node = (await site.initialised("late"))["late"]
        await site.event("Synced", "late")

    assert node.spec.provider_id == f"simulated://sim-1/{late.id}"
    assert site.patches()["late"] == {"status": 2, "": 1}


async def test_a_node_of_another_cloud_is_reported_once_and_left_alone(site: Site) -> None:
    foreign = machine("foreign")
    await site.register_node(foreign, providerID="aws:///eu-1/i-1", taints=[OURS])
    async with site.lone_manager(REFRESH):
        await site.cloud_condition("foreign", "NotOwned")
        await site.join("ours")
        await site.initialised("ours")
        await site.further_calls(3)
        node = await site.existing("foreign")
        assert not is_initialised(node)
        assert site.patches()["foreign"] == {"status": 1}

        ready = Patch(
            PatchType.STRATEGIC,
            {"status": {"conditions": [{"type": CONDITION, "status": "True", "reason": "Theirs"}]}},
        )
        await site.client.patch(NODES, "foreign", ready, subresource="status")
        kept = tuple(one for one in node.spec.taints if one.key != TAINT_UNINITIALIZED)
        untaint = json_patch(node.metadata.uid, taints(node.spec.taints, kept))
        await site.client.patch(NODES, "foreign", untaint)
        await site.further_calls(3)

        assert site.patches()["foreign"] == {"status": 1}
        after = await site.existing("foreign")
        state = condition(after.status.conditions, CONDITION)
        assert state is not None
        assert state.reason == "Theirs"


async def test_a_malformed_provider_id_in_a_batch_costs_only_itself(site: Site) -> None:
    machines = await site.machines(*names("node", 31))
    await site.register(machines)
    bad = machine("bad")
    await site.register_node(bad, providerID="simulated://sim-1/i-MALFORMED", taints=[OURS])
    async with site.lone_manager():
        await site.initialised(*names("node", 31))

        async def told() -> bool:
            state = condition((await site.existing("bad")).status.conditions, CONDITION)
            return state is not None and state.status == "False" and "i-MALFORMED" in state.message

        await until("the bad node says what is wrong with it", told)
        assert not is_initialised(await site.existing("bad"))
        refused = [call for call in await site.calls() if call.status == 400]
        # Halving 32 takes 5 steps of two calls at most, and probing a few more.
        assert len(await site.calls()) <= 20
        assert refused

        before = len(await site.calls())
        (later,) = await site.machines("later")
        await site.register_node(later, ready=True)
        await site.initialised("later")
        calls = (await site.calls())[before:]

    assert [call.status for call in calls if call.status != 400] == [200]
    assert all(
        count == {"status": 1, "": 1}
        for name, count in site.patches().items()
        if name.startswith("node-")
    )


async def test_an_outage_of_the_cloud_is_reported_and_over_seconds_after_its_end(
    site: Site,
) -> None:
    machines = await site.join("old")
    async with site.lone_manager() as manager:
        await site.initialised("old")
        writes = len(site.patches()["old"])
        await site.cloud.kill()
        machines = tuple(machine(name, id=f"i-00000000000{i}") for i, name in enumerate("xyz"))
        await site.register(machines)
        for one in machines:
            state = await site.cloud_condition(one.name, "CloudUnavailable")
            assert state.status == "False"
            assert (await site.event("CloudUnavailable", one.name)).type == "Warning"
        assert manager.is_running

        await site.cloud.restart()
        await site.cloud.admin.create(machines)
        await site.initialised()

    assert len(site.patches()["old"]) == writes
    assert all(site.patches()[one.name][""] == 1 for one in machines)


async def test_taints_and_labels_that_others_write_at_the_same_time_are_never_lost(
    site: Site,
) -> None:
    fleet = names("node", 12)
    machines = await site.machines(*fleet)
    await site.register(machines)
    async with site.lone_manager(REFRESH):
        rounds = await asyncio.gather(*(edit(site, name) for name in fleet))
        nodes = await site.initialised()

    for name, count in zip(fleet, rounds, strict=True):
        node = nodes[name]
        keys = {taint.key for taint in node.spec.taints}
        assert {f"example.com/taint-{number}" for number in range(count)} <= keys
        assert TAINT_UNINITIALIZED not in keys
        labels = node.metadata.labels
        assert {f"example.com/label-{number}" for number in range(count)} <= labels.keys()
        assert labels[LABEL_ZONE] == "sim-1a"


async def test_a_restart_costs_one_question_a_batch_and_no_write(site: Site) -> None:
    fleet = names("node", 12)
    await site.join(*fleet)
    manager = site.lone_manager(batch_size=5)
    async with manager:
        await site.initialised()
        await site.quiet(lambda: len(site.audit()))
        writes, calls = len(site.writes()), len(await site.calls())
        assert calls == 3

        await manager.kill()
        await manager.start()
        await site.further_calls(3)
        # Whatever else it might want to do would be done by the time that a new node is up.
        (new,) = await site.machines("new")
        await site.register_node(new, ready=True)
        await site.initialised("new")

    assert len(site.writes()) == writes + 2
    assert len(await site.calls()) == calls + 3 + 1


async def test_a_machine_that_two_nodes_claim_is_given_to_neither_by_name(site: Site) -> None:
    alike = await site.machines("twin", "twin")
    without_uuid = msgspec.structs.replace(alike[0], system_uuid="")
    await site.register_node(without_uuid)
    async with site.lone_manager():
        state = await site.cloud_condition("twin", "IdentityConflict")
        assert all(one.id in state.message for one in alike)
        assert not is_initialised(await site.existing("twin"))

        await site.cloud.admin.delete(alike[1].id)
        node = (await site.initialised("twin"))["twin"]

    assert node.spec.provider_id == f"simulated://sim-1/{alike[0].id}"


async def test_a_node_made_anew_under_its_name_while_the_cloud_is_asked_is_initialised_too(
    site: Site,
) -> None:
    (made,) = await site.join("a")
    await site.cloud.admin.configure(latency=2.0)
    async with site.lone_manager() as manager:

        async def asking() -> bool:
            return '"Started" controller="cloud-node-controller"' in manager.output()

        await until("the manager has started", asking)
        first = await site.existing("a")
        await site.client.delete(NODES, "a")
        await site.register([made])
        node = (await site.initialised("a"))["a"]
        await site.event("Synced", "a")

    assert node.metadata.uid != first.metadata.uid
    assert node.spec.provider_id == f"simulated://sim-1/{made.id}"


async def edit(site: Site, name: str) -> int:
    """Be somebody else until the node is initialised: add taints, all of them in one list, and labels.

    Returns how many of each there are.
    """
    for number in itertools.count():
        label = {"metadata": {"labels": {f"example.com/label-{number}": "x"}}}
        await site.client.patch(NODES, name, Patch(PatchType.MERGE, label))
        while True:
            node = await site.existing(name)
            try:
                await site.client.patch(
                    NODES, name, with_taint(node, f"example.com/taint-{number}")
                )
            except Conflict:
                continue
            break
        if is_initialised(node):
            return number + 1
    raise AssertionError("unreachable")


def with_taint(node: Node, key: str) -> Patch:
    """The whole list of taints with one more, as controllers that update objects write it."""
    listed = [*node.spec.taints, Taint(key, "PreferNoSchedule")]
    return Patch(
        PatchType.MERGE,
        {
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"taints": msgspec.to_builtins(listed)},
        },
    )


async def test_pending_events_are_written_before_an_ordered_end(site: Site) -> None:
    fleet = names("node", 10)
    await site.join(*fleet)
    async with site.lone_manager() as manager:
        await site.initialised(*fleet)
        assert await manager.stop() == 0

    assert len(await site.events("Synced")) == len(fleet)


async def test_the_metrics_count_the_nodes_that_wait_for_their_machine(site: Site) -> None:
    address = f"127.0.0.1:{free_port()}"

    async def waiting(count: int) -> bool | None:
        with contextlib.suppress(aiohttp.ClientError):
            url = f"http://{address}/metrics"
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                lines = (await answer.text()).splitlines()
            return f"proreus_nodes_uninitialized {count}.0" in lines or None
        return None

    async with site.lone_manager(f"--metrics-bind-address={address}"):
        await site.join("up")
        await site.initialised("up")
        await until("no node waits", lambda: waiting(0))
        await site.register_node(machine("lost"))
        await until("a node waits", lambda: waiting(1))
        await site.client.delete(NODES, "lost")
        await until("no node waits any more", lambda: waiting(0))
