"""Additional addresses of Services, which others have, too: whose they are, and who keeps them."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import pytest

from proreus.cloudprovider import InvalidRequest
from proreus.cloudprovider.context import Context
from proreus.kube.objects import Node, NodeAddress, Service, ServicePort

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .balancing import (
    answers,
    delete,
    ensure,
    everything,
    machines,
    public_ip,
    rules,
    service,
    targets,
)
from .emulator.server import Emulator
from .site import context, started

ADDITIONAL = "azure-additional-public-ips"
GLOBAL = "198.51.100.7"
"""The address of a load balancer of all regions, which leads to this one."""
HTTPS = (ServicePort(443, "https", node_port=30443),)


def known(nodes: Iterable[Node], services: Iterable[Service]) -> Context:
    """A context in which the cluster's Services are known."""
    return context(nodes=nodes, services=Objects(services))


def open_ports(azure: Emulator, address: str) -> set[str]:
    """The ports at which clients reach an address."""
    return {
        port
        for rule in rules(azure).values()
        if address in targets(rule)
        for port in rule["destinationPortRanges"] or (rule["destinationPortRange"],)
    }


async def test_services_of_a_namespace_that_share_an_additional_address_keep_their_ports(
    azure: Emulator,
) -> None:
    nodes = machines(azure)
    first = service(1, {ADDITIONAL: GLOBAL}, ingress=["20.0.0.1", GLOBAL])
    second = service(2, {ADDITIONAL: GLOBAL}, HTTPS)
    async with started(azure, known(nodes, [first, second])) as provider:
        await ensure(provider, nodes, first)
        await ensure(provider, nodes, second)
        assert open_ports(azure, GLOBAL) == {"80", "443"}
        await ensure(provider, nodes, first)
        assert open_ports(azure, GLOBAL) == {"80", "443"}
        await delete(provider, second)
        assert open_ports(azure, GLOBAL) == {"80"}
    async with started(azure, known(nodes, [first])) as provider:
        await delete(provider, first)
        assert open_ports(azure, GLOBAL) == set()


async def test_no_service_takes_an_additional_address_of_another_namespace_s(
    azure: Emulator,
) -> None:
    nodes = machines(azure)
    first = service(1, {ADDITIONAL: GLOBAL}, ingress=["20.0.0.1", GLOBAL])
    thief = service(2, {ADDITIONAL: GLOBAL}, HTTPS, namespace="other")
    async with started(azure, known(nodes, [first, thief])) as provider:
        await ensure(provider, nodes, first)
        before = everything(azure)
        found = await answers(provider, nodes, thief)
        assert isinstance(found["web-2"], InvalidRequest)
        assert "shop" in str(found["web-2"])
        assert everything(azure) == before
        await delete(provider, thief)
        assert open_ports(azure, GLOBAL) == {"80"}


@pytest.mark.parametrize("is_together", [False, True], ids=["the next pass", "one pass"])
async def test_no_service_takes_what_another_namespace_s_got_a_moment_ago(
    azure: Emulator, *, is_together: bool
) -> None:
    """The cache may not show the status of the first one yet."""
    nodes = machines(azure)
    first = service(1, {ADDITIONAL: GLOBAL})
    thief = service(2, {ADDITIONAL: GLOBAL}, HTTPS, namespace="other")
    async with started(azure, known(nodes, [first, thief])) as provider:
        asked = [first, thief] if is_together else [thief]
        if not is_together:
            await ensure(provider, nodes, first)
        for _ in range(2):
            found = await answers(provider, nodes, *asked)
            assert isinstance(found["web-2"], InvalidRequest), found
            assert "it belongs to" in str(found["web-2"])
            assert open_ports(azure, GLOBAL) == {"80"}


async def test_an_external_ip_of_its_own_gives_no_service_the_address_of_another(
    azure: Emulator,
) -> None:
    """Its tenant writes it, and so says nothing of whose the address is."""
    nodes = machines(azure)
    async with started(azure, known(nodes, [])) as provider:
        (address,) = (await ensure(provider, nodes, service(1)))["web-1"]
    first = service(1, ingress=[address])
    asked: dict[str, Any] = {"namespace": "other", "external_ips": (address,)}
    thief = service(2, {ADDITIONAL: address}, HTTPS, **asked)
    async with started(azure, known(nodes, [first, thief])) as provider:
        before = everything(azure)
        found = await answers(provider, nodes, thief)
        assert isinstance(found["web-2"], InvalidRequest), found
        assert "shop" in str(found["web-2"])
        assert everything(azure) == before
    assert open_ports(azure, address) == {"80"}


INSIDE = {"azure-load-balancer-internal": "true"}
MOVED = {**INSIDE, "azure-load-balancer-ipv4": "10.0.0.99"}


@pytest.mark.parametrize("is_moved", [False, True], ids=["before it moved", "after that"])
async def test_no_service_keeps_an_inner_address_beside_the_one_that_it_moves_to(
    azure: Emulator, *, is_moved: bool
) -> None:
    """Azure gives it to others, and nodes would go on sending what comes for it here.

    Naming it does not keep it in the status, either.
    """
    nodes = machines(azure)
    async with started(azure, known(nodes, [])) as provider:
        (address,) = (await ensure(provider, nodes, service(1, INSIDE)))["web-1"]
        if is_moved:  # and its status could not be written
            await ensure(provider, nodes, service(1, MOVED, ingress=[address]))
            other = service(2, INSIDE, HTTPS, namespace="other")
            assert await ensure(provider, nodes, other) == {"web-2": [address]}
        keeping = service(1, {**MOVED, ADDITIONAL: address}, ingress=[address])
        before = everything(azure)
        found = await answers(provider, nodes, keeping)
        assert isinstance(found["web-1"], InvalidRequest), found
        assert address in str(found["web-1"])
        assert found["web-1"].disowns is is_moved
        assert everything(azure) == before


async def test_no_service_keeps_a_shared_address_as_an_additional_one(azure: Emulator) -> None:
    """At the load balancer a port is one Service's; an additional one could take it at nodes."""
    nodes = machines(azure)
    address = public_ip(azure, "kept")
    one = service(1, {"azure-pip-name": "kept"}, ingress=[address])
    other = service(2, {"azure-pip-name": "kept"}, HTTPS, namespace="other", ingress=[address])
    async with started(azure, known(nodes, [one, other])) as provider:
        await ensure(provider, nodes, other)
        await ensure(provider, nodes, one)
        before = everything(azure)
        thief = service(1, {ADDITIONAL: address}, HTTPS, ingress=[address])
        found = await answers(provider, nodes, thief)
        assert isinstance(found["web-1"], InvalidRequest), found
        assert "it belongs to" in str(found["web-1"])
        assert "other" in str(found["web-1"])
        assert everything(azure) == before


CLUSTER_IP = {"cluster_ip": "10.96.0.1", "cluster_ips": ("10.96.0.1",)}


@pytest.mark.parametrize(
    ("address", "fields", "status"),
    [
        ("10.96.0.1", CLUSTER_IP, ()),
        ("192.0.2.9", {"external_ips": ("192.0.2.9",)}, ()),
        ("192.0.2.10", {}, ("192.0.2.10",)),
    ],
    ids=["ClusterIP", "external IP", "load balancer of another manager"],
)
async def test_no_service_takes_what_clients_of_another_namespace_s_service_use(
    azure: Emulator, address: str, fields: dict[str, Any], status: Sequence[str]
) -> None:
    """Each node would send to this Service what is meant for the other one."""
    nodes = machines(azure)
    other = service(1, namespace="kube", ingress=status, **fields)
    thief = service(2, {ADDITIONAL: address})
    async with started(azure, known(nodes, [other, thief])) as provider:
        found = await answers(provider, nodes, thief)
        assert isinstance(found["web-2"], InvalidRequest)
        assert "kube" in str(found["web-2"])


@pytest.mark.parametrize("address", ["169.254.169.254", "127.0.0.1", "168.63.129.16", "fe80::1"])
async def test_no_service_takes_an_address_that_every_machine_has_a_use_for(
    azure: Emulator, address: str
) -> None:
    nodes = machines(azure)
    async with started(azure, known(nodes, [])) as provider:
        found = await answers(provider, nodes, service(1, {ADDITIONAL: address}))
        assert isinstance(found["web-1"], InvalidRequest)
        assert address in str(found["web-1"])


async def test_no_service_takes_the_address_of_a_pod(azure: Emulator) -> None:
    """Pods of IPv6 may have public addresses, as in Cluster API's templates for Azure."""
    nodes, cidrs = machines(azure), ("10.244.1.0/24", "2001:1234:5678:9a40::/64")
    spec = msgspec.structs.replace(nodes[1].spec, pod_cidr=cidrs[0], pod_cidrs=cidrs)
    nodes[1] = msgspec.structs.replace(nodes[1], spec=spec)
    thief = service(2, {ADDITIONAL: "2001:1234:5678:9a40::5"}, HTTPS, namespace="other")
    async with started(azure, known(nodes, [thief])) as provider:
        before = everything(azure)
        found = await answers(provider, nodes, thief)
        assert isinstance(found["web-2"], InvalidRequest), found
        assert f"it is of the pods of the node {nodes[1].metadata.name}" in str(found["web-2"])
        assert everything(azure) == before
        beside = service(2, {ADDITIONAL: "2001:1234:5678:9a41::5"}, HTTPS, namespace="other")
        assert "2001:1234:5678:9a41::5" in (await ensure(provider, nodes, beside))["web-2"]


async def test_an_address_with_a_zone_is_no_other_address(azure: Emulator) -> None:
    """Python's comparison holds the two unequal, so another Service's would be taken."""
    nodes = machines(azure)
    other = service(1, namespace="kube", external_ips=("2a01:111::9",))
    thief = service(2, {ADDITIONAL: "2a01:111::9%1"})
    async with started(azure, known(nodes, [other, thief])) as provider:
        with pytest.raises(InvalidRequest, match=ADDITIONAL):
            await answers(provider, nodes, thief)


@pytest.mark.parametrize("written", ["2A01:111::9", "2a01:111:0:0::0009"])
async def test_an_external_ip_of_another_namespace_is_known_in_every_form(
    azure: Emulator, written: str
) -> None:
    """The API server takes all forms of an address, and nodes know them for one."""
    nodes = machines(azure)
    other = service(1, namespace="kube", external_ips=(written,))
    thief = service(2, {ADDITIONAL: "2a01:111::9"})
    async with started(azure, known(nodes, [other, thief])) as provider:
        found = await answers(provider, nodes, thief)
        assert isinstance(found["web-2"], InvalidRequest), found
        assert "kube" in str(found["web-2"])
    assert open_ports(azure, "2a01:111::9") == set()


async def test_an_address_in_two_forms_is_one(azure: Emulator) -> None:
    """Nodes take an IPv4 address in the form of IPv6 for what it stands for."""
    nodes = machines(azure)
    own = nodes[0].status.addresses[0].address
    async with started(azure, known(nodes, [])) as provider:
        with pytest.raises(InvalidRequest, match=ADDITIONAL):
            await answers(provider, nodes, service(1, {ADDITIONAL: f"::ffff:{own}"}))


async def test_an_address_that_the_status_shows_already_stays(azure: Emulator) -> None:
    nodes = machines(azure)
    shown = service(1, {ADDITIONAL: "10.9.0.9"}, ingress=["20.0.0.1", "10.9.0.9"])
    async with started(azure, known(nodes, [shown])) as provider:
        assert "10.9.0.9" in (await ensure(provider, nodes, shown))["web-1"]
    async with started(azure, known(nodes, [])) as provider:
        await delete(provider, shown)
    assert not rules(azure)


async def test_whoever_denies_all_others_is_heard_by_services_at_the_same_address(
    azure: Emulator,
) -> None:
    nodes = machines(azure)
    denying = {
        ADDITIONAL: GLOBAL,
        "azure-deny-all-except-load-balancer-source-ranges": "true",
    }
    first = service(1, denying, load_balancer_source_ranges=("192.0.2.0/24",))
    second = service(2, {ADDITIONAL: GLOBAL}, HTTPS)
    async with started(azure, known(nodes, [first, second])) as provider:
        await ensure(provider, nodes, first)
        await ensure(provider, nodes, second)
        denied = [one for one in rules(azure).values() if one["access"] == "Deny"]
        assert [GLOBAL in targets(one) for one in denied] == [True]


async def test_a_node_that_claims_the_address_of_a_service_closes_no_port_of_it(
    azure: Emulator,
) -> None:
    """A kubelet can write any address on its own Node until the manager corrects it."""
    nodes = machines(azure)
    async with started(azure, known(nodes, [])) as provider:
        (address,) = (await ensure(provider, nodes, service()))["web-1"]
    claimed = (*nodes[0].status.addresses, NodeAddress("ExternalIP", address))
    status = msgspec.structs.replace(nodes[0].status, addresses=claimed)
    forged = [msgspec.structs.replace(nodes[0], status=status), *nodes[1:]]
    first = service(ingress=[address])
    async with started(azure, known(forged, [first])) as provider:
        await ensure(provider, forged, service(2, ports=HTTPS))
    assert open_ports(azure, address) == {"80"}
