"""Addresses inside the cluster, of which Azure knows nothing: no internal Service gets one."""

import msgspec
import pytest

from proreus.cloudprovider import Ensured, InvalidRequest
from proreus.kube.objects import Node, Service, ServicePort

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .balancing import (
    UID,
    answers,
    balancer,
    delete,
    ensure,
    everything,
    machines,
    name_of,
    service,
)
from .emulator.server import Emulator
from .site import context, started
from .test_additional import HTTPS
from .test_shared_group import showing

ADDRESS = "10.9.0.77"
INSIDE = {
    "azure-load-balancer-internal": "true",
    "azure-load-balancer-internal-subnet": "apps",
}
ASKING = {**INSIDE, "azure-load-balancer-ipv4": ADDRESS}


def of_cluster(address: str) -> Service:
    """That of the cluster's DNS, for one."""
    return service(9, namespace="kube-system", cluster_ip=address, cluster_ips=(address,))


def with_pods(nodes: list[Node], cidr: str) -> list[Node]:
    spec = msgspec.structs.replace(nodes[1].spec, pod_cidr=cidr, pod_cidrs=(cidr,))
    return [nodes[0], msgspec.structs.replace(nodes[1], spec=spec)]


@pytest.mark.parametrize("of", ["Service", "pod"])
@pytest.mark.parametrize("is_listed", [True, False])
async def test_no_service_asks_for_an_address_that_is_another_one_s_inside(
    azure: Emulator, of: str, *, is_listed: bool
) -> None:
    """A network may have a subnet with the same addresses; nodes would go by both."""
    nodes = machines(azure)
    asking, others = service(1, ASKING), [of_cluster(ADDRESS)] if of == "Service" else []
    if of == "pod":
        nodes = with_pods(nodes, "10.9.0.64/26")
    known = context(nodes=nodes, services=Objects([asking, *others]))
    tenants = {"allow": [f"shop={ADDRESS}"]} if is_listed else {}
    async with started(azure, known, tenants=tenants) as provider:
        before = everything(azure)
        found = (await answers(provider, nodes, asking))["web-1"]
        if is_listed:
            assert isinstance(found, Ensured), found
            return
        assert isinstance(found, InvalidRequest), found
        assert "kube-system" in str(found) or "it is of the pods of the node node-1" in str(found)
        assert everything(azure) == before


async def test_a_service_goes_on_with_the_address_that_it_shows(azure: Emulator) -> None:
    nodes = machines(azure)
    async with started(azure, context(nodes=nodes)) as provider:
        assert isinstance((await answers(provider, nodes, service(1, ASKING)))["web-1"], Ensured)
    asking = service(1, ASKING, ingress=[ADDRESS])
    nodes = with_pods(nodes, "10.9.0.64/26")
    known = context(nodes=nodes, services=Objects([asking, of_cluster(ADDRESS)]))
    async with started(azure, known) as provider:
        found = (await answers(provider, nodes, asking))["web-1"]
    assert isinstance(found, Ensured), found


async def test_no_service_shows_a_cluster_ip_that_azure_gives_it(azure: Emulator) -> None:
    """Whoever makes enough Services in such a subnet would get that of the cluster's DNS."""
    nodes, first = machines(azure), "10.9.0.4"
    one, two = service(1, INSIDE), service(2, INSIDE)
    known = context(nodes=nodes, services=Objects([one, two, of_cluster(first)]))
    async with started(azure, known) as provider:
        found = (await answers(provider, nodes, one))["web-1"]
        assert balancer(azure, "kubernetes-internal") is not None
        assert isinstance(found, InvalidRequest), found
        assert f"{first}, which Azure has given, cannot be had" in str(found)
        beside = (await answers(provider, nodes, two))["web-2"]
        assert isinstance(beside, Ensured), beside


@pytest.mark.parametrize(
    "beside", ["port_80_no_lb_rule", "azure-load-balancer-enable-high-availability-ports", ""]
)
async def test_who_may_share_an_address_inside_gets_no_port_of_the_one_that_shows_it(
    azure: Emulator, beside: str
) -> None:
    """No rule for the port need say whose it is: nodes go by statuses, also while all is gone."""
    nodes, both = machines(azure), [*HTTPS, ServicePort(80, "http", node_port=30080)]
    first = service(1, {**ASKING, beside: "true"} if beside else ASKING, both)
    services = Objects([first])
    tenants = {"allow": [f"bank={ADDRESS}", f"bank={name_of(UID.format(1))}-apps"]}
    async with started(azure, context(nodes=nodes, services=services), tenants=tenants) as provider:
        await ensure(provider, nodes, first, service(9, INSIDE))
        if not beside:
            await delete(provider, first)  # as somebody does it by hand
        services.by_key["shop/web-1"] = showing(first, [ADDRESS])
        asking = [ServicePort(80, "http", node_port=30081)]
        guest = services.by_key["bank/web-2"] = service(2, ASKING, asking, namespace="bank")
        refused = (await answers(provider, nodes, guest))["web-2"]
        assert isinstance(refused, InvalidRequest), refused
        assert f"port 80 of {ADDRESS} is that of a Service of the namespace shop" in str(refused)
        asking = [ServicePort(81, "http", node_port=30081)]
        guest = services.by_key["bank/web-2"] = service(2, ASKING, asking, namespace="bank")
        assert await ensure(provider, nodes, guest) == {"web-2": [ADDRESS]}


async def test_no_service_shows_an_address_of_pods_that_azure_gives_it(azure: Emulator) -> None:
    nodes = with_pods(machines(azure), "10.9.0.0/24")
    one = service(1, INSIDE)
    known = context(nodes=nodes, services=Objects([one]))
    async with started(azure, known) as provider:
        found = (await answers(provider, nodes, one))["web-1"]
        assert isinstance(found, InvalidRequest), found
        assert "it is of the pods of the node node-1: name a subnet" in str(found)
    async with started(azure, known, tenants={"allow": ["shop=10.9.0.4"]}) as provider:
        assert await ensure(provider, nodes, one) == {"web-1": ["10.9.0.4"]}
