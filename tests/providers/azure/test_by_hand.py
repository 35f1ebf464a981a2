"""Rules that somebody has made by hand in the load balancer: no Service comes by what they lead to.

Nor by another namespace's port at an address that Services share.
"""

from typing import Any

import pytest

from proreus.cloudprovider import CloudError, Ensured, InvalidRequest
from proreus.kube.objects import IP_MODE_PROXY, ServicePort

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .balancing import (
    answers,
    ensure,
    everything,
    machines,
    name_of,
    public_ip,
    rules,
    service,
    targets,
)
from .emulator import seed
from .emulator.links import KIND
from .emulator.server import Emulator, Fault
from .emulator.store import network
from .site import context, started
from .test_additional import ADDITIONAL, HTTPS, known, open_ports
from .test_shared_group import DENIES
from .test_strangers import by_hand
from .test_strangers_beside import put_parts

API = network("publicIPAddresses", "api")
INSIDE = {"azure-load-balancer-internal": "true"}
INTERNAL = "kubernetes-internal"


def asking(port: int, protocol: str = "TCP") -> list[ServicePort]:
    return [ServicePort(port, "x", protocol, node_port=30643)]


@pytest.mark.parametrize("protocol", ["TCP", "SCTP"])
async def test_no_service_opens_a_port_of_a_rule_by_hand(azure: Emulator, protocol: str) -> None:
    """Without a rule of its own Azure refuses it nothing; sources are an operator's to choose."""
    nodes, address = machines(azure), public_ip(azure, "api")
    named = {"azure-pip-name": "api", "port_6443_no_lb_rule": "true"}
    guest, thief = service(9, namespace="bank"), service(2, named, asking(6443, protocol))
    async with started(azure, known(nodes, [guest, thief])) as provider:
        await ensure(provider, nodes, guest)
        by_hand(azure, "loadBalancingRules", API)
        before = everything(azure)
        refused = (await answers(provider, nodes, thief))["web-2"]
        assert isinstance(refused, InvalidRequest), refused
        assert f"port 6443 of {address} is that of a rule that is no Service's" in str(refused)
        assert not refused.disowns
        assert everything(azure) == before
    assert open_ports(azure, address) == set()


@pytest.mark.parametrize("protocol", ["TCP", "SCTP"])
async def test_no_service_names_a_port_of_a_rule_by_hand_beside_its_own_address(
    azure: Emulator, protocol: str
) -> None:
    nodes, address = machines(azure), public_ip(azure, "api")
    beside = {ADDITIONAL: address, "port_6443_no_lb_rule": "true"}
    thief = service(2, beside, asking(6443, protocol))
    async with started(azure, known(nodes, [thief])) as provider:
        await ensure(provider, nodes, service(9, namespace="bank"))
        by_hand(azure, "loadBalancingRules", API)
        before = everything(azure)
        for one in (thief, service(2, beside, asking(6443), ingress=["20.0.0.77", address])):
            refused = (await answers(provider, nodes, one))["web-2"]
            assert isinstance(refused, InvalidRequest), refused
            assert "its port 6443 is that of a rule that is no Service's" in str(refused)
            assert everything(azure) == before
        found = (await answers(provider, nodes, service(2, beside)))["web-2"]
        assert isinstance(found, Ensured), found
        assert [one.ip_mode for one in found.ingress] == [None, IP_MODE_PROXY]
    assert open_ports(azure, address) == {"80"}


async def test_an_address_that_a_rule_by_hand_leads_to_the_nodes_may_be_named(
    azure: Emulator,
) -> None:
    nodes, address = machines(azure), public_ip(azure, "api")
    async with started(azure, known(nodes, [])) as provider:
        await ensure(provider, nodes, service(9, namespace="bank"))
        by_hand(azure, "loadBalancingRules", API, pool="kubernetes")
        one = service(2, {ADDITIONAL: address}, asking(6443))
        found = (await answers(provider, nodes, one))["web-2"]
        assert isinstance(found, Ensured), found
        assert [one.ip_mode for one in found.ingress] == [None, None]
    assert open_ports(azure, address) == {"6443"}


async def test_no_service_puts_a_link_in_front_of_a_rule_by_hand(azure: Emulator) -> None:
    """Who comes by one comes from within the network, and would come to the API server, too."""
    nodes = machines(azure)
    public_ip(azure, "api")
    named = {"azure-pip-name": "api", "azure-disable-load-balancer-floating-ip": "true"}
    link = {"azure-pls-create": "true", "azure-pls-ip-configuration-subnet": "apps"}
    guest, thief = service(9, namespace="bank"), service(2, {**named, **link}, HTTPS)
    async with started(azure, known(nodes, [guest, thief])) as provider:
        await ensure(provider, nodes, guest)
        by_hand(azure, "loadBalancingRules", API)
        for _ in range(2):
            found = (await answers(provider, nodes, thief))["web-2"]
            assert isinstance(found, InvalidRequest), found
            assert "port 6443 of the same address is that of a rule" in str(found)
            assert not list(azure.store.kind(KIND))
            await ensure(provider, nodes, service(2, named, HTTPS))


@pytest.mark.parametrize(
    ("had", "wrong"),
    [
        ({"azure-pip-name": "api"}, {"azure-pip-name": "nowhere"}),
        ({"azure-pip-name": "api"}, {ADDITIONAL: "10.1.2.3"}),
        ({ADDITIONAL: "20.50.0.1"}, {}),
    ],
    ids=["refused an address", "refused another one", "beside its own"],
)
async def test_no_service_shows_an_address_with_the_port_of_a_rule_by_hand(
    azure: Emulator, had: dict[str, str], wrong: dict[str, str]
) -> None:
    """Whatever it is refused for: nodes go by its status, which is from before the rule."""
    nodes, address = machines(azure), public_ip(azure, "api")
    async with started(azure, known(nodes, [])) as provider:
        shown = await ensure(provider, nodes, service(1, had), service(9, namespace="bank"))
        assert address in shown["web-1"]
        by_hand(azure, "loadBalancingRules", API)
        edited = {**had, **wrong}
        for port in (80, 6443) if wrong else (6443,):
            thief = service(1, edited, asking(port), ingress=shown["web-1"])
            refused = (await answers(provider, nodes, thief))["web-1"]
            assert isinstance(refused, InvalidRequest), refused
            assert refused.disowns is (port == 6443)


@pytest.mark.parametrize("is_shown", [False, True])
async def test_no_service_opens_another_namespace_s_port_by_sctp(
    azure: Emulator, *, is_shown: bool
) -> None:
    """Azure's rules have no word for SCTP: one for it lets in all protocols, from anywhere."""
    nodes, named = machines(azure), {"azure-pip-name": "shared"}
    address = public_ip(azure, "shared")
    ranges: dict[str, Any] = {"load_balancer_source_ranges": ("192.0.2.0/24",)}
    first = service(1, named, ingress=[address], **ranges)
    guest = service(2, named, HTTPS, namespace="bank")
    shown = [address] if is_shown else []
    asked = {**named, "port_80_no_lb_rule": "true"}
    thief = service(2, asked, asking(80, "SCTP"), namespace="bank", ingress=shown)
    async with started(azure, known(nodes, [first, thief])) as provider:
        await ensure(provider, nodes, first)
        if is_shown:
            await ensure(provider, nodes, guest)
        before = everything(azure)
        refused = (await answers(provider, nodes, thief))["web-2"]
        assert isinstance(refused, InvalidRequest), refused
        assert f"port 80 of {address} is that of" in str(refused)
        assert refused.disowns is is_shown
        assert everything(azure) == before
    sources = [
        one.get("sourceAddressPrefix") or one["sourceAddressPrefixes"]
        for one in rules(azure).values()
        if "80" in one["destinationPortRanges"]
    ]
    assert sources == ["192.0.2.0/24"]


@pytest.mark.parametrize("protocol", ["TCP", "SCTP"])
async def test_no_service_takes_the_port_of_one_that_has_a_rule_and_shows_nothing(
    azure: Emulator, protocol: str
) -> None:
    """What follows its rule has failed; clients that come by the rule would come to another."""
    nodes, named = machines(azure), {"azure-pip-name": "shared"}
    address = public_ip(azure, "shared")
    inside: dict[str, Any] = {"cluster_ip": "10.96.0.7", "cluster_ips": ("10.96.0.7",)}
    first = service(1, {**named, "azure-allowed-service-tags": "Nowhere"}, **inside)
    asked = {**named, "port_80_no_lb_rule": "true"}
    thief = service(2, asked, asking(80, protocol), namespace="bank")
    async with started(azure, known(nodes, [first, thief])) as provider:
        invalid: dict[str, Any] = {"status": 400, "code": "SecurityRuleInvalidAddressPrefix"}
        azure.faults.append(Fault("PUT", "networkSecurityGroups", **invalid))
        assert isinstance((await answers(provider, nodes, first))["web-1"], CloudError)
        before = everything(azure)
        refused = (await answers(provider, nodes, thief))["web-2"]
        assert isinstance(refused, InvalidRequest), refused
        assert f"port 80 of {address} is that of another Service" in str(refused)
        assert everything(azure) == before
        other = service(1, named, HTTPS, **inside)
        found = await answers(provider, nodes, other, thief)
        assert all(isinstance(one, Ensured) for one in found.values()), found


def frontend_inside(
    azure: Emulator,
    address: str,
    *,
    floats: bool = True,
    kind: str = "loadBalancingRules",
    **more: Any,
) -> None:
    """Let an operator make a frontend with a rule for the API server in the internal one."""
    balancer = network("loadBalancers", "kubernetes-internal")
    inside = {"privateIPAddress": address, "privateIPAllocationMethod": "Static"}
    content: dict[str, Any] = {**inside, "subnet": {"id": seed.SUBNET}}
    put_parts(
        azure, "frontendIPConfigurations", {"name": "api", "properties": content}, of=INTERNAL
    )
    rule = {
        "protocol": "Tcp", "frontendPort": 6443, "backendPort": 6443, "enableFloatingIP": floats,
        "frontendIPConfiguration": {"id": f"{balancer}/frontendIPConfigurations/api"},
        "backendAddressPool": {"id": f"{balancer}/backendAddressPools/kubernetes"},
    }  # fmt: skip
    put_parts(azure, kind, {"name": "api", "properties": {**rule, **more}}, of=INTERNAL)


ALL_PORTS = {"protocol": "All", "frontendPort": 0, "backendPort": 0}
RANGE = {"frontendPort": 0, "frontendPortRangeStart": 6000, "frontendPortRangeEnd": 7000}


@pytest.mark.parametrize(
    ("kind", "ports"),
    [
        ("loadBalancingRules", ALL_PORTS),
        ("inboundNatRules", RANGE),
        ("inboundNatPools", RANGE),
    ],
)
async def test_no_service_opens_one_of_several_ports_of_a_rule_by_hand(
    azure: Emulator, kind: str, ports: dict[str, Any]
) -> None:
    nodes, address = machines(azure), "10.0.0.240"
    named = {
        **INSIDE,
        "azure-load-balancer-ipv4": address,
        "azure-allowed-service-tags": "Internet",
    }
    thief = service(2, {**named, "port_6443_no_lb_rule": "true"}, asking(6443))
    beside = service(3, {**named, "port_7443_no_lb_rule": "true"}, asking(7443))
    async with started(azure, known(nodes, [thief, beside])) as provider:
        await ensure(provider, nodes, service(9, INSIDE))
        frontend_inside(azure, address, kind=kind, **ports)
        before = everything(azure)
        refused = (await answers(provider, nodes, thief))["web-2"]
        assert isinstance(refused, InvalidRequest), refused
        assert f"port 6443 of {address} is that of a rule that is no Service's" in str(refused)
        assert everything(azure) == before
        found = (await answers(provider, nodes, beside))["web-3"]
        assert isinstance(found, InvalidRequest if ports is ALL_PORTS else Ensured), found


@pytest.mark.parametrize("is_listed", [False, True])
async def test_an_address_inside_that_another_namespace_shows_is_shared_with_nobody(
    azure: Emulator, *, is_listed: bool
) -> None:
    """Without a rule, such as since somebody has deleted it, only its status tells."""
    nodes, address = machines(azure), "10.0.0.240"
    named = {**INSIDE, "azure-load-balancer-ipv4": address}
    first = service(1, {**named, "port_80_no_lb_rule": "true"}, ingress=[address])
    # Whom the cloud-config lets share it gets other ports there.
    other: dict[str, Any] = {"ports": HTTPS} if is_listed else {}
    thief = service(2, named, namespace="bank", **other)
    tenants = {"tenants": {"allow": [f"bank={address}"]}} if is_listed else {}
    services = Objects()
    async with started(azure, context(nodes=nodes, services=services), **tenants) as provider:
        await ensure(provider, nodes, service(9, INSIDE))
        frontend_inside(azure, address)
        services.by_key = {"shop/web-1": first, "bank/web-2": thief}
        await ensure(provider, nodes, first)
        found = (await answers(provider, nodes, thief))["web-2"]
        if is_listed:
            assert isinstance(found, Ensured), found
            return
        assert isinstance(found, InvalidRequest), found
        assert "cannot be shared" in str(found)
        assert "shop" in str(found)
        assert await ensure(provider, nodes, first) == {"web-1": [address]}


def denied(azure: Emulator) -> set[str]:
    """The addresses of which the security group denies what no rule lets in."""
    found = (targets(one) for one in rules(azure).values() if one["access"] == "Deny")
    return set[str]().union(*found)


@pytest.mark.parametrize("kind", ["loadBalancingRules", "inboundNatRules"])
@pytest.mark.parametrize("floats", [False, True])
async def test_no_service_denies_clients_inside_of_a_rule_by_hand(
    azure: Emulator, kind: str, *, floats: bool
) -> None:
    """Only AllowVnetInBound lets them in; without floating IP they come to a node's address."""
    nodes, address = machines(azure), "10.0.0.240"
    named = {**INSIDE, "azure-load-balancer-ipv4": address}
    denying: dict[str, str] = {**named, DENIES: "true"}
    ranges: dict[str, Any] = {"load_balancer_source_ranges": ("192.0.2.0/24",)}
    async with started(azure, known(nodes, [])) as provider:
        await ensure(provider, nodes, service(9, INSIDE))
        frontend_inside(azure, address, floats=floats, kind=kind)
        assert await ensure(provider, nodes, service(1, named)) == {"web-1": [address]}
        # Without ranges nothing is denied.
        await ensure(provider, nodes, service(1, denying))
        before = everything(azure)
        found = (await answers(provider, nodes, service(1, denying, **ranges)))["web-1"]
        if not floats:
            assert isinstance(found, Ensured), found
            assert denied(azure) == {address}
            return
        assert isinstance(found, InvalidRequest), found
        assert DENIES in str(found)
        assert not found.disowns
        assert everything(azure) == before


async def test_who_denies_clients_of_an_address_already_keeps_it_beside_a_rule_by_hand(
    azure: Emulator,
) -> None:
    nodes, address = machines(azure), "10.0.0.240"
    denying: dict[str, str] = {**INSIDE, "azure-load-balancer-ipv4": address, DENIES: "true"}
    first = service(1, denying, load_balancer_source_ranges=("192.0.2.0/24",))
    async with started(azure, known(nodes, [])) as provider:
        await ensure(provider, nodes, service(9, INSIDE))
        frontend_inside(azure, address, floats=False)
        await ensure(provider, nodes, first)
        frontend_inside(azure, address)
        await ensure(provider, nodes, first)
        assert denied(azure) == {address}


async def test_no_service_denies_clients_inside_of_another_namespace_s(azure: Emulator) -> None:
    nodes, address = machines(azure), "10.0.0.240"
    named = {**INSIDE, "azure-load-balancer-ipv4": address}
    first = service(1, named)
    denying: dict[str, str] = {**named, DENIES: "true"}
    ranges: dict[str, Any] = {"load_balancer_source_ranges": ("192.0.2.0/24",)}
    near = service(2, denying, HTTPS, **ranges)
    guest = service(3, denying, asking(8443), namespace="bank", **ranges)
    tenants = {"allow": [f"bank={name_of(first.metadata.uid)}"]}
    async with started(azure, known(nodes, [first, near, guest]), tenants=tenants) as provider:
        await ensure(provider, nodes, first)
        found = (await answers(provider, nodes, guest))["web-3"]
        assert isinstance(found, InvalidRequest), found
        assert DENIES in str(found)
        assert not denied(azure)
        # To those of its own namespace a tenant may do that.
        await ensure(provider, nodes, near)
        assert denied(azure) == {address}


async def test_no_external_ip_keeps_the_ports_of_another_namespace_s_service_open(
    azure: Emulator,
) -> None:
    """Its tenant writes it, and so would say from where clients come to the other one."""
    nodes, services = machines(azure), Objects()
    async with started(azure, context(nodes=nodes, services=services)) as provider:
        shown = (await ensure(provider, nodes, service(1)))["web-1"]
        closed: dict[str, Any] = {"load_balancer_source_ranges": ("192.0.2.0/24",)}
        first = service(1, ingress=shown, **closed)
        thief = service(2, namespace="bank", external_ips=tuple(shown))
        services.by_key = {"shop/web-1": first, "bank/web-2": thief}
        await ensure(provider, nodes, first)
    sources = [one.get("sourceAddressPrefix") for one in rules(azure).values()]
    assert sources == ["192.0.2.0/24"]
