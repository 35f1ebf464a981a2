"""What the leader does where nodes announce addresses: it assigns them, each once."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from msgspec import structs

from proreus.cloudprovider import (
    CloudError,
    ClusterIdentity,
    Context,
    Done,
    Ensured,
    InvalidRequest,
)
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.load_balancers import LoadBalancer, PartChange
from proreus.kube.objects import (
    Condition,
    KubeObject,
    LoadBalancerIngress,
    Node,
    Service,
    ServicePort,
)
from proreus.providers.local import LocalCloud
from proreus.providers.local.asked import ANNOTATION_ADDRESSES, ANNOTATION_SHARING_KEY
from proreus.providers.local.bgp.config import BGP, Peer
from proreus.providers.local.config import Gateway, LocalConfig, PoolConfig
from proreus.testing import objects

from .local_manager import Nothing
from .local_site import node

CLUSTER = ClusterIdentity("one", "uid-of-one")
CONFIG = LocalConfig(
    pools={"default": PoolConfig(addresses=("192.0.2.1-192.0.2.3", "2001:db8::1"))},
    gateway=Gateway(enabled=False),
    bgp=BGP(as_=64512, peers={"tor": Peer(address="10.9.0.1", as_=64513)}),
)


class Cache(Nothing):
    """What the cluster shows, which may be late."""

    def __init__(self, *objects_: KubeObject) -> None:
        self.objects: Iterable[KubeObject] = objects_

    def all(self) -> Any:
        return self.objects


def service(name: str, *has: str, asks: str = "", key: str = "", **spec: Any) -> Service:
    given = {ANNOTATION_ADDRESSES: asks, ANNOTATION_SHARING_KEY: key}
    return objects.service(
        name,
        annotations={one: value for one, value in given.items() if value},
        ingress=[LoadBalancerIngress(ip=ip, ip_mode="VIP") for ip in has],
        **spec,
    )


def context(shown: Cache, *nodes: Node) -> Context:
    listers: Any = {"services": shown, "nodes": Cache(*(nodes or (node("one", "192.0.2.1"),)))}
    return Context(CLUSTER, now=lambda: datetime.now(UTC), events=Nothing(), listers=listers)


@asynccontextmanager
async def leader(
    shown: Cache, given: Context | None = None, *, settings: LocalConfig = CONFIG
) -> AsyncIterator[Any]:
    provider = LocalCloud(settings)
    await provider.start(given or context(shown))
    try:
        yield provider.load_balancers
    finally:
        await provider.close()


def wanted(balancers: Any, one: Service) -> LoadBalancer:
    return desired_load_balancer(one, [], balancers.host_policy(one), CLUSTER)


async def ensure(balancers: Any, *several: Service) -> list[Any]:
    """The addresses of each, or the error."""
    answers = await balancers.ensure([wanted(balancers, one) for one in several])
    found: list[Any] = []
    for one in several:
        answer = answers[one.metadata.uid]
        assert isinstance(answer, Ensured | CloudError)
        if isinstance(answer, Ensured):
            assert {point.ip_mode for point in answer.ingress} == {"VIP"}
            found.append([point.ip for point in answer.ingress])
        else:
            found.append(answer)
    return found


async def test_each_address_is_given_once_however_late_the_cache_is() -> None:
    shown = Cache()
    async with leader(shown) as balancers:
        assert await ensure(balancers, service("a")) == [["192.0.2.2"]]  # .1 is a node's
        assert await ensure(balancers, service("b")) == [["192.0.2.3"]]
        (refused,) = await ensure(balancers, service("c"))
        assert isinstance(refused, CloudError)
        assert not isinstance(refused, InvalidRequest)  # so it is tried again
        shown.objects = [service("a", "192.0.2.2"), service("b", "192.0.2.3")]
        assert await ensure(balancers, service("a", "192.0.2.2")) == [["192.0.2.2"]]
        shown.objects = [service("b", "192.0.2.3")]
        gone = wanted(balancers, service("a", "192.0.2.2")).ref
        assert await balancers.delete([gone]) == {"uid-a": Done()}
        assert await ensure(balancers, service("c")) == [["192.0.2.2"]]


async def test_an_address_is_given_once_also_when_the_cloud_config_changes() -> None:
    """The next provider begins before the last one ends, and both before the cache shows it."""
    shown = Cache(service("a"), service("b"), service("c"))
    given = context(shown)
    async with leader(shown, given) as last:
        assert await ensure(last, service("c")) == [["192.0.2.2"]]
        async with leader(shown, given) as balancers:
            assert await ensure(last, service("a")) == [["192.0.2.3"]]
            (refused,) = await ensure(balancers, service("b"))
            assert isinstance(refused, CloudError)
            assert await ensure(balancers, service("a")) == [["192.0.2.3"]]
    shown.objects = [service("b")]
    async with leader(shown, given) as balancers:
        assert await ensure(balancers, service("b")) == [["192.0.2.2"]]


async def test_what_was_assigned_is_forgotten_while_another_kind_of_load_balancer_is_in_use() -> (
    None
):
    """What Services show by then was given by others: nobody gets it, and who has it keeps it."""
    shown = Cache()
    given = context(shown, node("one", "192.0.2.9"))
    async with leader(shown, given) as balancers:
        assert await ensure(balancers, service("moved")) == [["192.0.2.1"]]
    without = LocalCloud(structs.replace(CONFIG, bgp=BGP()))
    await without.start(given)
    await without.close()
    both = service("moved", "192.0.2.2"), service("theirs", "192.0.2.1")
    shown.objects = both
    async with leader(shown, given) as balancers:
        assert await ensure(balancers, service("new")) == [["192.0.2.3"]]
        assert await ensure(balancers, *both) == [["192.0.2.2"], ["192.0.2.1"]]


async def test_a_new_leader_goes_on_with_what_services_have() -> None:
    async with leader(Cache(service("a", "192.0.2.3"))) as balancers:
        assert await ensure(balancers, service("b")) == [["192.0.2.2"]]
        assert await ensure(balancers, service("a", "192.0.2.3")) == [["192.0.2.3"]]


async def test_of_two_services_with_one_address_one_keeps_it() -> None:
    """As after a backup of the cluster was restored."""
    both = [service("a", "192.0.2.3"), service("b", "192.0.2.3")]
    async with leader(Cache(*both)) as balancers:
        assert await ensure(balancers, *both) == [["192.0.2.2"], ["192.0.2.3"]]


@pytest.mark.parametrize("is_together", [False, True])
async def test_a_service_that_asks_for_another_address_frees_the_one_it_had_once_that_is_told(
    *, is_together: bool
) -> None:
    """Whoever gets it before shares it with one whose status, by which nodes go, still shows it."""
    had, moved = "192.0.2.2", service("a", "192.0.2.2", asks="192.0.2.3")
    shown, new = Cache(moved), service("b", asks=had, namespace="bank")
    async with leader(shown) as balancers:
        if is_together:
            given, refused = await ensure(balancers, moved, new)
        else:
            (given,), (refused,) = await ensure(balancers, moved), await ensure(balancers, new)
        assert given == ["192.0.2.3"]
        assert "belongs to the Service default/a: ask for another one" in str(refused)
        shown.objects = [service("a", "192.0.2.3", asks="192.0.2.3")]
        assert await ensure(balancers, new) == [[had]]


async def test_services_with_a_key_share_an_address_on_different_ports() -> None:
    async with leader(Cache()) as balancers:
        first, second, third = (
            service(name, key="k", ports=(ServicePort(port),))
            for name, port in (("a", 80), ("b", 81), ("c", 80))
        )
        assert await ensure(balancers, first, second, third) == [
            ["192.0.2.2"],
            ["192.0.2.2"],
            ["192.0.2.3"],
        ]


async def test_both_families_get_addresses() -> None:
    dual = service("a", ip_families=("IPv6", "IPv4"), ip_family_policy="PreferDualStack")
    async with leader(Cache()) as balancers:
        assert await ensure(balancers, dual) == [["2001:db8::1", "192.0.2.2"]]


async def test_a_preview_says_what_would_be_assigned_and_assigns_nothing() -> None:
    async with leader(Cache()) as balancers:
        moved = service("a", "192.0.2.9")
        for _ in range(2):
            found = await balancers.preview(
                [wanted(balancers, moved), wanted(balancers, service("b", asks="198.51.100.1"))]
            )
            assert found["uid-a"] == (
                PartChange("create", "address 192.0.2.2"),
                PartChange("delete", "address 192.0.2.9"),
            )
            assert isinstance(found["uid-b"], InvalidRequest)


async def test_all_services_are_read_as_often_for_many_as_for_one() -> None:
    class Counting(Cache):
        looks = 0

        def all(self) -> Any:
            self.looks += 1
            return super().all()

    shown = Counting()
    async with leader(shown) as balancers:
        several = [service(name) for name in "ab"]
        for call in (balancers.ensure, balancers.preview):
            looks = []
            for batch in (several[:1], several):
                shown.looks = 0
                await call([wanted(balancers, one) for one in batch])
                looks.append(shown.looks)
            assert looks[0] == looks[1]


async def test_the_address_of_a_node_that_another_balancer_left_in_the_status_is_not_kept() -> None:
    left = service("a", "192.0.2.1")
    async with leader(Cache(left)) as balancers:
        assert await ensure(balancers, left) == [["192.0.2.2"]]
    status = structs.replace(left.status, conditions=(Condition("LoadBalancerReady", "True"),))
    ours = structs.replace(left, status=status)
    async with leader(Cache(ours)) as balancers:
        assert await ensure(balancers, ours) == [["192.0.2.1"]], "any kubelet can claim it"


async def test_addresses_of_several_nodes_are_not_kept_where_another_balancer_came_back() -> None:
    """The condition is of a time before, or of now: it goes on while that balancer writes."""
    left = service("a", "192.0.2.1", "192.0.2.2")
    status = structs.replace(left.status, conditions=(Condition("LoadBalancerReady", "True"),))
    shown = structs.replace(left, status=status)
    nodes = node("one", "192.0.2.1"), node("two", "192.0.2.2")
    async with leader(Cache(), context(Cache(shown), *nodes)) as balancers:
        assert await ensure(balancers, shown) == [["192.0.2.3"]]


async def test_a_service_keeps_a_shared_address_whatever_others_ask_for() -> None:
    """Who asks for an address by name goes on showing it when a port or a key is refused."""
    has = "192.0.2.3"
    web, tls = ServicePort(80, "web", "TCP"), ServicePort(443, "tls", "TCP")
    first = told(service("a", has, key="k", ports=(tls,), namespace="one"), "True", "Ensured")
    asks = {"asks": has, "namespace": "two"}
    for greedy in (
        service("b", has, key="k", ports=(web, tls), **asks),
        service("b", has, key="other", ports=(web,), **asks),
    ):
        both = [first, told(greedy, "False", "CloudError")]
        for order in (both, both[::-1]):
            async with leader(Cache(*both)) as balancers:
                await ensure(balancers, *order)
                kept, refused = await ensure(balancers, *both)
                assert kept == [has]
                assert isinstance(refused, CloudError)


async def test_a_service_that_is_refused_keeps_the_ports_that_it_had_from_others() -> None:
    """What it asks for may be wrong in another way, such as a pool that there is not."""
    has = "192.0.2.3"
    web, tls = ServicePort(80, "web", "TCP"), ServicePort(443, "tls", "TCP")
    first = service("a", has, asks="198.51.100.1", key="k", ports=(tls,), namespace="one")
    second = told(service("b", has, key="k", ports=(web,), namespace="two"), "True", "Ensured")
    greedy = structs.replace(second, spec=structs.replace(second.spec, ports=(web, tls)))
    first = told(first, "False", "InvalidRequest")
    shown = Cache(first, second)
    async with leader(shown) as balancers:
        assert await ensure(balancers, second) == [[has]]
        await ensure(balancers, service("c", ip_families=("IPv6",)))  # the cache shows the last one
        shown.objects = [first, greedy]
        assert await ensure(balancers, greedy) == [["192.0.2.2"]]


def told(one: Service, status: str, reason: str) -> Service:
    ready = (Condition("LoadBalancerReady", status, reason=reason),)
    return structs.replace(one, status=structs.replace(one.status, conditions=ready))


async def test_a_service_without_hosts_keeps_an_address_that_a_kubelet_claims() -> None:
    shown = told(service("a", "192.0.2.1"), "False", "NoHosts")
    async with leader(Cache(shown)) as balancers:
        assert await ensure(balancers, shown) == [["192.0.2.1"]]
    refused = told(service("a", "192.0.2.1"), "False", "CloudError")
    async with leader(Cache(refused)) as balancers:
        assert await ensure(balancers, refused) == [["192.0.2.2"]], "another balancer left it"


async def test_a_service_that_was_refused_keeps_what_this_leader_gave_it_from_kubelets() -> None:
    """A gateway's kernel tells what was given; here the condition, which is False meanwhile."""
    has, shown, nodes = "192.0.2.1", Cache(), Cache()
    listers: Any = {"services": shown, "nodes": nodes}
    given = Context(CLUSTER, now=lambda: datetime.now(UTC), events=Nothing(), listers=listers)
    async with leader(shown, given) as balancers:
        assert await ensure(balancers, service("a")) == [[has]]
        good = told(service("a", has), "True", "Ensured")
        shown.objects = [good]
        assert await ensure(balancers, good) == [[has]]
        nodes.objects = [node("liar", has), node("two", "192.0.2.3")]
        wrong = told(service("a", has, asks="198.51.100.1"), "True", "Ensured")
        shown.objects = [wrong]
        (refused,) = await ensure(balancers, wrong)
        assert isinstance(refused, InvalidRequest)
    async with leader(shown, given) as balancers:  # the cloud-config has changed
        corrected = told(service("a", has), "False", "InvalidRequest")
        shown.objects = [corrected]
        assert await ensure(balancers, corrected) == [[has]]
        left = told(service("a", "192.0.2.3"), "False", "InvalidRequest")
        shown.objects = [left]
        assert await ensure(balancers, left) == [[has]], "another balancer wrote that"


@pytest.mark.parametrize("year", [2024, 2026])
async def test_only_who_asks_for_a_port_of_another_one_is_to_show_their_address_no_more(
    year: int,
) -> None:
    """The first one may be refused meanwhile, for another reason, and be the younger one."""
    has, shown = "192.0.2.2", Cache()
    web, dns = (ServicePort(80, node_port=30080),), (ServicePort(53, node_port=30053),)
    a = partial(service, "a", key="k", creation_timestamp=datetime(2025, 1, 1, tzinfo=UTC))
    b = partial(service, "b", key="k", creation_timestamp=datetime(year, 1, 1, tzinfo=UTC))
    async with leader(shown) as balancers:
        assert await ensure(balancers, a(ports=web)) == [[has]]
        assert await ensure(balancers, b(ports=dns)) == [[has]]
        wrong = told(a(has, asks="198.51.100.1", ports=web), "False", "x")
        thief = told(b(has, asks=has, ports=web), "True", "Ensured")
        shown.objects = [wrong, thief]
        refused = await ensure(balancers, wrong, thief)
        assert [one.disowns for one in refused] == [False, True]


@pytest.mark.parametrize("is_first", [False, True])
async def test_a_new_leader_moves_no_service_for_the_port_that_a_younger_one_asks_for(
    *, is_first: bool
) -> None:
    """The younger one shared the address, and has changed its port while nobody led."""
    has, web = "192.0.2.2", (ServicePort(80, node_port=30080),)
    first, thief = (
        told(
            service(
                name,
                has,
                asks=asks,
                key="k",
                ports=web,
                creation_timestamp=datetime(year, 1, 1, tzinfo=UTC),
            ),
            "True",
            "Ensured",
        )
        for name, asks, year in (("a", "", 2025), ("b", has, 2026))
    )
    async with leader(Cache(first, thief)) as balancers:
        both = (first, thief) if is_first else (thief, first)
        names = (one.metadata.name for one in both)
        found = dict(zip(names, await ensure(balancers, *both), strict=True))
    assert found["a"] == [has]
    assert isinstance(found["b"], CloudError)
    assert found["b"].disowns


SHARED = structs.replace(
    CONFIG,
    pools={"default": structs.replace(CONFIG.pools["default"], share_across_namespaces=True)},
)


@pytest.mark.parametrize("policies", ["Cluster Local", "Local Cluster", "Local Local"])
async def test_no_tenant_comes_to_decide_which_nodes_announce_what_another_one_has(
    policies: str,
) -> None:
    has, (mine, other) = "192.0.2.3", policies.split()
    first = told(
        service("a", has, key="k", namespace="shop", external_traffic_policy=mine),
        "True",
        "Ensured",
    )
    spec: Any = {"key": "k", "ports": (ServicePort(443),), "external_traffic_policy": other}
    async with leader(Cache(first), settings=SHARED) as balancers:
        asks, takes, neighbour = await ensure(
            balancers,
            service("b", asks=has, namespace="bank", **spec),
            service("c", namespace="bank", **spec),
            service("d", asks=has, namespace="shop", **spec),
        )
        assert "Service shop/a of another namespace, and one of both has externalTraffic" in str(
            asks
        )
        assert takes == ["192.0.2.2"]
        assert neighbour == [has]


@pytest.mark.parametrize("asks", ["192.0.2.3", ""])
async def test_a_tenant_who_shares_an_address_chooses_no_nodes_for_it(asks: str) -> None:
    has = "192.0.2.3"
    first = told(service("a", has, key="k", namespace="shop"), "True", "Ensured")
    second = service("b", has, asks=asks, key="k", namespace="bank", ports=(ServicePort(443),))
    second = told(second, "True", "Ensured")
    shown = Cache(first, second)
    seen = context(shown)
    async with leader(shown, seen, settings=SHARED) as balancers:
        assert await ensure(balancers, first, second) == [[has], [has]]
        narrow = objects.changed(second, external_traffic_policy="Local")
        shown.objects = [first, narrow]
        kept, moved = await ensure(balancers, first, narrow)
        assert kept == [has]
        assert isinstance(moved, CloudError) if asks else moved == ["192.0.2.2"]
    refused = told(narrow, "False", "CloudError")
    for first_ in (first, told(first, "False", "CloudError")):
        shown = Cache(first_, refused)
        async with leader(shown, settings=SHARED) as balancers:  # another one
            kept, moved = await ensure(balancers, first_, refused)
            assert kept == [has]
            assert isinstance(moved, CloudError) if asks else moved == ["192.0.2.2"]


async def test_two_tenants_who_shared_an_address_by_nodes_before_keep_it() -> None:
    has, spec = "192.0.2.3", {"key": "k", "external_traffic_policy": "Local"}
    first = told(service("a", has, namespace="shop", **spec), "True", "Ensured")
    second = service("b", has, namespace="bank", ports=(ServicePort(443),), **spec)
    second = told(second, "True", "Ensured")
    async with leader(Cache(first, second), settings=SHARED) as balancers:
        assert await ensure(balancers, second, first) == [[has], [has]]
