"""Routes of the provider `local`, in the kernel of a network namespace."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from pyroute2 import IPRoute

from proreus.cloudprovider import (
    CloudError,
    ClusterIdentity,
    Done,
    InvalidRequest,
    Route,
    Routes,
)
from proreus.providers.local.config import RoutesConfig
from proreus.providers.local.netlink import KernelRoute
from proreus.providers.local.routes import LocalRoutes, metric_of, seen, ways

from .local_namespace import IPV4, IPV6, own_namespace
from .local_site import CLUSTER, context, node

BY_KERNEL = 2
"""RTPROT_KERNEL."""
OTHER = ClusterIdentity("one", "uid-of-the-other")
SETTINGS = RoutesConfig()


NODES = (node("a", "10.9.0.11", "fd00:9::11"), node("b", "10.9.0.12"))
TO_A = Route("a-4", "10.200.1.0/24", "local://a")
TO_A6 = Route("a-6", "fd00:200:1::/64", "local://a")
GATEWAY = "10.9.0.1"
EARLY, LATE = datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 1, 2, tzinfo=UTC)
TO_B = Route("b-4", "10.200.2.0/24", "local://b")


@pytest.fixture(scope="module")
def namespace() -> Iterator[None]:
    with own_namespace():
        yield


def routes(settings: RoutesConfig = SETTINGS) -> LocalRoutes:
    return LocalRoutes(context(), settings)


@pytest.fixture
async def kernel(namespace: None) -> AsyncIterator[Routes]:
    yield routes()
    await asyncio.to_thread(flush)


def flush() -> None:
    with IPRoute() as netlink:
        for family in (socket.AF_INET, socket.AF_INET6):
            netlink.flush_routes(family=family, proto=SETTINGS.protocol)


def where(found: Any) -> set[tuple[str, str | None]]:
    return {(route.destination, route.target) for route in found}


async def test_routes_of_both_families_lead_to_their_nodes_until_they_are_deleted(
    kernel: Routes,
) -> None:
    every = [TO_A, TO_A6, TO_B]
    for _ in range(2):
        assert await kernel.apply(CLUSTER, NODES, every, ()) == dict.fromkeys(every, Done())
    assert where(await kernel.list(CLUSTER, NODES)) == where(every)
    assert await asyncio.to_thread(next_hop, "10.200.1.7") == "10.9.0.11"
    assert await asyncio.to_thread(next_hop, "fd00:200:1::7") == "fd00:9::11"
    for _ in range(2):
        assert await kernel.apply(CLUSTER, NODES, (), [TO_A, TO_A6]) == {
            TO_A: Done(),
            TO_A6: Done(),
        }
    assert where(await kernel.list(CLUSTER, NODES)) == where([TO_B])


@pytest.mark.parametrize("destination", ["10.200.1.0/24", "fd00:200:1::/64"])
async def test_a_route_that_leads_elsewhere_is_replaced(kernel: Routes, destination: str) -> None:
    nodes = (NODES[0], node("c", "10.9.0.13", "fd00:9::13"))
    old, new = Route("", destination, "local://a"), Route("", destination, "local://c")
    await kernel.apply(CLUSTER, nodes, [old], ())
    assert await kernel.apply(CLUSTER, nodes, [new], [old]) == {old: Done(), new: Done()}
    assert where(await kernel.list(CLUSTER, nodes)) == {(destination, "local://c")}


async def test_routes_of_others_are_neither_listed_nor_deleted(kernel: Routes) -> None:
    await asyncio.to_thread(make_foreign)
    await kernel.apply(OTHER, NODES, [TO_A, TO_B], ())
    await routes(RoutesConfig(table=1000)).apply(CLUSTER, NODES, [TO_B], ())
    before = await asyncio.to_thread(dump)
    assert where(await kernel.list(CLUSTER, NODES)) == set()
    gone = [TO_A, TO_B, Route("", "10.200.7.0/24", "10.9.0.20")]
    assert await kernel.apply(CLUSTER, NODES, (), gone) == dict.fromkeys(gone, Done())
    assert await asyncio.to_thread(dump) == before
    assert where(await kernel.list(OTHER, NODES)) == where([TO_A, TO_B])
    await kernel.apply(CLUSTER, NODES, [TO_A], ())
    assert where(await kernel.list(CLUSTER, NODES)) == where([TO_A])
    assert len(await asyncio.to_thread(dump)) == len(before) + 1


@pytest.mark.parametrize("address", ["10.9.0.13", "10.9.0.1"], ids=["another machine", "this one"])
async def test_a_pod_cidr_that_cannot_be_read_costs_no_other_node_its_route(
    kernel: Routes, address: str
) -> None:
    """The API server takes zeros before a number, and any kubelet writes its new Node's CIDR."""
    strange = node("c", address)
    spec = msgspec.structs.replace(strange.spec, pod_cidr="010.200.3.0/24")
    nodes = (*NODES, msgspec.structs.replace(strange, spec=spec))
    assert await kernel.apply(CLUSTER, nodes, [TO_A], ()) == {TO_A: Done()}
    assert where([TO_A]) <= where(await kernel.list(CLUSTER, nodes))


async def test_a_next_hop_out_of_reach_costs_only_its_own_route(kernel: Routes) -> None:
    far = node("far", "10.77.0.1")
    wrong = Route("", "10.200.3.0/24", "local://far")
    said = await kernel.apply(CLUSTER, (*NODES, far), [wrong, TO_A], ())
    assert said[TO_A] == Done()
    problem = said[wrong]
    assert isinstance(problem, CloudError)
    assert "route 10.200.3.0/24 via 10.77.0.1" in str(problem)
    assert "network of this machine" in str(problem)


async def test_this_machine_needs_no_route_to_itself(kernel: Routes) -> None:
    here = node("here", IPV4, IPV6, cidrs=("10.200.9.0/24", "fd00:200:9::/64"))
    own = [Route("", cidr, "local://here") for cidr in here.spec.pod_cidrs]
    before = await asyncio.to_thread(dump)
    assert await kernel.apply(CLUSTER, [here], own, ()) == dict.fromkeys(own, Done())
    assert await asyncio.to_thread(dump) == before
    assert where(await kernel.list(CLUSTER, [here])) == where(own)


async def test_a_table_of_its_own_may_not_exist_yet(kernel: Routes) -> None:
    assert await routes(RoutesConfig(table=4711)).list(CLUSTER, NODES) == []


def next_hop(address: str) -> str:
    """Where the kernel sends a packet to."""
    with IPRoute() as netlink:
        (hop,) = netlink.get_routes(dst=address)
        return str(hop.get("RTA_GATEWAY"))


def make_foreign() -> None:
    """A route by hand to the same network as one of ours, and one of another program."""
    with IPRoute() as netlink:
        netlink.route("add", dst=TO_A.destination, gateway="10.9.0.20")
        netlink.route("add", dst="10.200.7.0/24", gateway="10.9.0.20", proto=186)


def dump() -> set[tuple[object, ...]]:
    """All routes that people and programs made: the kernel adds its own when addresses are ready."""
    with IPRoute() as netlink:
        return {
            (
                route["dst_len"],
                route.get("RTA_DST"),
                route.get("RTA_GATEWAY"),
                route.get("RTA_TABLE"),
                route.get("RTA_PRIORITY"),
                route["proto"],
            )
            for family in (socket.AF_INET, socket.AF_INET6)
            for route in netlink.get_routes(family=family)
            if route["proto"] != BY_KERNEL
        }


def test_an_address_of_no_node_or_of_two_is_the_target_itself() -> None:
    nodes = [node("a", "10.9.0.11"), node("b", "10.9.0.11"), node("c", "10.9.0.12")]
    found = seen(
        [
            KernelRoute("10.200.1.0/24", "10.9.0.11"),
            KernelRoute("10.200.2.0/24", "10.9.0.12"),
            KernelRoute("10.200.3.0/24", "10.9.0.13"),
        ],
        nodes,
        frozenset(),
    )
    assert where(found) == {
        ("10.200.1.0/24", "10.9.0.11"),
        ("10.200.2.0/24", "local://c"),
        ("10.200.3.0/24", "10.9.0.13"),
    }


@pytest.mark.parametrize(
    ("route", "words"),
    [
        (Route("", "fd00:200:2::/64", "local://b"), ("Node b", "no IPv6 address")),
        (Route("", "10.200.4.0/24", "local://nobody"), ("no Node", "local://nobody")),
    ],
)
def test_a_route_that_leads_nowhere_is_refused(route: Route, words: tuple[str, ...]) -> None:
    found, problems = ways([route, TO_A], NODES, frozenset())
    assert found == {TO_A: KernelRoute("10.200.1.0/24", "10.9.0.11")}
    assert isinstance(problems[route], InvalidRequest)
    assert all(word in str(problems[route]) for word in words)


FORGED = pytest.mark.parametrize(
    ("address", "claimed"),
    [("10.9.0.66", "10.200.9.0/24"), ("10.9.0.66", "10.200.1.0/24"), (GATEWAY, "10.200.1.0/24")],
)


@FORGED
@pytest.mark.parametrize("is_first", [True, False])
def test_a_node_with_anothers_provider_id_gets_none_of_its_traffic(
    address: str, claimed: str, *, is_first: bool
) -> None:
    id_, cidr = "local://a", "10.200.1.0/24"
    victim = node("b", "10.9.0.11", provider_id=id_, cidrs=(cidr,), created=EARLY)
    forger = node("a", address, provider_id=id_, cidrs=(claimed,), created=LATE)
    nodes = [forger, victim] if is_first else [victim, forger]
    found, problems = ways([TO_A], nodes, frozenset({GATEWAY}))
    assert (found, problems) == ({TO_A: KernelRoute("10.200.1.0/24", "10.9.0.11")}, {})
    assert ("10.200.1.0/24", "local://a") not in where(seen([], nodes, frozenset({GATEWAY})))


def test_of_two_nodes_with_one_provider_id_each_has_its_own_pod_cidr() -> None:
    """As of a machine that was renamed, until the first Node is deleted."""
    id_, cidr = "local://a", "10.200.1.0/24"
    former = node("a", "10.9.0.11", cidrs=("10.200.7.0/24",), created=EARLY)
    present = node("b", "10.9.0.12", provider_id=id_, cidrs=(cidr,), created=LATE)
    found, _ = ways([TO_A], [former, present], frozenset())
    assert found == {TO_A: KernelRoute("10.200.1.0/24", "10.9.0.12")}


def test_clusters_of_one_name_have_different_metrics() -> None:
    assert metric_of(CLUSTER) != metric_of(OTHER)
    assert all(1 << 24 <= metric_of(one) < 1 << 25 for one in (CLUSTER, OTHER))
