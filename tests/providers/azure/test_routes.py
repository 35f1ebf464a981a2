"""Routes of pods, and labels of disks."""

import asyncio
import functools

import pytest

from proreus.cloudprovider import CloudError, Done, InvalidRequest, Pending, Route
from proreus.testing import objects
from proreus.testing.volumes import labels_of

from .balancing import node
from .emulator import seed
from .emulator.server import Emulator, Fault
from .emulator.store import SUBSCRIPTION, compute, network
from .site import CLUSTER, ID, started

TABLE = "Microsoft.Network/routeTables"
NODES = [
    node(f"node-{n}", f"{ID}/virtualMachines/node-{n}", f"10.0.0.{n + 4}", f"fd00:10::{n + 4}")
    for n in range(100)
]


def route(number: int, destination: str = "10.244.{}.0/24") -> Route:
    return Route("x", destination.format(number), NODES[number].spec.provider_id)


def table(azure: Emulator, name: str = "routes") -> dict[str, tuple[str, str]]:
    found = azure.store.of[network("routeTables", name).lower()]["properties"]["routes"]
    return {
        one["name"]: (one["properties"]["addressPrefix"], one["properties"].get("nextHopIpAddress"))
        for one in found
    }


async def test_a_batch_of_routes_is_one_write_of_the_table(azure: Emulator) -> None:
    many = [route(number) for number in range(100)]
    async with started(azure) as provider:
        assert provider.routes is not None
        answers = await provider.routes.apply(CLUSTER, NODES, many, ())
        counted = azure.counted()
        listed = await provider.routes.list(CLUSTER, NODES)
        again = await provider.routes.apply(CLUSTER, NODES, many, ())
        rest = azure.counted()
        await provider.routes.apply(CLUSTER, NODES, [route(7, "fd00:{}::/64")], listed[1:])
    assert set(answers.values()) == set(again.values()) == {Done()}
    assert (counted["GET", TABLE], counted["PUT", TABLE]) == (1, 1)
    assert rest["PUT", TABLE] == 0
    assert {one.target for one in listed} == {f"10.0.0.{n + 4}" for n in range(100)}
    assert table(azure) == {
        "node-0____102440024": ("10.244.0.0/24", "10.0.0.4"),
        "node-7____fd00764": ("fd00:7::/64", "fd00:10::11"),
    }


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_table_that_another_region_does_not_show_loses_no_route(
    azure: Emulator, *, restarts: bool
) -> None:
    async with started(azure) as provider, started(azure) as next_:
        assert provider.routes is not None
        await provider.routes.list(CLUSTER, NODES)
        await provider.routes.apply(CLUSTER, NODES, [route(1)], ())
        provider = next_ if restarts else provider
        assert provider.routes is not None
        azure.faults.append(Fault("GET", "routeTables", status=404, code="ResourceNotFound"))
        waiting = await provider.routes.apply(CLUSTER, NODES, [route(2)], ())
        assert isinstance(waiting[route(2)], Pending)
        assert await provider.routes.apply(CLUSTER, NODES, [route(2)], ()) == {route(2): Done()}
    assert len(table(azure)) == 2


async def test_routes_of_others_stay_and_a_destination_is_replaced_in_one_write(
    azure: Emulator,
) -> None:
    stored = azure.store.of[network("routeTables", "routes").lower()]
    given = (
        ("theirs", "0.0.0.0/0", "Internet", None),
        ("old", "10.244.1.0/24", "VirtualAppliance", "10.0.0.99"),
    )
    for name, prefix, kind, hop in given:
        properties = {"addressPrefix": prefix, "nextHopType": kind}
        if hop:
            properties["nextHopIpAddress"] = hop
        one = {"name": name, "id": f"{stored['id']}/routes/{name}", "properties": properties}
        stored["properties"]["routes"].append(one)
    async with started(azure) as provider:
        assert provider.routes is not None
        listed = await provider.routes.list(CLUSTER, NODES)
        assert [one.name for one in listed] == ["old"]
        await provider.routes.apply(CLUSTER, NODES, [route(1)], listed)
    assert table(azure) == {
        "theirs": ("0.0.0.0/0", None),
        "node-1____102441024": ("10.244.1.0/24", "10.0.0.5"),
    }


@pytest.mark.long
async def test_no_node_takes_the_route_of_another_by_its_provider_id(azure: Emulator) -> None:
    """Any kubelet can write another node's id on its own Node, and an address of its own."""
    id_ = NODES[0].spec.provider_id
    first = objects.node("node-0", id_, addresses=("10.0.0.4",), pod_cidrs=("10.244.0.0/24",))
    taker = objects.node("taker", id_, addresses=("10.0.0.66",))
    for nodes in ([taker, first], [first, taker]):
        async with started(azure) as provider:
            assert provider.routes is not None
            listed = await provider.routes.list(CLUSTER, nodes)
            await provider.routes.apply(CLUSTER, nodes, [route(0)], listed)
        assert table(azure) == {"node-0____102440024": ("10.244.0.0/24", "10.0.0.4")}


async def test_a_table_that_is_missing_for_a_while_is_made(azure: Emulator) -> None:
    async with started(azure, routeTableName="more", tags="a=b") as provider:
        assert provider.routes is not None
        assert await provider.routes.list(CLUSTER, NODES) == []
        found = await provider.routes.apply(CLUSTER, NODES, [route(1)], ())
        while isinstance(waiting := found[route(1)], Pending):
            await asyncio.sleep(waiting.after)
            found = await provider.routes.apply(CLUSTER, NODES, [route(1)], ())
        assert found == {route(1): Done()}
    assert list(table(azure, "more")) == ["node-1____102441024"]
    assert azure.store.of[network("routeTables", "more").lower()]["tags"] == {"a": "b"}


async def test_a_change_by_somebody_else_is_not_lost(azure: Emulator) -> None:
    tries = 0

    def meddle(method: str, path: str) -> None:
        nonlocal tries
        if method == "PUT" and not tries:
            tries += 1
            stored = azure.store.of[path.lower()]
            stored["tags"] = {"theirs": "yes"}
            azure.store.put(stored)

    azure.hooks.append(meddle)
    async with started(azure) as provider:
        assert provider.routes is not None
        await provider.routes.apply(CLUSTER, NODES, [route(1)], ())
        assert azure.store.of[network("routeTables", "routes").lower()]["tags"] == {"theirs": "yes"}
        busy = Fault("PUT", "routeTables", status=412, code="PreconditionFailed", times=9)
        azure.faults.append(busy)
        found = await provider.routes.apply(CLUSTER, NODES, [route(2)], ())
    assert all(isinstance(one, Pending) for one in found.values())


async def test_a_node_without_an_address_fails_alone(azure: Emulator) -> None:
    bare = node("bare", f"{ID}/virtualMachines/bare")
    lost, unknown = (
        Route("x", "10.244.9.0/24", bare.spec.provider_id),
        Route("x", "10.244.8.0/24", "?"),
    )
    async with started(azure) as provider:
        assert provider.routes is not None
        found = await provider.routes.apply(CLUSTER, [*NODES, bare], [lost, unknown, route(1)], ())
        assert found[route(1)] == Done()
        assert isinstance(found[lost], InvalidRequest)
        assert isinstance(found[unknown], InvalidRequest)
        azure.faults.append(Fault("GET", "routeTables"))
        with pytest.raises(CloudError):
            await provider.routes.apply(CLUSTER, NODES, [route(2)], ())


async def test_a_node_whose_kubelet_writes_no_address_as_one_fails_alone(azure: Emulator) -> None:
    """The API server takes any text."""
    strange = node("node-0", NODES[0].spec.provider_id, "10.0.0.4x")
    async with started(azure) as provider:
        assert provider.routes is not None
        nodes = [strange, *NODES[1:]]
        answers = await provider.routes.apply(CLUSTER, nodes, [route(0), route(1)], ())
    assert isinstance(answers[route(0)], InvalidRequest)
    assert answers[route(1)] == Done()


async def test_without_a_route_table_there_are_no_routes(azure: Emulator) -> None:
    async with started(azure, routeTableName=None) as provider:
        assert provider.routes is None


async def test_labels_of_disks(azure: Emulator) -> None:
    for name, zones in (("zonal", {"zones": ["3"]}), ("regional", {})):
        azure.store.put(
            seed.resource("Microsoft.Compute/disks", compute("disks", name), {}, **zones)
        )
    region = {"topology.kubernetes.io/region": "westeurope"}
    async with started(azure) as provider:
        labels = functools.partial(labels_of, provider)
        csi = {"driver": "disk.csi.azure.com", "volumeHandle": compute("disks", "zonal")}
        zonal = {"topology.kubernetes.io/zone": "westeurope-3", **region}
        assert await labels({"csi": csi}) == zonal
        assert await labels({"azureDisk": {"diskURI": compute("disks", "regional")}}) == region
        assert await labels({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "v"}}) == {}
        assert await labels({"hostPath": {"path": "/"}}) == {}
        other = compute("disks", "zonal").replace(SUBSCRIPTION, "another")
        for id_ in ("https://a/blob.vhd", compute("disks", "none"), network("x", "y"), other):
            with pytest.raises(InvalidRequest):
                await labels({"azureDisk": {"diskURI": id_}})
