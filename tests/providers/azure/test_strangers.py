"""What is another namespace's, another cluster's or an operator's, and what Services say of it."""

from typing import Any

import pytest

from proreus.cloudprovider import CloudError, Done, Ensured, InvalidRequest, Route
from proreus.cloudprovider.calls import CallRecord
from proreus.cloudprovider.errors import CallTimeout
from proreus.kube.objects import IP_MODE_PROXY, ServicePort

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .balancing import (
    addresses,
    answers,
    balancer,
    delete,
    ensure,
    everything,
    machines,
    name_of,
    node,
    parts,
    public_ip,
    rules,
    service,
    set_machines,
    targets,
)
from .emulator import seed
from .emulator.server import Emulator, Fault
from .emulator.store import compute, network
from .site import CLUSTER, ID, context, started

ADDITIONAL = "azure-additional-public-ips"
TAGS = "azure-allowed-service-tags"


async def test_no_service_takes_the_address_of_another_namespace_s_as_an_additional_one(
    azure: Emulator,
) -> None:
    nodes = machines(azure)
    async with started(azure) as provider:
        (address,) = (await ensure(provider, nodes, service()))["web-1"]
        before = everything(azure)
        thief = service(2, {ADDITIONAL: address}, namespace="other")
        found = await answers(provider, nodes, thief)
        assert isinstance(found["web-2"], InvalidRequest)
        assert "shop" in str(found["web-2"])
        assert everything(azure) == before


async def test_no_service_opens_a_node_s_own_ports(azure: Emulator) -> None:
    nodes = machines(azure)
    own = nodes[0].status.addresses[0].address
    async with started(azure, context(nodes=nodes)) as provider:
        ports = [ServicePort(10250, "kubelet", node_port=31250)]
        found = await answers(provider, nodes, service(2, {ADDITIONAL: own}, ports))
        assert isinstance(found["web-2"], InvalidRequest)
        assert own not in {one for rule in rules(azure).values() for one in targets(rule)}


async def test_no_service_cuts_nodes_off(azure: Emulator) -> None:
    """A rule that denies all else goes for kubelets, too, where its destination is a node."""
    nodes = machines(azure)
    annotations = {
        "azure-disable-load-balancer-floating-ip": "true",
        "azure-deny-all-except-load-balancer-source-ranges": "true",
    }
    denying = service(2, annotations, load_balancer_source_ranges=("192.0.2.0/24",))
    known = context(nodes=nodes, services=Objects([service(), denying]))
    async with started(azure, known) as provider:
        await ensure(provider, nodes, service())
        before = everything(azure)
        found = await answers(provider, nodes, denying)
        assert isinstance(found["web-2"], InvalidRequest)
        assert "azure-deny-all-except-load-balancer-source-ranges" in str(found["web-2"])
        assert everything(azure) == before
        # What the official manager has made for it goes with it.
        group = azure.store.of[network("networkSecurityGroups", "nsg").lower()]
        properties = {"access": "Deny", "direction": "Inbound", "priority": 4095, "protocol": "*"}
        properties |= {"sourceAddressPrefix": "*", "destinationPortRange": "*"}
        properties |= {"sourcePortRange": "*", "destinationAddressPrefix": "10.0.0.4"}
        denied = {"name": "k8s-azure-lb_deny-all_IPv4", "properties": properties}
        group["properties"]["securityRules"].append(denied)
        assert nodes[0].status.addresses[0].address == "10.0.0.4"
        await delete(provider, denying)
        await ensure(provider, nodes, service())
        assert everything(azure) == before


async def test_a_service_that_goes_closes_no_port_of_another_one_s_nodes(azure: Emulator) -> None:
    """Not even one whose load balancer was refused."""
    nodes = machines(azure)
    own = nodes[0].status.addresses[0].address
    at_nodes = service(1, {"azure-disable-load-balancer-floating-ip": "true"})
    async with started(azure, context(nodes=nodes)) as provider:
        await ensure(provider, nodes, at_nodes)
        before = everything(azure)
        await delete(provider, service(2, {ADDITIONAL: own}, namespace="other"))
        assert everything(azure) == before


async def test_an_address_that_nobody_here_has_may_be_named(azure: Emulator) -> None:
    nodes = machines(azure)
    named = service(1, {ADDITIONAL: "198.51.100.7"})
    async with started(azure, context(nodes=nodes)) as provider:
        found = await ensure(provider, nodes, named)
        assert found["web-1"][1:] == ["198.51.100.7"]
        assert "198.51.100.7" in {one for rule in rules(azure).values() for one in targets(rule)}
        await delete(provider, named)
        assert not rules(azure)


async def test_a_load_balancer_that_somebody_has_made_empty_stays(azure: Emulator) -> None:
    """Such as by Terraform, for the pools that others fill."""
    nodes = machines(azure)
    id_ = network("loadBalancers", "kubernetes-internal")
    lists = ("frontendIPConfigurations", "backendAddressPools", "loadBalancingRules", "probes")
    empty: dict[str, object] = {one: [] for one in lists}
    kind = "Microsoft.Network/loadBalancers"
    azure.store.put(seed.resource(kind, id_, empty, sku={"name": "Standard"}))
    async with started(azure) as provider:
        await ensure(provider, nodes, service())
        await delete(provider, service())
    assert azure.store.get(id_) is not None


async def test_a_load_balancer_whose_pools_somebody_else_has_filled_is_not_deleted(
    azure: Emulator,
) -> None:
    """Azure takes no last frontend away, so the Service stays until somebody has decided."""
    nodes = machines(azure)
    id_ = network("loadBalancers", "kubernetes")
    async with started(azure) as provider:
        await ensure(provider, nodes, service())
    members = parts(azure, "backendAddressPools")["kubernetes"]["backendIPConfigurations"]
    assert len(members) == len(nodes)
    before = everything(azure)
    async with started(azure, preConfiguredBackendPoolLoadBalancerTypes="all") as provider:
        with pytest.raises(CloudError, match="preConfiguredBackendPoolLoadBalancerTypes"):
            await delete(provider, service())
        assert everything(azure) == before
        public_ip(azure, "outbound")
        own = {"publicIPAddress": {"id": network("publicIPAddresses", "outbound")}}
        part = {"name": "outbound", "id": f"{id_}/frontendIPConfigurations/outbound"}
        azure.store.of[id_.lower()]["properties"]["frontendIPConfigurations"].append(
            {**part, "properties": own}
        )
        await delete(provider, service())
    left = parts(azure, "backendAddressPools")["kubernetes"]["backendIPConfigurations"]
    assert left == members
    assert list(parts(azure, "frontendIPConfigurations")) == list(addresses(azure)) == ["outbound"]


async def test_a_load_balancer_whose_pools_nobody_has_filled_goes_with_its_last_service(
    azure: Emulator,
) -> None:
    nodes = machines(azure)
    async with started(azure, preConfiguredBackendPoolLoadBalancerTypes="all") as provider:
        await ensure(provider, nodes, service())
        await delete(provider, service())
    assert balancer(azure) is None
    assert not addresses(azure)


async def test_nothing_is_gone_because_an_operation_on_it_failed(azure: Emulator) -> None:
    nodes = machines(azure)
    azure.works = 1
    async with started(azure) as provider:
        await ensure(provider, nodes, service())
        fault = Fault("DELETE", "publicIPAddresses", code="ResourceNotFound", asynchronous=True)
        azure.faults.append(fault)
        with pytest.raises(CloudError, match="ResourceNotFound"):
            await delete(provider, service())
        assert addresses(azure)
        await delete(provider, service())
        assert not addresses(azure)


class Silence:
    """No answer in time to any question about a load balancer, once it begins."""

    def __init__(self) -> None:
        self.begins = False
        self.asked = 0

    def before(self, service: str, operation: str, *, read: bool) -> None:
        if self.begins and operation == "loadBalancers_get":
            self.asked += 1
            raise CallTimeout(f"{service}.{operation}: no answer in time")

    def after(self, record: CallRecord) -> None:
        pass


@pytest.mark.parametrize(
    "refusal",
    [
        {"code": "DnsRecordInUse", "asynchronous": True},
        {"code": "DnsRecordInUse", "status": 400},
        {"code": "SomethingInUse", "status": 409},
        {"code": "RequestDisallowedByPolicy", "status": 403},
        {"code": "LinkedAuthorizationFailed", "status": 403},
    ],
    ids=["at the end of the operation", "at once", "as a conflict", "by a policy", "as no right"],
)
async def test_a_service_that_azure_refuses_lastingly_keeps_no_other_one_from_its_own(
    azure: Emulator, refusal: dict[str, Any]
) -> None:
    """Such as one with a DNS label that somebody else in the region has."""
    nodes = machines(azure)
    azure.works = int("asynchronous" in refusal)
    label = {"azure-dns-label-name": "taken"}
    services = [service(n, label if n == 3 else {}, namespace=f"team-{n}") for n in range(1, 4)]
    name = name_of(services[2].metadata.uid)
    azure.faults.append(Fault("PUT", "publicIPAddresses", times=-1, name=name, **refusal))
    async with started(azure) as provider:
        found = dict(await answers(provider, nodes, *services))
    assert not isinstance(found.pop("web-3"), Ensured)
    assert {type(one) for one in found.values()} == {Ensured}


async def test_what_is_no_service_s_fault_is_not_looked_for_among_them(azure: Emulator) -> None:
    """Neither the time without an answer nor another cluster's load balancer."""
    nodes = machines(azure)
    services = [service(n) for n in range(1, 9)]
    async with started(azure) as provider:
        await ensure(provider, nodes, service())
        stored = azure.store.of[network("loadBalancers", "kubernetes").lower()]
        stored["tags"]["proreus_cluster-uid"] = "another"
        azure.counted()
        found = await answers(provider, nodes, *services)
        assert all("another" in str(one) for one in found.values())
        assert azure.counted()["GET", "Microsoft.Network/loadBalancers"] == 2
    silence = Silence()
    async with started(azure, context(silence, nodes)) as provider:
        silence.begins = True
        late = await answers(provider, nodes, *services)
    assert {type(one) for one in late.values()} == {CallTimeout}
    assert silence.asked <= 2


async def test_a_public_ip_of_another_cluster_s_service_of_the_same_name_is_refused(
    azure: Emulator,
) -> None:
    nodes = machines(azure)
    tags = {"k8s-azure-service": "shop/web-1", "k8s-azure-cluster-name": "elsewhere"}
    public_ip(azure, "theirs", tags)
    before = addresses(azure)["theirs"]["tags"]
    async with started(azure) as provider:
        found = await answers(provider, nodes, service(annotations={"azure-pip-name": "theirs"}))
        assert isinstance(found["web-1"], InvalidRequest)
        assert "elsewhere" in str(found["web-1"])
    assert addresses(azure)["theirs"]["tags"] == before


async def test_an_internal_address_that_is_shared_already_is_shared_on(azure: Emulator) -> None:
    """Such as by Services of two namespaces for which the official manager has made it."""
    nodes = machines(azure)
    inner = {"azure-load-balancer-internal": "true", "azure-load-balancer-ipv4": "10.9.0.77"}
    inner["azure-load-balancer-internal-subnet"] = "apps"
    other = [ServicePort(443, "https", node_port=30443)]
    first = service(annotations=inner)
    second = service(2, inner, other, namespace="other", ingress=["10.9.0.77"])
    async with started(azure) as provider:
        await ensure(provider, nodes, first)
        await ensure(provider, nodes, second)  # whose the frontend is, is not known here
    before = everything(azure)
    known = context(nodes=nodes, services=Objects([first, second]))
    async with started(azure, known) as provider:
        found = await answers(provider, nodes, second)
        assert isinstance(found["web-2"], Ensured), found["web-2"]
        assert everything(azure) == before
        third = service(3, inner, [ServicePort(444, "x", node_port=30444)], namespace="other")
        found = await answers(provider, nodes, third)
        assert isinstance(found["web-3"], InvalidRequest)


@pytest.mark.parametrize("is_listed", [False, True])
async def test_an_internal_address_of_another_namespace_is_refused_while_nothing_has_it(
    azure: Emulator, *, is_listed: bool
) -> None:
    """Its load balancer was deleted by hand, and Services get another one by and by."""
    nodes = machines(azure)
    inner = {"azure-load-balancer-internal": "true", "azure-load-balancer-ipv4": "10.9.0.77"}
    inner["azure-load-balancer-internal-subnet"] = "apps"
    first = service(annotations=inner, ingress=["10.9.0.77"])
    thief = service(2, inner, [ServicePort(443, "https", node_port=30443)], namespace="other")
    services = Objects()
    known = context(nodes=nodes, services=services)
    tenants = {"tenants": {"allow": ["other=10.9.0.77"]}} if is_listed else {}
    async with started(azure, known, **tenants) as provider:
        await ensure(provider, nodes, service(3, {"azure-load-balancer-internal": "true"}))
        services.by_key = {"shop/web-1": first, "other/web-2": thief}
        found = await answers(provider, nodes, thief)
        if is_listed:
            assert isinstance(found["web-2"], Ensured)
            return
        assert isinstance(found["web-2"], InvalidRequest)
        assert "shop" in str(found["web-2"])
        assert await ensure(provider, nodes, first) == {"web-1": ["10.9.0.77"]}


async def test_a_port_of_a_shared_public_ip_stays_a_service_s_while_nothing_has_it(
    azure: Emulator,
) -> None:
    """The load balancer was deleted by hand, and Services get another one by and by."""
    nodes, named = machines(azure), {"azure-pip-name": "shared"}
    address = public_ip(azure, "shared")
    first = service(1, named, ingress=[address])
    thief = service(2, named, namespace="bank")
    third = service(3, named, [ServicePort(443, "https", node_port=30443)], namespace="bank")
    services = Objects()
    known = context(nodes=nodes, services=services)
    async with started(azure, known) as provider:
        services.by_key = {"shop/web-1": first, "bank/web-2": thief, "bank/web-3": third}
        await ensure(provider, nodes, service(4))
        found = await answers(provider, nodes, thief)
        assert isinstance(found["web-2"], InvalidRequest)
        assert f"port 80 of {address}" in str(found["web-2"])
        assert "shop" in str(found["web-2"])
        await ensure(provider, nodes, third)
        assert await ensure(provider, nodes, first) == {"web-1": [address]}


async def test_who_asks_for_a_port_of_another_one_is_to_show_their_address_no_more(
    azure: Emulator,
) -> None:
    """Nodes' kube-proxies go by ports and status alone: one of both would have all clients."""
    nodes, named = machines(azure), {"azure-pip-name": "shared"}
    address = public_ip(azure, "shared")
    first = service(1, named, ingress=[address])
    https = [ServicePort(443, "https", node_port=30443)]
    other = service(2, named, https, namespace="bank", ingress=[address])
    services = Objects()
    known = context(nodes=nodes, services=services)
    async with started(azure, known) as provider:
        services.by_key = {"shop/web-1": first, "bank/web-2": other}
        await ensure(provider, nodes, first, other)
        thief = service(2, named, namespace="bank", ingress=[address])
        services.by_key = {"shop/web-1": first, "bank/web-2": thief}
        refused = (await answers(provider, nodes, thief))["web-2"]
        assert isinstance(refused, CloudError)
        assert refused.disowns
        swapped = service(1, named, https, ingress=[address])
        services.by_key = {"shop/web-1": swapped, "bank/web-2": thief}
        await ensure(provider, nodes, swapped, thief)


async def test_a_port_that_leads_to_node_ports_is_taken_by_no_port_without_a_rule(
    azure: Emulator,
) -> None:
    """Azure refuses nothing then, but nodes go by status and ports alone."""
    nodes, named = machines(azure), {"azure-pip-name": "shared"}
    address = public_ip(azure, "shared")
    at_nodes = {**named, "azure-disable-load-balancer-floating-ip": "true"}
    first = service(1, at_nodes, ingress=[address])
    ports = [ServicePort(443, "https", node_port=30443), ServicePort(80, "x", node_port=30081)]
    no_rule = {**named, "port_80_no_lb_rule": "true"}
    other = service(2, named, ports[:1], namespace="bank", ingress=[address])
    thief = service(2, no_rule, ports, namespace="bank", ingress=[address])
    new = service(3, no_rule, ports[1:], namespace="bank")
    services = Objects([first, other])
    async with started(azure, context(nodes=nodes, services=services)) as provider:
        await ensure(provider, nodes, first, other)
        services.by_key = {"shop/web-1": first, "bank/web-2": thief, "bank/web-3": new}
        found = await answers(provider, nodes, thief, new)
        for uid in ("web-2", "web-3"):
            refused = found[uid]
            assert isinstance(refused, InvalidRequest)
            assert f"port 80 of {address}" in str(refused)
        taken = found["web-2"]
        assert isinstance(taken, CloudError)
        assert taken.disowns
        assert await ensure(provider, nodes, first) == {"web-1": [address]}


@pytest.mark.parametrize("thief_has_rule", [True, False])
async def test_a_port_without_a_rule_stays_its_service_s_at_a_shared_address(
    azure: Emulator, *, thief_has_rule: bool
) -> None:
    """Nothing in Azure tells who had it first."""
    nodes, named = machines(azure), {"azure-pip-name": "shared"}
    address, no_rule = public_ip(azure, "shared"), {**named, "port_90_no_lb_rule": "true"}
    inside = ServicePort(90, "inside", node_port=30090)
    first = service(1, no_rule, [ServicePort(80, "http", node_port=30080), inside])
    https = ServicePort(443, "https", node_port=30443)
    other = service(2, named, [https], namespace="bank")
    services = Objects([first, other])
    async with started(azure, context(nodes=nodes, services=services)) as provider:
        await ensure(provider, nodes, first, other)
        first = service(1, no_rule, first.spec.ports, ingress=[address])
        options = named if thief_has_rule else no_rule
        thief = service(2, options, [https, inside], namespace="bank", ingress=[address])
        services.by_key = {"shop/web-1": first, "bank/web-2": thief}
        refused = (await answers(provider, nodes, thief))["web-2"]
        assert await ensure(provider, nodes, first) == {"web-1": [address]}
        assert isinstance(refused, InvalidRequest)
        assert f"port 90 of {address}" in str(refused)
        assert refused.disowns


async def test_a_port_without_a_rule_that_another_one_was_given_is_had_no_more(
    azure: Emulator,
) -> None:
    """Who had it before may show the address still, as while a wrong annotation is refused."""
    nodes, named = machines(azure), {"azure-pip-name": "shared"}
    address, no_rule = public_ip(azure, "shared"), {**named, "port_90_no_lb_rule": "true"}
    inside, https = (ServicePort(n, f"p{n}", node_port=30000 + n) for n in (90, 443))
    former = service(2, no_rule, [https, inside], namespace="bank", ingress=[address])
    first = service(1, named, ingress=[address])
    services = Objects([first, former])
    async with started(azure, context(nodes=nodes, services=services)) as provider:
        await ensure(provider, nodes, first, former)
        refused = service(2, named, [https], namespace="bank", ingress=[address])
        first = service(1, no_rule, [*first.spec.ports, inside], ingress=[address])
        services.by_key = {"shop/web-1": first, "bank/web-2": refused}
        await ensure(provider, nodes, first)
        services.by_key = {"shop/web-1": first, "bank/web-2": former}
        found = await answers(provider, nodes, former, first)
        assert isinstance(found["web-2"], InvalidRequest)
        assert isinstance(found["web-1"], Ensured)


@pytest.mark.parametrize("kind", ["loadBalancingRules", "inboundNatRules"])
async def test_who_asks_for_a_port_of_a_rule_by_hand_is_to_show_the_address_no_more(
    azure: Emulator, kind: str
) -> None:
    """As of the API server: nodes themselves would lead what they send there to the Service."""
    nodes, named = machines(azure), {"azure-pip-name": "api"}
    address, services = public_ip(azure, "api"), Objects()
    async with started(azure, context(nodes=nodes, services=services)) as provider:
        first = service(9, namespace="bank")
        services.by_key = {"bank/web-9": first}
        await ensure(provider, nodes, first)
        by_hand(azure, kind, network("publicIPAddresses", "api"))
        guest = service(2, named)
        services.by_key["shop/web-2"] = guest
        assert await ensure(provider, nodes, guest) == {"web-2": [address]}
        thief = service(2, named, [ServicePort(6443, "x", node_port=30643)], ingress=[address])
        services.by_key["shop/web-2"] = thief
        before = parts(azure, kind)
        refused = (await answers(provider, nodes, thief))["web-2"]
        assert isinstance(refused, InvalidRequest)
        assert f"port 6443 of {address} is that of a rule that is no Service's" in str(refused)
        assert refused.disowns
        assert parts(azure, kind) == before
        assert await ensure(provider, nodes, guest) == {"web-2": [address]}


async def test_nodes_take_nothing_from_what_rules_by_hand_have_at_an_address(
    azure: Emulator,
) -> None:
    """A kube-proxy that binds the addresses of Services to nodes would have all its ports there."""
    nodes, named = machines(azure), {"azure-pip-name": "api"}
    address = public_ip(azure, "api")
    first, guest = service(9, named, namespace="bank"), service(2)
    async with started(azure, context(nodes=nodes, services=Objects([first, guest]))) as provider:
        await ensure(provider, nodes, guest)
        by_hand(azure, "loadBalancingRules", network("publicIPAddresses", "api"))
        found = await answers(provider, nodes, first, guest)
    made = {uid: one for uid, one in found.items() if isinstance(one, Ensured)}
    modes = {uid: [one.ip_mode for one in of.ingress] for uid, of in made.items()}
    assert modes == {"web-9": [IP_MODE_PROXY], "web-2": [None]}
    assert made["web-9"].ingress[0].ip == address


def by_hand(azure: Emulator, kind: str, address: str, pool: str = "api") -> None:
    """Let an operator make a frontend with a rule for the API server in the load balancer."""
    one = balancer(azure)
    assert one is not None
    made, id_ = one["properties"], one["id"]
    frontend = f"{id_}/frontendIPConfigurations/api"
    public = {"publicIPAddress": {"id": address}}
    made["frontendIPConfigurations"].append({"name": "api", "id": frontend, "properties": public})
    to = f"{id_}/backendAddressPools/{pool}"
    if pool == "api":
        made["backendAddressPools"].append({"name": pool, "id": to, "properties": {}})
    rule: dict[str, Any] = {"protocol": "Tcp", "frontendPort": 6443, "backendPort": 6443}
    rule["frontendIPConfiguration"] = {"id": frontend}
    if kind == "loadBalancingRules":
        rule["backendAddressPool"] = {"id": to}
    made.setdefault(kind, []).append({"name": "api", "id": f"{id_}/{kind}/api", "properties": rule})
    azure.store.put(one)


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_an_address_that_is_given_up_is_shown_no_more_though_what_follows_fails(
    azure: Emulator, *, is_deleted: bool
) -> None:
    """Azure gives it to whoever comes next; it refuses a service tag that does not exist."""
    nodes, inner = machines(azure), {"azure-load-balancer-internal": "true"}
    ranges: dict[str, Any] = {"load_balancer_source_ranges": ("192.0.2.0/24",)}
    async with started(azure) as provider:
        first = service(annotations=inner, **ranges)
        (address,) = (await ensure(provider, nodes, first))["web-1"]
        invalid: dict[str, Any] = {"status": 400, "code": "SecurityRuleInvalidAddressPrefix"}
        azure.faults.append(Fault("PUT", "networkSecurityGroups", **invalid))
        stays = service(annotations={**inner, TAGS: "Nowhere"}, ingress=[address], **ranges)
        kept = (await answers(provider, nodes, stays))["web-1"]
        assert isinstance(kept, CloudError)
        assert not kept.disowns
        azure.faults.append(Fault("PUT", "networkSecurityGroups", **invalid))
        stuck = service(annotations={TAGS: "Nowhere"}, ingress=[address], **ranges)
        refused = (await answers(provider, nodes, stuck))["web-1"]
        assert isinstance(refused, CloudError)
        assert refused.disowns
        if is_deleted:
            await delete(provider, service(annotations={TAGS: "Nowhere"}, **ranges))
        else:
            await ensure(provider, nodes, service(**ranges))
        assert address not in set().union(*(targets(one) for one in rules(azure).values()))
        theirs = service(2, inner, namespace="bank")
        assert await ensure(provider, nodes, theirs) == {"web-2": [address]}


def lose_frontend(azure: Emulator, *left: str) -> None:
    """Let somebody delete a Service's frontends by hand, but for those with these addresses."""
    found = azure.store.of[network("loadBalancers", "kubernetes-internal").lower()]["properties"]
    gone = [
        one
        for one in found["frontendIPConfigurations"]
        if one["name"].startswith(name_of(service().metadata.uid))
        and one["properties"]["privateIPAddress"] not in left
    ]
    ids = {one["id"].lower() for one in gone}
    found["frontendIPConfigurations"] = [
        one for one in found["frontendIPConfigurations"] if one not in gone
    ]
    found["loadBalancingRules"] = [
        one
        for one in found["loadBalancingRules"]
        if one["properties"]["frontendIPConfiguration"]["id"].lower() not in ids
    ]


@pytest.mark.parametrize(
    ("code", "named", "is_shown", "disowns"),
    [
        ("SubnetIsFull", False, False, True),
        ("SubnetIsFull", True, False, False),
        ("SubnetIsFull", True, True, True),
        ("PrivateIPAddressIsAllocated", True, False, True),
    ],
)
async def test_an_address_of_no_frontend_is_shown_no_more_while_none_can_be_made(
    azure: Emulator, code: str, *, named: bool, is_shown: bool, disowns: bool
) -> None:
    """Azure may give it to a machine; one that is named stays until somebody else has it."""
    inner = {"azure-load-balancer-internal": "true"}
    more = {"azure-load-balancer-ipv4": "10.0.0.77"} if named else {}
    nodes, services = machines(azure), Objects()
    known = context(services=services)
    async with started(azure, known) as provider:
        first, other = service(annotations={**inner, **more}), service(2, inner)
        (address,) = (await ensure(provider, nodes, first, other))["web-1"]
        first = service(annotations={**inner, **more}, ingress=[address])
        theirs = service(3, inner, namespace="bank", ingress=[address])
        services.by_key = {"shop/web-1": first, "shop/web-2": other}
        if is_shown:
            services.by_key["bank/web-3"] = theirs
        lose_frontend(azure)
        azure.faults.append(Fault("PUT", "loadBalancers", status=400, code=code))
        refused = (await answers(provider, nodes, first))["web-1"]
        assert isinstance(refused, CloudError)
        assert refused.disowns == disowns


async def test_an_address_stays_whose_frontend_may_be_in_a_load_balancer_of_another_name(
    azure: Emulator,
) -> None:
    """A new cloud-config may name another one, and clients come through the former one still."""
    inner = {"azure-load-balancer-internal": "true"}
    nodes = machines(azure)
    async with started(azure) as provider:
        (address,) = (await ensure(provider, nodes, service(annotations=inner)))["web-1"]
    async with started(azure, load_balancer_name="renamed") as provider:
        await ensure(provider, nodes, service(2, inner))
        azure.faults.append(Fault("PUT", "loadBalancers", status=400, code="SubnetIsFull"))
        moved = service(annotations=inner, ingress=[address])
        refused = (await answers(provider, nodes, moved))["web-1"]
        assert isinstance(refused, CloudError)
        assert not refused.disowns


async def test_a_named_address_stays_though_its_frontend_of_one_family_is_gone(
    azure: Emulator,
) -> None:
    """The other family is no sign that the Service has left it."""
    nodes, services = machines(azure), Objects()
    known = context(services=services)
    inner = {"azure-load-balancer-internal": "true", "azure-load-balancer-ipv4": "10.0.0.77"}
    families = ("IPv4", "IPv6")
    async with started(azure, known) as provider:
        first = service(annotations=inner, ip_families=families)
        shown = (await ensure(provider, nodes, first))["web-1"]
        first = service(annotations=inner, ip_families=families, ingress=shown)
        services.by_key = {"shop/web-1": first}
        lose_frontend(azure, *(one for one in shown if ":" in one))
        azure.faults.append(Fault("PUT", "loadBalancers", status=400, code="SubnetIsFull"))
        refused = (await answers(provider, nodes, first))["web-1"]
        assert isinstance(refused, CloudError)
        assert not refused.disowns


async def test_an_internal_address_that_outlives_its_service_is_its_users_still(
    azure: Emulator,
) -> None:
    """The frontend has the name of a Service that is gone; the one that shares it has it now."""
    nodes = machines(azure)
    inner = {"azure-load-balancer-internal": "true", "azure-load-balancer-ipv4": "10.9.0.77"}
    inner["azure-load-balancer-internal-subnet"] = "apps"
    first = service(annotations=inner)
    second = service(2, inner, [ServicePort(443, "https", node_port=30443)])
    third = service(3, inner, [ServicePort(444, "x", node_port=30444)], namespace="other")
    known = context(nodes=nodes, services=Objects([second, third]))
    async with started(azure, known) as provider:
        await ensure(provider, nodes, first, second)
        await delete(provider, first)
        before = everything(azure)
        found = await answers(provider, nodes, third)
        assert isinstance(found["web-3"], InvalidRequest)
        assert "shop" in str(found["web-3"])
        assert everything(azure) == before
        await ensure(provider, nodes, second)
        assert everything(azure) == before


async def test_a_scale_set_that_grows_meanwhile_keeps_its_machines(azure: Emulator) -> None:
    """To write the capacity that was read deletes the machines that came since."""
    nodes = set_machines(azure)
    id_ = compute("virtualMachineScaleSets", "pool")
    grown = []

    def meddle(method: str, path: str) -> None:
        if method == "PUT" and path.lower() == id_.lower():
            azure.store.of[id_.lower()]["sku"]["capacity"] = 5
            grown.append(path)

    azure.hooks.append(meddle)
    async with started(azure) as provider:
        await ensure(provider, nodes, service())
    assert grown
    assert azure.store.of[id_.lower()]["sku"]["capacity"] == 5


@pytest.mark.parametrize(
    ("of", "path"),
    [
        ("", ("virtualMachineProfile", "networkProfile")),
        ("/virtualMachines/0", ("networkProfileConfiguration",)),
    ],
    ids=["model", "machine"],
)
async def test_what_somebody_changes_of_a_scale_set_meanwhile_is_not_lost(
    azure: Emulator, of: str, path: tuple[str, ...]
) -> None:
    nodes = set_machines(azure)
    id_ = (compute("virtualMachineScaleSets", "pool") + of).lower()

    def interface() -> dict[str, object]:
        found = azure.store.of[id_]["properties"]
        for name in path:
            found = found[name]
        properties: dict[str, object] = found["networkInterfaceConfigurations"][0]["properties"]
        return properties

    changes: list[object] = []

    def meddle(method: str, asked: str) -> None:
        if method == "PUT" and asked.lower() == id_ and not changes:
            interface()["enableAcceleratedNetworking"] = True
            changes.append(azure.store.put(azure.store.of[id_]))

    azure.hooks.append(meddle)
    async with started(azure) as provider:
        await ensure(provider, nodes, service())
        name = seed.set_machine(azure.store, "pool", 2)
        third = node(name, f"{ID}/virtualMachineScaleSets/pool/virtualMachines/2", "10.0.1.3")
        await ensure(provider, [*nodes, third], service())
    assert changes
    assert interface()["enableAcceleratedNetworking"]
    pools = parts(azure, "backendAddressPools")["kubernetes"]["backendIPConfigurations"]
    assert len(pools) == 3


async def test_the_load_balancers_of_a_cluster_called_internal_are_of_two_kinds(
    azure: Emulator,
) -> None:
    nodes = machines(azure)
    inner = {"azure-load-balancer-internal": "true"}
    async with started(azure, loadBalancerName="tools-internal") as provider:
        await ensure(provider, nodes, service())
        found = await answers(provider, nodes, service(2, inner))
    assert [one.rejected for one in found.values() if isinstance(one, Ensured)] == [{}]


async def test_no_route_takes_the_place_of_another_cluster_s_or_of_an_operator_s(
    azure: Emulator,
) -> None:
    """Official names of routes leave the dots out, so two destinations can have the same name."""
    stored = azure.store.of[network("routeTables", "routes").lower()]
    for name, prefix, kind, hop in (
        ("node-1____102441024", "10.24.41.0/24", "VirtualAppliance", "10.0.9.9"),
        ("guard", "10.244.2.0/24", "VirtualNetworkGateway", ""),
    ):
        found = {"addressPrefix": prefix, "nextHopType": kind}
        found |= {"nextHopIpAddress": hop} if hop else {}
        stored["properties"]["routes"].append({"name": name, "properties": found})
    nodes = [node(f"node-{n}", f"{ID}/virtualMachines/node-{n}", f"10.0.0.{n + 4}") for n in (1, 2)]
    first, second = (
        Route("x", f"10.244.{n}.0/24", f"{ID}/virtualMachines/node-{n}") for n in (1, 2)
    )
    async with started(azure) as provider:
        assert provider.routes is not None
        answers_ = await provider.routes.apply(CLUSTER, nodes, [first, second], ())
        listed = await provider.routes.list(CLUSTER, nodes)
    assert answers_[first] == Done()
    assert isinstance(answers_[second], InvalidRequest)
    assert "guard" in str(answers_[second])
    assert {(one.destination, one.target) for one in listed} == {
        ("10.24.41.0/24", "10.0.9.9"),
        ("10.244.1.0/24", "10.0.0.5"),
    }
    routes = {one["name"] for one in stored_routes(azure)}
    assert {"node-1____102441024", "guard"} <= routes


def stored_routes(azure: Emulator) -> list[dict[str, str]]:
    found: list[dict[str, str]] = azure.store.of[network("routeTables", "routes").lower()][
        "properties"
    ]["routes"]
    return found
