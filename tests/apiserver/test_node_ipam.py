"""Nodes get pod CIDRs, each block once: on a real API server and cloud, with real managers."""

import asyncio
import itertools
from collections import Counter
from ipaddress import ip_network
from typing import Any

import msgspec
import pytest

from proreus.kube import config
from proreus.kube.objects import Condition, Node, condition
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES
from proreus.testing.manager import ManagerProcess
from proreus.testing.simulated import Fault, FaultMode, Instance
from proreus.testing.waiting import until

from .api_proxy import api_proxy
from .rights import MANAGERS
from .site import Site, names

ONLY = "--controllers=nodeipam"
SMALL = "--cluster-cidr=10.0.0.0/22"  # four nodes


def manager(site: Site, *flags: str, **more: Any) -> ManagerProcess:
    return site.lone_manager(ONLY, "--allocate-node-cidrs", *flags, **more)


async def add(site: Site, *added: str, cidrs: tuple[str, ...] = ()) -> None:
    """Create nodes without machines."""
    spec = {"podCIDR": cidrs[0], "podCIDRs": list(cidrs)} if cidrs else {}
    for name in added:
        await site.client.create(NODES, {"metadata": {"name": name}, "spec": spec})


async def add_node_of(site: Site, machine: Instance, *cidrs: str) -> None:
    """Create the Node of a machine."""
    spec: dict[str, Any] = {"providerID": f"simulated://sim-1/{machine.id}"}
    if cidrs:
        spec.update({"podCIDR": cidrs[0], "podCIDRs": list(cidrs)})
    await site.client.create(NODES, {"metadata": {"name": machine.name}, "spec": spec})


async def have(site: Site, *asked: str, count: int = 1) -> dict[str, tuple[str, ...]]:
    """Wait until these nodes have so many CIDRs; what all have then."""

    async def all_have() -> dict[str, Node] | None:
        nodes = await site.nodes()
        is_so = all(name in nodes and len(nodes[name].spec.pod_cidrs) == count for name in asked)
        return nodes if is_so else None

    nodes = await until(f"{', '.join(asked[:5])} have {count} pod CIDRs", all_have)
    return {name: node.spec.pod_cidrs for name, node in nodes.items() if node.spec.pod_cidrs}


async def says(site: Site, name: str, reason: str) -> Condition:
    """Wait until the node's condition has that reason."""

    async def has_reason() -> Condition | None:
        found = condition((await site.existing(name)).status.conditions, "PodCIDRsAllocated")
        return found if found is not None and found.reason == reason else None

    return await until(f"{name} says {reason}", has_reason)


async def in_cloud(site: Site, machine: Instance) -> tuple[str, ...]:
    (found,) = [one for one in await site.cloud.admin.instances() if one.id == machine.id]
    return found.pod_cidrs


def assert_disjoint(held: dict[str, tuple[str, ...]]) -> None:
    nets = sorted(
        (ip_network(cidr) for cidrs in held.values() for cidr in cidrs),
        key=lambda net: (net.version, int(net.network_address)),
    )
    for one, other in itertools.pairwise(nets):
        assert one.version != other.version or not one.overlaps(other), (one, other)


async def test_dual_stack_nodes_get_a_block_of_each_family_by_one_patch(site: Site) -> None:
    some = names("n", 40)
    async with manager(
        site,
        "--cluster-cidr=10.0.0.0/16,fd00::/48",
        "--service-cluster-ip-range=10.0.0.0/20,fd00::/112",
        "--node-cidr-mask-size-ipv4=25",
    ):
        await add(site, *some)
        held = await have(site, *some, count=2)
    assert_disjoint(held)
    services = ip_network("10.0.0.0/20")
    for v4, v6 in held.values():
        assert ip_network(v4).prefixlen == 25
        assert not ip_network(v4).overlaps(services)
        assert ip_network(v6).prefixlen == 64
        assert v6 != "fd00::/64"
    assert site.patches() == {name: Counter({"": 1}) for name in some}


async def test_blocks_that_nodes_have_are_kept_and_foreign_ones_are_named(site: Site) -> None:
    await add(site, "old", cidrs=("10.0.0.0/24",))
    await add(site, "wide", cidrs=("10.0.2.0/23",))
    await add(site, "stranger", cidrs=("192.168.7.0/24",))
    async with manager(site, SMALL):
        await add(site, "new")
        held = await have(site, "new")
        event = await site.event("CIDROutsideClusterCIDR", "stranger")
    assert held["new"] == ("10.0.1.0/24",)
    assert "192.168.7.0/24" in event.message
    assert set(site.patches()) == {"new"}


async def test_exhaustion_is_reported_and_healed_by_a_node_that_goes(site: Site) -> None:
    async with manager(site, SMALL):
        first = names("n", 4)
        await add(site, *first)
        held = await have(site, *first)
        await add(site, "late")
        assert "10.0.0.0/22" in (await says(site, "late", "CIDRNotAvailable")).message
        event = await site.event("CIDRNotAvailable", "late")
        assert event.type == "Warning"

        await site.client.delete(NODES, "n-2")

        assert (await have(site, "late"))["late"] == held["n-2"]
        assert (await says(site, "late", "PodCIDRsAllocated")).status == "True"
    assert site.patches()["late"] == Counter({"status": 2, "": 1})


async def test_no_block_is_given_twice_by_managers_that_are_killed_in_the_middle(
    site: Site,
) -> None:
    some = names("n", 60)
    flags = ("--cluster-cidr=10.0.0.0/16", "--concurrent-node-syncs=2")
    creation = asyncio.create_task(add(site, *some))
    for number in range(3):
        async with manager(site, *flags, user=f"manager-{number}") as killed:
            wanted = some[: 15 * (number + 1)]
            await have(site, *wanted)
            await killed.kill()
    await creation
    async with manager(site, *flags, user="last"):
        held = await have(site, *some)
    assert len(held) == len(some)
    assert_disjoint(held)


async def test_a_write_without_an_answer_keeps_its_block_for_the_node(site: Site) -> None:
    user = config.load(str(site.plane.kubeconfig_for("manager", [MANAGERS])), env={})
    async with (
        api_proxy(user, cut={"PATCH"}) as proxy,
        manager(site, SMALL, api_server=proxy.url),
    ):
        first = names("n", 2)
        await add(site, *first)
        held = await have(site, *first)

        async def all_cut() -> bool:
            # The API server shows a write before the proxy sees its answer.
            return len(proxy.held) >= len(held)

        await until("both answers are cut off", all_cut)
        proxy.release()
        await add(site, "late", "last")
        held = await have(site, *first, "late", "last")  # of four blocks none is lost
    assert_disjoint(held)


async def test_a_node_that_somebody_else_was_quicker_with_gives_its_block_back(site: Site) -> None:
    user = config.load(str(site.plane.kubeconfig_for("manager", [MANAGERS])), env={})
    async with (
        api_proxy(user, requests={"PATCH"}) as proxy,
        manager(site, "--cluster-cidr=10.0.0.0/24", api_server=proxy.url),
    ):
        await add(site, "contested")

        async def is_held() -> bool:
            return bool(proxy.held)

        await until("the block is being written", is_held)
        theirs = {"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}}
        await site.client.patch(NODES, "contested", Patch(PatchType.STRATEGIC, theirs))
        proxy.release()
        await add(site, "other")
        held = await have(site, "contested", "other")
    assert held == {"contested": ("10.9.0.0/24",), "other": ("10.0.0.0/24",)}
    assert not await site.events("CIDRAssignmentFailed")


async def test_nodes_that_are_being_deleted_get_nothing(site: Site) -> None:
    leaving = {"metadata": {"name": "leaving", "finalizers": ["example.com/hold"]}}
    await site.client.create(NODES, leaving)
    await site.client.delete(NODES, "leaving")
    async with manager(site, SMALL):
        await add(site, "new")
        await have(site, "new")
    assert set(site.patches()) == {"new"}
    free = Patch(PatchType.MERGE, {"metadata": {"finalizers": None}})
    await site.client.patch(NODES, "leaving", free)


async def test_the_clouds_blocks_are_written_to_the_nodes(site: Site) -> None:
    a, b = await site.machines("a", "b")
    await site.cloud.admin.change(a.id, pod_cidrs=["10.7.0.0/24", "fd00:7::/64"])
    async with manager(site, "--cidr-allocator-type=IPAMFromCloud"):
        for machine in (a, b):
            await add_node_of(site, machine)
        assert (await have(site, "a", count=2))["a"] == ("10.7.0.0/24", "fd00:7::/64")
        await says(site, "b", "CIDRNotAvailable")
        await site.event("CIDRNotAvailable", "b")

        await site.cloud.admin.change(b.id, pod_cidrs=["10.7.1.0/24"])

        assert (await have(site, "b"))["b"] == ("10.7.1.0/24",)
        await says(site, "b", "PodCIDRsAllocated")
    assert not [one for one in await site.cloud.admin.calls() if not one.read]


async def test_a_node_that_differs_from_the_cloud_is_left_as_it_is_and_reports_it(
    site: Site,
) -> None:
    other, alone = await site.machines("other", "alone")
    await site.cloud.admin.change(other.id, pod_cidrs=["10.7.0.0/24"])
    await add_node_of(site, other, "10.8.0.0/24")
    await add_node_of(site, alone, "10.8.1.0/24")
    async with manager(site, "--cidr-allocator-type=IPAMFromCloud"):
        await says(site, "other", "CloudCIDRAllocatorMismatch")
        await says(site, "alone", "CloudCIDRAllocatorInvalidMode")
        await site.event("CloudCIDRAllocatorMismatch", "other")
        await site.event("CloudCIDRAllocatorInvalidMode", "alone")
    assert await in_cloud(site, other) == ("10.7.0.0/24",)
    assert await in_cloud(site, alone) == ()


async def test_the_nodes_blocks_go_to_the_cloud_and_come_back_with_the_node(site: Site) -> None:
    a, b = await site.machines("a", "b")
    flags = ("--cidr-allocator-type=IPAMFromCluster", "--cluster-cidr=10.0.0.0/24")
    async with manager(site, *flags):
        await add_node_of(site, a)

        async def assigned(machine: Instance) -> bool:
            return await in_cloud(site, machine) == ("10.0.0.0/24",)

        await until("a's block is in the cloud", lambda: assigned(a))
        await add_node_of(site, b)
        await says(site, "b", "CIDRNotAvailable")

        await site.client.delete(NODES, "a")  # its machine is there still

        await until("b's block is in the cloud", lambda: assigned(b))
        assert await in_cloud(site, a) == ()
    assert (await site.existing("b")).spec.pod_cidrs == ("10.0.0.0/24",)


async def test_a_node_that_claims_another_s_instance_takes_no_block_of_it_along(
    site: Site,
) -> None:
    a, b = await site.machines("a", "b")
    flags = ("--cidr-allocator-type=IPAMFromCluster", "--cluster-cidr=10.0.0.0/22")
    async with manager(site, *flags):
        await add_node_of(site, a)
        (block,) = (await have(site, "a"))["a"]

        async def assigned(machine: Instance) -> bool:
            return bool(await in_cloud(site, machine))

        await until("a's block is in the cloud", lambda: assigned(a))
        await add_node_of(site, msgspec.structs.replace(a, name="thief"), block)
        await site.client.delete(NODES, "thief")
        await add_node_of(site, b)
        await until("b's block is in the cloud", lambda: assigned(b))
        assert await in_cloud(site, a) == (block,)


async def test_a_node_that_claims_an_instance_of_another_cluster_takes_no_block_of_it_along(
    site: Site,
) -> None:
    a, theirs = await site.machines("a", "theirs")
    await site.cloud.admin.change(theirs.id, pod_cidrs=["10.9.0.0/24"])
    flags = ("--cidr-allocator-type=IPAMFromCluster", "--cluster-cidr=10.0.0.0/22")
    async with manager(site, *flags):
        await add_node_of(site, msgspec.structs.replace(theirs, name="thief"), "10.9.0.0/24")
        await site.event("CIDROutsideClusterCIDR", "thief")
        await site.client.delete(NODES, "thief")
        await add_node_of(site, a)
        await have(site, "a")
        await until("a's block is in the cloud", lambda: in_cloud(site, a))
        assert await in_cloud(site, theirs) == ("10.9.0.0/24",)
        await site.cloud.admin.change(theirs.id, pod_cidrs=[])
        await add_node_of(site, msgspec.structs.replace(theirs, name="thief"), "10.9.0.0/24")
        await says(site, "thief", "CIDROutsideClusterCIDR")
        assert await in_cloud(site, theirs) == ()


async def test_a_node_gets_no_block_of_an_older_one(site: Site) -> None:
    a, b = await site.machines("a", "b")
    await site.cloud.admin.inject(Fault(FaultMode.ERROR, "instances.assign_pod_cidrs", count=1))
    flags = ("--cidr-allocator-type=IPAMFromCluster", "--cluster-cidr=10.0.0.0/22")
    async with manager(site, *flags):
        await add_node_of(site, a)
        (block,) = (await have(site, "a"))["a"]
        await add_node_of(site, b, block)
        state = await says(site, "b", "CIDRNotUnique")
        assert "node a has the pod CIDR" in state.message
        await until("a's block is in the cloud", lambda: in_cloud(site, a))
        assert await in_cloud(site, b) == ()
        await site.client.delete(NODES, "a")
        await until("it is b's now", lambda: in_cloud(site, b))


@pytest.mark.parametrize("mode", [FaultMode.ERROR, FaultMode.CUT_AFTER])
async def test_an_assignment_that_fails_is_reported_and_tried_again(
    site: Site, mode: FaultMode
) -> None:
    (a,) = await site.machines("a")
    await site.cloud.admin.inject(Fault(mode, "instances.assign_pod_cidrs", count=2))
    flags = ("--cidr-allocator-type=IPAMFromCluster", "--cluster-cidr=10.0.0.0/22")
    async with manager(site, *flags):
        await add_node_of(site, a)
        await site.event("CIDRAssignmentFailed", "a")
        assert (await says(site, "a", "PodCIDRsAllocated")).status == "True"
    assert await in_cloud(site, a) == (await site.existing("a")).spec.pod_cidrs
