"""Routes: many in one request, pairs first, nothing of others touched, and nothing left behind."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.load_balancers import Done
from proreus.cloudprovider.routes import Route, Routes
from proreus.kube.objects import Node, NodeAddress
from proreus.providers.openstack.hops import changed_pairs, hop
from proreus.testing import objects

from .wire import CLUSTER, ROUTER, Wire, node, port, said, started, uuid

SECTION = f"[Route]\nrouter-id = {ROUTER}\n"


@asynccontextmanager
async def routed(wire: Wire) -> AsyncIterator[Routes]:
    wire.ports.append(port("r", ROUTER, "10.0.0.1", allowed_address_pairs=[]))
    async with started(wire.config(sections=SECTION)) as provider:
        assert provider.routes is not None
        yield provider.routes


def nodes_of(wire: Wire, count: int) -> list[Node]:
    ids = [wire.add(number) for number in range(1, count + 1)]
    return [node(f"n{i}", f"openstack:///{id_}") for i, id_ in enumerate(ids, 1)]


def to(of: Node, cidr: str) -> Route:
    return Route(name=f"{of.metadata.name}-{cidr}", destination=cidr, target=of.spec.provider_id)


def desired_routes(nodes: Sequence[Node]) -> list[Route]:
    return [to(one, f"10.244.{i}.0/24") for i, one in enumerate(nodes, 1)]


def having(of: Node, address: str) -> Node:
    """Return a node with 10.244.1.0/24 for pods, as it is when it shows only this address."""
    spec = replace(of.spec, pod_cidr="10.244.1.0/24", pod_cidrs=("10.244.1.0/24",))
    status = replace(of.status, addresses=(NodeAddress("InternalIP", address),))
    return replace(of, spec=spec, status=status)


def extra(destination: str, nexthop: str) -> dict[str, str]:
    return {"destination": destination, "nexthop": nexthop}


async def test_without_a_router_there_are_no_routes(wire: Wire) -> None:
    async with started(wire.config()) as provider:
        assert provider.routes is None


async def test_many_routes_are_one_request_after_their_pairs(wire: Wire) -> None:
    nodes = nodes_of(wire, 3)
    async with routed(wire) as routes:
        answers = await routes.apply(CLUSTER, nodes, desired_routes(nodes), [])
        listed = await routes.list(CLUSTER, nodes)
    assert set(answers.values()) == {Done()}
    assert [(one.destination, one.target) for one in listed] == [
        (f"10.244.{n}.0/24", f"10.0.0.{n + 1}") for n in (1, 2, 3)
    ]
    assert [wire.pairs(f"p-{n}") for n in (1, 2, 3)] == [[f"10.244.{n}.0/24"] for n in (1, 2, 3)]
    assert (wire.asked["router_update"], wire.asked["port_update"]) == (1, 3)
    assert (wire.asked["port_list"], wire.asked["extension_get"]) == (1, 1)


async def test_what_is_there_is_created_without_a_change(wire: Wire) -> None:
    nodes = nodes_of(wire, 1)
    async with routed(wire) as routes:
        for _ in range(2):
            assert set(
                (await routes.apply(CLUSTER, nodes, desired_routes(nodes), [])).values()
            ) == {Done()}
    assert wire.asked["port_update"] == 1
    assert len(wire.router["routes"]) == 1


@pytest.mark.parametrize("is_atomic", [True, False])
async def test_deleting_takes_route_and_pair_away_and_leaves_those_of_others(
    wire: Wire, *, is_atomic: bool
) -> None:
    wire.is_atomic = is_atomic
    nodes = nodes_of(wire, 2)
    others = extra("192.168.0.0/16", "10.0.0.99")
    wire.router["routes"] = [others]
    async with routed(wire) as routes:
        wire.port("p-1")["allowed_address_pairs"] = [{"ip_address": "10.9.9.9"}]
        await routes.apply(CLUSTER, nodes, desired_routes(nodes), [])
        listed = [one for one in await routes.list(CLUSTER, nodes) if one.target != "10.0.0.99"]
        answers = await routes.apply(CLUSTER, nodes, [], listed)
    assert set(answers.values()) == {Done()}
    assert wire.router["routes"] == [others]
    assert (wire.pairs("p-1"), wire.pairs("p-2")) == (["10.9.9.9"], [])


async def test_the_route_of_a_server_that_is_gone_is_deleted(wire: Wire) -> None:
    wire.router["routes"] = [extra("10.244.7.0/24", "10.0.0.77")]
    async with routed(wire) as routes:
        (gone,) = await routes.list(CLUSTER, [])
        assert await routes.apply(CLUSTER, [], [], [gone]) == {gone: Done()}
    assert wire.router["routes"] == []


async def test_a_route_that_was_just_made_is_deleted_by_the_server_it_leads_to(wire: Wire) -> None:
    nodes = nodes_of(wire, 2)
    made = desired_routes(nodes)
    gone = Route("gone", "10.244.9.0/24", made[0].target)
    async with routed(wire) as routes:
        await routes.apply(CLUSTER, nodes, made, [])
        answers = await routes.apply(CLUSTER, [], [], [made[0], gone])
    assert answers == {made[0]: Done(), gone: Done()}
    assert wire.router["routes"] == [extra("10.244.2.0/24", "10.0.0.3")]
    assert wire.pairs("p-1") == []


async def test_a_route_is_not_reported_gone_when_nobody_knows_where_it_led(wire: Wire) -> None:
    wire.router["routes"] = [extra("10.244.7.0/24", "10.0.0.77")]
    route = Route("r", "10.244.7.0/24", f"openstack:///{uuid(99)}")
    async with routed(wire) as routes:
        answers = await routes.apply(CLUSTER, [], [], [route])
    assert isinstance(answers[route], CloudError)


async def test_a_destination_that_moves_has_a_route_all_the_time(wire: Wire) -> None:
    nodes = nodes_of(wire, 2)
    first, second = to(nodes[0], "10.244.1.0/24"), to(nodes[1], "10.244.1.0/24")
    async with routed(wire) as routes:
        await routes.apply(CLUSTER, nodes, [first], [])
        (old,) = await routes.list(CLUSTER, nodes)
        wire.asked.clear()
        answers = await routes.apply(CLUSTER, nodes, [second], [old])
    assert answers == {second: Done(), old: Done()}
    assert wire.router["routes"] == [extra("10.244.1.0/24", "10.0.0.3")]
    assert (wire.pairs("p-1"), wire.pairs("p-2")) == ([], ["10.244.1.0/24"])
    assert wire.asked["router_update"] == 2


async def test_a_route_that_neutron_refuses_costs_only_itself_and_leaves_no_pair(
    wire: Wire,
) -> None:
    nodes = nodes_of(wire, 2)
    wire.port("p-1")["fixed_ips"][0]["ip_address"] = "192.0.2.5"
    made = desired_routes(nodes)
    async with routed(wire) as routes:
        answers = await routes.apply(CLUSTER, nodes, made, [])
    assert "not connected" in str(answers[made[0]])
    assert answers[made[1]] == Done()
    assert (wire.pairs("p-1"), wire.pairs("p-2")) == ([], ["10.244.2.0/24"])


async def test_a_full_router_is_reported_for_all_routes_without_room(wire: Wire) -> None:
    wire.most_routes = 2
    nodes = nodes_of(wire, 5)
    made = desired_routes(nodes)
    async with routed(wire) as routes:
        answers = await routes.apply(CLUSTER, nodes, made, [])
    assert [answers[one] for one in made[:2]] == [Done(), Done()]
    assert all("RoutesExhausted" in str(answers[one]) for one in made[2:])
    assert [wire.pairs(f"p-{n}") for n in range(3, 6)] == [[], [], []]
    assert wire.asked["router_update"] == 4


async def test_without_a_clear_answer_the_pair_stays_and_it_is_tried_again(wire: Wire) -> None:
    nodes = nodes_of(wire, 1)
    made = desired_routes(nodes)
    wire.fail("router_update", said(429, {}))
    async with routed(wire) as routes:
        first = await routes.apply(CLUSTER, nodes, made, [])
        assert isinstance(first[made[0]], CloudError)
        assert wire.pairs("p-1") == ["10.244.1.0/24"]
        assert await routes.apply(CLUSTER, nodes, made, []) == {made[0]: Done()}


async def test_a_port_that_somebody_changes_meanwhile_keeps_that_change(wire: Wire) -> None:
    nodes = nodes_of(wire, 2)
    made = desired_routes(nodes)
    async with routed(wire) as routes:
        wire.fail("port_update", said(412, {"NeutronError": {"type": "X", "message": "changed"}}))
        answers = await routes.apply(CLUSTER, nodes, made, [])
    assert sorted(isinstance(one, Done) for one in answers.values()) == [False, True]
    assert len(wire.router["routes"]) == 1


async def test_a_port_without_port_security_needs_no_pair(wire: Wire) -> None:
    nodes = nodes_of(wire, 1)
    wire.port("p-1")["port_security_enabled"] = False
    async with routed(wire) as routes:
        assert set((await routes.apply(CLUSTER, nodes, desired_routes(nodes), [])).values()) == {
            Done()
        }
    assert wire.asked["port_update"] == 0


async def test_targets_that_cannot_be_reached_are_named(wire: Wire) -> None:
    (there,) = nodes_of(wire, 1)
    wire.port("p-1")["fixed_ips"][0]["subnet_id"] = "elsewhere"
    far, unknown = to(there, "10.244.1.0/24"), Route("x", "10.244.2.0/24", "openstack:///nothing")
    async with routed(wire) as routes:
        answers = await routes.apply(CLUSTER, [there], [far, unknown], [])
    assert "connect its subnet with the router" in str(answers[far])
    assert isinstance(answers[unknown], InvalidRequest)
    assert wire.router["routes"] == []


async def test_a_node_that_claims_another_ones_server_does_not_choose_its_address(
    wire: Wire,
) -> None:
    """A kubelet can write another node's provider id, and any addresses, on its own new Node."""
    (there,) = nodes_of(wire, 1)
    wire.ports.append(port("beside", uuid(1), "10.0.9.9"))
    id_, cidr = there.spec.provider_id, "10.244.1.0/24"
    own = objects.node("n1", id_, addresses=["10.0.0.2", "10.0.9.9"], pod_cidrs=[cidr])
    async with routed(wire) as routes:
        await routes.apply(CLUSTER, [own, node("false", id_, "10.0.9.9")], [to(own, cidr)], [])
    assert wire.router["routes"] == [extra(cidr, "10.0.0.2")]
    assert (wire.pairs("p-1"), wire.pairs("beside")) == ([cidr], [])


PORTS = [
    port("1", uuid(1), "10.0.0.5", "2001:db8::5"),
    port("2", uuid(1), "10.0.0.6"),
]


def test_a_route_leads_to_the_nodes_first_address_of_its_family() -> None:
    both = node("n", "", "10.0.0.6", "10.0.0.5", "2001:db8::5")
    found = hop(both, PORTS, {"s"}, "10.244.0.0/24")
    assert found is not None
    assert (found.address, found.port["id"]) == ("10.0.0.6", "2")
    found = hop(both, PORTS, {"s"}, "2001:db8:9::/64")
    assert found is not None
    assert found.address == "2001:db8::5"
    assert hop(both, PORTS, {"other"}, "10.244.0.0/24") is None


def test_pairs_of_others_stay_and_nothing_changes_twice() -> None:
    mac, foreign = "fa:16:3e:00:00:01", "fa:16:3e:00:00:99"
    mine = {"ip_address": "10.244.1.0/24", "mac_address": mac}
    others = {"ip_address": "10.244.1.0/24", "mac_address": foreign}
    of = port("1", "", allowed_address_pairs=[others])
    assert changed_pairs(of, ["10.244.1.0/24"], ()) == [others, {"ip_address": "10.244.1.0/24"}]
    of["allowed_address_pairs"] = [others, mine]
    assert changed_pairs(of, ["10.244.1.0/24"], ()) is None
    assert changed_pairs(of, (), ["10.244.1.0/24"]) == [others]


@pytest.mark.parametrize("is_atomic", [True, False])
async def test_a_node_keeps_pair_and_route_when_it_shows_another_address_of_its_port(
    wire: Wire, *, is_atomic: bool
) -> None:
    wire.is_atomic = is_atomic
    (one,) = nodes_of(wire, 1)
    fixed = wire.port("p-1")["fixed_ips"]
    fixed.append({**fixed[0], "ip_address": "10.0.0.200"})
    route = to(one, "10.244.1.0/24")
    async with routed(wire) as routes:
        await routes.apply(CLUSTER, [having(one, "10.0.0.2")], [route], [])
        # The kubelet gets --node-ip=10.0.0.200.
        moved = [having(one, "10.0.0.200")]
        (old,) = await routes.list(CLUSTER, moved)
        answers = await routes.apply(CLUSTER, moved, [route], [old])
    assert answers == {route: Done(), old: Done()}
    assert wire.router["routes"] == [extra("10.244.1.0/24", "10.0.0.200")]
    assert wire.pairs("p-1") == ["10.244.1.0/24"]


async def test_a_route_over_an_address_that_the_node_does_not_show_stays(wire: Wire) -> None:
    """As with --node-ip in a network that the router does not reach."""
    (one,) = nodes_of(wire, 1)
    nodes = [having(one, "192.0.2.7")]
    route = to(one, "10.244.1.0/24")
    async with routed(wire) as routes:
        await routes.apply(CLUSTER, nodes, [route], [])
        (listed,) = await routes.list(CLUSTER, nodes)
        former = Route("r", route.destination, "10.0.0.2")
        await routes.apply(CLUSTER, nodes, [route], [former])
    assert wire.router["routes"] == [extra("10.244.1.0/24", "10.0.0.2")]
    assert wire.pairs("p-1") == ["10.244.1.0/24"]
    assert listed.target == one.spec.provider_id
