"""Private link services: what they are like, whose they are, and that they go with their frontend."""

from typing import Any

import msgspec
import pytest

from proreus.cloudprovider import Ensured, InvalidRequest
from proreus.kube.objects import Service, ServicePort

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .balancing import (
    answers,
    balancer,
    delete,
    ensure,
    everything,
    machines,
    name_of,
    public_ip,
    service,
)
from .emulator import seed
from .emulator.links import KIND, connect
from .emulator.server import Emulator
from .emulator.store import Resource, network
from .site import context, started

SUBNET = "azure-pls-ip-configuration-subnet"
LINKED = {"azure-load-balancer-internal": "true", "azure-pls-create": "true", SUBNET: "apps"}
NAME = f"pls-{name_of(service().metadata.uid)}"


def links(azure: Emulator) -> dict[str, Resource]:
    return {one["name"]: one for one in azure.store.kind(KIND)}


def asking(**more: str) -> Service:
    given = {f"azure-pls-{key.replace('_', '-')}": value for key, value in more.items()}
    return service(1, {**LINKED, **given})


async def test_a_link_is_made_as_officially(azure: Emulator) -> None:
    nodes = machines(azure)
    async with started(azure) as provider:
        await ensure(provider, nodes, asking())
        (found,) = links(azure).values()
        before = everything(azure)
        azure.counted()
        await ensure(provider, nodes, asking())
        assert not [key for key in azure.counted() if key[0] != "GET"]
        assert everything(azure) == before
    assert found["name"] == NAME
    assert found["tags"]["k8s-azure-owner-service"] == "shop/web-1"
    assert found["tags"]["k8s-azure-cluster-name"] == "kubernetes"
    properties = found["properties"]
    (frontend,) = properties["loadBalancerFrontendIpConfigurations"]
    assert frontend["id"].endswith(f"/frontendIPConfigurations/{NAME.removeprefix('pls-')}")
    (address,) = properties["ipConfigurations"]
    assert address["name"] == f"apps-{NAME}-dynamic-0"
    assert address["properties"]["primary"]
    assert address["properties"]["subnet"]["id"].endswith("/subnets/apps")
    assert not properties["enableProxyProtocol"]


async def test_a_link_has_what_its_annotations_ask_for_and_follows_them(azure: Emulator) -> None:
    nodes = machines(azure)
    asked = {
        "name": "front", "ip_configuration_ip_address_count": "3",
        "ip_configuration_ip_address": "10.9.0.50 10.9.0.51", "fqdns": "a.example b.example",
        "proxy_protocol": "true", "visibility": "sub-1 *", "auto_approval": "sub-1",
    }  # fmt: skip
    async with started(azure) as provider:
        await ensure(provider, nodes, asking(**asked))
        found = links(azure)["front"]["properties"]
        assert [
            (one["properties"].get("privateIPAddress"), one["properties"]["primary"])
            for one in found["ipConfigurations"]
        ] == [("10.9.0.50", True), ("10.9.0.51", False), (None, False)]
        assert (found["fqdns"], found["enableProxyProtocol"]) == (["a.example", "b.example"], True)
        assert found["visibility"]["subscriptions"] == ["*"]
        assert found["autoApproval"]["subscriptions"] == ["sub-1"]
        await ensure(provider, nodes, asking(name="front", visibility="sub-2"))
        found = links(azure)["front"]["properties"]
        assert len(found["ipConfigurations"]) == 1
        assert (found["fqdns"], found["enableProxyProtocol"]) == ([], False)
        assert found["visibility"]["subscriptions"] == ["sub-2"]
        assert found["autoApproval"]["subscriptions"] == []
        refused = await answers(provider, nodes, asking(name="other"))
        assert "cannot be called" in str(refused["web-1"])


async def test_a_link_goes_with_its_frontend_and_its_connections(azure: Emulator) -> None:
    nodes = machines(azure)
    async with started(azure) as provider:
        await ensure(provider, nodes, asking())
        connect(azure.store, str(links(azure)[NAME]["id"]), "consumer")
        await ensure(provider, nodes, asking())
        await delete(provider, asking(), bare=True)
    assert not links(azure)
    assert balancer(azure, "kubernetes-internal") is None


async def test_a_link_goes_when_its_service_becomes_public(azure: Emulator) -> None:
    nodes = machines(azure)
    other = service(2, LINKED)
    async with started(azure) as provider:
        await ensure(provider, nodes, asking(), other)
        await ensure(provider, nodes, service(1, {"azure-pls-create": "false"}), other)
    assert list(links(azure)) == [f"pls-{name_of(other.metadata.uid)}"]


async def test_a_link_stays_when_its_annotation_goes(azure: Emulator) -> None:
    nodes = machines(azure)
    async with started(azure) as provider:
        await ensure(provider, nodes, asking())
        await ensure(provider, nodes, service(1, {"azure-load-balancer-internal": "true"}))
    assert list(links(azure)) == [NAME]


async def test_a_service_at_the_same_address_shares_the_link(azure: Emulator) -> None:
    nodes = machines(azure)
    at = {"azure-load-balancer-ipv4": "10.0.0.50"}
    first = service(1, {**LINKED, **at})
    ports = tuple(msgspec.structs.replace(one, port=443) for one in first.spec.ports)
    shared = service(2, {**LINKED, **at, SUBNET: ""}, ports)
    async with started(azure) as provider:
        await ensure(provider, nodes, first)
        found = await answers(provider, nodes, shared)
        assert isinstance(found["web-2"], Ensured), found
        wrong = await answers(provider, nodes, service(2, {**LINKED, **at}, ports))
        assert "belongs to another Service" in str(wrong["web-2"])
        await delete(provider, first)
        assert list(links(azure)) == [NAME]
        await delete(provider, shared)
    assert not links(azure)


def foreign(azure: Emulator, name: str, frontend: str, **tags: str) -> None:
    """A link that somebody else has made."""
    properties: dict[str, Any] = {"loadBalancerFrontendIpConfigurations": [{"id": frontend}]}
    one = seed.resource(KIND, network("privateLinkServices", name), properties, tags=tags)
    azure.store.put(one)


async def test_links_of_others_are_neither_changed_nor_deleted(azure: Emulator) -> None:
    nodes = machines(azure)
    lb = network("loadBalancers", "another")
    foreign(azure, "theirs", f"{lb}/frontendIPConfigurations/f")
    async with started(azure) as provider:
        found = await answers(provider, nodes, asking(name="theirs"))
        assert "without the marks" in str(found["web-1"])
        inner = network("loadBalancers", "kubernetes-internal")
        frontend = name_of(service().metadata.uid)
        foreign(azure, "mine", f"{inner}/frontendIPConfigurations/{frontend}")
        found = await answers(provider, nodes, asking())
        assert "not this cluster's" in str(found["web-1"])
        with pytest.raises(Exception, match="InUseFrontendIPConfigurationCannotBeDeleted"):
            await delete(provider, asking())
    assert set(links(azure)) == {"theirs", "mine"}


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"azure-pls-name": "a/b"}, "azure-pls-name"),
        ({"azure-pls-visibility": "a,b"}, "azure-pls-visibility"),
        ({"azure-pls-fqdns": "a b/c"}, "azure-pls-fqdns"),
        ({"azure-pls-ip-configuration-ip-address": "10.0.0.300"}, "ip-address"),
        ({"azure-pls-ip-configuration-ip-address": "10.9.0.5 10.9.0.6"}, "no more than"),
        ({"azure-pls-ip-configuration-ip-address-count": "9"}, "ip-address-count"),
        ({"azure-load-balancer-internal": "false"}, "needs azure-load-balancer-internal"),
    ],
)
async def test_wrong_annotations_of_links_are_told(
    azure: Emulator, more: dict[str, str], told: str
) -> None:
    async with started(azure) as provider:
        with pytest.raises(InvalidRequest, match=told):
            await ensure(provider, machines(azure), service(1, {**LINKED, **more}))


async def test_a_subnet_with_network_policies_is_told(azure: Emulator) -> None:
    async with started(azure) as provider:
        found = await answers(provider, machines(azure), asking(ip_configuration_subnet="nodes"))
    assert "NetworkPoliciesEnabled" in str(found["web-1"])


async def test_without_the_right_to_read_links_services_without_any_are_deleted(
    azure: Emulator,
) -> None:
    assert azure.actions is not None
    azure.actions = {one for one in azure.actions if "privateLinkServices" not in one}
    nodes = machines(azure)
    async with started(azure) as provider:
        await ensure(provider, nodes, service())
        await delete(provider, service())
        found = await answers(provider, nodes, asking())
    assert "privateLinkServices/read" in str(found["web-1"])


async def test_a_single_service_of_ipv6_can_have_none(azure: Emulator) -> None:
    nodes = machines(azure, families=("IPv4", "IPv6"))
    one = service(1, LINKED, ip_families=("IPv6",))
    async with started(azure, context(nodes=nodes)) as provider:
        found = await answers(provider, nodes, one)
    assert "IPv4 only" in str(found["web-1"])


SHARED = {"azure-pip-name": "kept", "azure-disable-load-balancer-floating-ip": "true"}
ASKED = {**SHARED, "azure-pls-create": "true", SUBNET: "apps"}
HTTPS = ServicePort(443, "https", node_port=30443)


async def test_no_service_puts_a_link_in_front_of_another_namespace_s(azure: Emulator) -> None:
    """Who comes by one comes from within the network, whatever sources the other one allows."""
    nodes = machines(azure)
    public_ip(azure, "kept")
    first = service(1, SHARED, load_balancer_source_ranges=("192.0.2.0/24",))
    second = service(2, ASKED, [HTTPS], namespace="other")
    known = context(nodes=nodes, services=Objects([first, second]))
    async with started(azure, known) as provider:
        await ensure(provider, nodes, first)
        found = await answers(provider, nodes, second)
        assert not links(azure)
        assert isinstance(found["web-2"], InvalidRequest)
        assert "shop" in str(found["web-2"])
        await ensure(provider, nodes, service(1, {**ASKED, "azure-pls-name": "own"}))
        assert list(links(azure)) == ["own"]
        given = {**SHARED, "azure-pls-create": "true"}
        await ensure(provider, nodes, service(2, given, [HTTPS], namespace="other"))
    assert list(links(azure)) == ["own"]


async def test_no_link_is_put_in_front_of_a_shared_public_ip_while_nothing_has_it(
    azure: Emulator,
) -> None:
    """Its load balancer was deleted by hand, and Services get another one by and by."""
    nodes = machines(azure)
    address = public_ip(azure, "kept")
    ranges = ("192.0.2.0/24",)
    first = service(1, SHARED, ingress=[address], load_balancer_source_ranges=ranges)
    second = service(2, ASKED, [HTTPS], namespace="other")
    known = context(nodes=nodes, services=Objects([first, second]))
    async with started(azure, known) as provider:
        found = await answers(provider, nodes, second)
        assert isinstance(found["web-2"], InvalidRequest)
        assert "shop" in str(found["web-2"])
        assert not links(azure)
        assert await ensure(provider, nodes, first) == {"web-1": [address]}
        assert not links(azure)
        await ensure(provider, nodes, service(2, SHARED, [HTTPS], namespace="other"))


async def test_no_link_takes_an_address_of_another_namespace_while_nothing_has_it(
    azure: Emulator,
) -> None:
    """Its load balancer was deleted by hand, and Services get another one by and by."""
    nodes = machines(azure)
    inner = {
        "azure-load-balancer-internal": "true",
        "azure-load-balancer-ipv4": "10.9.0.77",
        "azure-load-balancer-internal-subnet": "apps",
    }
    first = service(2, inner, ingress=["10.9.0.77"], namespace="bank")
    services = Objects()
    known = context(nodes=nodes, services=services)
    async with started(azure, known) as provider:
        await ensure(provider, nodes, service(3, {"azure-load-balancer-internal": "true"}))
        services.by_key = {"bank/web-2": first}
        asked = asking(ip_configuration_ip_address="10.9.0.77")
        found = (await answers(provider, nodes, asked))["web-1"]
        assert isinstance(found, InvalidRequest)
        assert "azure-pls-ip-configuration-ip-address: 10.9.0.77 cannot be had" in str(found)
        assert "bank" in str(found)
        assert not links(azure)
        assert await ensure(provider, nodes, first) == {"web-2": ["10.9.0.77"]}
