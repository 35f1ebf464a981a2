"""Several standard load balancers: which one Services and nodes come to, and that they stay."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec
import pytest

from proreus.cloudprovider import CloudError, Context, Ensured, InvalidRequest, Previews
from proreus.cloudprovider.load_balancers import EndpointTarget, LoadBalancer
from proreus.kube.objects import Namespace, Node, ObjectMeta, Service
from proreus.providers.azure import AzureCloud

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path
from .balancing import (
    addresses,
    answers,
    balancer,
    delete,
    desired,
    ensure,
    everything,
    machines,
    name_of,
    parts,
    public_ip,
    rules,
    service,
    set_machines,
    targets,
)
from .emulator import seed
from .emulator.server import Emulator
from .emulator.store import compute
from .site import context, started

NAMES = ("kubernetes", "second")
NAMED = "azure-load-balancer-configurations"
INTERNAL = {"azure-load-balancer-internal": "true"}
LB = "Microsoft.Network/loadBalancers"


def several(**second: Any) -> dict[str, Any]:
    """Two load balancers; of the second one this, too."""
    return {
        "loadBalancerBackendPoolConfigurationType": "nodeIP",
        "multipleStandardLoadBalancerConfigurations": [
            {"name": "kubernetes", "primaryVMSet": "first-pool"},
            {"name": "second", "primaryVMSet": "second-pool", **second},
        ],
    }


def labelled(one: Service, **labels: str) -> Service:
    meta = msgspec.structs.replace(one.metadata, labels=labels)
    return msgspec.structs.replace(one, metadata=meta)


def owners(azure: Emulator, end: str = "") -> dict[str, set[str]]:
    """By load balancer the Services that have rules on it, by their numbers' UIDs."""
    return {
        name: {rule.partition("-")[0] for rule in parts(azure, "loadBalancingRules", name + end)}
        for name in NAMES
    }


def pool(azure: Emulator, name: str, of: str = "kubernetes") -> set[str]:
    """The nodes in a pool."""
    found = parts(azure, "backendAddressPools", name).get(of, {})
    return {one["name"] for one in found.get("loadBalancerBackendAddresses", ())}


def base(number: int) -> str:
    return name_of(service(number).metadata.uid)


async def test_services_come_to_the_load_balancer_with_the_fewest_rules_and_stay(
    azure: Emulator,
) -> None:
    nodes = machines(azure, 4)
    many = [service(number) for number in range(1, 5)]
    async with started(azure, **several()) as provider:
        first = await ensure(provider, nodes, *many)
        made = azure.counted()
        before = everything(azure)
        assert {name: len(found) for name, found in owners(azure).items()} == dict.fromkeys(
            NAMES, 2
        )
        assert await ensure(provider, nodes, *reversed(many)) == first
        assert everything(azure) == before
    assert made["PUT", LB] == 2
    assert len({ip for ips in first.values() for ip in ips}) == 4
    shared = [pool(azure, name) for name in NAMES]
    assert [len(one) for one in shared] == [2, 2]
    assert not shared[0] & shared[1]


async def test_a_service_comes_to_the_load_balancer_that_it_names_and_moves_to_another(
    azure: Emulator,
) -> None:
    nodes = machines(azure)
    async with started(azure, **several()) as provider:
        first = await ensure(provider, nodes, service(1), service(2, {NAMED: "Second"}))
        assert owners(azure) == {"kubernetes": {base(1)}, "second": {base(2)}}
        azure.counted()
        moved = await ensure(provider, nodes, service(2, {NAMED: "kubernetes"}))
        assert moved["web-2"] == first["web-2"]
        assert owners(azure) == {"kubernetes": {base(1), base(2)}, "second": set()}
        assert balancer(azure, "second") is None
        assert pool(azure, "kubernetes") == {"node-0", "node-1"}
        (rule,) = rules(azure).values()
        assert targets(rule) == {*first["web-1"], *first["web-2"]}
        swapped = (service(1, {NAMED: "second"}), service(2, {NAMED: "kubernetes"}))
        assert await ensure(provider, nodes, *swapped) == first
        assert owners(azure) == {"kubernetes": {base(2)}, "second": {base(1)}}
        await delete(provider, *swapped)
    assert not addresses(azure)
    assert not any(owners(azure).values())


async def test_two_services_change_places_at_once(azure: Emulator) -> None:
    nodes = machines(azure)
    async with started(azure, **several()) as provider:
        there = [service(1, {NAMED: "kubernetes"}), service(2, {NAMED: "second"})]
        first = await ensure(provider, nodes, *there)
        back = [service(1, {NAMED: "second"}), service(2, {NAMED: "kubernetes"})]
        assert await ensure(provider, nodes, *back) == first
    assert owners(azure) == {"kubernetes": {base(2)}, "second": {base(1)}}


async def test_an_internal_service_stays_with_the_load_balancer_of_its_name(
    azure: Emulator,
) -> None:
    nodes = machines(azure)
    async with started(azure, **several()) as provider:
        await ensure(provider, nodes, service(1), service(2))
        assert owners(azure)["second"] == {base(2)}
        await ensure(provider, nodes, service(2, INTERNAL))
        assert owners(azure, "-internal")["second"] == {base(2)}
        assert balancer(azure, "second") is None
        assert pool(azure, "second-internal") == {"node-1"}
        assert pool(azure, "kubernetes") == {"node-0"}


@pytest.mark.parametrize(
    ("second", "labels", "space", "expected"),
    [
        ({"serviceLabelSelector": {"matchLabels": {"tier": "web"}}}, {"tier": "web"}, "a", "second"),
        ({"serviceLabelSelector": {"matchLabels": {"tier": "web"}}}, {"tier": "db"}, "a", "kubernetes"),
        (
            {"serviceLabelSelector": {"matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["web", "api"]},
                {"key": "old", "operator": "DoesNotExist"}]}},
            {"tier": "api"}, "a", "second",
        ),
        (
            {"serviceNamespaceSelector": {"matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["b"]}]}},
            {}, "a", "second",
        ),
        (
            {"serviceNamespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "b"}}},
            {}, "a", "kubernetes",
        ),
        ({"allowServicePlacement": False}, {}, "a", "kubernetes"),
    ],
)  # fmt: skip
async def test_selectors_choose_the_load_balancer(
    azure: Emulator, second: dict[str, Any], labels: dict[str, str], space: str, expected: str
) -> None:
    nodes = machines(azure)
    one = labelled(service(1, namespace=space), **labels)
    async with started(azure, **several(**second)) as provider:
        await ensure(provider, nodes, one, service(2, {NAMED: "kubernetes"}))
    assert base(1) in owners(azure)[expected]


TEAMS = {"serviceNamespaceSelector": {"matchLabels": {"team": "a"}}}


def of_teams(**teams: str) -> Context:
    """A context with namespaces of these teams, and the nodes' own."""
    spaces = [
        Namespace(ObjectMeta(name=name, labels={"team": team})) for name, team in teams.items()
    ]
    found = context()
    found.listers = {**found.listers, "namespaces": Objects(spaces)}
    return found


@pytest.mark.parametrize(
    ("second", "space", "expected"),
    [
        (TEAMS, "one", "second"),
        (TEAMS, "two", "kubernetes"),
        (
            {"serviceNamespaceSelector": {"matchExpressions": [
                {"key": "team", "operator": "NotIn", "values": ["a"]}]}},
            "two", "second",
        ),
        (
            {"serviceNamespaceSelector": {"matchLabels": {
                "team": "a", "kubernetes.io/metadata.name": "two"}}},
            "one", "kubernetes",
        ),
        (
            # Officially both must select it.
            {**TEAMS, "serviceLabelSelector": {"matchLabels": {"tier": "web"}}},
            "one", "kubernetes",
        ),
    ],
)  # fmt: skip
async def test_labels_of_namespaces_choose_the_load_balancer(
    azure: Emulator, second: dict[str, Any], space: str, expected: str
) -> None:
    nodes = machines(azure)
    one = service(1, namespace=space)
    async with started(azure, of_teams(one="a", two="b"), **several(**second)) as provider:
        await ensure(provider, nodes, one, service(2, {NAMED: "kubernetes"}, namespace="two"))
    assert base(1) in owners(azure)[expected]


async def test_a_service_moves_when_it_is_looked_at_and_its_namespace_is_selected_no_more(
    azure: Emulator,
) -> None:
    nodes = machines(azure)
    one = service(1, namespace="one")
    async with started(azure, of_teams(one="a"), **several(**TEAMS)) as provider:
        first = await ensure(provider, nodes, one)
        assert owners(azure)["second"] == {base(1)}
    async with started(azure, of_teams(one="b"), **several(**TEAMS)) as provider:
        assert await ensure(provider, nodes, one) == first
        assert owners(azure) == {"kubernetes": {base(1)}, "second": set()}


async def test_a_service_whose_namespace_is_not_known_stays_and_the_others_go_on(
    azure: Emulator,
) -> None:
    nodes = machines(azure)
    lost, other = service(1, namespace="lost"), service(2, namespace="two")
    async with started(azure, of_teams(lost="a"), **several(**TEAMS)) as provider:
        await ensure(provider, nodes, lost)
    before = parts(azure, "loadBalancingRules", "second")
    async with started(azure, of_teams(two="b"), **several(**TEAMS)) as provider:
        assert provider.load_balancers is not None
        found = await answers(provider, nodes, lost, other)
        assert "labels of the namespace lost are not known" in str(found["web-1"])
        assert not isinstance(found["web-1"], InvalidRequest)  # it is tried again
        assert isinstance(found["web-2"], Ensured)
        assert owners(azure) == {"kubernetes": {base(2)}, "second": {base(1)}}
        assert parts(azure, "loadBalancingRules", "second") == before
        foreseen = await cast("Previews", provider.load_balancers).preview(
            [desired(provider, lost, nodes)]
        )
        assert isinstance(foreseen[lost.metadata.uid], CloudError)
        await delete(provider, lost)
        assert owners(azure) == {"kubernetes": {base(2)}, "second": set()}


async def test_a_load_balancer_that_takes_no_services_keeps_those_that_it_has(
    azure: Emulator,
) -> None:
    nodes = machines(azure)
    async with started(azure, **several()) as provider:
        await ensure(provider, nodes, service(1, {NAMED: "second"}))
    async with started(azure, **several(allowServicePlacement=False)) as provider:
        await ensure(provider, nodes, service(1), service(2))
        assert owners(azure) == {"kubernetes": {base(2)}, "second": {base(1)}}
        found = await answers(provider, nodes, service(3, {NAMED: "second"}))
    assert isinstance(found["web-3"], InvalidRequest)
    assert "allowServicePlacement" in str(found["web-3"])


async def test_one_that_can_be_on_none_says_so_and_the_others_are_made(azure: Emulator) -> None:
    nodes = machines(azure)
    async with started(azure, **several()) as provider:
        found = await answers(provider, nodes, service(1, {NAMED: "third"}), service(2))
    assert isinstance(found["web-1"], InvalidRequest)
    assert "kubernetes, second" in str(found["web-1"])
    assert isinstance(found["web-2"], Ensured)


async def test_a_service_comes_to_the_load_balancer_where_its_address_is(azure: Emulator) -> None:
    nodes = machines(azure)
    public_ip(azure, "kept")
    named = {"azure-pip-name": "kept"}
    second = service(2, named, ports=service(2).spec.ports[:1])
    second = msgspec.structs.replace(
        second,
        spec=msgspec.structs.replace(
            second.spec,
            ports=tuple(msgspec.structs.replace(p, port=443) for p in second.spec.ports),
        ),
    )
    async with started(azure, **several()) as provider:
        first = await ensure(provider, nodes, service(1, {**named, NAMED: "second"}))
        assert await ensure(provider, nodes, second) == {"web-2": first["web-1"]}
        assert owners(azure)["second"] == {base(1), base(2)}
        stuck = await answers(provider, nodes, service(1, {NAMED: "kubernetes"}))
        assert "uses its address, too" in str(stuck["web-1"])
        wrong = labelled(service(2, {**named, NAMED: "kubernetes"}))
        assert "on the load balancer second" in str(
            (await answers(provider, nodes, wrong))["web-2"]
        )


async def test_nodes_are_behind_the_load_balancer_of_their_set_or_their_labels(
    azure: Emulator,
) -> None:
    for name in ("first-pool", "second-pool"):
        seed.scale_set(azure.store, name)
    nodes = set_machines(azure, 2, "first-pool")
    nodes += set_machines(azure, 1, "second-pool")
    alone = machines(azure, 2)
    id_ = str(azure.store.of[compute("virtualMachines", "node-1").lower()]["id"])
    azure.store.of[id_.lower()]["properties"]["virtualMachineScaleSet"] = {
        "id": compute("virtualMachineScaleSets", "second-pool")
    }
    labels = {"side": "left"}
    left = msgspec.structs.replace(
        alone[0], metadata=msgspec.structs.replace(alone[0].metadata, labels=labels)
    )
    nodes += [left, alone[1]]
    chosen = several(nodeSelector={"matchLabels": labels})
    with_nodes = context(nodes=nodes)
    async with started(azure, with_nodes, **chosen) as provider:
        await ensure(provider, nodes, service(1, {NAMED: "kubernetes"}))
        assert len(pool(azure, "kubernetes")) == 5
        await ensure(provider, nodes, *(service(n, {NAMED: NAMES[n - 1]}) for n in (1, 2)))
    first, second = pool(azure, "kubernetes"), pool(azure, "second")
    assert first == {one.metadata.name for one in nodes[:2]}
    assert second == {nodes[2].metadata.name, "node-0", "node-1"}


def with_pods(provider: AzureCloud, one: Service, nodes: list[Node], *names: str) -> LoadBalancer:
    found = desired(provider, one, nodes)
    targets_ = tuple(EndpointTarget("10.244.0.9", name, "IPv4") for name in names)
    return msgspec.structs.replace(found, endpoints=targets_)


async def test_a_service_of_local_traffic_has_a_pool_of_the_nodes_with_its_pods(
    azure: Emulator,
) -> None:
    nodes = machines(azure, 3)
    local = service(
        1, {NAMED: "second"}, external_traffic_policy="Local", health_check_node_port=32000
    )
    async with started(azure, **several()) as provider:
        assert provider.load_balancers is not None
        await ensure(provider, nodes, service(2, {NAMED: "kubernetes"}))
        for names in (("node-0", "node-2"), ("node-1",)):
            found = await provider.load_balancers.ensure(
                [with_pods(provider, local, nodes, *names)]
            )
            assert isinstance(found[local.metadata.uid], Ensured)
            assert pool(azure, "second", "shop-web-1") == set(names)
        rule = parts(azure, "loadBalancingRules", "second")[f"{base(1)}-TCP-80"]
        assert rule["backendAddressPool"]["id"].endswith("/backendAddressPools/shop-web-1")
        await ensure(provider, nodes, service(1, {NAMED: "second"}))
        assert set(parts(azure, "backendAddressPools", "second")) == {"kubernetes"}


async def test_no_service_gets_the_pool_of_another_by_its_name(azure: Emulator) -> None:
    nodes = machines(azure)
    spec: Mapping[str, Any] = {"external_traffic_policy": "Local", "health_check_node_port": 32000}

    def called(number: int, namespace: str, name: str) -> Service:
        one = service(number, {NAMED: "second"}, namespace=namespace, **spec)
        return msgspec.structs.replace(
            one, metadata=msgspec.structs.replace(one.metadata, name=name)
        )

    both = [called(1, "a-b", "c"), called(2, "a", "b-c"), called(3, "kube", "rnetes")]
    async with started(azure, **several()) as provider:
        assert provider.load_balancers is not None
        lbs = [with_pods(provider, one, nodes, f"node-{n % 2}") for n, one in enumerate(both)]
        for _ in range(2):
            await provider.load_balancers.ensure(lbs)
            assert pool(azure, "second", "a-b-c") == {"node-0"}
            assert pool(azure, "second", base(2)) == {"node-1"}
            await provider.load_balancers.ensure(list(reversed(lbs)))
            assert pool(azure, "second", "a-b-c") == {"node-0"}
        await delete(provider, both[1])
        assert pool(azure, "second", "a-b-c") == {"node-0"}
        assert base(2) not in parts(azure, "backendAddressPools", "second")


@pytest.mark.parametrize("claims_first", [True, False])
@pytest.mark.parametrize("reverse", [True, False])
async def test_no_node_takes_another_one_out_of_its_pool_by_claiming_its_address(
    azure: Emulator, *, claims_first: bool, reverse: bool
) -> None:
    nodes, many = machines(azure, 4), [service(1), service(2)]
    async with started(azure, **several()) as provider:
        await ensure(provider, nodes, *many)
        before = [pool(azure, name) for name in NAMES]
        assert [len(one) for one in before] == [2, 2]
        (liar, *_), (honest, *_) = (sorted(one, reverse=reverse) for one in before)
        of = {one.metadata.name: one for one in nodes}
        own, theirs = (of[one].status.addresses for one in (liar, honest))
        claimed = (*theirs, *own) if claims_first else (*own, *theirs)
        status = msgspec.structs.replace(of[liar].status, addresses=claimed)
        of[liar] = msgspec.structs.replace(of[liar], status=status)
        for _ in range(2):
            await ensure(provider, list(of.values()), *many)
            others = [one - {liar} for one in before]
            assert [pool(azure, name) - {liar} for name in NAMES] == others
