"""What Azure does not show for a while: load balancers outlive it unchanged."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from proreus.cloudprovider import Pending
from proreus.cloudprovider.waits import LONG
from proreus.kube.objects import Node
from proreus.providers.azure import AzureCloud, absences
from proreus.providers.azure.api import Waiting
from proreus.providers.azure.balancing.desired import Place
from proreus.providers.azure.balancing.observation import MOST_ALONE
from proreus.providers.azure.balancing.parts import Scene, State
from proreus.providers.azure.balancing.presence import Presence

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .balancing import (
    addresses,
    answers,
    delete,
    ensure,
    machines,
    parts,
    public_ip,
    service,
    set_machines,
)
from .emulator.server import Emulator, Fault
from .emulator.store import compute, network
from .site import CLUSTER, config, context, started
from .test_several_balancers import INTERNAL, NAMED, NAMES, pool

SETS = ("first-pool", "second-pool")
APART = {
    "loadBalancerBackendPoolConfigurationType": "nodeIP",
    "multipleStandardLoadBalancerConfigurations": [
        {"name": name, "primaryVMSet": set_, "nodeSelector": {"matchLabels": {"side": name}}}
        for name, set_ in zip(NAMES, SETS, strict=True)
    ],
}
"""A cloud-config by which a node without labels is behind the load balancer of its set alone."""


def in_sets(azure: Emulator, count: int = 4) -> list[Node]:
    """Start machines of scale sets of the mode Flexible, by turns."""
    nodes = machines(azure, count)
    for number in range(count):
        stored = azure.store.of[compute("virtualMachines", f"node-{number}").lower()]
        id_ = compute("virtualMachineScaleSets", SETS[number % 2])
        stored["properties"]["virtualMachineScaleSet"] = {"id": id_}
    return nodes


async def test_nodes_stay_behind_their_load_balancer_while_a_list_lacks_their_machines(
    azure: Emulator,
) -> None:
    nodes = in_sets(azure, 2 * MOST_ALONE)
    names = [one.metadata.name for one in nodes]
    first, second = (service(n, {NAMED: NAMES[n - 1]}) for n in (1, 2))
    async with started(azure, context(nodes=nodes), **APART) as provider:
        await ensure(provider, nodes, first, second)
        before = [pool(azure, name) for name in NAMES]
        assert before == [set(names[::2]), set(names[1::2])]
        azure.unlisted = {compute("virtualMachines", name).lower() for name in names}
        await ensure(provider, nodes, first, second)
        assert [pool(azure, name) for name in NAMES] == before


async def test_a_new_machine_that_a_list_lacks_comes_to_the_load_balancer_of_its_set(
    azure: Emulator,
) -> None:
    nodes = in_sets(azure)
    first, second = (service(n, {NAMED: NAMES[n - 1]}) for n in (1, 2))
    azure.unlisted = {compute("virtualMachines", "node-2").lower()}
    async with started(azure, context(nodes=nodes), **APART) as provider:
        await ensure(provider, nodes, first, second)
    assert [pool(azure, name) for name in NAMES] == [{"node-0", "node-2"}, {"node-1", "node-3"}]


async def test_a_public_ip_that_a_list_lacks_keeps_what_others_have_set(azure: Emulator) -> None:
    nodes = machines(azure)
    async with started(azure) as provider:
        before = await ensure(provider, nodes, service())
        ((name, made),) = addresses(azure).items()
        stored = azure.store.of[network("publicIPAddresses", name).lower()]
        stored["properties"]["dnsSettings"] = {"domainNameLabel": "shop"}
        stored["tags"]["cost-center"] = "7"
        azure.unlisted = {made["id"].lower()}
        assert await ensure(provider, nodes, service()) == before
    left = addresses(azure)[name]
    assert left["properties"]["dnsSettings"]["domainNameLabel"] == "shop"
    assert left["tags"]["cost-center"] == "7"


@pytest.mark.parametrize("annotations", [{}, INTERNAL], ids=["public", "internal"])
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_load_balancer_that_another_region_does_not_know_yet_loses_no_service(
    azure: Emulator, annotations: dict[str, str], *, restarts: bool
) -> None:
    """It is written whole: a new one in its place would have the rules of the pass only."""
    nodes = machines(azure)
    name = "kubernetes-internal" if annotations else "kubernetes"
    gone: dict[str, Any] = {"status": 404, "code": "ResourceNotFound", "name": f"/{name}"}
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(started(azure))
        await ensure(provider, nodes, service(1, annotations))
        before = parts(azure, "loadBalancingRules", name)
        if restarts:
            provider = await stack.enter_async_context(started(azure))
        azure.faults.append(Fault("GET", "loadBalancers", **gone))
        found = await answers(provider, nodes, service(2, annotations))
        assert isinstance(found["web-2"], Pending)
        assert f"the load balancer {name}" in found["web-2"].reason
        await ensure(provider, nodes, service(2, annotations))
    after = parts(azure, "loadBalancingRules", name)
    assert len(after) == 2
    assert after.items() >= before.items()


@pytest.mark.parametrize("kind", ["alone", "uniform", "addresses"])
async def test_a_load_balancer_with_addresses_of_another_group_loses_no_service_after_a_restart(
    azure: Emulator, kind: str
) -> None:
    """Such a group is not read for others, and of pools without interfaces nothing else tells."""
    azure.store.groups.add("apart")
    nodes = set_machines(azure) if kind == "uniform" else machines(azure)
    pools: dict[str, Any] = {}
    if kind == "addresses":
        pools["loadBalancerBackendPoolConfigurationType"] = "nodeIP"
    apart = {"azure-load-balancer-resource-group": "apart"}
    async with started(azure, **pools) as provider:
        shown = (await ensure(provider, nodes, service(1, apart)))["web-1"]
    before = parts(azure, "loadBalancingRules")
    known = context(nodes=nodes, services=Objects([service(1, apart, ingress=shown)]))
    gone: dict[str, Any] = {"status": 404, "code": "ResourceNotFound", "name": "/kubernetes"}
    azure.faults.append(Fault("GET", "loadBalancers", times=2, **gone))
    async with started(azure, known, **pools) as provider:
        found = await answers(provider, nodes, service(2))
        assert isinstance(found["web-2"], Pending)
        assert "the load balancer kubernetes" in found["web-2"].reason
        azure.faults.clear()
        await ensure(provider, nodes, service(2))
    after = parts(azure, "loadBalancingRules")
    assert len(after) == 2
    assert after.items() >= before.items()


async def test_public_addresses_of_others_delay_a_load_balancer_for_one_second_look(
    azure: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another manager's count; a Service's own do not, nor those beside one that is read."""
    monkeypatch.setattr(AzureCloud, "confirm", 0.1)
    nodes, read = machines(azure), public_ip(azure, "kept")
    own = service(1, ingress=["20.9.9.1"])
    beside = service(8, {"azure-additional-public-ips": "20.9.9.8"}, ingress=[read, "20.9.9.8"])
    services = Objects([own, beside])
    async with started(azure, context(nodes=nodes, services=services)) as provider:
        await ensure(provider, nodes, own)
        await delete(provider, own)
        services.by_key = {"shop/web-9": service(9, ingress=["20.9.9.9"])}
        await ensure(provider, nodes, service(2, INTERNAL))
        assert isinstance((await answers(provider, nodes, service(3)))["web-3"], Pending)
        await asyncio.sleep(0.1)
        await ensure(provider, nodes, service(3))
    assert len(parts(azure, "loadBalancingRules")) == 1


async def test_a_load_balancer_that_is_not_shown_right_after_it_was_made_loses_no_service(
    azure: Emulator,
) -> None:
    nodes = machines(azure)
    made: list[str] = []

    def hide(method: str, path: str) -> None:
        if method == "PUT" and path.endswith("/loadBalancers/kubernetes") and not made:
            made.append(path)
            fault = Fault("GET", "loadBalancers", status=404, code="ResourceNotFound", times=2)
            azure.faults.append(fault)

    azure.hooks.append(hide)
    async with started(azure) as provider:
        found = await answers(provider, nodes, service())
        assert isinstance(found["web-1"], Pending)
        found = await answers(provider, nodes, service(2))
        assert isinstance(found["web-2"], Pending)
        await ensure(provider, nodes, service(2))
    assert len(parts(azure, "loadBalancingRules")) == 2


def test_a_load_balancer_that_is_gone_for_a_while_is_made_anew() -> None:
    place = Place(config("https://azure.example"), CLUSTER.name)
    there, gone = State({"kubernetes": {}}), State({"kubernetes": None})
    presence = Presence(10.0)
    presence.check(gone, Scene(place), 100.0)
    presence.check(there, Scene(place), 100.0)
    for now in (200.0, 209.0):
        with pytest.raises(Waiting):
            presence.check(gone, Scene(place), now)
    presence.check(gone, Scene(place), 210.0)
    presence.check(there, Scene(place), 300.0)
    with pytest.raises(Waiting):
        presence.check(gone, Scene(place), 400.0)
    # A look from long ago is none of two.
    for now in (400.0 + LONG + 0.1, 401.0 + LONG):
        with pytest.raises(Waiting):
            presence.check(gone, Scene(place), now)


async def test_a_load_balancer_that_was_not_shown_hours_ago_loses_no_service(
    azure: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Service that was ensured then was deleted before the second look."""
    monkeypatch.setattr(absences, "LONG", 0.1)  # as if so long had passed
    monkeypatch.setattr(AzureCloud, "confirm", 0.1)
    nodes = machines(azure)
    gone: dict[str, Any] = {"status": 404, "code": "ResourceNotFound", "name": "/kubernetes"}
    async with started(azure) as provider:
        await ensure(provider, nodes, service(1))
        before = parts(azure, "loadBalancingRules")
        azure.faults.append(Fault("GET", "loadBalancers", **gone))
        assert isinstance((await answers(provider, nodes, service(2)))["web-2"], Pending)
        await delete(provider, service(2))
        await asyncio.sleep(0.3)
        azure.faults.append(Fault("GET", "loadBalancers", times=2, **gone))
        assert isinstance((await answers(provider, nodes, service(3)))["web-3"], Pending)
    assert parts(azure, "loadBalancingRules") == before
