"""Static routes of a VPC to nodes, and labels of volumes."""

import uuid

import pytest

from proreus.cloudprovider import CloudError, Done, InvalidRequest, Pending, Route
from proreus.cloudprovider.errors import ConfigError
from proreus.kube.objects import LABEL_REGION, LABEL_ZONE, Node, NodeAddress
from proreus.providers.cloudstack.routes import next_hop
from proreus.testing import objects
from proreus.testing.volumes import labels_of

from .emulator.server import Emulator
from .emulator.world import ZONE
from .site import CLUSTER, started

POD = "10.64.1.0/24"


def vpc_of(emulator: Emulator) -> tuple[str, list[Node]]:
    """A VPC with a tier, and two nodes in it."""
    network = emulator.world.add_network(vpc=True)
    names = ["node-1", "node-2"]
    ids = emulator.world.add_machines(names, network)
    nodes = [
        objects.node(
            name, f"external-cloudstack://{id_}",
            addresses=[NodeAddress("InternalIP", emulator.world.machines[id_]["nic"][0]["ipaddress"])],
        )
        for name, id_ in zip(names, ids, strict=True)
    ]  # fmt: skip
    return str(emulator.world.networks[network]["vpcid"]), nodes


def routed(emulator: Emulator) -> set[tuple[str, str]]:
    return {(one["cidr"], one["nexthop"]) for one in emulator.world.routes.values()}


async def test_a_route_leads_to_the_nodes_address_and_moves_with_its_cidr(
    emulator: Emulator,
) -> None:
    vpc, nodes = vpc_of(emulator)
    first, second = (Route("r", POD, one.spec.provider_id) for one in nodes)
    async with started(emulator, sections=f"[Route]\nvpc-id = {vpc}") as provider:
        assert provider.routes is not None
        assert await provider.routes.apply(CLUSTER, nodes, [first], []) == {first: Done()}
        (shown,) = await provider.routes.list(CLUSTER, nodes)
        assert (shown.destination, shown.target) == (POD, nodes[0].status.addresses[0].address)
        answers = await provider.routes.apply(CLUSTER, nodes, [second], [shown])
        assert answers == {second: Done(), shown: Done()}
        assert routed(emulator) == {(POD, nodes[1].status.addresses[0].address)}
        assert await provider.routes.apply(CLUSTER, nodes, [], [shown]) == {shown: Done()}
        assert routed(emulator) == {(POD, nodes[1].status.addresses[0].address)}


async def test_no_node_takes_the_route_of_another_by_its_provider_id(emulator: Emulator) -> None:
    """Any kubelet can write another node's id on its own Node, and an address of its own."""
    vpc, (first, *_) = vpc_of(emulator)
    id_, address = first.spec.provider_id, first.status.addresses[0].address
    owner = objects.node("node-1", id_, addresses=(address,), pod_cidrs=(POD,))
    taker = objects.node("taker", id_, addresses=("10.0.0.66",))
    wanted = Route("r", POD, id_)
    async with started(emulator, sections=f"[Route]\nvpc-id = {vpc}") as provider:
        assert provider.routes is not None
        for nodes in ([taker, owner], [owner, taker]):
            listed = await provider.routes.list(CLUSTER, nodes)
            answers = await provider.routes.apply(CLUSTER, nodes, [wanted], listed)
            assert answers[wanted] == Done()
            assert routed(emulator) == {(POD, address)}


async def test_routes_by_gateways_are_not_the_clusters(emulator: Emulator) -> None:
    vpc, nodes = vpc_of(emulator)
    emulator.world.routes["g"] = {"id": "g", "cidr": "10.9.0.0/16", "vpcid": vpc, "state": "Active"}
    async with started(emulator, sections=f"[Route]\nvpc-id = {vpc}") as provider:
        assert provider.routes is not None
        assert await provider.routes.list(CLUSTER, nodes) == []


async def test_a_slow_route_is_pending_and_one_that_fails_costs_only_itself(
    emulator: Emulator,
) -> None:
    vpc, nodes = vpc_of(emulator)
    first = Route("r", POD, nodes[0].spec.provider_id)
    lost = Route("l", "10.64.2.0/24", "external-cloudstack://nobody")
    async with started(emulator, sections=f"[Route]\nvpc-id = {vpc}") as provider:
        assert provider.routes is not None
        emulator.world.works = 1.5
        answers = await provider.routes.apply(CLUSTER, nodes, [first, lost], [])
        assert isinstance(answers[first], Pending)
        assert isinstance(answers[lost], InvalidRequest)
        emulator.world.now = lambda: float("inf")
        assert await provider.routes.apply(CLUSTER, nodes, [first], []) == {first: Done()}
        emulator.fail("deleteStaticRoute", 530, "the router does not answer")
        failed = await provider.routes.apply(CLUSTER, nodes, [], [first])
        assert isinstance(failed[first], CloudError)
        assert len(emulator.world.routes) == 1


async def test_without_a_vpc_there_are_no_routes(emulator: Emulator) -> None:
    async with started(emulator) as provider:
        assert provider.routes is None


async def test_an_older_cloudstack_has_no_such_routes_and_the_config_error_says_so(
    emulator: Emulator,
) -> None:
    vpc, _ = vpc_of(emulator)
    emulator.world.version = "4.20.1.0"
    with pytest.raises(ConfigError, match=r"vpc-id: needs CloudStack 4\.21"):
        async with started(emulator, sections=f"[Route]\nvpc-id = {vpc}"):
            pass


def test_the_next_hop_is_the_first_address_of_the_family() -> None:
    addresses = ["host", "10.0.0.1", "2001:db8::1", "10.0.0.2"]
    assert next_hop("10.64.0.0/24", addresses) == "10.0.0.1"
    assert next_hop("fd00::/64", addresses) == "2001:db8::1"
    assert not next_hop("fd00::/64", ["10.0.0.1"])


async def test_a_volume_has_the_labels_of_its_zone(emulator: Emulator) -> None:
    id_ = str(uuid.uuid4())
    emulator.world.volumes[id_] = {"id": id_, **ZONE}
    async with started(emulator, "region = north") as provider:
        source = {"csi": {"driver": "csi.cloudstack.apache.org", "volumeHandle": id_}}
        assert await labels_of(provider, source) == {
            LABEL_ZONE: "zone-1",
            LABEL_REGION: "north",
        }
        other = {"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": id_}}
        assert await labels_of(provider, other) == {}


@pytest.mark.parametrize("handle", ["vol-1", "0b5e3a1c-0000-4000-8000-0000000000ff"])
async def test_a_volume_that_there_is_not_is_refused(emulator: Emulator, handle: str) -> None:
    async with started(emulator) as provider:
        source = {"csi": {"driver": "csi.cloudstack.apache.org", "volumeHandle": handle}}
        with pytest.raises(InvalidRequest, match=handle):
            await labels_of(provider, source)
