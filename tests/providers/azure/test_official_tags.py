"""The official tags on a public IP name a cluster and a Service only: they prove nothing alone."""

import msgspec

from proreus.cloudprovider import InvalidRequest
from proreus.kube.objects import LoadBalancerIngress, LoadBalancerStatus, ServiceStatus

from .balancing import addresses, answers, delete, ensure, machines, public_ip, service
from .emulator import seed
from .emulator.kinds import filled
from .emulator.server import Emulator
from .emulator.store import network
from .site import started
from .test_additional import ADDITIONAL
from .test_strangers_beside import LB


async def test_a_service_takes_no_address_of_another_cluster_of_the_same_name_along(
    azure: Emulator,
) -> None:
    """One of another resource group, which it once had as an additional one."""
    nodes = machines(azure)
    tags = {"k8s-azure-service": "shop/web-1", "k8s-azure-cluster-name": "kubernetes"}
    theirs = public_ip(azure, "theirs", tags)
    seed.move(azure.store, network("publicIPAddresses", "theirs"), "another")
    async with started(azure) as provider:
        shown = (await ensure(provider, nodes, service(1, {ADDITIONAL: theirs})))["web-1"]
        assert theirs in shown
        points = tuple(LoadBalancerIngress(ip=ip) for ip in shown)
        status = ServiceStatus(load_balancer=LoadBalancerStatus(ingress=points))
        now = service(1, {"azure-load-balancer-resource-group": "another"})
        now = msgspec.structs.replace(now, status=status)
        await ensure(provider, nodes, now)
        assert addresses(azure)["theirs"]["tags"] == tags
        await delete(provider, now)
    assert addresses(azure)["theirs"]["tags"] == tags


async def test_an_address_that_another_cluster_of_the_same_name_uses_is_left_alone(
    azure: Emulator,
) -> None:
    """Its tags were written before Azure refused to have it in a second load balancer."""
    nodes = machines(azure)
    tags = {"k8s-azure-service": "shop/api", "k8s-azure-cluster-name": "kubernetes"}
    public_ip(azure, "theirs", tags)
    there = seed.move(azure.store, network("publicIPAddresses", "theirs"), "another")
    frontend = {"name": "a", "properties": {"publicIPAddress": {"id": there}}}
    one = seed.resource(
        LB,
        network("loadBalancers", "theirs"),
        {"frontendIPConfigurations": [frontend]},
        sku={"name": "Standard"},
    )
    azure.store.put(filled(azure.store, one, None))
    asked = {"azure-load-balancer-resource-group": "another", "azure-pip-name": "theirs"}
    async with started(azure) as provider:
        found = await answers(provider, nodes, service(1, asked))
        assert addresses(azure)["theirs"]["tags"] == tags
        assert isinstance(found["web-1"], InvalidRequest)
        assert "in use by" in str(found["web-1"])
