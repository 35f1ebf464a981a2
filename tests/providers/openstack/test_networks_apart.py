"""Networks apart may have the same addresses: no Service shows one that another one has elsewhere."""

from collections.abc import AsyncIterator

import pytest

from proreus.cloudprovider import Context, Ensured, InvalidRequest
from proreus.kube.objects import IP_MODE_PROXY, Service
from proreus.testing import objects

from .balancing import INTERNAL, Balancing, P, balancing, known, shown
from .balancing import SUBNET as HOSTS
from .test_tenants import DNS, EXTERNAL
from .wire import context, node, started, uuid

NETWORK, SUBNET = uuid(700), uuid(701)
GIVEN, FLOATING = "10.0.0.200", "203.0.113.7"
"""What Neutron gives first."""
NEXT = "10.0.0.201"
"""What Neutron gives the second load balancer."""


@pytest.fixture
async def site() -> AsyncIterator[Balancing]:
    async with balancing() as made:
        made.wire.good_tokens = {f"token-{number}" for number in range(10)}
        made.wire.networks[NETWORK] = "of another cluster"
        subnet = {"id": SUBNET, "ip_version": 4, "network_id": NETWORK, "cidr": "10.9.0.0/24"}
        made.octavia.subnets[SUBNET] = subnet
        yield made


async def check_refused(
    site: Balancing, seen: Context, service: Service, given: str, why: str, *, is_listed: bool
) -> None:
    """Check that an address is refused, unless [Tenants] lists it or the status shows it."""
    sections = f"[Tenants]\nallow = shop={given}\n" if is_listed else ""
    async with started(site.wire.config(sections=sections), seen) as provider:
        answer = await site.ensure(provider, service)
        if is_listed:
            assert isinstance(answer, Ensured), answer
            return
        assert isinstance(answer, InvalidRequest), answer
        assert f"{given}, which Neutron has given, cannot be had: {why}" in str(answer)
        assert isinstance(await site.ensure(provider, known(service, given)), Ensured)


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("has", ["virtual address", "floating IP"])
@pytest.mark.parametrize("by", ["subnet-id", "network-id"])
async def test_no_service_shows_an_address_that_another_one_has_in_a_network_apart(
    site: Balancing, by: str, has: str, *, is_listed: bool
) -> None:
    """Nodes would lead that one's clients to it; whoever makes enough Services gets any address."""
    first = site.service({INTERNAL: "true"}, name="api", namespace="bank")
    async with started(site.wire.config(), context(nodes=site.nodes)) as provider:
        assert isinstance(await site.ensure(provider, first), Ensured)
    made = site.octavia.only("loadbalancers")
    if has == "virtual address":
        made["vip_address"] = NEXT
    else:
        there = {"floating_ip_address": NEXT, "floating_network_id": EXTERNAL}
        site.octavia.of["floatingips"]["f"] = {"id": "f", "port_id": made["vip_port_id"], **there}
    seen = context(nodes=site.nodes, services=[known(first, NEXT)])
    named = {"subnet-id": SUBNET, "network-id": NETWORK}[by]
    service = site.service({INTERNAL: "true", f"{P}{by}": named})
    expected = "it belongs to the Service bank/api"
    await check_refused(site, seen, service, NEXT, expected, is_listed=is_listed)


async def test_a_service_shows_an_address_that_another_one_s_load_balancer_has_left(
    site: Balancing,
) -> None:
    """Somebody has deleted that, and nothing has looked at the other Service since."""
    first = known(site.service({INTERNAL: "true"}, name="api", namespace="bank"), "10.0.0.200")
    service = site.service({INTERNAL: "true"})
    async with started(site.wire.config(), context(nodes=site.nodes, services=[first])) as provider:
        answer = await site.ensure(provider, service)
    assert isinstance(answer, Ensured), answer
    assert [one.ip for one in answer.ingress] == ["10.0.0.200"]


THEIRS = {
    "a node of bare metal": node("metal", "metal://7", GIVEN),
    "pods": objects.node("far", "metal://7", pod_cidrs=("203.0.113.0/24",)),
}


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("whose", THEIRS)
async def test_no_service_shows_an_address_of_nodes_and_pods_that_neutron_does_not_know(
    site: Balancing, whose: str, *, is_listed: bool
) -> None:
    """A floating IP may be one of pods; a network apart may have addresses of bare metal."""
    nodes = [*site.nodes, THEIRS[whose]]
    site.octavia.subnets[SUBNET]["cidr"] = "10.0.0.192/26"
    given = FLOATING if whose == "pods" else GIVEN
    asked = {} if whose == "pods" else {INTERNAL: "true", f"{P}subnet-id": SUBNET}
    seen, service = context(nodes=nodes), site.service(asked)
    await check_refused(site, seen, service, given, "it is", is_listed=is_listed)


@pytest.mark.parametrize("inside", [True, False])
async def test_no_service_shows_a_floating_ip_that_is_another_one_s_inside_the_cluster(
    site: Balancing, *, inside: bool
) -> None:
    ip = FLOATING if inside else "203.0.113.99"
    first = objects.service("dns", namespace="kube-system", cluster_ip=ip, cluster_ips=(ip,))
    async with started(site.wire.config(), context(nodes=site.nodes, services=[first])) as provider:
        answer = await site.ensure(provider, site.service())
    assert isinstance(answer, InvalidRequest if inside else Ensured), answer
    assert not inside or "it belongs to the Service kube-system/dns" in str(answer)


@pytest.mark.parametrize("whose", [*THEIRS, "another Service"])
async def test_an_address_shown_as_that_of_a_proxy_is_looked_at_before_nodes_go_by_it(
    site: Balancing, whose: str
) -> None:
    """Nodes lead nothing to a Service at a proxy's address: it may be another one's until then."""
    services = []
    if whose == "another Service":
        first = site.service({INTERNAL: "true"}, name="api", namespace="bank")
        async with started(site.wire.config(), context(nodes=site.nodes)) as provider:
            assert isinstance(await site.ensure(provider, first), Ensured)
        site.octavia.only("loadbalancers")["vip_address"] = NEXT
        services = [known(first, NEXT)]
    site.octavia.subnets[SUBNET]["cidr"] = "10.0.0.192/26"
    nodes = [*site.nodes, *([THEIRS[whose]] if whose in THEIRS else ())]
    asked = {} if whose == "pods" else {INTERNAL: "true", f"{P}subnet-id": SUBNET}
    proxied = site.service({**asked, f"{P}proxy-protocol": "true"})
    async with started(site.wire.config(), context(nodes=nodes, services=services)) as provider:
        answer = await site.ensure(provider, proxied)
        assert isinstance(answer, Ensured), answer
        assert [one.ip_mode for one in answer.ingress] == [IP_MODE_PROXY]
        assert isinstance(await site.ensure(provider, shown(proxied, answer.ingress)), Ensured)
        service = shown(site.service(asked), answer.ingress)
        answer = await site.ensure(provider, service)
    assert isinstance(answer, InvalidRequest), answer


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("is_in_trunk", [True, False])
@pytest.mark.parametrize("has", ["virtual address", "floating IP"])
async def test_no_service_shows_an_address_that_a_node_s_server_has_in_a_network_apart(
    site: Balancing, has: str, *, is_in_trunk: bool, is_listed: bool
) -> None:
    """External networks may have the addresses of the nodes' own, and hide their subnets."""
    given = FLOATING if has == "floating IP" else GIVEN
    site.wire.ports[1]["fixed_ips"][0]["ip_address"] = given
    if is_in_trunk:  # Neutron names no device then
        site.wire.ports[1] |= {"device_id": "", "device_owner": "trunk:subport"}
    nodes = [site.nodes[0], node("n2", site.nodes[1].spec.provider_id, given)]
    asked = {} if has == "floating IP" else {INTERNAL: "true"}
    seen, service = context(nodes=nodes), site.service({f"{P}subnet-id": SUBNET, **asked})
    expected = "port p-2 of a node's server has it"
    await check_refused(site, seen, service, given, expected, is_listed=is_listed)


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("by", ["subnet-id", "floating-network-id"])
@pytest.mark.parametrize("whose", ["a node's", "a machine's"])
async def test_no_service_shows_a_floating_ip_of_servers_in_a_network_apart(
    site: Balancing, whose: str, by: str, *, is_listed: bool
) -> None:
    """A network apart may have the addresses of an external one, or two external ones the same."""
    twin, given = uuid(702), GIVEN if by == "subnet-id" else FLOATING
    site.wire.external[twin] = "another one"
    site.wire.add(50)
    port = "p-2" if whose == "a node's" else "p-50"
    theirs = {"id": "f", "port_id": port, "floating_network_id": EXTERNAL}
    site.octavia.of["floatingips"]["f"] = {**theirs, "floating_ip_address": given}
    n2 = node("n2", site.nodes[1].spec.provider_id, "10.0.0.2", *([given] if port == "p-2" else ()))
    asked = {INTERNAL: "true", f"{P}{by}": SUBNET} if by == "subnet-id" else {f"{P}{by}": twin}
    seen, service = context(nodes=[site.nodes[0], n2]), site.service(asked)
    ends = {"a node's": "of a node's server has it", "a machine's": "in another network has it"}
    why = f"port {port} {ends[whose]}"
    await check_refused(site, seen, service, given, why, is_listed=is_listed)


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("by", ["Neutron", "spec.loadBalancerIP"])
@pytest.mark.parametrize("of", ["name server", "virtual address"])
async def test_no_service_shows_an_address_elsewhere_by_which_nodes_mean_others(
    site: Balancing, of: str, by: str, *, is_listed: bool
) -> None:
    """They ask there for names, or answer for it; a name server need be no machine of Neutron's."""
    site.octavia.subnets[SUBNET]["cidr"] = "10.0.0.192/26"
    if of == "name server":
        site.octavia.subnets[HOSTS]["dns_nameservers"] = [GIVEN]
        why = f"it is that of a name server of subnet {HOSTS}, where nodes are"
    else:
        site.wire.ports[0]["allowed_address_pairs"] = [{"ip_address": GIVEN}]
        why = "port p-1 of a node's server has it among its allowed address pairs"
    ip = GIVEN if by == "spec.loadBalancerIP" else ""
    service = site.service({INTERNAL: "true", f"{P}subnet-id": SUBNET}, load_balancer_ip=ip)
    if ip and not is_listed:
        async with started(site.wire.config(), context(nodes=site.nodes)) as provider:
            answer = await site.ensure(provider, service)
            assert isinstance(answer, InvalidRequest), answer
            assert f"{by}: {GIVEN}: {why}" in str(answer)
            assert not site.octavia.of["loadbalancers"]
            assert isinstance(await site.ensure(provider, known(service, GIVEN)), Ensured)
        return
    seen = context(nodes=site.nodes)
    await check_refused(site, seen, service, GIVEN, why, is_listed=is_listed)


async def test_an_address_that_only_a_node_says_it_has_is_shown(site: Balancing) -> None:
    """Its server has gone, and Neutron gives the address to others; or a kubelet claims it."""
    nodes = [site.nodes[0], node("n2", site.nodes[1].spec.provider_id, FLOATING)]
    async with started(site.wire.config(), context(nodes=nodes)) as provider:
        answer = await site.ensure(provider, site.service())
    assert isinstance(answer, Ensured), answer


@pytest.mark.parametrize("is_listed", [True, False])
async def test_an_external_network_with_the_addresses_of_the_nodes_own_is_refused(
    site: Balancing, *, is_listed: bool
) -> None:
    """Nodes would take a floating IP for what has the address there, such as the API server."""
    twin = uuid(702)
    site.wire.external[twin] = "with equal addresses"
    site.octavia.subnets[twin] = {"id": twin, "network_id": twin, "cidr": "10.0.0.0/24"}
    service = site.service({f"{P}floating-network-id": twin})
    sections = f"[Tenants]\nallow = shop={twin}\n" if is_listed else ""
    config, seen = site.wire.config(sections=sections), context(nodes=site.nodes)
    async with started(config, seen) as provider:
        answer = await site.ensure(provider, service)
        if is_listed:
            assert isinstance(answer, Ensured), answer
            return
        assert isinstance(answer, InvalidRequest), answer
        assert f"{P}floating-network-id: its addresses are those of subnet" in str(answer)
        assert not site.octavia.of["loadbalancers"]
        site.octavia.subnets[twin]["cidr"] = "203.0.113.0/24"
        assert isinstance(await site.ensure(provider, service), Ensured)


@pytest.mark.parametrize("owner", ["Octavia", "", "neutron:LOADBALANCERV2"])
async def test_no_service_shows_a_load_balancer_s_address_of_a_place_that_a_tenant_has_chosen(
    site: Balancing, owner: str
) -> None:
    """Such as one before a database; OVN's driver gives its port no owner."""
    site.wire.add(50)
    site.wire.ports[-1] |= {"device_id": "", "device_owner": owner}
    site.wire.ports[-1]["fixed_ips"] = [{"subnet_id": uuid(703), "ip_address": GIVEN}]
    service = site.service({INTERNAL: "true", f"{P}subnet-id": SUBNET})
    expected = "port p-50 in another network has it"
    seen = context(nodes=site.nodes)
    await check_refused(site, seen, service, GIVEN, expected, is_listed=False)


async def test_a_router_elsewhere_takes_no_address_of_a_place_that_a_tenant_has_chosen(
    site: Balancing,
) -> None:
    """Nor DHCP: most networks have them at equal addresses."""
    site.wire.add(50)
    site.wire.ports[-1] |= {"device_id": "r", "device_owner": "network:dhcp"}
    site.wire.ports[-1]["fixed_ips"] = [{"subnet_id": uuid(703), "ip_address": GIVEN}]
    service = site.service({INTERNAL: "true", f"{P}subnet-id": SUBNET})
    async with started(site.wire.config(), context(nodes=site.nodes)) as provider:
        assert isinstance(await site.ensure(provider, service), Ensured)


@pytest.mark.parametrize("is_listed", [True, False])
async def test_dhcp_where_nodes_are_takes_an_address_of_places_elsewhere(
    site: Balancing, *, is_listed: bool
) -> None:
    """Nodes ask there for names where their subnet names no server."""
    site.octavia.subnets[SUBNET]["cidr"] = "10.0.0.192/26"
    site.wire.add(50)
    site.wire.ports[-1] |= {"device_id": "r", "device_owner": "network:dhcp"}
    site.wire.ports[-1]["fixed_ips"] = [{"subnet_id": HOSTS, "ip_address": GIVEN}]
    service = site.service({INTERNAL: "true", f"{P}subnet-id": SUBNET})
    expected, seen = "port p-50 in a subnet of the nodes has it", context(nodes=site.nodes)
    await check_refused(site, seen, service, GIVEN, expected, is_listed=is_listed)


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("by", ["subnet-id", "load-balancer-id", "floating-network-id", "past"])
async def test_no_service_shows_a_machine_s_address_of_a_place_that_a_tenant_has_chosen(
    site: Balancing, by: str, *, is_listed: bool
) -> None:
    """Such as a database's, which nodes reach; another environment has the same networks."""
    twin, given = uuid(702), GIVEN if by == "subnet-id" else FLOATING
    site.wire.external[twin] = "another one"
    site.wire.add(50)
    site.wire.ports[-1] |= {"device_owner": "compute:nova"}
    site.wire.ports[-1]["fixed_ips"] = [{"subnet_id": uuid(703), "ip_address": given}]
    asked = {f"{P}floating-network-id": twin}
    if by == "subnet-id":
        asked = {INTERNAL: "true", f"{P}subnet-id": SUBNET}
    seen, service = context(nodes=site.nodes), site.service(asked)
    if by in {"load-balancer-id", "past"}:
        first = service if by == "past" else site.service(asked, name="first", ports=DNS)
        async with started(site.wire.config(), seen) as provider:
            await site.ensure(provider, first)
        service = site.service()  # the annotation is gone
    if by == "load-balancer-id":
        service = site.service({f"{P}{by}": site.octavia.only("loadbalancers")["id"]})
    expected = "port p-50 in another network has it"
    await check_refused(site, seen, service, given, expected, is_listed=is_listed)


@pytest.mark.parametrize("by", ["nothing", "subnet-id", "cloud-config", "floating IP"])
async def test_machines_elsewhere_take_no_address_of_places_that_no_tenant_has_chosen(
    site: Balancing, by: str
) -> None:
    """Clusters of one project often have the same CIDR, each in a network of its own."""
    site.wire.add(50)
    site.wire.ports[-1] |= {"device_owner": "compute:nova", "network_id": NETWORK}
    given = FLOATING if by == "floating IP" else GIVEN
    site.wire.ports[-1]["fixed_ips"] = [{"subnet_id": SUBNET, "ip_address": given}]
    subnet = SUBNET if by == "cloud-config" else HOSTS
    sections = f"[LoadBalancer]\nsubnet-id = {subnet}\n" if by == "cloud-config" else ""
    named = {f"{P}subnet-id": HOSTS} if by == "subnet-id" else {}
    named |= {} if by == "floating IP" else {INTERNAL: "true"}
    service = site.service(named)
    config = site.wire.config(sections=sections)
    async with started(config, context(nodes=site.nodes)) as provider:
        first = await site.ensure(provider, service)
        assert isinstance(first, Ensured), first
        again = site.service({**named, **first.annotations})
        assert isinstance(await site.ensure(provider, again), Ensured)


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("proxy", [True, False])
@pytest.mark.parametrize("cluster", ["test", "other"])
async def test_a_virtual_address_proves_nothing_of_a_floating_ip(
    site: Balancing, cluster: str, *, proxy: bool, is_listed: bool
) -> None:
    """A network apart has the addresses of the external one: the status shows both alike."""
    text = f"Floating IP for Kubernetes external service bank/api from cluster {cluster}"
    theirs = {"id": "f", "port_id": None, "floating_network_id": EXTERNAL, "description": text}
    site.octavia.of["floatingips"]["f"] = {**theirs, "floating_ip_address": GIVEN}
    asked = {INTERNAL: "true", f"{P}subnet-id": SUBNET}
    first = site.service({**asked, **({f"{P}proxy-protocol": "true"} if proxy else {})})
    sections = f"[Tenants]\nallow = shop={GIVEN}\n" if is_listed else ""
    config, seen = site.wire.config(sections=sections), context(nodes=site.nodes)
    async with started(config, seen) as provider:
        answer = await site.ensure(provider, first)
        assert [one.ip for one in answer.ingress] == [GIVEN]
        service = shown(site.service(load_balancer_ip=GIVEN), answer.ingress)
        answer = await site.ensure(provider, service)
    if is_listed:
        assert isinstance(answer, Ensured), answer
        return
    assert isinstance(answer, InvalidRequest), answer
    assert f"spec.loadBalancerIP: {GIVEN}: it belongs to the Service bank/api" in str(answer)
    assert site.octavia.only("floatingips")["port_id"] is None
