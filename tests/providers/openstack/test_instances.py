"""Instances: found by id and by name, in few requests, and absent only if Nova says so."""

from typing import Any

import pytest
from aiohttp import web

from proreus.cloudprovider.errors import CloudError, IdentityConflict, InvalidRequest
from proreus.cloudprovider.instances import Instance, InstanceState, NotFound
from proreus.cloudprovider.provider import CloudProvider
from proreus.kube.objects import Node

from .wire import Wire, context, node, of, port, said, shown, started, uuid

DOWN = {"computeFault": {"code": 500, "message": "the cell is down"}}


async def describe(provider: CloudProvider, *nodes: Node) -> dict[str, Any]:
    assert provider.instances is not None
    return dict(await provider.instances.describe(nodes))


async def one(provider: CloudProvider, of_: Node) -> Any:
    return (await describe(provider, of_))[of_.metadata.name]


def failure() -> web.Response:
    return said(500, DOWN)


async def test_a_node_is_found_by_its_name(wire: Wire) -> None:
    id_ = wire.add(1, "node-1.example.org", status="SHUTOFF")
    wire.add(2, "node-1xexample.org")
    async with started(wire.config()) as provider:
        found = await one(provider, node("node-1.example.org"))
    assert found == Instance(
        provider_id=f"openstack:///{id_}",
        name="node-1.example.org",
        instance_type="m1.large",
        zone="nova",
        region="RegionOne",
        addresses=found.addresses,
        state=InstanceState.STOPPED,
    )
    assert shown(found) == [("InternalIP", "10.0.0.2")]


async def test_a_server_with_capitals_is_the_node_in_small_letters(wire: Wire) -> None:
    id_ = wire.add(1, "Node-1")
    async with started(wire.config()) as provider:
        assert (await one(provider, node("node-1"))).provider_id == f"openstack:///{id_}"


async def test_a_name_that_two_servers_have_is_no_identity(wire: Wire) -> None:
    ids = [wire.add(1, "twin"), wire.add(2, "twin")]
    async with started(wire.config()) as provider:
        found = await one(provider, node("twin"))
    assert isinstance(found, IdentityConflict)
    assert all(id_ in str(found) for id_ in ids)


async def test_a_provider_id_goes_before_the_name_and_is_kept(wire: Wire) -> None:
    first, _ = wire.add(1, "one"), wire.add(2, "two")
    async with started(wire.config()) as provider:
        found = await describe(
            provider, node("two", first), node("b", f"openstack://RegionOne/{first}")
        )
    assert {name: it.provider_id for name, it in found.items()} == {
        "two": first,
        "b": f"openstack://RegionOne/{first}",
    }
    assert {it.name for it in found.values()} == {"one"}


async def test_new_provider_ids_name_the_region_where_that_is_asked_for(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = wire.add(1, "one")
    monkeypatch.setenv("OS_CCM_REGIONAL", "true")
    async with started(wire.config()) as provider:
        assert (await one(provider, node("one"))).provider_id == f"openstack://RegionOne/{id_}"


async def test_2500_nodes_cost_three_pages_and_a_list_of_ports_for_each_hundred(wire: Wire) -> None:
    ids = [wire.add(number) for number in range(2500)]
    made = context()
    async with started(wire.config(), made) as provider:
        found = await describe(provider, *of(ids))
    assert [it.provider_id for it in found.values()] == [f"openstack:///{id_}" for id_ in ids]
    assert all(it.addresses for it in found.values())
    assert wire.asked == {
        "token_create": 1, "server_list": 3, "port_list": 25, "flavor_get": 1,
    }  # fmt: skip
    assert len(made.calls) == wire.asked.total()


async def test_few_nodes_are_asked_for_one_by_one(wire: Wire) -> None:
    ids = [wire.add(number) for number in range(3)]
    async with started(wire.config()) as provider:
        found = await describe(provider, *of(ids))
    assert all(isinstance(it, Instance) for it in found.values())
    assert wire.asked["server_list"] == 0
    assert wire.asked["server_get"] == 3


async def test_nodes_without_ids_are_found_twenty_at_a_time(wire: Wire) -> None:
    names = [wire.servers[wire.add(number)]["name"] for number in range(45)]
    async with started(wire.config()) as provider:
        found = await describe(provider, *map(node, names))
    assert all(isinstance(it, Instance) for it in found.values())
    assert len(wire.names) == 3
    assert wire.asked["server_list"] == 4, "and one tells whether a cell is down"


async def test_a_server_that_the_list_leaves_out_is_asked_for_by_itself(wire: Wire) -> None:
    ids = [wire.add(number) for number in range(10)]
    gone, hidden = ids[0], ids[1]
    del wire.servers[gone]
    wire.unlisted.add(hidden)
    async with started(wire.config()) as provider:
        found = await describe(provider, *of(ids))
    assert found["n0"] == NotFound()
    assert found["n1"].provider_id.endswith(hidden)
    assert wire.asked["server_get"] == 2


async def test_a_server_that_nova_cannot_describe_is_unknown_and_not_absent(wire: Wire) -> None:
    ids = [wire.add(number) for number in range(10)]
    wire.unlisted.add(ids[1])
    wire.fail("server_get", failure())
    async with started(wire.config()) as provider:
        found = await describe(provider, *of(ids))
    assert isinstance(found.pop("n1"), CloudError)
    assert all(isinstance(it, Instance) for it in found.values())


async def test_an_answer_404_that_is_not_novas_is_no_absence(wire: Wire) -> None:
    id_ = wire.add(1)
    wire.fail("server_get", web.Response(status=404, text="<html>no such page</html>"))
    async with started(wire.config()) as provider:
        assert isinstance(await one(provider, of([id_])[0]), CloudError)


async def test_a_provider_id_of_another_cloud_costs_only_itself(wire: Wire) -> None:
    id_ = wire.add(1)
    async with started(wire.config()) as provider:
        found = await describe(provider, node("a", "aws:///us-east-1a/i-1"), *of([id_]))
    assert isinstance(found["a"], InvalidRequest)
    assert isinstance(found["n0"], Instance)


@pytest.mark.parametrize("operation", ["port_list", "flavor_get"])
async def test_what_is_half_known_is_unknown(wire: Wire, operation: str) -> None:
    there, gone = wire.add(1), uuid(2)
    wire.fail(operation, failure())
    async with started(wire.config()) as provider:
        found = await describe(provider, *of([there, gone]))
    assert isinstance(found["n0"], CloudError)
    assert found["n1"] == NotFound()


async def test_a_failed_search_by_name_costs_only_nodes_without_ids(wire: Wire) -> None:
    id_ = wire.add(1)
    wire.fail("server_list", failure())
    async with started(wire.config()) as provider:
        found = await describe(provider, node("new"), *of([id_]))
    assert isinstance(found["new"], CloudError)
    assert isinstance(found["n0"], Instance)


async def test_when_nothing_can_be_read_the_whole_batch_fails(wire: Wire) -> None:
    ids = [wire.add(number) for number in range(10)]
    wire.fail("server_list", failure())
    async with started(wire.config()) as provider:
        with pytest.raises(CloudError, match="the cell is down"):
            await describe(provider, *of(ids))


async def test_ports_in_trunks_cost_two_requests_for_all_nodes(wire: Wire) -> None:
    ids = [wire.add(number) for number in range(3)]
    wire.networks["vlan"] = "storage"
    for number, parent in enumerate(list(wire.ports)):
        parent["trunk_details"] = {"sub_ports": [{"port_id": f"sub-{number}"}]}
        wire.ports.append(port(f"sub-{number}", "", f"10.7.0.{number}", network_id="vlan"))
    async with started(wire.config()) as provider:
        found = await describe(provider, *of(ids))
    assert [shown(it)[-1] for it in found.values()] == [
        ("InternalIP", f"10.7.0.{number}") for number in range(3)
    ]
    assert (wire.asked["port_list"], wire.asked["network_list"]) == (2, 1)


async def test_pages_of_ports_are_read_to_the_end(wire: Wire) -> None:
    wire.page = 4
    ids = [wire.add(number) for number in range(10)]
    async with started(wire.config()) as provider:
        found = await describe(provider, *of(ids))
    assert all(len(it.addresses) == 1 for it in found.values())
    assert (wire.asked["server_list"], wire.asked["port_list"]) == (3, 3)


async def test_a_flavor_that_is_gone_leaves_its_id(wire: Wire) -> None:
    id_ = wire.add(1, flavor={"id": "f-gone"})
    async with started(wire.config()) as provider:
        assert (await one(provider, of([id_])[0])).instance_type == "f-gone"


async def test_a_flavor_is_asked_for_once(wire: Wire) -> None:
    ids = [wire.add(number) for number in range(3)]
    async with started(wire.config()) as provider:
        for _ in range(2):
            await describe(provider, *of(ids))
    assert wire.asked["flavor_get"] == 1
