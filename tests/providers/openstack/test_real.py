"""The provider on real services: keystone, Nova, Neutron, Octavia.

`make openstack-up` starts them; without them these tests are not collected.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from labs.openstack.settings import MOST_ROUTES
from proreus.cloudprovider import Ensured, LoadBalancer
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.instances import Instance, InstanceState, NotFound
from proreus.cloudprovider.load_balancers import Done
from proreus.cloudprovider.routes import Route
from proreus.kube.objects import Node, Service, ServicePort
from proreus.providers.openstack import OpenStackCloud
from proreus.testing import objects

from .real import Real, hosts, project, settled
from .wire import CLUSTER, context, node, of, shown, started

# Of openstacksdk, by which the tests look at the cloud.
pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")


@pytest.fixture(scope="module")
def room() -> Real:
    return project("provider")


@pytest.fixture
def real(room: Real) -> Iterator[Real]:
    room.clean()
    yield room
    room.clean()


@pytest.fixture
async def provider(real: Real) -> AsyncIterator[OpenStackCloud]:
    async with started(real.config) as made:
        yield made


async def describe(provider: OpenStackCloud, *nodes: Node) -> dict[str, Any]:
    assert provider.instances is not None
    return dict(await provider.instances.describe(nodes))


async def test_a_server_is_found_by_its_name_with_all_that_is_to_know(
    real: Real, provider: OpenStackCloud
) -> None:
    (id_,) = await real.servers("worker-1.example.org")
    (found,) = (await describe(provider, node("worker-1.example.org"))).values()
    assert found == Instance(
        provider_id=f"openstack:///{id_}",
        name="worker-1.example.org",
        instance_type="m1.k8s",
        zone="nova",
        region="RegionOne",
        addresses=found.addresses,
        state=InstanceState.RUNNING,
    )
    fixed = {one["ip_address"] for port in real.ports(id_) for one in port.fixed_ips}
    assert {text for _, text in shown(found)} == fixed
    assert len(fixed) == 2  # of both families


async def test_a_server_stops_and_is_deleted(real: Real, provider: OpenStackCloud) -> None:
    (id_,) = await real.servers("short")
    await asyncio.to_thread(real.api.compute.stop_server, id_)
    await real.until(lambda: real.status(id_) == "SHUTOFF")
    assert (await describe(provider, *of([id_])))["n0"].state is InstanceState.STOPPED
    await asyncio.to_thread(real.api.compute.delete_server, id_)
    await real.until(lambda: not real.found("^short$"))
    assert (await describe(provider, *of([id_])))["n0"] == NotFound()
    assert (await describe(provider, node("short")))["short"] == NotFound()


async def test_a_floating_address_is_external(real: Real, provider: OpenStackCloud) -> None:
    (id_,) = await real.servers("outside")
    public = real.api.network.find_network("public")
    (port,) = real.ports(id_)
    address = next(one["ip_address"] for one in port.fixed_ips if "." in one["ip_address"])
    made = await asyncio.to_thread(
        lambda: real.api.network.create_ip(
            floating_network_id=public.id, port_id=port.id, fixed_ip_address=address
        )
    )
    await real.until(lambda: made.floating_ip_address in str(real.found("^outside$")[0].addresses))
    found = (await describe(provider, *of([id_])))["n0"]
    assert ("ExternalIP", made.floating_ip_address) in shown(found)


async def test_addresses_in_a_trunk_are_the_nodes(real: Real, provider: OpenStackCloud) -> None:
    (id_,) = await real.servers("trunk")
    (parent,) = real.ports(id_)
    address = await asyncio.to_thread(real.trunk, parent.id)
    found = (await describe(provider, *of([id_])))["n0"]
    fixed = {one["ip_address"] for one in parent.fixed_ips}
    assert {text for _, text in shown(found)} == fixed | {address}
    only = real.config + "[Networking]\ninternal-network-name = private\n"
    async with started(only) as other:
        found = (await describe(other, *of([id_])))["n0"]
    assert {text for _, text in shown(found)} == fixed


async def test_pages_of_servers_and_ports_are_read_to_the_end(real: Real) -> None:
    ids = await real.servers("many", 25)
    made = context()
    async with started(real.config, made) as provider:
        found = await describe(provider, *of(ids))
    assert [one.provider_id for one in found.values()] == [f"openstack:///{id_}" for id_ in ids]
    assert all(len(one.addresses) == 2 for one in found.values())
    asked = [call.operation for call in made.calls]
    assert (asked.count("server_list"), asked.count("port_list")) == (2, 2)
    assert asked.count("server_get") == 0


async def test_many_names_are_one_search(real: Real) -> None:
    ids = await real.servers("named", 3)
    names = [one.name for one in real.found("^named")]
    made = context()
    async with started(real.config, made) as provider:
        found = await describe(provider, *map(node, names), node("named-"))
    assert {one.provider_id for one in found.values() if isinstance(one, Instance)} == {
        f"openstack:///{id_}" for id_ in ids
    }
    assert found["named-"] == NotFound()
    asked = [call.operation for call in made.calls].count("server_list")
    assert asked == 2, "one of them tells whether a cell is down"


async def test_a_token_that_is_revoked_is_replaced(real: Real, provider: OpenStackCloud) -> None:
    (id_,) = await real.servers("token")
    api = provider._api
    assert api is not None
    token = (await api.credential.get()).auth_token
    headers = {"X-Subject-Token": token, "X-Auth-Token": token}
    await asyncio.to_thread(lambda: real.api.identity.delete("/auth/tokens", headers=headers))
    assert isinstance((await describe(provider, *of([id_])))["n0"], Instance)


async def test_routes_of_both_families_and_their_pairs_come_and_go(
    real: Real, provider: OpenStackCloud
) -> None:
    ids = await real.servers("routed", 2)
    nodes = await hosts(provider, ids)
    routes = [
        Route(f"r{n}{family}", cidr, nodes[n].spec.provider_id)
        for n in (0, 1)
        for family, cidr in (("v4", f"10.244.{n}.0/24"), ("v6", f"fd00:10:244:{n}::/64"))
    ]
    assert provider.routes is not None
    answers = await provider.routes.apply(CLUSTER, nodes, routes, [])
    assert answers == dict.fromkeys(routes, Done())
    listed = await provider.routes.list(CLUSTER, nodes)
    assert {one.destination for one in listed} == {one.destination for one in routes}
    pairs = [
        pair["ip_address"]
        for id_ in ids
        for port in real.ports(id_)
        for pair in port.allowed_address_pairs
    ]
    assert sorted(pairs) == sorted(one.destination for one in routes)
    answers = await provider.routes.apply(CLUSTER, nodes, [], listed)
    assert set(answers.values()) == {Done()}
    assert real.routes() == []
    assert not any(port.allowed_address_pairs for id_ in ids for port in real.ports(id_))


async def test_a_full_router_is_reported(real: Real, provider: OpenStackCloud) -> None:
    (id_,) = await real.servers("full")
    (found,) = (await describe(provider, *of([id_]))).values()
    addresses = [text for _, text in shown(found)]
    there = [
        {"destination": f"10.200.{n}.0/24", "nexthop": next(one for one in addresses if "." in one)}
        for n in range(MOST_ROUTES - 1)
    ]
    await asyncio.to_thread(real.api.network.update_router, real.router.id, routes=there)
    nodes = [node("n0", found.provider_id, *addresses)]
    routes = [Route(f"r{n}", f"10.244.{n}.0/24", found.provider_id) for n in range(2)]
    assert provider.routes is not None
    answers = await provider.routes.apply(CLUSTER, nodes, routes, [])
    (refused,) = [one for one in answers.values() if isinstance(one, CloudError)]
    assert "RoutesExhausted" in str(refused)
    assert len(real.routes()) == MOST_ROUTES
    (port,) = real.ports(id_)
    assert len(port.allowed_address_pairs) == 1


def service(*ports: ServicePort, uid: str = "uid-web", **spec: Any) -> Service:
    return objects.service(namespace="shop", uid=uid, ports=ports, **spec)


async def test_a_load_balancer_lives_and_goes(real: Real) -> None:
    ids = await real.servers("host", 2)
    text = real.config + "[LoadBalancer]\nlb-provider = proreus\ncreate-monitor = true\n"
    http = ServicePort(80, "http", node_port=30080)
    dns = ServicePort(53, "dns", protocol="UDP", node_port=30053)
    async with started(text) as provider:
        nodes = await hosts(provider, ids)
        offered = provider.load_balancers
        assert offered is not None

        def desired(made: Service, hosts: int = 2) -> LoadBalancer:
            return desired_load_balancer(made, nodes[:hosts], offered.host_policy(made), CLUSTER)

        first = await settled(offered.ensure, desired(service(http, ip_families=("IPv4",)), 1))
        assert isinstance(first, Ensured)
        (made,) = real.balancers()
        (floating,) = list(real.api.network.ips())
        assert first.ingress[0].ip == floating.floating_ip_address
        assert floating.port_id == made.vip_port_id

        ranges = ("192.0.2.0/24",)
        more = service(
            http, dns, ip_families=("IPv4",), load_balancer_source_ranges=ranges,
            session_affinity="ClientIP",
        )  # fmt: skip
        assert isinstance(await settled(offered.ensure, desired(more)), Ensured)
        balancing = real.api.load_balancer
        listeners = sorted((one.protocol, one.protocol_port) for one in balancing.listeners())
        assert listeners == [("TCP", 80), ("UDP", 53)]
        assert all(one.allowed_cidrs == list(ranges) for one in balancing.listeners())
        pools = list(balancing.pools())
        assert [len(list(balancing.members(pool))) for pool in pools] == [2, 2]
        kinds = sorted(one.type for one in balancing.health_monitors())
        assert kinds == ["TCP", "UDP-CONNECT"]
        calls = len(provider._api.context.calls) if provider._api else 0
        assert isinstance(await settled(offered.ensure, desired(more)), Ensured)
        assert provider._api is not None
        assert all(call.read for call in list(provider._api.context.calls)[calls:])

        dual = service(http, ip_families=("IPv4", "IPv6"))
        both = await settled(offered.ensure, desired(dual))
        assert sorted(":" in one.ip for one in both.ingress) == [False, True]
        assert len(list(balancing.listeners())) == 2
        owned = await offered.list_owned(CLUSTER)
        assert {one.service_uid for one in owned} == {"uid-web"}
        assert isinstance(await settled(offered.delete, desired(dual).ref), Done)
    assert real.balancers() == []
    assert list(real.api.network.ips()) == []
