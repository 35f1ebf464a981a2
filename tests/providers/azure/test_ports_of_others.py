"""What other Services have in the security group stays, though they have no rule, or show nothing."""

from typing import Any

import pytest

from proreus.cloudprovider import CloudError, Ensured, InvalidRequest
from proreus.kube.objects import ServicePort

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .balancing import answers, delete, ensure, machines, public_ip, rules, service, targets
from .emulator.server import Emulator, Fault
from .site import context, started
from .test_additional import HTTPS, open_ports
from .test_shared_group import DENIES, RANGES, showing

AT_NODES = {"azure-disable-load-balancer-floating-ip": "true"}


def denied(azure: Emulator) -> set[str]:
    """The addresses at which all is denied that no rule lets in."""
    every = rules(azure).values()
    return {ip for one in every if one["access"] == "Deny" for ip in targets(one)}


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_node_ports_without_a_rule_stay_open_for_their_service(
    azure: Emulator, *, is_deleted: bool
) -> None:
    nodes = machines(azure)
    own = nodes[0].status.addresses[0].address
    ports = [ServicePort(80, "http", node_port=30080), ServicePort(90, "in", node_port=30090)]
    first = service(1, {**AT_NODES, "port_90_no_lb_rule": "true"}, ports, namespace="bank")
    second = service(2, AT_NODES, HTTPS)
    services = Objects([first, second])
    async with started(azure, context(nodes=nodes, services=services)) as provider:
        await ensure(provider, nodes, first)
        assert open_ports(azure, own) == {"30080", "30090"}
        await ensure(provider, nodes, second)
        if is_deleted:
            del services.by_key["shop/web-2"]
            await delete(provider, second)
    assert {"30080", "30090"} <= open_ports(azure, own)
    assert ("30443" in open_ports(azure, own)) is not is_deleted


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_who_shows_an_address_no_more_still_denies_others_there(
    azure: Emulator, *, is_deleted: bool
) -> None:
    """As while it is refused, or before its status is written; its rule tells that it is there."""
    nodes, named = machines(azure), {"azure-pip-name": "shared"}
    address = public_ip(azure, "shared")
    inside: dict[str, Any] = {"cluster_ip": "10.96.0.7", "cluster_ips": ("10.96.0.7",)}
    asked = {**named, DENIES: "true", "port_90_no_lb_rule": "true"}
    ports = [ServicePort(80, "http", node_port=30080), ServicePort(90, "in", node_port=30090)]
    first = service(1, asked, ports, namespace="bank", **inside, **RANGES)
    guest = service(2, named, HTTPS, ingress=[address])
    services = Objects([first, guest])
    async with started(azure, context(nodes=nodes, services=services)) as provider:
        await ensure(provider, nodes, guest)
        await ensure(provider, nodes, first)
        assert denied(azure) == {address}
        if is_deleted:
            del services.by_key["shop/web-2"]
            await delete(provider, guest)
        else:
            await ensure(provider, nodes, guest)
    assert denied(azure) == {address}
    assert {"80", "90"} <= open_ports(azure, address)


async def test_who_is_refused_a_port_keeps_it_open_for_nobody(azure: Emulator) -> None:
    """Its tenant would say from where clients come to the Service that has the port."""
    nodes, named = machines(azure), {"azure-pip-name": "shared"}
    address = public_ip(azure, "shared")
    inside: dict[str, Any] = {"cluster_ip": "10.96.0.7", "cluster_ips": ("10.96.0.7",)}
    first, guest = service(1, named), service(2, named, HTTPS, namespace="bank", **inside)
    services = Objects([first, guest])
    async with started(azure, context(nodes=nodes, services=services)) as provider:
        await ensure(provider, nodes, first, guest)
        closed = service(1, named, ingress=[address], **RANGES)
        asked = [*HTTPS, ServicePort(80, "http", node_port=30081)]
        thief = service(2, named, asked, namespace="bank", **inside)
        services.by_key = {"shop/web-1": closed, "bank/web-2": thief}
        await ensure(provider, nodes, closed)
    sources = [
        one["sourceAddressPrefix"]
        for one in rules(azure).values()
        if "80" in one["destinationPortRanges"]
    ]
    assert sources == ["192.0.2.0/24"]


async def test_a_rule_that_a_refused_service_has_left_takes_no_port_from_others(
    azure: Emulator,
) -> None:
    """Its tenant can let it be refused for ever, and ask for the port again."""
    nodes, named = machines(azure), {"azure-pip-name": "shared"}
    address = public_ip(azure, "shared")
    both = [ServicePort(80, "http", node_port=30080), ServicePort(443, "https", node_port=30444)]
    refused = {**named, "azure-pls-create": "true"}
    inside: dict[str, Any] = {"external_ips": (address,), "namespace": "bank"}
    first = service(1, named, both, namespace="bank")
    guest = service(2, {**named, "port_443_no_lb_rule": "true"}, HTTPS)
    services = Objects([first, guest])
    async with started(azure, context(nodes=nodes, services=services)) as provider:
        await ensure(provider, nodes, first)
        services.by_key["bank/web-1"] = service(1, refused, both[:1], **inside)
        assert await ensure(provider, nodes, guest) == {"web-2": [address]}
        guest = services.by_key["shop/web-2"] = showing(guest, [address])
        services.by_key["bank/web-1"] = service(1, refused, both, **inside)
        assert await ensure(provider, nodes, guest) == {"web-2": [address]}


async def test_nor_does_it_after_a_restart_for_who_names_the_address_in_its_spec(
    azure: Emulator,
) -> None:
    """Nobody knows then what the one that shows the address has had."""
    nodes, named = machines(azure), {"azure-pip-name": "shared"}
    address = public_ip(azure, "shared")
    both = [ServicePort(80, "http", node_port=30080), ServicePort(443, "https", node_port=30444)]
    refused = {**named, "azure-pls-create": "true"}
    inside: dict[str, Any] = {"external_ips": (address,), "namespace": "bank"}
    first = service(1, named, both, namespace="bank")
    guest = service(2, {**named, "port_443_no_lb_rule": "true"}, HTTPS)
    services = Objects([first, guest])
    async with started(azure, context(nodes=nodes, services=services)) as provider:
        await ensure(provider, nodes, first)
        services.by_key["bank/web-1"] = service(1, refused, both[:1], **inside)
        assert await ensure(provider, nodes, guest) == {"web-2": [address]}
    guest = services.by_key["shop/web-2"] = showing(guest, [address])
    services.by_key["bank/web-1"] = service(1, refused, both, **inside)
    async with started(azure, context(nodes=nodes, services=services)) as provider:
        assert await ensure(provider, nodes, guest) == {"web-2": [address]}


async def test_ports_elsewhere_make_no_port_of_another_service_shared(azure: Emulator) -> None:
    """A Service of the tenant whose rule was left names the address, and has the port at its own."""
    nodes, named = machines(azure), {"azure-pip-name": "shared"}
    address = public_ip(azure, "shared")
    both = [ServicePort(80, "http", node_port=30080), ServicePort(443, "https", node_port=30444)]
    refused = {**named, "azure-pls-create": "true"}
    inside: dict[str, Any] = {"external_ips": (address,), "namespace": "bank"}
    first = service(1, named, both, namespace="bank")
    guest = service(2, {**named, "port_443_no_lb_rule": "true"}, HTTPS)
    friend = service(3, {}, [ServicePort(443, "https", node_port=30445)], **inside)
    services = Objects([first, guest, friend])
    async with started(azure, context(nodes=nodes, services=services)) as provider:
        await ensure(provider, nodes, first, friend)
        services.by_key["bank/web-1"] = service(1, refused, both[:1], **inside)
        assert await ensure(provider, nodes, guest) == {"web-2": [address]}
        guest = services.by_key["shop/web-2"] = showing(guest, [address])
        services.by_key["bank/web-1"] = service(1, refused, both, **inside)
        assert await ensure(provider, nodes, guest) == {"web-2": [address]}


async def test_who_shares_an_address_takes_no_port_of_one_that_has_a_rule_and_shows_nothing(
    azure: Emulator,
) -> None:
    """Clients that come by the rule would come to the one that has been there before."""
    nodes, named = machines(azure), {"azure-pip-name": "shared"}
    address = public_ip(azure, "shared")
    inside: dict[str, Any] = {"cluster_ip": "10.96.0.7", "cluster_ips": ("10.96.0.7",)}
    first = service(1, {**named, "azure-allowed-service-tags": "Nowhere"}, **inside)
    guest = service(2, named, HTTPS, namespace="bank")
    services = Objects([first, guest])
    async with started(azure, context(nodes=nodes, services=services)) as provider:
        await ensure(provider, nodes, guest)
        guest = services.by_key["bank/web-2"] = showing(guest, [address])
        invalid: dict[str, Any] = {"status": 400, "code": "SecurityRuleInvalidAddressPrefix"}
        azure.faults.append(Fault("PUT", "networkSecurityGroups", **invalid))
        assert isinstance((await answers(provider, nodes, first))["web-1"], CloudError)
        both = [*HTTPS, ServicePort(80, "http", node_port=30081)]
        asked = {**named, "port_80_no_lb_rule": "true"}
        thief = service(2, asked, both, namespace="bank", ingress=[address])
        services.by_key["bank/web-2"] = thief
        refused = (await answers(provider, nodes, thief))["web-2"]
        assert isinstance(refused, InvalidRequest), refused
        assert f"port 80 of {address} is that of another Service" in str(refused)
        assert open_ports(azure, address) == {"443"}
        services.by_key["bank/web-2"] = guest
        right = services.by_key["shop/web-1"] = service(1, named, **inside)
        found = await answers(provider, nodes, right, guest)
        assert all(isinstance(one, Ensured) for one in found.values()), found


async def test_a_node_port_keeps_no_port_of_another_service_open(azure: Emulator) -> None:
    """Tenants choose node ports, and one may have the number of another Service's port."""
    nodes, named = machines(azure), {"azure-pip-name": "shared"}
    address = public_ip(azure, "shared")
    ports = [ServicePort(30080, "http", node_port=30081)]
    first = service(1, named, ports)
    asked = [ServicePort(443, "https", node_port=30080)]
    guest = service(2, {**named, **AT_NODES}, asked, namespace="bank")
    services = Objects([first, guest])
    async with started(azure, context(nodes=nodes, services=services)) as provider:
        await ensure(provider, nodes, first, guest)
        services.by_key["bank/web-2"] = showing(guest, [address])
        closed = showing(service(1, named, ports, **RANGES), [address])
        services.by_key["shop/web-1"] = closed
        await ensure(provider, nodes, closed)
    there = [one for one in rules(azure).values() if address in targets(one)]
    assert [one["sourceAddressPrefix"] for one in there] == ["192.0.2.0/24"]
