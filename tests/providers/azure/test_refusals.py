"""Edits that are refused, by Azure or here: what works goes on, and others lose nothing."""

import json
from typing import Any

import pytest

from proreus.cloudprovider import CloudError, Ensured, InvalidRequest, Pending
from proreus.kube.objects import Service, ServicePort

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .balancing import (
    addresses,
    answers,
    delete,
    ensure,
    everything,
    machines,
    name_of,
    parts,
    public_ip,
    rules,
    service,
    targets,
)
from .emulator.links import KIND, connect
from .emulator.server import Emulator, Fault
from .site import context, started
from .test_strangers_beside import outbound, put_parts

HTTPS = [ServicePort(443, "https", node_port=30443)]
INNER = {"azure-load-balancer-internal": "true"}
FRONTENDS = "frontendIPConfigurations"
REFUSED: dict[str, Any] = {"status": 400, "code": "SubnetNotFound"}


def named(number: int, ip: str, shown: str = "", **more: Any) -> Service:
    """A Service that names a public IP, and shows an address."""
    return service(number, {"azure-pip-name": ip}, ingress=[shown] if shown else [], **more)


async def test_a_shared_public_ip_stays_with_each_whatever_becomes_of_the_other(
    azure: Emulator,
) -> None:
    """Nothing says whose it is, so Services of two namespaces may name it."""
    nodes = machines(azure)
    shared = public_ip(azure, "shared")
    public_ip(azure, "other")
    second = named(2, "shared", ports=HTTPS, namespace="beside")
    async with started(azure) as provider:
        await ensure(provider, nodes, named(1, "shared"))
        before = everything(azure)
        await ensure(provider, nodes, second)
        both = everything(azure)
        for edited in (named(1, "other", shared), service(1, ingress=[shared])):
            found = await answers(provider, nodes, edited)
            assert isinstance(found["web-1"], InvalidRequest)
            assert f"{name_of(second.metadata.uid)}-TCP-443" in str(found["web-1"])
        assert everything(azure) == both
        await delete(provider, second)
        assert everything(azure) == before
        await ensure(provider, nodes, second)
        await delete(provider, named(1, "shared", shared))
        assert [targets(one) for one in rules(azure).values()] == [{shared}]
        assert list(parts(azure, "loadBalancingRules")) == [
            f"{name_of(second.metadata.uid)}-TCP-443"
        ]


async def test_an_address_by_which_nodes_reach_the_world_stays(azure: Emulator) -> None:
    nodes = machines(azure)
    shown = public_ip(azure, "one")
    public_ip(azure, "two")
    async with started(azure) as provider:
        await ensure(provider, nodes, named(1, "one"))
        frontend = name_of(service().metadata.uid)
        put_parts(azure, "outboundRules", outbound(frontend, "kubernetes"))
        before = everything(azure)
        found = await answers(provider, nodes, named(1, "two", shown))
        assert isinstance(found["web-1"], InvalidRequest)
        assert "outbound" in str(found["web-1"])
        assert everything(azure) == before


async def test_clients_get_in_until_azure_has_taken_the_next_address(azure: Emulator) -> None:
    nodes = machines(azure)
    one, two = public_ip(azure, "one"), public_ip(azure, "two")
    edited = named(1, "two", one)
    async with started(azure) as provider:
        await ensure(provider, nodes, named(1, "one"))
        before = everything(azure)
        azure.faults.append(Fault("PUT", "loadBalancers", **REFUSED))
        found = await answers(provider, nodes, edited)
        assert isinstance(found["web-1"], CloudError)
        assert everything(azure) == before
        # A process that ends before the security group is written leaves that to the next one.
        azure.faults.append(Fault("PUT", "networkSecurityGroups"))
        found = await answers(provider, nodes, edited)
        assert isinstance(found["web-1"], CloudError)
    async with started(azure) as provider:
        assert await ensure(provider, nodes, edited) == {"web-1": [two]}
        assert [targets(rule) for rule in rules(azure).values()] == [{two}]


async def test_clients_of_an_own_address_get_in_until_azure_has_taken_the_next_one(
    azure: Emulator,
) -> None:
    nodes = machines(azure)
    async with started(azure) as provider:
        (one,) = (await ensure(provider, nodes, service()))["web-1"]
        two = public_ip(azure, "two")
        before = everything(azure)
        azure.faults.append(Fault("PUT", "loadBalancers", **REFUSED))
        await answers(provider, nodes, named(1, "two", one))
        assert everything(azure) == before
        assert await ensure(provider, nodes, named(1, "two")) == {"web-1": [two]}
        assert [targets(rule) for rule in rules(azure).values()] == [{two}]
        assert list(addresses(azure)) == ["two"]


@pytest.mark.parametrize("after", ["subnet", "public"])
async def test_private_endpoints_stay_until_azure_has_taken_the_next_frontend(
    azure: Emulator, after: str
) -> None:
    nodes = machines(azure)
    linked = {**INNER, "azure-pls-create": "true", "azure-pls-ip-configuration-subnet": "apps"}
    other = service(2, linked)
    edited = service(1, {**linked, "azure-load-balancer-internal-subnet": "apps"})
    if after == "public":
        edited = service()

    def links() -> list[str]:
        return [str(one["id"]) for one in azure.store.kind(KIND)]

    async with started(azure) as provider:
        await ensure(provider, nodes, service(1, linked), other)
        link = next(one for one in links() if one.endswith(name_of(edited.metadata.uid)))
        connect(azure.store, link, "consumer")
        before = json.dumps(list(azure.store.kind(KIND)))
        azure.faults.append(Fault("PUT", "loadBalancers", times=3, **REFUSED))
        found = await answers(provider, nodes, edited, other)
        assert isinstance(found["web-1"], CloudError)
        assert json.dumps(list(azure.store.kind(KIND))) == before
        azure.faults.clear()
        await ensure(provider, nodes, edited, other)
        assert link not in links()
        count = 2 if after == "subnet" else 1
        assert len(links()) == count
        assert len(parts(azure, "frontendIPConfigurations", "kubernetes-internal")) == count


async def test_an_internal_load_balancer_of_addresses_is_known_by_the_services_it_serves(
    azure: Emulator,
) -> None:
    """No interface says that it is in it, and no public address."""
    nodes = machines(azure)
    first = service(1, INNER)
    pools: dict[str, Any] = {"loadBalancerBackendPoolConfigurationType": "nodeIP"}
    async with started(azure, **pools) as provider:
        (shown,) = (await ensure(provider, nodes, first))["web-1"]
    before = parts(azure, "loadBalancingRules", "kubernetes-internal")
    services = [service(1, INNER, ingress=[shown])]
    known = context(nodes=nodes, services=Objects(services))
    async with started(azure, known, **pools) as provider:
        gone = Fault(
            "GET", "loadBalancers", status=404, code="ResourceNotFound", name="/kubernetes-internal"
        )
        azure.faults.append(gone)
        found = await answers(provider, nodes, service(2, INNER))
        assert isinstance(found["web-2"], Pending)
        await ensure(provider, nodes, service(2, INNER))
    after = parts(azure, "loadBalancingRules", "kubernetes-internal")
    assert len(after) == 2
    assert after.items() >= before.items()


@pytest.mark.parametrize("annotation", ["azure-load-balancer", "azure-pls"])
async def test_a_group_that_may_not_be_read_is_the_fault_of_who_names_it(
    azure: Emulator, annotation: str
) -> None:
    """A role of the cluster's resource groups alone suffices."""
    nodes = machines(azure)
    naming = {**INNER, "azure-pls-create": "true", f"{annotation}-resource-group": "hidden"}
    services = [service(1, namespace="beside"), service(2, naming), service(3, INNER)]
    denied = Fault(
        "GET", "", status=403, code="AuthorizationFailed", times=-1, name="resourcegroups/hidden/"
    )
    azure.faults.append(denied)
    async with started(azure) as provider:
        found = await answers(provider, nodes, *services)
    refused = found["web-2"]
    assert isinstance(refused, InvalidRequest)
    assert "the resource group hidden, which an annotation names" in str(refused)
    assert {type(found[name]) for name in ("web-1", "web-3")} == {Ensured}


@pytest.mark.parametrize(
    "beside",
    [{"azure-pls-create": "true"}, {"azure-load-balancer-resource-group": "nowhere"}],
    ids=["by the same policy", "by a group that is not there"],
)
async def test_a_service_shows_no_address_that_it_has_left_whoever_else_is_refused(
    azure: Emulator, beside: dict[str, str]
) -> None:
    """Azure gives it to others, such as a machine, and nodes would lead theirs to the Service."""
    nodes = machines(azure)
    async with started(azure) as provider:
        shown = await ensure(provider, nodes, service(1, INNER), service(2, INNER))
        moved = {"azure-load-balancer-ipv4": "10.0.0.100", "azure-pls-create": "true"}
        subnet = {"azure-pls-ip-configuration-subnet": "apps"}
        edited = [
            service(1, {**INNER, **moved, **subnet}, ingress=shown["web-1"]),
            service(2, {**INNER, **subnet, **beside}, ingress=shown["web-2"]),
        ]
        policy: Any = {"status": 403, "code": "RequestDisallowedByPolicy", "times": -1}
        azure.faults.append(Fault("PUT", "privateLinkServices", name="pls-", **policy))
        refused = (await answers(provider, nodes, *edited))["web-1"]
        assert isinstance(refused, CloudError)
        assert shown["web-1"][0] not in str(parts(azure, FRONTENDS, "kubernetes-internal"))
        assert refused.disowns


async def test_an_address_that_was_left_since_a_restart_leaves_the_status_too(
    azure: Emulator,
) -> None:
    """Nothing was ensured before: what the load balancer showed first tells what it had."""
    nodes = machines(azure)
    config: Any = {"loadBalancerName": "outside"}
    async with started(azure, **config) as provider:
        shown = await ensure(provider, nodes, service(1, INNER), service(2, INNER))
        made = parts(azure, FRONTENDS, "outside-internal")
    async with started(azure, **config) as provider:

        def fail_outside(method: str, path: str) -> None:
            if method == "PUT" and path.endswith("/outside"):
                azure.faults.append(Fault("PUT", "loadBalancers", **REFUSED))

        azure.hooks.append(fail_outside)
        edited = service(ingress=shown["web-1"])
        refused = (await answers(provider, nodes, edited))["web-1"]
        assert isinstance(refused, CloudError)
        assert len(parts(azure, FRONTENDS, "outside-internal")) == len(made) - 1
        assert refused.disowns


async def test_an_address_that_was_left_leaves_the_status_while_azure_takes_time(
    azure: Emulator,
) -> None:
    nodes = machines(azure)
    subnet = {"azure-pls-create": "true", "azure-pls-ip-configuration-subnet": "apps"}
    async with started(azure) as provider:
        shown = await ensure(provider, nodes, service(1, INNER), service(2, INNER))

        def hold_up(method: str, path: str) -> None:
            azure.works = azure.pause = 60 if method == "PUT" and "privateLink" in path else 0

        azure.hooks.append(hold_up)
        moved = {**INNER, "azure-load-balancer-ipv4": "10.0.0.100", **subnet}
        edited = [
            service(1, moved, ingress=shown["web-1"]),
            service(2, {**INNER, **subnet}, ingress=shown["web-2"]),
        ]
        found = await answers(provider, nodes, *edited)
        left, kept = found["web-1"], found["web-2"]
        assert isinstance(left, Pending)
        assert shown["web-1"][0] not in str(parts(azure, FRONTENDS, "kubernetes-internal"))
        assert left.withdrawn
        assert isinstance(kept, Pending)
        assert not kept.withdrawn
