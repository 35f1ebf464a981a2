"""Nodes that name a server which is not theirs, as a kubelet can: by its name it is somebody else's."""

from collections.abc import AsyncIterator
from typing import cast

import pytest

from proreus.cloudprovider import CloudError, Ensured, InvalidRequest, Pending
from proreus.cloudprovider.load_balancers import Done
from proreus.kube.objects import Node
from proreus.providers.openstack.names import is_called, misnamed

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .balancing import SUBNET
from .test_routes import SECTION, desired_routes
from .test_security_groups import CIDR, Guarded
from .wire import CLUSTER, ROUTER, Wire, context, node, port, served, started, uuid


def named_nodes(wire: Wire, count: int, *others: str) -> list[Node]:
    """Nodes whose servers have their names, and some whose servers have others."""
    names = [f"node-{number}" for number in range(1, count + 1)]
    servers = [*names, *others]
    ids = [wire.add(number, name) for number, name in enumerate(servers, 1)]
    called = [*names, *(f"other-{name}" for name in others)]
    return [node(name, f"openstack:///{id_}") for name, id_ in zip(called, ids, strict=True)]


@pytest.mark.parametrize("is_listed", [True, False])
async def test_a_server_with_another_name_than_its_node_forwards_to_no_pods(
    wire: Wire, *, is_listed: bool
) -> None:
    nodes = named_nodes(wire, 2, "database")
    wire.ports.append(port("r", ROUTER, "10.0.0.1", allowed_address_pairs=[]))
    wanted = desired_routes(nodes)
    more = "[Tenants]\nallow = *=p-3\n" if is_listed else ""
    async with started(wire.config(sections=SECTION + more), context(nodes=nodes)) as provider:
        assert provider.routes is not None
        answers = await provider.routes.apply(CLUSTER, nodes, wanted, [])
    assert answers[wanted[0]] == answers[wanted[1]] == Done()
    assert wire.pairs("p-1") == ["10.244.1.0/24"]
    if is_listed:
        assert wire.pairs("p-3") == ["10.244.3.0/24"]
        return
    assert "is called database, and its Node other-database" in str(answers[wanted[2]])
    assert wire.pairs("p-3") == []
    assert len(wire.router["routes"]) == 2


@pytest.mark.parametrize("of", ["a cell that is down", "another service", "another cell"])
async def test_a_server_of_which_nova_tells_no_name_forwards_to_no_pods_meanwhile(
    wire: Wire, of: str
) -> None:
    """Neutron shows its port all the same; so it does where a device is no server of Nova."""
    nodes = named_nodes(wire, 6, "database")
    wire.ports.append(port("r", ROUTER, "10.0.0.1", allowed_address_pairs=[]))
    if of == "another service":
        del wire.servers[uuid(7)]
    else:
        wire.down |= {uuid(7)} if of == "a cell that is down" else set(map(uuid, range(1, 7)))
    wanted = desired_routes(nodes)[6:]
    async with started(wire.config(sections=SECTION), context(nodes=nodes)) as provider:
        assert provider.routes is not None
        answers = await provider.routes.apply(CLUSTER, nodes, wanted, [])
        assert isinstance(answers[wanted[0]], CloudError)
        assert (wire.pairs("p-7"), wire.router["routes"]) == ([], [])
        if of == "a cell that is down":
            wire.servers[uuid(7)]["name"] = "other-database"
            wire.down.clear()
            answers = await provider.routes.apply(CLUSTER, nodes, wanted, [])
            assert answers == {wanted[0]: Done()}


async def test_a_server_with_another_name_than_its_node_keeps_the_pairs_that_it_had(
    wire: Wire,
) -> None:
    """Such as a node of another cluster in the subnet, with a router of its own."""
    nodes = named_nodes(wire, 2, "theirs")
    wire.ports.append(port("r", ROUTER, "10.0.0.1", allowed_address_pairs=[]))
    wire.port("p-3")["allowed_address_pairs"] = [{"ip_address": "10.244.3.0/24"}]
    wire.good_tokens = {f"token-{number}" for number in range(10)}
    async with started(wire.config(sections=SECTION), context(nodes=nodes)) as provider:
        assert provider.routes is not None
        await provider.routes.apply(CLUSTER, nodes, desired_routes(nodes), [])
    left = nodes[:2]
    async with started(wire.config(sections=SECTION), context(nodes=left)) as provider:
        assert provider.routes is not None
        listed = await provider.routes.list(CLUSTER, left)
        gone = [one for one in listed if one.destination == "10.244.3.0/24"]
        await provider.routes.apply(CLUSTER, left, [], gone)
    assert wire.pairs("p-3") == ["10.244.3.0/24"]


@pytest.fixture
async def site() -> AsyncIterator[Guarded]:
    made = Guarded()
    made.wire.good_tokens = {f"token-{number}" for number in range(10)}
    async with served(made.wire):
        yield made


@pytest.mark.parametrize("is_usual", [True, False])
async def test_a_server_with_another_name_than_its_node_gets_no_security_group(
    site: Guarded, *, is_usual: bool
) -> None:
    """Unless that is usual in the cluster."""
    more = [site.wire.add(number, "x" if is_usual else f"more-{number}") for number in (3, 4, 5)]
    nodes = [node(f"more-{number}", f"openstack:///{id_}") for number, id_ in enumerate(more, 3)]
    first, second = site.wire.servers[uuid(1)], site.wire.servers[uuid(2)]
    first["name"], second["name"] = "N1.example.org", "database"
    async with started(site.text(), context(nodes=[*site.nodes, *nodes])) as provider:
        assert isinstance(await site.ensure(provider, site.service()), Ensured)
    ours, theirs = (len(site.wire.port(f"p-{number}")["security_groups"]) for number in (1, 2))
    assert ours == 2
    assert theirs == (2 if is_usual else 1)


async def test_who_chooses_the_hosts_does_not_choose_what_most_servers_are_called(
    site: Guarded,
) -> None:
    """Such as those of a pool whose Nodes have other names than their servers (node-selector)."""
    hosts = [site.wire.add(number, f"pool-{number}") for number in range(3, 25)]
    others = [site.wire.add(number) for number in range(25, 55)]
    site.nodes += [node(f"host-{id_}", f"openstack:///{id_}", "10.0.0.9") for id_ in hosts]
    named = [node(f"node-{n}", f"openstack:///{id_}") for n, id_ in enumerate(others, 25)]
    site.wire.servers[uuid(1)]["name"], site.wire.servers[uuid(2)]["name"] = "n1", "database"
    async with started(site.text(), context(nodes=[*site.nodes, *named])) as provider:
        assert isinstance(await site.ensure(provider, site.service(), nodes=24), Ensured)
    groups = [len(site.wire.port(f"p-{number}")["security_groups"]) for number in (1, 2, 3)]
    assert groups == [2, 1, 1]


async def test_a_server_gets_no_security_group_for_a_node_that_has_just_gone(
    site: Guarded,
) -> None:
    """Whose it is, nobody could tell then."""
    more = [site.wire.add(number, f"more-{number}") for number in (3, 4, 5)]
    nodes = [node(f"more-{number}", f"openstack:///{id_}") for number, id_ in enumerate(more, 3)]
    site.wire.servers[uuid(1)]["name"], site.wire.servers[uuid(2)]["name"] = "n1", "database"
    shown = context(nodes=[*site.nodes, *nodes])
    known = cast("Objects", shown.listers["nodes"])
    site.wire.meanwhile["port_list"] = lambda: known.by_key.pop("n2")
    async with started(site.text(), shown) as provider:
        assert isinstance(await site.ensure(provider, site.service()), Ensured)
    assert "n2" not in known.by_key
    groups = [len(site.wire.port(f"p-{number}")["security_groups"]) for number in (1, 2)]
    assert groups == [2, 1]


async def test_a_server_of_which_nova_tells_no_name_gets_no_security_group_meanwhile(
    site: Guarded,
) -> None:
    site.wire.servers[uuid(1)]["name"], site.wire.servers[uuid(2)]["name"] = "n1", "n2"
    site.wire.down.add(uuid(2))
    async with started(site.text(), context(nodes=site.nodes)) as provider:
        assert provider.load_balancers is not None
        desired = site.desired(provider, site.service())
        for _ in range(20):
            answer = (await provider.load_balancers.ensure([desired]))[desired.ref.uid]
            if isinstance(answer, Pending) and "does not tell what server" in answer.reason:
                break
        assert isinstance(answer, Pending), answer
        assert [len(site.wire.port(f"p-{number}")["security_groups"]) for number in (1, 2)] == [
            2,
            1,
        ]
        site.wire.down.clear()
        made = await site.ensure(provider, site.service())
    assert isinstance(made, Ensured)
    assert made.ingress == answer.ingress
    assert len(site.wire.port("p-2")["security_groups"]) == 2


async def test_no_single_server_tells_in_which_subnet_a_load_balancer_is_made(
    site: Guarded,
) -> None:
    """It was that of the first host: a Service's address was made in another one's network."""
    theirs = site.wire.add(3, "bank")
    site.wire.ports[-1]["fixed_ips"] = [{"subnet_id": uuid(600), "ip_address": "10.9.0.3"}]
    site.nodes.insert(0, node("a", f"openstack:///{theirs}", "10.9.0.3"))
    async with started(site.wire.config(), context(nodes=site.nodes)) as provider:
        assert isinstance(await site.ensure(provider, site.service(), nodes=3), Ensured)
    assert site.octavia.only("loadbalancers")["vip_subnet_id"] == SUBNET


async def test_nor_does_the_first_of_several_whose_servers_are_in_a_subnet_each(
    site: Guarded,
) -> None:
    """Nobody has more servers in a subnet than a node that names one in another's network."""
    theirs = site.wire.add(3, "n0")
    for at, (place, address) in enumerate(((601, "10.8.0.2"), (600, "10.0.9.3")), 1):
        site.wire.ports[at]["fixed_ips"] = [{"subnet_id": uuid(place), "ip_address": address}]
        site.octavia.subnets[uuid(place)] = {"id": uuid(place), "ip_version": 4, "cidr": CIDR}
    liar = node("n0", f"openstack:///{theirs}", "10.0.9.3")
    site.octavia.subnets[uuid(601)]["cidr"] = "10.8.0.0/24"
    site.nodes = [liar, site.nodes[0], node("n2", site.nodes[1].spec.provider_id, "10.8.0.2")]
    async with started(site.wire.config(), context(nodes=site.nodes)) as provider:
        answer = await site.ensure(provider, site.service(), nodes=3)
        assert isinstance(answer, InvalidRequest), answer
        assert not site.octavia.of["loadbalancers"]
        site.octavia.subnets[uuid(600)]["cidr"] = "10.9.0.0/24"
        assert isinstance(await site.ensure(provider, site.service(), nodes=3), Ensured)


@pytest.mark.parametrize("of", ["equal addresses", "another cluster", "a pool"])
async def test_nor_does_one_whom_a_service_chooses_alone_lead_it_to_a_place_of_others(
    site: Guarded, of: str
) -> None:
    """By node-selector; nodes would take the address for one of their own network."""
    theirs = site.wire.add(3, "n3")
    address, cidr = ("10.0.9.3", CIDR) if of == "equal addresses" else ("10.9.0.3", "10.9.0.0/24")
    site.wire.ports[-1]["fixed_ips"] = [{"subnet_id": uuid(600), "ip_address": address}]
    tags = ["proreus/cluster-uid=another"] if of == "another cluster" else []
    subnet = {"id": uuid(600), "ip_version": 4, "cidr": cidr, "tags": tags}
    site.octavia.subnets[uuid(600)] = subnet
    every = [*site.nodes, node("n3", f"openstack:///{theirs}", address)]
    site.nodes = every[2:]
    async with started(site.wire.config(), context(nodes=every)) as provider:
        if of == "a pool":
            assert isinstance(await site.ensure(provider, site.service()), Ensured)
            assert site.octavia.only("loadbalancers")["vip_subnet_id"] == uuid(600)
            return
        answer = await site.ensure(provider, site.service())
    assert isinstance(answer, InvalidRequest), answer
    assert "subnet-id" in str(answer)
    assert not site.octavia.of["loadbalancers"]


@pytest.mark.parametrize("claimed", ["10.0.0.1", "169.254.169.254"])
async def test_no_node_keeps_services_from_their_hosts_by_the_address_that_it_claims(
    site: Guarded, claimed: str
) -> None:
    """Octavia refuses all members of a pool for one."""
    site.nodes[1] = node("n2", site.nodes[1].spec.provider_id, claimed)
    serial = site.wire.config(sections="[LoadBalancer]\nprovider-requires-serial-api-calls\n")
    async with started(serial, context(nodes=site.nodes)) as provider:
        assert isinstance(await site.ensure(provider, site.service()), Ensured)
    assert site.members() == [["10.0.0.1"]]


def test_names_are_compared_without_domains_and_capitals() -> None:
    server = {"id": uuid(1), "name": "Node-1.example.org", "metadata": {"hostname": "alias"}}
    assert is_called(server, ["x", "node-1.other.org"])
    assert is_called(server, ["alias"])
    assert not is_called(server, ["node-10"])
    assert not is_called({"id": uuid(1)}, ["none"])
    one, two, three = uuid(1), uuid(2), uuid(3)
    names = {one: ["node-1"], two: ["node-2"], three: ["node-3"]}
    shown = {id_: {"id": id_, "name": name} for id_, (name,) in names.items()}
    assert misnamed(shown, shown, names) == {}
    lied = {**shown, three: {"id": three, "name": "database"}}
    assert list(misnamed(lied, lied, names)) == [three]
    two_of_them = {id_: lied[id_] for id_ in (one, three)}
    assert misnamed(two_of_them, two_of_them, names) == {}, "of two nobody knows"
