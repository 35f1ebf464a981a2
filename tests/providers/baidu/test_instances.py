"""Nodes and machines: ids, names, addresses, states, batches, and what proves absence."""

import pytest

from proreus.cloudprovider import Instance, InstanceState, InvalidRequest, NotFound, Ownership
from proreus.cloudprovider.errors import CloudError, IdentityConflict
from proreus.kube.objects import LABEL_REGION, LABEL_ZONE, NodeAddress
from proreus.testing import objects
from proreus.testing.volumes import labels_of

from .emulator.server import Emulator
from .emulator.world import World
from .site import describe, node, started


def subnet(world: World) -> str:
    return world.add_subnet(world.add_vpc())


async def test_a_machine_is_described_as_the_official_manager_does(emulator: Emulator) -> None:
    world = emulator.world
    (id_,) = world.add_machines(["node-1"], subnet(world), zoneName="cn-bj-d")
    ip = world.instances[id_]["internalIp"]
    async with started(emulator) as provider:
        found = (await describe(provider, node("node-1")))["node-1"]
    assert found == Instance(
        provider_id=f"cce://{id_}",
        name="node-1",
        instance_type="bcc.g5.c2m8",
        zone="zoneD",
        region="bj",
        addresses=(NodeAddress("InternalIP", ip), NodeAddress("Hostname", ip)),
    )


async def test_a_node_is_found_by_id_host_name_or_address(emulator: Emulator) -> None:
    world = emulator.world
    ids = world.add_machines(["one", "Two", "three", "four"], subnet(world))
    ip = world.instances[ids[2]]["internalIp"]
    nodes = [node("x", ids[0]), node("two"), node(ip), objects.node("y", ids[3])]
    async with started(emulator) as provider:
        found = await describe(provider, *nodes)
    assert [found[name].provider_id for name in ("x", "two", ip, "y")] == [  # type: ignore[union-attr]
        f"cce://{ids[0]}", f"cce://{ids[1]}", f"cce://{ids[2]}", ids[3],
    ]  # fmt: skip


async def test_addresses_are_looked_up_in_the_vpc_that_the_config_names(
    emulator: Emulator,
) -> None:
    world = emulator.world
    here, there = subnet(world), subnet(world)
    (id_,) = world.add_machines(["node-1"], here, internalIp="10.0.0.9")
    world.add_machines(["node-1"], there, internalIp="10.0.0.9")
    async with started(emulator) as provider:
        found = await describe(provider, node("10.0.0.9"), node("node-1"))
        assert all(isinstance(one, IdentityConflict) for one in found.values())
    vpc = world.subnets[here]["vpcId"]
    async with started(emulator, VpcId=vpc) as provider:
        found = await describe(provider, node("10.0.0.9"), node("node-1"))
    assert {one.provider_id for one in found.values()} == {f"cce://{id_}"}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("Running", InstanceState.RUNNING),
        ("Starting", InstanceState.RUNNING),
        ("Stopping", InstanceState.RUNNING),
        ("Scaling", InstanceState.RUNNING),
        ("Stopped", InstanceState.STOPPED),
        ("Expired", InstanceState.STOPPED),
        ("Recycled", InstanceState.TERMINATING),
        ("Error", InstanceState.UNKNOWN),
    ],
)
async def test_states_are_those_of_the_cloud(
    status: str, state: InstanceState, emulator: Emulator
) -> None:
    (id_,) = emulator.world.add_machines(["node-1"], subnet(emulator.world), status=status)
    async with started(emulator) as provider:
        found = (await describe(provider, node("node-1", id_)))["node-1"]
    assert isinstance(found, Instance)
    assert found.state is state
    assert found.powered_off is (status == "Stopped")


async def test_a_released_machine_is_gone_and_a_deleted_one_is_a_tombstone(
    emulator: Emulator,
) -> None:
    world = emulator.world
    ids = world.add_machines(["one", "two", "three"], subnet(world))
    world.remove_machine(ids[0])
    world.instances[ids[1]]["status"] = "Deleted"
    nodes = [node(f"n{number}", id_) for number, id_ in enumerate(ids)]
    async with started(emulator) as provider:
        found = await describe(provider, *nodes, node("two"))
    assert (found["n0"], found["n1"]) == (NotFound(), NotFound(tombstone=True))
    assert isinstance(found["n2"], Instance)
    assert found["two"] == NotFound()


async def test_what_a_list_leaves_out_is_asked_for_alone(emulator: Emulator) -> None:
    world = emulator.world
    ids = world.add_machines(["one", "two"], subnet(world))
    world.remove_machine(ids[0])
    emulator.fail("getInstance", 500)
    nodes = [node("n0", ids[0]), node("n1", ids[1])]
    async with started(emulator) as provider:
        found = await describe(provider, *nodes)
        assert isinstance(found["n0"], CloudError)
        assert isinstance(found["n1"], Instance)
        assert (await describe(provider, *nodes))["n0"] == NotFound()


async def test_bare_metal_is_found_by_id_name_and_address(emulator: Emulator) -> None:
    world = emulator.world
    id_ = world.add_bare_metal("iron")
    ip = world.bare_metals[id_]["internalIp"]
    names = ("by-id", "iron", ip)
    async with started(emulator) as provider:
        found = await describe(provider, node("by-id", id_), node("iron"), node(ip))
        for name in names:
            machine = found[name]
            assert isinstance(machine, Instance)
            assert (machine.provider_id, machine.instance_type, machine.zone) == (
                f"cce://{id_}", "BBC-S3-02", "zoneB",
            )  # fmt: skip
    async with started(emulator, BareMetal=False) as provider:
        found = await describe(provider, node("by-id", id_), node("iron"), node(ip))
        assert set(found.values()) == {NotFound()}
        assert not emulator.failures


async def test_a_machine_of_bbc_is_not_taken_for_another_one_of_bcc(emulator: Emulator) -> None:
    """The Node of a living machine would go with that of another cluster."""
    world = emulator.world
    here, there = world.add_vpc(), world.add_vpc()
    called = {"internalIp": "10.0.0.9"}
    own = world.add_bare_metal("node-1", here, **called)
    world.add_machines(["node-1"], world.add_subnet(there), **called)
    async with started(emulator) as provider:
        found = await describe(provider, node("10.0.0.9"), node("node-1"))
        assert all(isinstance(one, IdentityConflict) for one in found.values())
    async with started(emulator, VpcId=here) as provider:
        found = await describe(provider, node("10.0.0.9"), node("node-1"))
        assert {one.provider_id for one in found.values()} == {f"cce://{own}"}  # type: ignore[union-attr]
    async with started(emulator, VpcId=world.add_vpc()) as provider:
        found = await describe(provider, node("10.0.0.9"), node("node-1"))
        assert set(found.values()) == {NotFound()}


async def test_without_bbc_nodes_are_found_by_their_names_in_bcc(emulator: Emulator) -> None:
    """Once BBC has answered, what it does not say now may be there."""
    (id_,) = emulator.world.add_machines(["node-1"], subnet(emulator.world))
    async with started(emulator) as provider:
        emulator.fail("listBareMetals", 404, "")
        found = (await describe(provider, node("node-1")))["node-1"]
        assert isinstance(found, Instance)
        assert found.provider_id == f"cce://{id_}"
        assert isinstance((await describe(provider, node("node-1")))["node-1"], Instance)
        emulator.fail("listBareMetals", 500)
        with pytest.raises(CloudError):
            await describe(provider, node("node-1"))


async def test_a_new_node_waits_for_bbc_if_that_fails_from_the_start(emulator: Emulator) -> None:
    """In a region without it nothing answers in Baidu's form; the Node's machine may be there."""
    world = emulator.world
    own = world.add_bare_metal("node-1", world.add_vpc())
    (other,) = world.add_machines(["node-1"], subnet(world))
    async with started(emulator) as provider:
        for _ in range(2):
            emulator.fail("listBareMetals", 500)
            with pytest.raises(CloudError):
                await describe(provider, node("node-1"))
        world.remove_machine(other)
        found = (await describe(provider, node("node-1")))["node-1"]
        assert isinstance(found, Instance)
        assert found.provider_id == f"cce://{own}"


async def test_nothing_is_gone_before_bbc_has_been_asked(emulator: Emulator) -> None:
    emulator.fail("getBareMetal", 500)
    async with started(emulator) as provider:
        assert isinstance((await describe(provider, node("n", "i-gone")))["n"], CloudError)
        assert (await describe(provider, node("n", "i-gone")))["n"] == NotFound()


async def test_a_404_that_is_not_the_clouds_own_proves_nothing(emulator: Emulator) -> None:
    world = emulator.world
    (id_,) = world.add_machines(["one"], subnet(world))
    world.remove_machine(id_)
    emulator.fail("getInstance", 404, "")
    async with started(emulator) as provider:
        assert isinstance((await describe(provider, node("n", id_)))["n"], CloudError)


@pytest.mark.parametrize("operation", ["getInstance", "getBareMetal"])
async def test_an_api_that_is_not_served_any_more_proves_no_absence(
    operation: str, emulator: Emulator
) -> None:
    """The common error `InvalidVersion` has the status 404, too: it is about the path's version."""
    world = emulator.world
    (id_,) = world.add_machines(["one"], subnet(world))
    world.remove_machine(id_)
    emulator.fail(operation, 404, "InvalidVersion")
    async with started(emulator) as provider:
        found = (await describe(provider, node("n", id_)))["n"]
        assert isinstance(found, CloudError)
        assert "InvalidVersion" in str(found)
        assert (await describe(provider, node("n", id_)))["n"] == NotFound()


async def test_a_hundred_nodes_cost_one_request_and_five_hundred_five(emulator: Emulator) -> None:
    world = emulator.world
    names = [f"node-{number}" for number in range(500)]
    ids = world.add_machines(names, subnet(world))
    nodes = [node(name, id_) for name, id_ in zip(names, ids, strict=True)]
    async with started(emulator) as provider:
        await describe(provider, *nodes[:100])
        assert emulator.calls["listInstances"] == 1
        found = await describe(provider, *nodes)
        assert emulator.calls["listInstances"] == 6
    assert all(isinstance(one, Instance) for one in found.values())


async def test_pages_are_followed(emulator: Emulator) -> None:
    world = emulator.world
    names = [f"node-{number}" for number in range(23)]
    world.add_machines(names, subnet(world))
    emulator.page = 5
    async with started(emulator) as provider:
        found = await describe(provider, *map(node, names))
    assert all(isinstance(one, Instance) for one in found.values())
    assert emulator.calls["listInstances"] == 5


async def test_an_answer_without_a_list_is_no_empty_list(emulator: Emulator) -> None:
    emulator.world.add_machines(["one"], subnet(emulator.world))
    async with started(emulator) as provider:
        emulator.fail("listInstances", 200, "")
        with pytest.raises(CloudError, match="no instances"):
            await describe(provider, node("one"))


async def test_ids_of_other_clouds_are_refused_and_owned_by_nobody_here(
    emulator: Emulator,
) -> None:
    foreign = objects.node("n", "aws:///eu/i-1")
    async with started(emulator) as provider:
        assert provider.instances is not None
        assert isinstance((await describe(provider, foreign))["n"], InvalidRequest)
        assert provider.instances.owns(foreign) is Ownership.NO
        assert provider.instances.owns(node("n", "i-1")) is Ownership.YES
        assert provider.instances.owns(node("n")) is Ownership.UNKNOWN


async def test_a_node_of_another_region_is_owned_by_nobody_here(emulator: Emulator) -> None:
    label, beta = "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"
    async with started(emulator) as provider:
        assert provider.instances is not None
        mine, there, old = (
            node("n", "i-1", labels=labels)
            for labels in ({label: "bj"}, {label: "gz"}, {beta: "gz"})
        )
        assert [provider.instances.owns(one) for one in (mine, there, old)] == [
            Ownership.YES, Ownership.NO, Ownership.NO,
        ]  # fmt: skip


async def test_a_machine_without_an_address_is_not_described_yet(emulator: Emulator) -> None:
    (id_,) = emulator.world.add_machines(["one"], subnet(emulator.world), internalIp="")
    async with started(emulator) as provider:
        assert isinstance((await describe(provider, node("n", id_)))["n"], CloudError)


@pytest.mark.parametrize(("kind", "type_"), [("9", "GPU"), ("10", "BCC")])
async def test_a_machine_without_a_specification_has_the_official_type(
    kind: str, type_: str, emulator: Emulator
) -> None:
    (id_,) = emulator.world.add_machines(
        ["one"], subnet(emulator.world), spec="", instanceType=kind
    )
    async with started(emulator) as provider:
        found = (await describe(provider, node("n", id_)))["n"]
    assert isinstance(found, Instance)
    assert found.instance_type == type_


async def test_a_volume_is_labelled_with_zone_and_region(emulator: Emulator) -> None:
    id_ = emulator.world.add_volume("cn-bj-b")
    async with started(emulator) as provider:
        source = {"csi": {"driver": "csi-cdsplugin", "volumeHandle": id_}}
        labels = await labels_of(provider, source)
        assert labels == {LABEL_ZONE: "zoneB", LABEL_REGION: "bj"}
        assert await labels_of(provider, {"csi": {"driver": "x", "volumeHandle": id_}}) == {}
        for handle in ("v-none", "vol 1"):
            source = {"csi": {"driver": "csi-cdsplugin", "volumeHandle": handle}}
            with pytest.raises(InvalidRequest):
                await labels_of(provider, source)
