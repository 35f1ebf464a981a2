"""Public IPs that a Service has left, or come back to: who has them, and who deletes them."""

import pytest

from proreus.cloudprovider import InvalidRequest

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .balancing import (
    addresses,
    answers,
    delete,
    ensure,
    machines,
    name_of,
    public_ip,
    service,
)
from .emulator import seed
from .emulator.server import Emulator
from .emulator.store import network
from .site import context, started
from .test_additional import ADDITIONAL, HTTPS, known
from .test_former import USERS
from .test_shared_group import other_service
from .test_strangers import lose_frontend

INSIDE = {"azure-load-balancer-internal": "true"}


async def test_a_public_ip_stays_with_the_service_that_has_come_back_to_it(
    azure: Emulator,
) -> None:
    """Whoever goes last deletes it; Azure lets him if nothing has it at that moment."""
    nodes, services = machines(azure), Objects()
    name = f"kubernetes-{name_of(service(1).metadata.uid)}"
    listed = {"tenants": {"allow": [f"bank={name}"]}}
    guest = service(2, {"azure-pip-name": name}, HTTPS, namespace="bank")
    async with started(azure, context(nodes=nodes, services=services), **listed) as provider:
        shown = (await ensure(provider, nodes, service(1)))["web-1"]
        await ensure(provider, nodes, guest)
        services.by_key = {"shop/web-1": service(1, INSIDE), "bank/web-2": guest}
        await ensure(provider, nodes, service(1, INSIDE))
        assert addresses(azure)[name]["tags"][USERS] == "bank/web-2"
        back = service(1, {"azure-pip-name": name}, ingress=shown)
        services.by_key["shop/web-1"] = back
        assert await ensure(provider, nodes, back) == {"web-1": shown}
        azure.store.delete(network("loadBalancers", "kubernetes"))
        free = azure.store.of[network("publicIPAddresses", name).lower()]
        free["properties"].pop("ipConfiguration", None)
        await delete(provider, guest)
        assert addresses(azure)[name]["tags"][USERS] == "shop/web-1"


def lose_parts(azure: Emulator, base: str) -> None:
    """Let somebody take a Service out of the load balancer by hand."""
    of = azure.store.of[network("loadBalancers", "kubernetes").lower()]["properties"]
    for field in ("loadBalancingRules", "frontendIPConfigurations"):
        of[field] = [one for one in of[field] if not one["name"].startswith(base)]


async def test_an_address_that_is_another_cluster_s_by_now_is_shown_no_more(
    azure: Emulator,
) -> None:
    """Somebody has taken it out of the load balancer: nodes would lead its clients here."""
    nodes, address = machines(azure, 4), public_ip(azure, "kept")
    one = service(2, {"azure-pip-name": "kept"}, ingress=[address])
    async with started(azure, known(nodes[:2], [one])) as provider:
        await ensure(provider, nodes[:2], service(1), one)
        lose_parts(azure, name_of(one.metadata.uid))
        free = azure.store.of[network("publicIPAddresses", "kept").lower()]
        free["properties"].pop("ipConfiguration", None)
        theirs = service(7, {"azure-pip-name": "kept"})
        assert await other_service(azure, nodes[2:], theirs) == address
        refused = (await answers(provider, nodes[:2], one))["web-2"]
        assert isinstance(refused, InvalidRequest), refused
        assert "it is in use by" in str(refused)
        assert refused.disowns


async def test_an_address_that_another_namespace_s_service_has_got_is_shown_no_more(
    azure: Emulator,
) -> None:
    """Somebody has deleted the public IP, and Azure has given its address to the next one."""
    nodes = machines(azure)
    async with started(azure, known(nodes, [])) as provider:
        shown = (await ensure(provider, nodes, service(1), service(2)))["web-1"]
        wrong = service(1, {ADDITIONAL: "10.1.2.3"}, ingress=shown)
        base = name_of(wrong.metadata.uid)
        lose_parts(azure, base)
        azure.store.delete(network("publicIPAddresses", f"kubernetes-{base}"))
        theirs = service(3, namespace="bank")
        await ensure(provider, nodes, theirs)
        name = f"kubernetes-{name_of(theirs.metadata.uid)}"
        given = azure.store.of[network("publicIPAddresses", name).lower()]
        given["properties"]["ipAddress"] = shown[0]
        refused = (await answers(provider, nodes, wrong))["web-1"]
        assert isinstance(refused, InvalidRequest), refused
        assert refused.disowns


@pytest.mark.parametrize("group", ["nsg", None])
@pytest.mark.parametrize(
    ("net", "beside"),
    [("10.0", "10.1.2.3"), ("10.0", "10.0.0.77"), ("11.0", "10.1.2.3")],
    ids=["wrong", "named beside", "in a network of public addresses"],
)
@pytest.mark.parametrize("is_taken", [False, True])
async def test_an_inner_address_that_a_machine_has_by_now_is_shown_no_more(
    azure: Emulator, group: str | None, net: str, beside: str, *, is_taken: bool
) -> None:
    """Also while the Service is refused before Azure would refuse it the address."""
    azure.store.of[seed.SUBNET.lower()]["properties"]["addressPrefixes"] = [f"{net}.0.0/16"]
    nodes, address = machines(azure), f"{net}.0.77"
    inner = {**INSIDE, "azure-load-balancer-ipv4": address}
    wrong = service(1, {**inner, ADDITIONAL: beside}, ingress=[address])
    services = Objects()
    known_ = context(nodes=nodes, services=services)
    async with started(azure, known_, securityGroupName=group) as provider:
        await ensure(provider, nodes, service(1, inner), service(2, INSIDE))
        services.by_key = {"shop/web-1": wrong}
        lose_frontend(azure)
        if is_taken:
            seed.machine(azure.store, "next")
            nic = azure.store.of[network("networkInterfaces", "next-nic").lower()]
            nic["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"] = address
        refused = (await answers(provider, nodes, wrong))["web-1"]
        assert isinstance(refused, InvalidRequest), refused
        assert refused.disowns is is_taken
