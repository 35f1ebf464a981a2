"""Clusters whose nodes are in one subnet share its security group: each keeps the other's rules."""

from collections.abc import Iterable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from proreus.cloudprovider import CloudError, Ensured, InvalidRequest
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.kube.objects import (
    LoadBalancerIngress,
    LoadBalancerStatus,
    Node,
    NodeAddress,
    Service,
    ServicePort,
    ServiceStatus,
)
from proreus.providers.azure.balancing.identities import KEPT

from ..surroundings import Clock  # noqa: TID252 - pytest imports tests by path
from .balancing import (
    addresses,
    answers,
    delete,
    ensure,
    everything,
    machines,
    node,
    public_ip,
    rules,
    service,
)
from .emulator import seed
from .emulator.server import Emulator, Fault
from .emulator.store import compute, network
from .site import context, started
from .test_additional import ADDITIONAL, GLOBAL, HTTPS, known, open_ports

DENIES = "azure-deny-all-except-load-balancer-source-ranges"
RANGES: dict[str, Any] = {"load_balancer_source_ranges": ("192.0.2.0/24",)}
OTHER = ClusterIdentity("other", "0b5e3a1c-0000-4000-8000-000000000002")


async def other_service(azure: Emulator, nodes: Iterable[Node], one: Service) -> str:
    async with started(azure, context(nodes=nodes, cluster=OTHER)) as provider:
        assert provider.load_balancers is not None
        policy = provider.load_balancers.host_policy(one)
        lb = desired_load_balancer(one, nodes, policy, OTHER)
        found = (await provider.load_balancers.ensure([lb]))[one.metadata.uid]
        assert isinstance(found, Ensured), found
        return str(found.ingress[0].ip)


async def test_a_node_that_claims_another_cluster_s_address_closes_nothing(azure: Emulator) -> None:
    nodes = machines(azure, 4)
    address = await other_service(azure, nodes[2:], service(7))
    assert open_ports(azure, address) == {"80"}
    claimed = (*nodes[0].status.addresses, NodeAddress("ExternalIP", address))
    status = msgspec.structs.replace(nodes[0].status, addresses=claimed)
    forged = [msgspec.structs.replace(nodes[0], status=status), nodes[1]]
    async with started(azure, known(forged, [])) as provider:
        await ensure(provider, forged, service(2, ports=HTTPS))
    assert open_ports(azure, address) == {"80"}


@pytest.mark.parametrize("port", [80, 443])
async def test_no_service_takes_an_address_that_another_cluster_has_open(
    azure: Emulator, port: int
) -> None:
    """One without marks; that of another resource group shows none, either."""
    nodes = machines(azure, 4)
    public_ip(azure, "kept")
    address = await other_service(azure, nodes[2:], service(7, {"azure-pip-name": "kept"}))
    ports = (ServicePort(port, "web", node_port=30443),)
    thief = service(2, {ADDITIONAL: address}, ports)
    async with started(azure, known(nodes[:2], [thief])) as provider:
        await ensure(provider, nodes[:2], service(1))
        before = everything(azure)
        found = await answers(provider, nodes[:2], thief)
        assert isinstance(found["web-2"], InvalidRequest)
        assert "for somebody else" in str(found["web-2"])
        assert everything(azure) == before
        await delete(provider, thief)
        assert everything(azure) == before


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_an_additional_address_that_was_refused_is_not_its_service_s_later(
    azure: Emulator, *, is_deleted: bool
) -> None:
    """Whoever names addresses that nobody has yet has nothing at them once somebody has."""
    nodes, address = machines(azure, 4), "10.0.0.200"
    thief = service(2, {ADDITIONAL: address})
    async with started(azure, known(nodes[:2], [thief])) as provider:
        await ensure(provider, nodes[:2], service(1, ports=HTTPS))
        found = (await answers(provider, nodes[:2], thief))["web-2"]
        assert "it is no public address" in str(found)
        inside = {"azure-load-balancer-internal": "true", "azure-load-balancer-ipv4": address}
        assert await other_service(azure, nodes[2:], service(7, inside, **RANGES)) == address
        before = everything(azure)
        if is_deleted:
            await delete(provider, thief)
        else:
            found = (await answers(provider, nodes[:2], thief))["web-2"]
            assert "for somebody else" in str(found)
        assert everything(azure) == before


@pytest.mark.parametrize("what", ["loadBalancers", "networkSecurityGroups"])
async def test_an_additional_address_that_azure_never_opened_is_not_its_service_s_later(
    azure: Emulator, what: str
) -> None:
    nodes = machines(azure, 4)
    address = public_ip(azure, "kept")
    one = service(2, {ADDITIONAL: address})
    async with started(azure, known(nodes[:2], [one])) as provider:
        await ensure(provider, nodes[:2], service(1, ports=HTTPS))
        azure.faults.append(Fault("PUT", what, status=400, code="BadRequest"))
        found = (await answers(provider, nodes[:2], one))["web-2"]
        assert isinstance(found, CloudError)
        theirs = service(7, {"azure-pip-name": "kept"})
        assert await other_service(azure, nodes[2:], theirs) == address
        found = (await answers(provider, nodes[:2], one))["web-2"]
        assert "for somebody else" in str(found)
        await delete(provider, one)
    assert open_ports(azure, address) == {"80"}


async def test_services_that_ask_for_another_cluster_s_address_vouch_for_none(
    azure: Emulator,
) -> None:
    """A tenant can have two of them."""
    nodes = machines(azure, 4)
    public_ip(azure, "kept")
    address = await other_service(azure, nodes[2:], service(7, {"azure-pip-name": "kept"}))
    thieves = [
        service(2, {ADDITIONAL: address}),
        service(3, {ADDITIONAL: address}, HTTPS, external_ips=(address,)),
    ]
    async with started(azure, known(nodes[:2], thieves)) as provider:
        await ensure(provider, nodes[:2], service(1))
        before = everything(azure)
        for asked in (thieves, thieves[:1], thieves[1:]):
            for found in (await answers(provider, nodes[:2], *asked)).values():
                assert isinstance(found, InvalidRequest), found
                assert "for somebody else" in str(found)
        assert everything(azure) == before
        for thief in thieves:
            await delete(provider, thief)
        assert everything(azure) == before


async def test_an_address_that_was_opened_for_one_service_a_moment_ago_is_open_to_the_next(
    azure: Emulator,
) -> None:
    """The cache may not show the status of the first one yet."""
    nodes = machines(azure)
    first, second = service(1, {ADDITIONAL: GLOBAL}), service(2, {ADDITIONAL: GLOBAL}, HTTPS)
    async with started(azure, known(nodes, [first, second])) as provider:
        await ensure(provider, nodes, first)
        await ensure(provider, nodes, second)
        assert open_ports(azure, GLOBAL) == {"80", "443"}


async def test_a_node_that_claims_another_cluster_s_machine_closes_nothing(azure: Emulator) -> None:
    nodes = machines(azure, 4)
    at_nodes = {"azure-disable-load-balancer-floating-ip": "true"}
    await other_service(azure, nodes[2:], service(7, at_nodes))
    inside = {one.address for node in nodes[2:] for one in node.status.addresses}
    assert all(open_ports(azure, one) == {"30080"} for one in inside)
    forged = [
        nodes[0],
        msgspec.structs.replace(
            nodes[1],
            spec=msgspec.structs.replace(nodes[1].spec, provider_id=nodes[2].spec.provider_id),
            status=nodes[2].status,
        ),
    ]
    other = ServicePort(443, "https", node_port=30443)
    for labels in ({}, at_nodes):
        async with started(azure, known(forged, [])) as provider:
            await ensure(provider, forged[:1], service(2, labels, (other,)))
        assert all("30080" in open_ports(azure, one) for one in inside)


async def test_a_node_that_names_a_machine_of_its_name_in_another_group_closes_nothing(
    azure: Emulator,
) -> None:
    """Another cluster's machines may be called alike."""
    at_nodes = {"azure-disable-load-balancer-floating-ip": "true"}
    theirs = machines(azure, 2)[1]
    id_ = seed.twin(azure.store, theirs.spec.provider_id.removeprefix("azure://"), "others")
    spec = msgspec.structs.replace(theirs.spec, provider_id=f"azure://{id_}")
    theirs = msgspec.structs.replace(theirs, spec=spec)
    await other_service(azure, [theirs], service(7, at_nodes))
    address = theirs.status.addresses[0].address
    assert open_ports(azure, address) == {"30080"}
    nodes = machines(azure, 3)
    nodes[1] = theirs
    async with started(azure, known(nodes, [])) as provider:
        for labels in ({}, at_nodes):
            await ensure(provider, nodes, service(2, labels, HTTPS))
            assert open_ports(azure, address) == {"30080"}


async def test_what_a_pass_that_failed_has_opened_is_its_service_s(azure: Emulator) -> None:
    nodes = machines(azure)
    one = service(1, {ADDITIONAL: GLOBAL})
    async with started(azure, known(nodes, [one])) as provider:
        await ensure(provider, nodes, one)
        # The status was not written, such as by a patch that got no answer.
        await ensure(provider, nodes, service(1, {ADDITIONAL: GLOBAL}, HTTPS))
        assert open_ports(azure, GLOBAL) == {"443"}
        await delete(provider, service(1, {ADDITIONAL: GLOBAL}, HTTPS))
        assert open_ports(azure, GLOBAL) == set()


def showing(one: Service, ips: Iterable[str]) -> Service:
    points = tuple(LoadBalancerIngress(ip=ip) for ip in ips)
    status = ServiceStatus(load_balancer=LoadBalancerStatus(ingress=points))
    return msgspec.structs.replace(one, status=status)


@pytest.mark.parametrize("restarts", [False, True])
async def test_an_additional_address_that_another_cluster_gets_later_keeps_its_ports(
    azure: Emulator, *, restarts: bool
) -> None:
    """What is open for others was only looked at when the Service named the address."""
    nodes = machines(azure, 4)
    address = public_ip(azure, "kept")
    one = service(2, {ADDITIONAL: address})
    async with AsyncExitStack() as stack:
        begun = known(nodes[:2], [one])
        provider = await stack.enter_async_context(started(azure, begun))
        ips = (await ensure(provider, nodes[:2], one))["web-2"]
        theirs = service(7, {"azure-pip-name": "kept", DENIES: "true"}, HTTPS, **RANGES)
        assert await other_service(azure, nodes[2:], theirs) == address
        before = [one for one in rules(azure).values() if one["access"] == "Deny"]
        if restarts:
            provider = await stack.enter_async_context(started(azure, begun))
        one = showing(one, ips)
        await ensure(provider, nodes[:2], one)
        assert open_ports(azure, address) == {"80", "443", "*"}
        await ensure(provider, nodes[:2], showing(service(2), ips))
        assert open_ports(azure, address) == {"443", "*"}
        await ensure(provider, nodes[:2], one)
        await delete(provider, one)
    assert open_ports(azure, address) == {"443", "*"}
    assert [one for one in rules(azure).values() if one["access"] == "Deny"] == before


def kept(azure: Emulator, group: str) -> tuple[str, dict[str, str]]:
    """An operator's public address, in a resource group if given, and what names it."""
    address, there = public_ip(azure, "kept"), {"azure-pip-name": "kept"}
    if group:
        seed.move(azure.store, network("publicIPAddresses", "kept"), group)
        there["azure-load-balancer-resource-group"] = group
    return address, there


@pytest.mark.parametrize(("group", "sees_group"), [("", True), ("ips", True), ("ips", False)])
@pytest.mark.parametrize("port", [80, 443])
async def test_an_address_that_is_another_cluster_s_by_now_keeps_its_ports(
    azure: Emulator, port: int, group: str, *, sees_group: bool
) -> None:
    """The status of its former Service may show it for a while, such as to a new leader.

    The Service names the address' resource group no more, which the role may not show, either.
    """
    nodes = machines(azure, 4)
    address, there = kept(azure, group)
    public_ip(azure, "next")
    one, edited = service(2, there), service(2, {"azure-pip-name": "next"})
    async with started(azure, known(nodes[:2], [one])) as provider:
        ips = (await ensure(provider, nodes[:2], one))["web-2"]
        await ensure(provider, nodes[:2], showing(edited, ips))
        theirs = service(7, there, (ServicePort(port, node_port=30443),))
        assert await other_service(azure, nodes[2:], theirs) == address
    azure.readers_of_group_only = not sees_group
    async with started(azure, known(nodes[:2], [edited])) as provider:
        await ensure(provider, nodes[:2], showing(edited, ips))
    assert open_ports(azure, address) == {str(port)}


@pytest.mark.parametrize("group", ["", "ips"])
@pytest.mark.parametrize("is_deleted", [False, True])
async def test_an_address_that_was_withdrawn_keeps_its_ports_once_it_is_another_cluster_s(
    azure: Emulator, group: str, *, is_deleted: bool
) -> None:
    """What follows has failed, so the status shows it no more, and its ports were not closed."""
    nodes = machines(azure, 4)
    address, there = kept(azure, group)
    public_ip(azure, "next")
    one, edited = service(2, there), service(2, {"azure-pip-name": "next"})
    async with started(azure, known(nodes[:2], [one])) as provider:
        ips = (await ensure(provider, nodes[:2], one))["web-2"]
        azure.faults.append(Fault("PUT", "networkSecurityGroups", status=400, code="BadRequest"))
        found = (await answers(provider, nodes[:2], showing(edited, ips)))["web-2"]
        assert isinstance(found, CloudError)
        assert found.disowns
        assert await other_service(azure, nodes[2:], service(7, there)) == address
        if is_deleted:
            await delete(provider, edited)
        else:
            await ensure(provider, nodes[:2], edited)
    assert open_ports(azure, address) == {"80"}


INSIDE = {"azure-load-balancer-internal": "true", "azure-load-balancer-ipv4": "10.0.0.200"}


@pytest.mark.parametrize("may_ask", [True, False])
@pytest.mark.parametrize("how", ["shown", "withdrawn", "deleted", "named when it goes"])
async def test_an_inner_address_that_is_another_cluster_s_by_now_keeps_its_ports(
    azure: Emulator, how: str, *, may_ask: bool
) -> None:
    """No public IP tells who has it; the role may not let the manager ask the network."""
    nodes = machines(azure, 4)
    address = INSIDE["azure-load-balancer-ipv4"]
    one = service(2, INSIDE, **RANGES)
    edited = service(2, {**INSIDE, "azure-load-balancer-ipv4": "10.0.0.201"}, **RANGES)
    if not may_ask:
        assert azure.actions is not None
        azure.actions.remove("Microsoft.Network/virtualNetworks/checkIpAddressAvailability/read")
    async with started(azure, known(nodes[:2], [one])) as provider:
        assert await ensure(provider, nodes[:2], one) == {"web-2": [address]}
        azure.faults.append(Fault("PUT", "networkSecurityGroups", status=400, code="BadRequest"))
        found = (await answers(provider, nodes[:2], showing(edited, [address])))["web-2"]
        assert isinstance(found, CloudError)
        assert found.disowns
        theirs = service(7, INSIDE, **RANGES)
        assert await other_service(azure, nodes[2:], theirs) == address
        if how == "withdrawn":
            await ensure(provider, nodes[:2], edited)
        elif how == "deleted":
            await delete(provider, edited)
        elif how == "named when it goes":
            named = {**INSIDE, "azure-load-balancer-ipv4": "10.0.0.201", ADDITIONAL: address}
            await delete(provider, showing(service(2, named, **RANGES), [address]))
    if how == "shown":
        async with started(azure, known(nodes[:2], [edited])) as provider:
            await ensure(provider, nodes[:2], showing(edited, [address]))
    assert open_ports(azure, address) == {"80"}


@pytest.mark.parametrize("port", [80, 443])
async def test_a_public_ip_that_was_given_to_another_cluster_keeps_its_ports(
    azure: Emulator, port: int
) -> None:
    """Somebody has moved it, with the marks of the Service that it was made for."""
    nodes, one = machines(azure, 4), service(2)
    async with started(azure, known(nodes[:2], [one])) as provider:
        ips = (await ensure(provider, nodes[:2], one))["web-2"]
        (name,) = addresses(azure)
        azure.store.delete(network("loadBalancers", "kubernetes"))
        moved = azure.store.of[network("publicIPAddresses", name).lower()]
        moved["properties"].pop("ipConfiguration", None)
        marks = moved.pop("tags")
        theirs = service(7, {"azure-pip-name": name}, (ServicePort(port, node_port=30443),))
        assert [await other_service(azure, nodes[2:], theirs)] == ips
        azure.store.of[network("publicIPAddresses", name).lower()]["tags"] = marks
        with pytest.raises(CloudError, match="PublicIPAddressCannotBeDeleted"):
            await delete(provider, showing(one, ips))
    assert open_ports(azure, ips[0]) == {str(port)}


async def test_a_node_whose_machine_is_gone_closes_nothing_at_its_former_address(
    azure: Emulator,
) -> None:
    """Azure gives the address of a deleted machine to the next one in the subnet.

    The wall clock may be set back meanwhile.
    """
    nodes = machines(azure, 2)
    at_nodes = {"azure-disable-load-balancer-floating-ip": "true"}
    address, begun, clock = nodes[1].status.addresses[0].address, known(nodes, []), Clock()
    begun.now, begun.uptime = clock, clock.uptime
    async with started(azure, begun) as provider:
        for _ in range(2):  # the second time Azure is asked whose the address is
            await ensure(provider, nodes, service(2, at_nodes, HTTPS))
        assert open_ports(azure, address) == {"30443"}
        azure.store.delete(compute("virtualMachines", "node-1"))
        azure.store.delete(network("networkInterfaces", "node-1-nic"))
        id_ = seed.machine(azure.store, "next").replace("Cluster", "cluster")
        theirs = node("next", f"azure://{id_}", address)
        await other_service(azure, [theirs], service(7, at_nodes))
        clock.wrong -= timedelta(hours=1)
        clock.ahead += timedelta(seconds=KEPT)
        for hosts in (nodes, nodes[:1]):
            assert open_ports(azure, address) == {"30080"}
            await answers(provider, hosts, service(2, at_nodes, HTTPS))
    assert open_ports(azure, address) == {"30080"}
