"""What others have in or beside a cluster's load balancers: it stays, and what is ours goes."""

from typing import Any

import msgspec

from proreus.cloudprovider import Done, Ensured
from proreus.cloudprovider.desired import load_balancer_ref

from .balancing import (
    addresses,
    balancer,
    delete,
    ensure,
    machines,
    name_of,
    parts,
    public_ip,
    rules,
    service,
)
from .emulator import seed
from .emulator.server import Emulator
from .emulator.store import network
from .site import CLUSTER, started
from .test_several_balancers import NAMED, pool, several, with_pods

LB = "Microsoft.Network/loadBalancers"
LISTS: dict[str, Any] = {
    "frontendIPConfigurations": [],
    "backendAddressPools": [],
    "loadBalancingRules": [],
}
ID = network("loadBalancers", "kubernetes")
LOCAL: dict[str, Any] = {"external_traffic_policy": "Local", "health_check_node_port": 32000}


def put_parts(azure: Emulator, field: str, *found: dict[str, Any], of: str = "kubernetes") -> None:
    """Add parts to a public load balancer, as an operator does."""
    id_ = network("loadBalancers", of)
    stored = azure.store.of[id_.lower()]
    for one in found:
        part = {**one, "id": f"{id_}/{field}/{one['name']}"}
        stored["properties"].setdefault(field, []).append(part)


def outbound(frontend: str, pool: str) -> dict[str, Any]:
    """A rule by which nodes reach the world."""
    found = {
        "frontendIPConfigurations": [{"id": f"{ID}/frontendIPConfigurations/{frontend}"}],
        "backendAddressPool": {"id": f"{ID}/backendAddressPools/{pool}"},
        "protocol": "All",
    }
    return {"name": "outbound", "properties": found}


async def test_a_service_goes_whole_though_another_cluster_has_a_load_balancer_of_ours(
    azure: Emulator,
) -> None:
    nodes = machines(azure)
    one = service()
    async with started(azure) as provider:
        assert provider.load_balancers is not None
        await ensure(provider, nodes, one)
        theirs = seed.resource(
            LB,
            network("loadBalancers", "kubernetes-internal"),
            {
                **LISTS,
                "probes": [{"name": "cluster-service-shared-health-probe", "properties": {}}],
            },
            sku={"name": "Standard"},
            tags={"proreus_cluster": "kubernetes", "proreus_cluster-uid": "another"},
        )
        azure.store.put(theirs)
        before = balancer(azure, "kubernetes-internal")
        ref = load_balancer_ref(one, CLUSTER)
        found = await provider.load_balancers.delete([ref])
        assert found == {ref.uid: Done(found=True)}
        assert not rules(azure)
        assert not addresses(azure)
        assert balancer(azure) is None
        assert balancer(azure, "kubernetes-internal") == before
        again = await provider.load_balancers.delete([ref])
        assert again == {ref.uid: Done(found=False)}


async def test_a_pool_that_an_outbound_rule_uses_stays_whatever_it_is_called(
    azure: Emulator,
) -> None:
    nodes = machines(azure)
    async with started(azure) as provider:
        await ensure(provider, nodes, service())
        public_ip(azure, "egress")
        public = {"publicIPAddress": {"id": network("publicIPAddresses", "egress")}}
        put_parts(azure, "frontendIPConfigurations", {"name": "egress", "properties": public})
        put_parts(azure, "backendAddressPools", {"name": "shop-web-1", "properties": {}})
        put_parts(azure, "outboundRules", outbound("egress", "shop-web-1"))
        more = service(1, {"azure-load-balancer-tcp-idle-timeout": "30"})
        await ensure(provider, nodes, more)
        assert "shop-web-1" in parts(azure, "backendAddressPools")
        await delete(provider, more)
        assert list(parts(azure, "outboundRules")) == ["outbound"]
        assert "shop-web-1" in parts(azure, "backendAddressPools")


async def test_a_frontend_that_an_outbound_rule_uses_stays_with_its_last_service_gone(
    azure: Emulator,
) -> None:
    nodes = machines(azure)
    public_ip(azure, "kept")
    named = {"azure-pip-name": "kept"}
    first = service(1, named)
    ports = [msgspec.structs.replace(first.spec.ports[0], port=8443)]
    second = service(2, named, ports)
    async with started(azure) as provider:
        await ensure(provider, nodes, first, second)
        frontend = name_of(first.metadata.uid)
        put_parts(azure, "outboundRules", outbound(frontend, "kubernetes"))
        await delete(provider, first)
        assert list(parts(azure, "frontendIPConfigurations")) == [frontend]
        await delete(provider, second)
        assert list(parts(azure, "frontendIPConfigurations")) == [frontend]
        assert list(parts(azure, "outboundRules")) == ["outbound"]
        assert not parts(azure, "loadBalancingRules")


async def test_an_operator_s_pool_that_is_called_like_a_service_stays(azure: Emulator) -> None:
    """The name is that of a Service's own pool, where there are several load balancers."""
    nodes = machines(azure)
    async with started(azure) as provider:
        await ensure(provider, nodes, service(2))
        put_parts(azure, "backendAddressPools", {"name": "shop-web-1", "properties": {}})
        await ensure(provider, nodes, service())
        assert "shop-web-1" in parts(azure, "backendAddressPools")
        await delete(provider, service())
        assert "shop-web-1" in parts(azure, "backendAddressPools")


async def test_no_service_takes_an_operator_s_pool_by_its_name(azure: Emulator) -> None:
    """Whoever may name namespace and Service could cut the nodes' way to the world off."""
    nodes = machines(azure)
    members = [{"name": "gate", "properties": {"ipAddress": "10.0.0.250"}}]
    net = {"virtualNetwork": {"id": network("virtualNetworks", "vnet")}}
    content = {"loadBalancerBackendAddresses": members, **net}
    theirs = {"name": "shop-web-1", "properties": content}
    async with started(azure, **several()) as provider:
        assert provider.load_balancers is not None
        await ensure(provider, nodes, service(2, {NAMED: "second"}))
        put_parts(azure, "backendAddressPools", theirs, of="second")
        one = service(1, {NAMED: "second"}, **LOCAL)
        found = await provider.load_balancers.ensure([with_pods(provider, one, nodes, "node-0")])
        assert isinstance(found[one.metadata.uid], Ensured)
        assert pool(azure, "second", "shop-web-1") == {"gate"}
        assert pool(azure, "second", name_of(one.metadata.uid)) == {"node-0"}
        await delete(provider, one)
        assert pool(azure, "second", "shop-web-1") == {"gate"}
