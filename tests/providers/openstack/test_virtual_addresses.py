"""Addresses that machines or routers have without a port of Neutron: no Service gets one."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from proreus.cloudprovider import Ensured, InvalidRequest
from proreus.kube.objects import Service
from proreus.testing.clock import virtual_time

from .balancing import INTERNAL, SUBNET, SUBNET_V6, Balancing, P, balancing, known
from .test_tenants import EXTERNAL
from .wire import context, node, port, started, uuid

VIRTUAL = "10.0.0.240"


@pytest.fixture
async def site() -> AsyncIterator[Balancing]:
    async with balancing() as made:
        made.wire.good_tokens = {f"token-{number}" for number in range(10)}
        yield made


def asking(site: Balancing, by: str, address: str) -> tuple[Service, str]:
    """An internal Service that asks for an address, by a free port or its spec, and what it names."""
    if by == "port-id":
        keeper = port(uuid(702), "", address)
        site.wire.ports.append(keeper)
        return site.service({INTERNAL: "true", f"{P}port-id": keeper["id"]}), str(keeper["id"])
    return site.service({INTERNAL: "true"}, load_balancer_ip=address), address


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("by", ["port-id", "spec.loadBalancerIP"])
async def test_the_virtual_address_of_others_is_refused(
    site: Balancing, by: str, *, is_listed: bool
) -> None:
    """Of a control plane: its machines answer for it, and a port that nothing has may keep it."""
    site.wire.ports[0]["allowed_address_pairs"] = [
        {"ip_address": "10.244.1.0/24", "mac_address": "fa:16:3e:00:00:01"},
        {"ip_address": f"{VIRTUAL}/32", "mac_address": "fa:16:3e:00:00:01"},
    ]
    service, named = asking(site, by, VIRTUAL)
    sections = f"[Tenants]\nallow = shop={named}\n" if is_listed else ""
    async with started(site.wire.config(sections=sections)) as provider:
        answer = await site.ensure(provider, service)
        if is_listed:
            assert isinstance(answer, Ensured), answer
            return
        assert isinstance(answer, InvalidRequest)
        assert by in str(answer)
        assert "port p-1 has it among its allowed address pairs" in str(answer)
        assert not site.octavia.of["loadbalancers"]
        site.wire.ports[0]["allowed_address_pairs"] = []
        assert isinstance(await site.ensure(provider, service), Ensured)


@pytest.mark.parametrize("by", ["port-id", "spec.loadBalancerIP"])
async def test_one_of_a_range_of_virtual_addresses_is_refused(site: Balancing, by: str) -> None:
    """Such as that of MetalLB on the nodes of another cluster, which are let send it as a whole."""
    site.octavia.subnets[SUBNET]["cidr"] = "10.0.0.0/24"
    site.wire.ports[0]["allowed_address_pairs"] = [{"ip_address": "10.0.0.240/29"}]
    service, _ = asking(site, by, "10.0.0.244")
    async with started(site.wire.config()) as provider:
        answer = await site.ensure(provider, service)
        assert isinstance(answer, InvalidRequest), answer
        assert by in str(answer)
        assert "port p-1 has it among its allowed address pairs" in str(answer)
        assert not site.octavia.of["loadbalancers"]
        # Who may send everything has no single address.
        site.wire.ports[0]["allowed_address_pairs"] = [
            {"ip_address": one} for one in ("0.0.0.0/0", "10.0.0.0/24", "::/0")
        ]
        assert isinstance(await site.ensure(provider, service), Ensured)


@virtual_time
async def test_a_service_gets_its_address_in_a_range_again() -> None:
    """Its load balancer was deleted by hand; the status still shows the address."""
    address = "10.0.0.244"
    async with balancing() as site:
        site.octavia.subnets[SUBNET]["cidr"] = "10.0.0.0/24"
        site.wire.ports[0]["allowed_address_pairs"] = [{"ip_address": "10.0.0.240/29"}]
        service = known(site.service({INTERNAL: "true"}, load_balancer_ip=address), address)
        async with started(site.wire.config()) as provider:
            answer = await site.ensure(provider, service)
    assert isinstance(answer, Ensured), answer


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("of", ["gateway_ip", "host_routes"])
@pytest.mark.parametrize("by", ["port-id", "spec.loadBalancerIP"])
async def test_the_address_of_a_router_that_neutron_has_no_port_of_is_refused(
    site: Balancing, by: str, of: str, *, is_listed: bool
) -> None:
    """Octavia asks for it with rights of its own, so Neutron gives it; the nodes lose their way."""
    router = "10.0.0.254"
    to_others = [{"destination": "10.9.0.0/16", "nexthop": router}]
    site.octavia.subnets[SUBNET] |= {"cidr": "10.0.0.0/24", "gateway_ip": None}
    site.octavia.subnets[SUBNET_V6]["gateway_ip"] = None
    site.octavia.subnets[SUBNET][of] = router if of == "gateway_ip" else to_others
    service, named = asking(site, by, router)
    sections = f"[Tenants]\nallow = shop={named}\n" if is_listed else ""
    async with started(site.wire.config(sections=sections)) as provider:
        answer = await site.ensure(provider, service)
        if is_listed:
            assert isinstance(answer, Ensured), answer
            return
        assert isinstance(answer, InvalidRequest)
        assert f"it is that of a router of subnet {SUBNET}" in str(answer)
        assert by in str(answer)
        assert not site.octavia.of["loadbalancers"]
        others = {"load_balancer_ip": "10.0.0.77"}
        assert isinstance(
            await site.ensure(provider, site.service({INTERNAL: "true"}, **others)), Ensured
        )


@pytest.mark.parametrize("by", ["port-id", "spec.loadBalancerIP"])
async def test_the_address_of_a_name_server_that_neutron_has_no_port_of_is_refused(
    site: Balancing, by: str
) -> None:
    """On a provider network it is a machine of nobody's; nodes would ask the Service for names."""
    server = "10.0.0.53"
    site.octavia.subnets[SUBNET]["dns_nameservers"] = ["9.9.9.9", server]
    service, _ = asking(site, by, server)
    async with started(site.wire.config()) as provider:
        answer = await site.ensure(provider, service)
    assert isinstance(answer, InvalidRequest), answer
    assert by in str(answer)
    assert f"it is that of a name server of subnet {SUBNET}" in str(answer)
    assert not site.octavia.of["loadbalancers"]


@pytest.mark.parametrize("by", ["port-id", "spec.loadBalancerIP"])
async def test_the_address_of_a_node_beside_openstack_is_refused(site: Balancing, by: str) -> None:
    """Neutron has no port of bare metal in a provider network, and gives its address to Octavia."""
    address = "10.0.0.60"
    metal = node("metal-1", "local://metal-1", address)
    service, _ = asking(site, by, address)
    async with started(site.wire.config(), context(nodes=[*site.nodes, metal])) as provider:
        answer = await site.ensure(provider, service)
        assert isinstance(answer, InvalidRequest), answer
        assert by in str(answer)
        assert "it is an address of the node metal-1" in str(answer)
        assert not site.octavia.of["loadbalancers"]


@virtual_time
async def test_a_kubelet_takes_no_address_from_a_service_by_claiming_it() -> None:
    """Its load balancer was deleted by hand; the status still shows the address."""
    address = "10.0.0.60"
    async with balancing() as site:
        claiming = node("metal-1", "local://metal-1", address)
        service = known(site.service({INTERNAL: "true"}, load_balancer_ip=address), address)
        async with started(site.wire.config(), context(nodes=[claiming])) as provider:
            answer = await site.ensure(provider, service)
    assert isinstance(answer, Ensured), answer


@virtual_time
async def test_a_service_that_is_a_name_server_gets_its_address_again() -> None:
    """Its load balancer was deleted by hand; the status still shows the address."""
    server = "10.0.0.53"
    async with balancing() as site:
        site.octavia.subnets[SUBNET]["dns_nameservers"] = [server]
        service = known(site.service({INTERNAL: "true"}, load_balancer_ip=server), server)
        async with started(site.wire.config()) as provider:
            answer = await site.ensure(provider, service)
    assert isinstance(answer, Ensured), answer
    assert [one.ip for one in answer.ingress] == [server]


async def test_no_floating_ip_has_the_address_of_the_external_network_s_router(
    site: Balancing,
) -> None:
    """Neutron lets who has the role admin choose the address of a new one."""
    site.octavia.is_admin = True
    site.octavia.subnets["outside"] = {
        "id": "outside",
        "network_id": EXTERNAL,
        "gateway_ip": "203.0.113.254",
    }
    async with started(site.wire.config()) as provider:
        answer = await site.ensure(provider, site.service(load_balancer_ip="203.0.113.254"))
        assert isinstance(answer, InvalidRequest)
        assert "spec.loadBalancerIP: 203.0.113.254: it is that of a router" in str(answer)
        assert not site.octavia.of["floatingips"]
        other = site.service(load_balancer_ip="203.0.113.9")
        assert isinstance(await site.ensure(provider, other), Ensured)


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("by", ["subnet-id", "network-id", "port-id"])
async def test_a_place_with_the_addresses_of_the_nodes_own_network_is_refused(
    site: Balancing, by: str, *, is_listed: bool
) -> None:
    """As another cluster's of the project may be: nodes would lead what is a node's to a Service."""
    network, twin = uuid(700), uuid(701)
    site.wire.networks[network] = "of another cluster"
    cidr = {"cidr": "10.0.0.0/24"}
    site.octavia.subnets[SUBNET] |= cidr
    site.octavia.subnets[twin] = {"id": twin, "ip_version": 4, "network_id": network, **cidr}
    of_node = "10.0.0.1"
    there = port(uuid(702), "", of_node, network_id=network, device_owner="")
    there["fixed_ips"][0]["subnet_id"] = twin
    site.wire.ports.append(there)
    named = {"subnet-id": twin, "network-id": network, "port-id": there["id"]}[by]
    asked: dict[str, Any] = {} if by == "port-id" else {"load_balancer_ip": of_node}
    service = site.service({INTERNAL: "true", f"{P}{by}": named}, **asked)
    allow = f"allow = shop={named}\nallow = shop={of_node}\n"
    sections = f"[Tenants]\n{allow}" if is_listed else ""
    nodes = context(nodes=site.nodes)
    async with started(site.wire.config(sections=sections), nodes) as provider:
        answer = await site.ensure(provider, service)
        if is_listed:
            assert isinstance(answer, Ensured), answer
            return
        assert isinstance(answer, InvalidRequest)
        assert f"{P}{by}: its addresses are those of subnet {SUBNET}, too" in str(answer)
        assert not site.octavia.of["loadbalancers"]
        own = site.service({INTERNAL: "true", f"{P}subnet-id": SUBNET})
        assert isinstance(await site.ensure(provider, own), Ensured)


@pytest.mark.parametrize("of", ["pods", "Services"])
@pytest.mark.parametrize("by", ["subnet-id", "network-id", "port-id"])
async def test_a_place_with_addresses_of_pods_or_services_is_refused(
    site: Balancing, by: str, of: str
) -> None:
    """Neutron knows neither range: nodes would lead what goes to a pod, or inside, to a Service."""
    network, twin = uuid(700), uuid(701)
    site.wire.networks[network] = "of another cluster"
    site.octavia.subnets[twin] = {
        "id": twin,
        "ip_version": 4,
        "network_id": network,
        "cidr": "10.244.0.0/22",
    }
    address = "10.244.1.5"
    there = port(uuid(702), "", address, network_id=network, device_owner="")
    there["fixed_ips"][0]["subnet_id"] = twin
    site.wire.ports.append(there)
    cidr, ip = ("10.244.1.0/24", "10.96.0.1") if of == "pods" else ("10.7.1.0/24", "10.244.0.1")
    pods = msgspec.structs.replace(site.nodes[0].spec, pod_cidr=cidr, pod_cidrs=(cidr,))
    nodes = [msgspec.structs.replace(site.nodes[0], spec=pods), *site.nodes[1:]]
    api = site.service(name="kubernetes", namespace="default", type="ClusterIP", cluster_ip=ip)
    named = {"subnet-id": twin, "network-id": network, "port-id": there["id"]}[by]
    asked: dict[str, Any] = {} if by == "port-id" else {"load_balancer_ip": address}
    service = site.service({INTERNAL: "true", f"{P}{by}": named}, **asked)
    async with started(site.wire.config(), context(nodes=nodes, services=[api])) as provider:
        answer = await site.ensure(provider, service)
        assert isinstance(answer, InvalidRequest), answer
        what = "it is one of" if (by, of) == ("port-id", "pods") else "its addresses are those of"
        assert f"{P}{by}: {what} {of}" in str(answer)
        assert not site.octavia.of["loadbalancers"]
        # Where nodes are, the operator has put them.
        site.octavia.subnets[SUBNET]["cidr"] = "10.0.0.0/8"
        own = site.service({INTERNAL: "true", f"{P}subnet-id": SUBNET})
        assert isinstance(await site.ensure(provider, own), Ensured)


async def test_one_node_alone_makes_no_subnet_with_addresses_of_services_the_cluster_s(
    site: Balancing,
) -> None:
    """A kubelet can name any server on its Node, such as one there."""
    theirs, twin = site.wire.add(3, "n3"), uuid(701)
    site.wire.ports[-1]["fixed_ips"] = [{"subnet_id": twin, "ip_address": "10.96.0.9"}]
    subnet = {"id": twin, "ip_version": 4, "network_id": uuid(700), "cidr": "10.96.0.0/24"}
    site.octavia.subnets[twin] = subnet
    api = site.service(
        name="kubernetes", namespace="default", type="ClusterIP", cluster_ip="10.96.0.1"
    )
    nodes = [*site.nodes, node("n3", f"openstack:///{theirs}", "10.96.0.9")]
    service = site.service({INTERNAL: "true", f"{P}subnet-id": twin})
    async with started(site.wire.config(), context(nodes=nodes, services=[api])) as provider:
        answer = await site.ensure(provider, service)
        assert isinstance(answer, InvalidRequest), answer
        assert "its addresses are those of Services, too" in str(answer)
        assert not site.octavia.of["loadbalancers"]
        subnet["cidr"] = "10.9.0.0/24"
        assert isinstance(await site.ensure(provider, service), Ensured)


@pytest.mark.parametrize("by", ["port-id", "spec.loadBalancerIP"])
async def test_the_address_of_a_pod_in_the_nodes_own_subnet_is_refused(
    site: Balancing, by: str
) -> None:
    """Nodes answer for the pods of theirs there; Neutron keeps no address for that."""
    address, cidr = "10.0.128.5", "10.0.128.0/24"
    site.octavia.subnets[SUBNET]["cidr"] = "10.0.0.0/16"
    site.wire.ports[0]["allowed_address_pairs"] = [{"ip_address": cidr}]
    pods = msgspec.structs.replace(site.nodes[0].spec, pod_cidr=cidr, pod_cidrs=(cidr,))
    nodes = [msgspec.structs.replace(site.nodes[0], spec=pods), *site.nodes[1:]]
    service, _ = asking(site, by, address)
    async with started(site.wire.config(), context(nodes=nodes)) as provider:
        answer = await site.ensure(provider, service)
    assert isinstance(answer, InvalidRequest), answer
    assert by in str(answer)
    assert f"it is one of pods of the node {nodes[0].metadata.name}" in str(answer)
    assert not site.octavia.of["loadbalancers"]


@pytest.mark.parametrize("by", ["port-id", "spec.loadBalancerIP"])
async def test_the_cluster_ip_of_another_namespace_s_service_is_refused(
    site: Balancing, by: str
) -> None:
    """Subnets may have addresses of the Services' range: nodes would lead that one's clients on."""
    dns = site.service(name="dns", namespace="kube-system", type="ClusterIP", cluster_ip=VIRTUAL)
    service, _ = asking(site, by, VIRTUAL)
    async with started(site.wire.config(), context(services=[dns, service])) as provider:
        answer = await site.ensure(provider, service)
    assert isinstance(answer, InvalidRequest), answer
    assert by in str(answer)
    assert "it belongs to the Service kube-system/dns" in str(answer)
    assert not site.octavia.of["loadbalancers"]


@pytest.mark.parametrize("written", ["2001:DB8::4D", "2001:db8:0:0::004d"])
async def test_a_cluster_ip_of_ipv6_of_another_namespace_is_refused_in_any_form(
    site: Balancing, written: str
) -> None:
    """The API server keeps a cluster IP as the Service's file has it; Neutron takes all forms."""
    dns = site.service(name="dns", namespace="kube-system", type="ClusterIP", cluster_ip=written)
    asked: dict[str, Any] = {"ip_families": ("IPv6",), "load_balancer_ip": "2001:db8::4d"}
    service = site.service({INTERNAL: "true"}, **asked)
    async with started(site.wire.config(), context(services=[dns, service])) as provider:
        answer = await site.ensure(provider, service)
    assert isinstance(answer, InvalidRequest), answer
    assert "it belongs to the Service kube-system/dns" in str(answer)
    assert not site.octavia.of["loadbalancers"]
