"""Decisions of the route controller, as tables."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from proreus.cloudprovider.addresses import plain_address
from proreus.cloudprovider.errors import CallTimeout, CloudError, RetryAfter, Throttled
from proreus.cloudprovider.instances import Ownership
from proreus.cloudprovider.load_balancers import Done, Pending
from proreus.cloudprovider.routes import Route
from proreus.controllers.events import PlannedEvent
from proreus.controllers.networks import (
    Network,
    cluster_cidrs,
    is_within,
    network,
    pod_cidrs,
)
from proreus.controllers.route.attempts import Attempt, Result, Unit, result
from proreus.controllers.route.conditions import NetworkState, condition_patch, shows_routes
from proreus.controllers.route.desired import (
    DesiredRoute,
    DesiredRoutes,
    Problem,
    desired_routes,
    relevant,
)
from proreus.controllers.route.plan import Memory, Plan, failed, plan, unlisted, unseen
from proreus.controllers.route.policy import LABEL_EXCLUDE, Policy
from proreus.controllers.route.table import Table, applied, listed
from proreus.kube.objects import (
    Condition,
    Node,
    NodeSpec,
    condition,
)
from proreus.testing import objects

from .conftest import ApplyPatch

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
EARLIER = NOW - timedelta(hours=1)
CLUSTERS = ("10.0.0.0/16", "fd00::/48")
ROUTED = Condition("NetworkUnavailable", "False", "RouteCreated", "m", EARLIER)
UNROUTED = Condition("NetworkUnavailable", "True", "NoRouteCreated", "m", EARLIER)
CILIUM = Condition("NetworkUnavailable", "False", "CiliumIsUp", "m", EARLIER)
POLICY = Policy()
EMPTY = Memory()
T = 1000.0


def net(text: str) -> Network:
    found = network(text)
    assert found is not None
    return found


NETS = tuple(net(text) for text in CLUSTERS)


def node(name: str = "a", *cidrs: str, uid: str = "", age: float = 100.0, **fields: Any) -> Node:
    fields.setdefault("provider_id", f"sim://{name}")
    fields.setdefault("creation_timestamp", NOW - timedelta(seconds=age))
    return objects.node(name, uid=uid or f"uid-{name}", pod_cidrs=cidrs, **fields)


def owns(of: Node) -> Ownership:
    return Ownership.NO if of.spec.provider_id.startswith("other://") else Ownership.YES


def desired(*nodes: Node) -> DesiredRoutes:
    return desired_routes(nodes, NETS, owns)


def route(destination: str, target: str | None = "sim://a", *, blackhole: bool = False) -> Route:
    return Route(f"r-{destination}", destination, target, blackhole)


def table(*routes: Route, began: float = T) -> Table:
    return listed(None, routes, NETS, began=began, busy=(), settle=30.0)


def planned(
    nodes: Sequence[Node],
    routes: Sequence[Route] = (),
    memory: Memory = EMPTY,
    *,
    now: float = T,
    began: float = T,
    busy: Sequence[str] = (),
    policy: Policy = POLICY,
) -> Plan:
    return plan(
        desired(*nodes),
        table(*routes, began=began),
        memory,
        policy,
        NETS,
        busy={net(one) for one in busy},
        now=now,
    )


def changes(of: Plan) -> list[tuple[str, str | None, list[Route]]]:
    """Destination, target of the new route, routes deleted."""
    return [
        (str(unit.destination), unit.desired.target if unit.desired else None, list(unit.delete))
        for batch in of.batches
        for unit in batch
    ]


def seen_twice(
    nodes: Sequence[Node], routes: Sequence[Route], memory: Memory = EMPTY
) -> tuple[Plan, Plan]:
    """A plan, and the one after a listing that began long enough after it."""
    first = planned(nodes, routes, memory)
    later = T + POLICY.confirm
    return first, planned(nodes, routes, first.memory, now=later, began=later)


# CIDRs


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("10.0.1.0/24", "10.0.1.0/24"),
        ("10.0.1.7/24", "10.0.1.0/24"),
        ("FD00:0:0:1::/64", "fd00:0:0:1::/64"),
        ("fd00:0000::1:0:0:0:0/64", "fd00:0:0:1::/64"),
        ("10.0.1.0", None),
        ("10.0.1.0/255.255.255.0", None),
        ("10.0.1.0/33", None),
        ("a/24", None),
        ("", None),
    ],
)
def test_a_cidr_is_what_it_means(text: str, written: str | None) -> None:
    found = network(text)
    assert (str(found) if found else None) == written


def test_networks_hold_their_parts_and_themselves_in_their_family_only() -> None:
    assert is_within(net("10.0.1.0/24"), net("10.0.0.0/16"))
    assert is_within(net("10.0.0.0/16"), net("10.0.0.0/16"))
    assert not is_within(net("10.0.0.0/15"), net("10.0.0.0/16"))
    assert is_within(net("fd00::/64"), net("fd00::/48"))
    assert not is_within(net("fd00::/64"), net("0.0.0.0/0"))
    assert not is_within(net("0.0.0.0/32"), net("::/0"))
    assert not is_within(net("fd01::/64"), net("fd00::/48"))


def test_addresses_are_compared_by_what_they_mean() -> None:
    assert plain_address("fd00:0:0::5") == plain_address("FD00::5") == "fd00::5"
    assert plain_address("sim://a") == "sim://a"


@pytest.mark.parametrize(
    ("texts", "count", "problem"),
    [
        ((), 0, ""),
        (("10.0.0.0/16",), 1, ""),
        (("fd00::/48", "10.0.0.0/16"), 2, ""),
        (
            ("10.0.0.0/16", "10.1.0.0/16"),
            0,
            "give one CIDR, or two of different families (IPv4 and IPv6)",
        ),
        (
            ("10.0.0.0/16", "fd00::/48", "10.1.0.0/16"),
            0,
            "give one CIDR, or two of different families (IPv4 and IPv6)",
        ),
        (("10.0.0.0/16", "x", "y"), 0, "'x', 'y': give a CIDR such as 10.244.0.0/16"),
    ],
)
def test_cluster_cidrs_are_one_or_a_pair(texts: Sequence[str], count: int, problem: str) -> None:
    networks, said = cluster_cidrs(texts)
    assert (len(networks), said) == (count, problem)


def test_the_numbers_and_the_label() -> None:
    """They are promised in the documentation."""
    assert LABEL_EXCLUDE == "proreus.io/exclude-from-cloud-routes"
    assert (POLICY.confirm, POLICY.settle, POLICY.batch) == (10.0, 30.0, 50)
    assert (POLICY.retry_first, POLICY.retry_cap, POLICY.report_after) == (1.0, 60.0, 3)


# What is desired


def test_a_node_needs_a_route_to_each_of_its_pod_cidrs() -> None:
    found = desired(
        node("a", "10.0.1.0/24", "fd00:0:0:1::/64", addresses=["192.0.2.1", "FD00:1::1"])
    )
    assert list(found.routes) == [net("10.0.1.0/24"), net("fd00:0:0:1::/64")]
    desired_route = found.routes[net("fd00:0:0:1::/64")]
    assert desired_route == DesiredRoute(
        node="a",
        uid="uid-a",
        destination=net("fd00:0:0:1::/64"),
        target="sim://a",
        addresses=frozenset({"192.0.2.1", "fd00:1::1"}),
        was_routed=False,
    )
    assert desired_route.route() == Route("uid-a-ipv6", "fd00:0:0:1::/64", "sim://a")
    assert found.routes[net("10.0.1.0/24")].route().name == "uid-a-ipv4"
    assert found.problems == ()
    assert found.claimed == set(found.routes)
    assert not found.shielded
    assert not found.shielded_targets
    assert not found.left_alone
    assert found.has_nodes
    assert not desired().has_nodes


def test_the_old_field_counts_where_the_list_is_empty() -> None:
    spec = NodeSpec(pod_cidr="10.0.1.0/24")
    assert pod_cidrs(Node(spec=spec)) == ("10.0.1.0/24",)
    assert pod_cidrs(Node()) == ()
    both = msgspec.structs.replace(spec, pod_cidrs=("10.0.1.0/24", "fd00::/64"))
    assert pod_cidrs(Node(spec=both)) == ("10.0.1.0/24", "fd00::/64")


@pytest.mark.parametrize(
    ("target", "leads_here"),
    [
        ("sim://a", True),
        ("192.0.2.1", True),
        ("fd00:1:0::1", True),
        ("sim://b", False),
        ("192.0.2.2", False),
        (None, False),
    ],
)
def test_a_route_leads_to_a_node_by_provider_id_or_by_address(
    target: str | None, *, leads_here: bool
) -> None:
    found = desired(node("a", "10.0.1.0/24", addresses=["192.0.2.1", "fd00:1::1"]))
    desired_route = found.routes[net("10.0.1.0/24")]
    assert desired_route.leads_here(route("10.0.1.0/24", target)) is leads_here


@pytest.mark.parametrize(
    ("unclear", "left_alone"),
    [
        (node("a", "10.0.1.0/24", provider_id="", addresses=["192.0.2.1"]), False),
        (node("a", addresses=["192.0.2.1"]), False),
        (node("a", "10.0.1.0/24", labels={LABEL_EXCLUDE: ""}, addresses=["192.0.2.1"]), True),
        (node("a", "10.0.1.0/24", provider_id="other://a", addresses=["192.0.2.1"]), True),
    ],
)
def test_nodes_that_are_unclear_or_not_our_business_need_nothing_and_keep_what_is(
    unclear: Node, *, left_alone: bool
) -> None:
    found = desired(unclear, node("b", "10.0.2.0/24"))
    assert list(found.routes) == [net("10.0.2.0/24")]
    cidrs = {net(text) for text in pod_cidrs(unclear)}
    assert set(found.shielded) == cidrs
    assert found.claimed == cidrs | {net("10.0.2.0/24")}
    targets = {"192.0.2.1", unclear.spec.provider_id} - {""}
    assert found.shielded_targets == targets
    assert found.left_alone == ({"a"} if left_alone else set())
    assert found.problems == ()


def test_of_another_cloud_s_node_that_cloud_itself_says_whether_it_has_routes() -> None:
    nodes = (
        node("a", "10.0.1.0/24", provider_id="other://a"),
        node("b", "10.0.2.0/24", labels={LABEL_EXCLUDE: ""}),
    )
    found = desired_routes(nodes, NETS, owns, has_others=True)
    assert found.left_alone == {"b"}
    assert set(found.shielded) == {net("10.0.1.0/24"), net("10.0.2.0/24")}


@pytest.mark.parametrize("cidr", ["10.1.1.0/24", "10.0.0.0/15", "fd01::/64", "nonsense"])
def test_what_is_not_in_a_cluster_cidr_gets_no_route(cidr: str) -> None:
    found = desired(node("a", "10.0.1.0/24", cidr))
    assert list(found.routes) == [net("10.0.1.0/24")]
    text = "it is not in --cluster-cidr (10.0.0.0/16, fd00::/48)"
    assert found.problems == (Problem("a", "uid-a", cidr, text),)


def test_a_cidr_of_two_nodes_is_that_of_the_older_one() -> None:
    young, old = node("a", "10.0.1.0/24", age=1), node("b", "10.0.1.0/24", age=2)
    found = desired(young, old)
    assert found.routes[net("10.0.1.0/24")].node == "b"
    text = "node b has the same pod CIDR"
    assert found.problems == (Problem("a", "uid-a", "10.0.1.0/24", text),)
    same_age = desired(node("b", "10.0.1.0/24"), node("a", "10.0.1.0/24"))
    assert same_age.routes[net("10.0.1.0/24")].node == "a"
    ageless = node("a", "10.0.1.0/24", creation_timestamp=None)
    assert desired(ageless, old).routes[net("10.0.1.0/24")].node == "b"


@pytest.mark.parametrize("young", ["10.0.1.0/24", "10.0.1.128/25", "10.0.0.0/23", "10.0.1.7/32"])
@pytest.mark.parametrize("waits", [{}, {"provider_id": ""}, {"labels": {LABEL_EXCLUDE: ""}}])
def test_no_part_of_a_nodes_cidr_is_taken_by_a_younger_one(
    young: str, waits: dict[str, Any]
) -> None:
    nodes = [node("a", "10.0.1.0/24", age=9), node("z", "10.0.7.0/24", young, age=1, **waits)]
    there = [route("10.0.1.0/24"), route("10.0.7.0/24", "sim://z")]
    found = planned(nodes, there)
    assert changes(found) == []
    assert found.conditions["a"] is NetworkState.ROUTED
    same = "the same pod CIDR" if young == "10.0.1.0/24" else "the pod CIDR 10.0.1.0/24"
    expected = [] if waits else [("z", failed("z", young, f"node a has {same}"))]
    assert list(found.events) == expected


def test_a_cidr_of_an_older_node_that_is_left_alone_is_nobody_elses() -> None:
    excluded = node("z", "10.0.1.0/24", labels={LABEL_EXCLUDE: "false"}, age=9)
    found = desired(node("a", "10.0.1.0/24", age=1), excluded)
    assert not found.routes
    assert [one.text for one in found.problems] == ["node z has the same pod CIDR"]


def test_a_route_that_a_node_has_to_a_part_of_anothers_cidr_is_reported_and_stays() -> None:
    nodes = [node("a", "10.0.1.0/24", age=9), node("b", "10.0.1.128/25", age=1)]
    there = [route("10.0.1.0/24"), route("10.0.1.128/25", "sim://b")]
    assert changes(seen_twice(nodes, there)[1]) == []
    assert changes(seen_twice(nodes[:1], there)[1]) == [("10.0.1.128/25", None, there[1:])]


def test_parts_of_a_nodes_own_cidr_are_its_own() -> None:
    found = desired(node("a", "10.0.1.0/24", "10.0.1.128/25", "10.0.0.0/20"))
    assert set(map(str, found.routes)) == {"10.0.1.0/24", "10.0.1.128/25", "10.0.0.0/20"}


def test_a_cidr_that_one_node_has_twice_is_one_route() -> None:
    found = desired(node("a", "10.0.1.0/24", "10.0.1.9/24"))
    assert list(found.routes) == [net("10.0.1.0/24")]
    assert found.problems == ()


@pytest.mark.parametrize(
    ("conditions", "was_routed"),
    [((), False), ((ROUTED,), True), ((UNROUTED,), False), ((CILIUM,), False)],
)
def test_a_node_whose_condition_shows_routes_had_its_routes(
    conditions: tuple[Condition, ...], *, was_routed: bool
) -> None:
    one = node("a", "10.0.1.0/24", conditions=conditions)
    assert shows_routes(one) is was_routed
    assert desired(one).routes[net("10.0.1.0/24")].was_routed is was_routed


@pytest.mark.parametrize(
    ("changed", "matters"),
    [
        ({}, False),
        ({"conditions": (ROUTED,)}, False),
        ({"labels": {"x": "y"}}, False),
        ({"labels": {"y": "", LABEL_EXCLUDE: ""}}, True),
        ({"provider_id": "sim://b"}, True),
        ({"addresses": ["192.0.2.1"]}, True),
        ({"uid": "other"}, True),
    ],
)
def test_only_changes_that_concern_routes_matter(changed: dict[str, Any], *, matters: bool) -> None:
    old = node("a", "10.0.1.0/24")
    assert relevant(old, node("a", "10.0.1.0/24", **changed)) is matters


def test_a_node_that_comes_goes_or_gets_other_cidrs_matters() -> None:
    one = node("a", "10.0.1.0/24")
    assert relevant(None, one)
    assert relevant(one, None)
    assert relevant(one, node("a", "10.0.1.0/24", "fd00::/64"))
    assert relevant(node("a"), one)


# Conditions


@pytest.mark.parametrize(
    ("current", "state", "written"),
    [
        (None, NetworkState.ROUTED, ("False", "RouteCreated", NOW)),
        (None, NetworkState.UNROUTED, ("True", "NoRouteCreated", NOW)),
        (None, NetworkState.LEFT_ALONE, None),
        (ROUTED, NetworkState.ROUTED, None),
        (ROUTED, NetworkState.UNROUTED, ("True", "NoRouteCreated", NOW)),
        (ROUTED, NetworkState.LEFT_ALONE, None),
        (UNROUTED, NetworkState.ROUTED, ("False", "RouteCreated", NOW)),
        (UNROUTED, NetworkState.UNROUTED, None),
        (UNROUTED, NetworkState.LEFT_ALONE, ("False", "RouteCreated", NOW)),
        (CILIUM, NetworkState.ROUTED, None),
        (CILIUM, NetworkState.UNROUTED, None),
        (CILIUM, NetworkState.LEFT_ALONE, None),
        (
            msgspec.structs.replace(UNROUTED, status="False"),
            NetworkState.ROUTED,
            ("False", "RouteCreated", EARLIER),
        ),
        (
            msgspec.structs.replace(ROUTED, status="True"),
            NetworkState.UNROUTED,
            ("True", "NoRouteCreated", EARLIER),
        ),
    ],
)
def test_the_condition_is_written_where_it_is_ours_and_differs(
    apply_patch: ApplyPatch,
    current: Condition | None,
    state: NetworkState,
    written: tuple[str, str, datetime] | None,
) -> None:
    one = node("a", "10.0.1.0/24", conditions=(current,) if current else ())
    patch = condition_patch(one, state, NOW)
    assert bool(patch) is (written is not None)
    if written is not None:
        after = condition(apply_patch(one, patch).status.conditions, "NetworkUnavailable")
        assert after is not None
        assert (after.status, after.reason, after.last_transition_time) == written
        assert after.message == state.value[2]


def test_the_condition_has_the_messages_of_go() -> None:
    assert [state.value[2] for state in NetworkState] == [
        "RouteController created a route",
        "RouteController failed to create a route",
        "RouteController leaves the routes of this node alone",
    ]


# The table


def test_the_table_holds_what_lies_in_a_cluster_cidr() -> None:
    inside = [route("10.0.1.0/24"), route("10.0.0.0/16"), route("fd00::/64"), route("10.0.1.9/24")]
    outside = [route("10.0.0.0/15"), route("0.0.0.0/0"), route("10.1.0.0/24"), route("what")]
    found = table(*outside, *inside, *outside)
    assert found.routes == {
        net("10.0.1.0/24"): (inside[0], inside[3]),
        net("10.0.0.0/16"): (inside[1],),
        net("fd00::/64"): (inside[2],),
    }
    assert found.began == T


def test_a_listing_does_not_overrule_what_is_busy_or_was_just_answered() -> None:
    one, two, three = (route(f"10.0.{n}.0/24") for n in (1, 2, 3))
    new = [route(f"10.0.{n}.0/24", "sim://new") for n in (1, 2, 3)]
    before = applied(
        table(one, two, three, began=T),
        {net("10.0.4.0/24"): route("10.0.4.0/24")},
        {net("10.0.1.0/24"): (one,)},
        at=T + 10,
    )
    found = listed(before, new, NETS, began=T + 39, busy={net("10.0.2.0/24")}, settle=30.0)
    assert found.routes == {
        net("10.0.2.0/24"): (two,),
        net("10.0.3.0/24"): (new[2],),
        net("10.0.4.0/24"): (route("10.0.4.0/24"),),
    }
    assert found.answered == dict.fromkeys([net("10.0.1.0/24"), net("10.0.4.0/24")], T + 10)
    settled = listed(found, new, NETS, began=T + 40, busy=(), settle=30.0)
    assert settled.routes == {net(one.destination): (one,) for one in new}
    assert settled.answered == {}
    assert settled.began == T + 40


def test_answers_change_the_table() -> None:
    one, twin, two = route("10.0.1.0/24"), route("10.0.1.0/24", "sim://b"), route("10.0.2.0/24")
    before = table(one, twin, two)
    new = route("10.0.1.0/24", "sim://c")
    after = applied(
        before,
        {net("10.0.1.0/24"): new},
        {net("10.0.1.0/24"): (one,), net("10.0.2.0/24"): (two,), net("10.0.3.0/24"): ()},
        at=T + 1,
    )
    assert after.routes == {net("10.0.1.0/24"): (twin, new)}
    assert after.began == T
    assert set(after.answered.values()) == {T + 1}
    assert len(after.answered) == 3


# What is created


def test_missing_routes_are_created_without_a_listing_those_of_older_nodes_first() -> None:
    found = planned([node("b", "10.0.2.0/24", age=5), node("a", "10.0.1.0/24", "fd00::/64", age=9)])
    assert changes(found) == [
        ("10.0.1.0/24", "sim://a", []),
        ("fd00::/64", "sim://a", []),
        ("10.0.2.0/24", "sim://b", []),
    ]
    assert not found.needs_listing
    assert found.due is None
    assert found.conditions == {}
    assert found.events == ()
    assert found.memory == Memory()


def test_a_route_that_is_there_is_left_and_reported() -> None:
    nodes = [node("a", "10.0.1.0/24", "fd00::/64", addresses=["192.0.2.1"])]
    found = planned(nodes, [route("10.0.1.7/24"), route("fd00:0::/64", "192.0.2.1")])
    assert found.batches == ()
    assert not found.needs_listing
    assert found.conditions == {"a": NetworkState.ROUTED}
    assert found.memory.there == {(net("10.0.1.0/24"), "sim://a"), (net("fd00::/64"), "sim://a")}
    assert found.due is None


def test_a_node_with_one_of_two_routes_gets_no_condition_yet() -> None:
    found = planned([node("a", "10.0.1.0/24", "fd00::/64")], [route("10.0.1.0/24")])
    assert changes(found) == [("fd00::/64", "sim://a", [])]
    assert found.conditions == {}


def test_nodes_that_are_left_alone_report_it_and_problems_are_reported_once() -> None:
    nodes = [
        node("a", "10.0.1.0/24", labels={LABEL_EXCLUDE: ""}),
        node("b", "10.0.2.0/24", "fd01::/64"),
    ]
    found = planned(nodes, [route("10.0.2.0/24", "sim://b")])
    assert found.conditions == {"a": NetworkState.LEFT_ALONE, "b": NetworkState.UNROUTED}
    text = "it is not in --cluster-cidr (10.0.0.0/16, fd00::/48)"
    event = PlannedEvent(
        "Warning",
        "FailedToCreateRoute",
        f"Could not create route fd01::/64 for node b: {text}",
    )
    assert found.events == (("b", event),)
    assert failed("b", "fd01::/64", text) == event
    again = planned(nodes, [route("10.0.2.0/24", "sim://b")], found.memory)
    assert again.events == ()
    assert again.conditions == found.conditions


def test_batches_are_bounded_and_smaller_for_what_failed_together() -> None:
    policy = Policy(batch=2)
    nodes = [node(f"n{n}", f"10.0.{n}.0/24", age=100 - n) for n in range(7)]
    poor = {
        (net(f"10.0.{n}.0/24"), f"sim://n{n}"): Attempt(1, T, is_lacking=True, text="", batch=1)
        for n in (0, 4)
    }
    found = planned(nodes, (), Memory(attempts=poor), policy=policy)
    sizes = [[str(unit.destination)[5] for unit in batch] for batch in found.batches]
    assert sizes == [["0"], ["4"], ["1", "2"], ["3", "5"], ["6"]]


# What is replaced


def test_a_route_to_another_target_is_replaced_at_once_after_a_listing() -> None:
    old = route("10.0.1.0/24", "sim://old")
    found = planned([node("a", "10.0.1.0/24", conditions=(ROUTED,))], [old])
    assert changes(found) == [("10.0.1.0/24", "sim://a", [old])]
    assert found.needs_listing
    assert found.conditions == {}


def test_blackholes_are_replaced_whatever_their_target() -> None:
    for target in ("sim://old", "sim://a", None):
        dead = route("10.0.1.0/24", target, blackhole=True)
        found = planned([node("a", "10.0.1.0/24")], [dead])
        assert changes(found) == [("10.0.1.0/24", "sim://a", [dead])]


def test_a_route_whose_target_the_cloud_does_not_show_is_left() -> None:
    unknown, old = route("10.0.1.0/24", None), route("10.0.1.0/24", "sim://old")
    found = planned([node("a", "10.0.1.0/24")], [unknown, old])
    assert found.batches == ()
    assert found.conditions == {}
    assert not found.needs_listing


def test_a_node_of_the_same_name_with_another_machine_takes_its_route_over() -> None:
    """First without provider id, then with it; the CIDR is the same."""
    old = route("10.0.1.0/24", "sim://old")
    new = node("a", "10.0.1.0/24", provider_id="", uid="new")
    first, second = seen_twice([new], [old])
    assert first.batches == second.batches == ()
    known = node("a", "10.0.1.0/24", provider_id="sim://new", uid="new")
    assert changes(planned([known], [old], second.memory)) == [("10.0.1.0/24", "sim://new", [old])]


def test_a_node_of_the_same_name_with_another_cidr_lets_the_old_route_go() -> None:
    old = route("10.0.1.0/24", "sim://old")
    new = node("a", "10.0.2.0/24", provider_id="sim://new", uid="new")
    first, second = seen_twice([new], [old])
    assert changes(first) == [("10.0.2.0/24", "sim://new", [])]
    assert ("10.0.1.0/24", None, [old]) in changes(second)


def test_replacements_go_before_creations_and_deletions_before_both() -> None:
    nodes = [node("a", "10.0.1.0/24", age=9), node("b", "10.0.2.0/24", age=5)]
    old, orphan = route("10.0.2.0/24", "sim://x"), route("10.0.9.0/24", "sim://y")
    _, found = seen_twice(nodes, [old, orphan])
    assert [one[0] for one in changes(found)] == ["10.0.9.0/24", "10.0.2.0/24", "10.0.1.0/24"]


# What is deleted


def test_a_route_that_nobody_needs_goes_when_a_later_listing_still_has_it() -> None:
    nodes, orphan = [node("a", "10.0.1.0/24")], route("10.0.9.0/24", "sim://gone")
    here = route("10.0.1.0/24")
    first = planned(nodes, [here, orphan])
    assert first.batches == ()
    assert not first.needs_listing
    assert first.due == T + 10
    early = planned(nodes, [here, orphan], first.memory, now=T + 9.9, began=T + 9.9)
    assert early.batches == ()
    assert early.due == T + 10
    assert not early.needs_listing
    unlisted = planned(nodes, [here, orphan], early.memory, now=T + 10, began=T)
    assert unlisted.batches == ()
    assert unlisted.needs_listing
    later = planned(nodes, [here, orphan], unlisted.memory, now=T + 10.1, began=T + 10)
    assert changes(later) == [("10.0.9.0/24", None, [orphan])]
    assert later.needs_listing


def test_a_route_that_is_needed_again_meanwhile_stays() -> None:
    orphan = route("10.0.9.0/24", "sim://b")
    first = planned([node("a", "10.0.1.0/24")], [orphan])
    back = [node("a", "10.0.1.0/24"), node("b", "10.0.9.0/24")]
    second = planned(back, [orphan], first.memory, now=T + 10, began=T + 10)
    assert "10.0.9.0/24" not in [one[0] for one in changes(second)]
    gone_again = planned(back[:1], [orphan], second.memory, now=T + 11, began=T + 11)
    assert gone_again.due == T + 21


ORPHAN = route("10.0.9.0/24", "sim://gone")


@pytest.mark.parametrize(
    ("nodes", "kept"),
    [
        pytest.param([], ORPHAN, id="there are no nodes at all"),
        pytest.param([node("a", "10.0.1.0/24")], route("10.0.9.0/24", None), id="unknown target"),
        pytest.param([node("a", "10.0.1.0/24")], route("10.0.0.0/16", "sim://x"), id="cluster"),
        pytest.param([node("a", "10.0.1.0/24")], route("10.0.0.0/15", "sim://x"), id="supernet"),
        pytest.param([node("a", "10.0.1.0/24")], route("0.0.0.0/0", "sim://x"), id="default route"),
        pytest.param([node("a", "10.0.1.0/24")], route("10.7.0.0/24", "sim://x"), id="elsewhere"),
        pytest.param(
            [node("a", "10.0.1.0/24"), node("b", "10.0.99.0/24")],
            route("10.0.0.0/20", "sim://x"),
            id="aggregate",
        ),
        pytest.param(
            [node("a", provider_id="sim://gone")], ORPHAN, id="to a node that waits for its CIDR"
        ),
        pytest.param(
            [node("a", provider_id="", addresses=["192.0.2.1"])],
            route("10.0.9.0/24", "192.0.2.1"),
            id="to an address of a node that waits",
        ),
        pytest.param(
            [node("a", "10.0.9.0/24", provider_id="")], ORPHAN, id="of a node without machine yet"
        ),
        pytest.param(
            [node("a", "10.0.9.0/24", labels={LABEL_EXCLUDE: ""})], ORPHAN, id="of an excluded node"
        ),
        pytest.param(
            [node("a", "10.0.9.128/25", labels={LABEL_EXCLUDE: ""})], ORPHAN, id="overlaps such"
        ),
        pytest.param(
            [node("a", "10.0.8.0/22", labels={LABEL_EXCLUDE: ""})], ORPHAN, id="lies in such"
        ),
    ],
)
def test_what_is_not_ours_or_not_surely_unneeded_stays(nodes: Sequence[Node], kept: Route) -> None:
    known = [route(str(one), two.target) for one, two in desired(*nodes).routes.items()]
    first, second = seen_twice(nodes, [kept, *known])
    assert first.batches == second.batches == ()
    assert first.due is None


@pytest.mark.parametrize(
    "gone",
    [
        route("10.0.9.0/24", "sim://gone", blackhole=True),
        route("10.0.9.0/24", None, blackhole=True),
        route("10.0.9.0/24", "sim://a"),
        route("fd00:0:0:9::/64", "192.0.2.9"),
        route("10.0.9.0/28", "sim://x"),
        route("10.0.1.128/25", "sim://a"),
    ],
)
def test_what_is_ours_and_unneeded_goes(gone: Route) -> None:
    excluded = node("z", "10.0.200.0/24", "fd00:0:0:200::/64", labels={LABEL_EXCLUDE: ""})
    nodes = [node("a", "10.0.1.0/24"), excluded]
    _, second = seen_twice(nodes, [route("10.0.1.0/24"), gone])
    assert changes(second) == [(str(net(gone.destination)), None, [gone])]


def test_a_second_route_beside_the_right_one_goes_and_the_right_one_stays() -> None:
    good, stray = route("10.0.1.0/24"), route("10.0.1.0/24", "sim://x")
    first, second = seen_twice([node("a", "10.0.1.0/24")], [good, stray])
    assert first.batches == ()
    assert first.conditions == second.conditions == {"a": NetworkState.ROUTED}
    assert changes(second) == [("10.0.1.0/24", None, [stray])]


def test_a_second_route_to_a_node_that_waits_for_its_own_cidr_goes() -> None:
    good, stray = route("10.0.1.0/24"), route("10.0.1.0/24", "sim://z")
    _, second = seen_twice([node("a", "10.0.1.0/24"), node("z")], [good, stray])
    assert changes(second) == [("10.0.1.0/24", None, [stray])]


def test_several_routes_to_one_destination_go_together() -> None:
    both = [route("10.0.9.0/24", "sim://x"), route("10.0.9.0/24", "sim://y")]
    _, second = seen_twice([node("a", "10.0.1.0/24")], [route("10.0.1.0/24"), *both])
    assert changes(second) == [("10.0.9.0/24", None, both)]


# What was there and is missing


@pytest.mark.parametrize("witness", ["memory", "node"])
def test_a_listing_that_lacks_what_was_there_must_lack_it_twice(witness: str) -> None:
    conditions = (ROUTED,) if witness == "node" else (CILIUM,)
    nodes = [node("a", "10.0.1.0/24", conditions=conditions)]
    memory = planned(nodes, [route("10.0.1.0/24")]).memory if witness == "memory" else Memory()
    first, second = seen_twice(nodes, [], memory)
    assert first.batches == ()
    assert first.due == T + 10
    assert first.conditions == {}
    assert not first.needs_listing
    unlisted = planned(nodes, [], first.memory, now=T + 10, began=T)
    assert unlisted.needs_listing
    assert changes(second) == [("10.0.1.0/24", "sim://a", [])]
    healed = planned(nodes, [route("10.0.1.0/24")], first.memory, now=T + 10, began=T + 10)
    assert healed.batches == ()
    assert healed.memory.doubts == {}


def test_a_route_that_is_gone_and_known_to_fail_is_not_doubted() -> None:
    nodes = [node("a", "10.0.1.0/24", conditions=(ROUTED,))]
    key = (net("10.0.1.0/24"), "sim://a")
    attempt = Attempt(1, T, is_lacking=True, text="no", batch=50)
    found = planned(nodes, [], Memory(attempts={key: attempt}))
    assert changes(found) == [("10.0.1.0/24", "sim://a", [])]
    assert found.needs_listing
    assert found.conditions == {"a": NetworkState.UNROUTED}
    assert found.memory.attempts == {key: attempt}


# Failures


def attempt(
    due: float = T, *, failures: int = 1, is_lacking: bool = True, text: str = "no", batch: int = 50
) -> Attempt:
    return Attempt(failures, due, is_lacking, text, batch)


def test_a_failed_route_waits_for_its_time_and_holds_up_no_other() -> None:
    nodes = [node("a", "10.0.1.0/24"), node("b", "10.0.2.0/24")]
    key = (net("10.0.1.0/24"), "sim://a")
    memory = Memory(attempts={key: attempt(T + 5)})
    found = planned(nodes, [], memory)
    assert changes(found) == [("10.0.2.0/24", "sim://b", [])]
    assert found.due == T + 5
    assert not found.needs_listing
    assert found.conditions == {"a": NetworkState.UNROUTED}
    assert found.memory.attempts == memory.attempts
    unclear = Memory(attempts={key: attempt(T + 5, is_lacking=False)})
    assert planned(nodes[:1], [], unclear).conditions == {}


def test_the_next_plan_is_due_when_the_first_of_all_that_waits_is() -> None:
    nodes = [node("a", "10.0.1.0/24"), node("b", "10.0.2.0/24")]
    memory = Memory(
        attempts={
            (net("10.0.1.0/24"), "sim://a"): attempt(T + 5),
            (net("10.0.2.0/24"), "sim://b"): attempt(T + 3),
        }
    )
    assert planned(nodes, [ORPHAN], memory).due == T + 3


def test_a_route_that_came_about_forgets_its_failures() -> None:
    memory = Memory(attempts={(net("10.0.1.0/24"), "sim://a"): attempt(T + 5)})
    found = planned([node("a", "10.0.1.0/24")], [route("10.0.1.0/24")], memory)
    assert found.memory.attempts == {}
    assert found.conditions == {"a": NetworkState.ROUTED}


def test_failures_of_a_machine_that_was_replaced_do_not_delay_its_successor() -> None:
    memory = Memory(attempts={(net("10.0.1.0/24"), "sim://old"): attempt(T + 50)})
    found = planned([node("a", "10.0.1.0/24")], [], memory)
    assert changes(found) == [("10.0.1.0/24", "sim://a", [])]
    assert found.memory.attempts == {}


def test_what_the_cloud_works_on_is_not_touched_and_not_forgotten() -> None:
    nodes = [node("a", "10.0.1.0/24"), node("b", "10.0.2.0/24")]
    orphan = route("10.0.9.0/24", "sim://gone")
    memory = Memory(
        attempts={
            (net("10.0.1.0/24"), "sim://a"): attempt(),
            (net("10.0.9.0/24"), ""): attempt(),
        },
        doubts={orphan: T - 99},
    )
    found = planned(nodes, [orphan], memory, busy=["10.0.1.0/24", "10.0.2.0/24", "10.0.9.0/24"])
    assert found.batches == ()
    assert found.memory == memory
    assert found.conditions == {"a": NetworkState.UNROUTED}
    present = [orphan, route("10.0.1.0/24"), route("10.0.2.0/24", "sim://b")]
    busy = planned(nodes, present, busy=["10.0.1.0/24", "10.0.2.0/24"])
    assert busy.conditions == {}
    assert busy.memory.there == frozenset()


def test_a_deletion_that_failed_waits_for_its_time() -> None:
    nodes = [node("a", "10.0.1.0/24")]
    key = (net("10.0.9.0/24"), "")
    memory = Memory(attempts={key: attempt(T + 5)}, doubts={ORPHAN: T - 50})
    found = planned(nodes, [route("10.0.1.0/24"), ORPHAN], memory)
    assert found.batches == ()
    assert found.due == T + 5
    assert found.memory.attempts == memory.attempts
    assert found.conditions == {"a": NetworkState.ROUTED}


def test_while_nothing_can_be_listed_nodes_without_a_known_route_are_named() -> None:
    nodes = [
        node("a", "10.0.1.0/24"),
        node("b", "10.0.2.0/24"),
        node("c", "10.0.3.0/24", conditions=(ROUTED,)),
        node("d", "10.0.4.0/24", conditions=(UNROUTED,)),
        node("e", provider_id=""),
    ]
    memory = planned(nodes, [route("10.0.1.0/24")]).memory
    assert unseen(desired(*nodes), memory) == {"b", "d"}
    event = unlisted("b", CloudError("500, request id: 12345678"))
    assert event == PlannedEvent(
        "Warning",
        "FailedToCreateRoute",
        "Could not create routes for node b: cannot list the routes: 500, request id: <id>",
    )


# Answers

DESIRED = DesiredRoute("a", "uid-a", net("10.0.1.0/24"), "sim://a", frozenset(), was_routed=False)
NEW = DESIRED.route()
OLD = route("10.0.1.0/24", "sim://old")
CREATE = Unit(DESIRED.destination, DESIRED)
REPLACE = Unit(DESIRED.destination, DESIRED, (OLD,))
DELETE = Unit(net("10.0.9.0/24"), delete=(ORPHAN, OLD))


def judged(
    unit: Unit, answers: Any, before: Attempt | None = None, *, batch: int = 10, now: float = T
) -> Result:
    return result(unit, answers, before, POLICY, batch=batch, now=now)


def test_units_are_counted_by_destination_and_target() -> None:
    assert CREATE.key == REPLACE.key == (net("10.0.1.0/24"), "sim://a")
    assert DELETE.key == (net("10.0.9.0/24"), "")


def test_what_is_done_is_done() -> None:
    assert judged(CREATE, {NEW: Done()}, attempt()) == Result(NEW, (), None)
    assert judged(REPLACE, {NEW: Done(), OLD: Done()}) == Result(NEW, (OLD,), None)
    assert judged(DELETE, {ORPHAN: Done(), OLD: Done()}) == Result(None, (ORPHAN, OLD), None)


def test_half_of_a_replacement_is_kept_apart() -> None:
    half = judged(REPLACE, {NEW: CloudError("full"), OLD: Done()})
    assert (half.created, half.deleted) == (None, (OLD,))
    assert half.attempt == Attempt(1, T + 1, is_lacking=True, text="full", batch=50)
    other_half = judged(REPLACE, {NEW: Done(), OLD: CloudError("busy")})
    assert other_half == Result(NEW, (), None)


def test_half_of_a_deletion_is_tried_again() -> None:
    half = judged(DELETE, {ORPHAN: Done(), OLD: CloudError("busy")})
    assert (half.created, half.deleted) == (None, (ORPHAN,))
    assert half.attempt is not None
    assert half.attempt.text == "busy"


@pytest.mark.parametrize("unknown", [{}, {NEW: CallTimeout("late")}])
def test_an_unknown_outcome_is_not_reported_until_it_repeats(unknown: Mapping[Route, Any]) -> None:
    first = judged(CREATE, unknown).attempt
    assert first == Attempt(1, T + 1, is_lacking=False, text="", batch=50)
    second = judged(CREATE, unknown, first).attempt
    assert second is not None
    assert (second.failures, second.is_lacking, second.text) == (2, False, "")
    third = judged(CREATE, unknown, second).attempt
    assert third is not None
    assert third.is_lacking
    assert third.text == ("late" if unknown else "the cloud gave no answer for it")
    known = judged(CREATE, unknown, attempt(text="no", batch=7)).attempt
    assert known is not None
    assert (known.is_lacking, known.text, known.batch) == (True, "no", 7)


@pytest.mark.parametrize("wait", [Pending(20.0, "working"), RetryAfter("later", after=20.0)])
def test_to_be_asked_to_wait_is_no_failure(wait: Any) -> None:
    fresh = judged(CREATE, {NEW: wait}).attempt
    assert fresh == Attempt(0, T + 20, is_lacking=True, text="", batch=50)
    again = judged(CREATE, {NEW: wait}, attempt(failures=4, batch=7)).attempt
    assert again == Attempt(4, T + 20, is_lacking=True, text="no", batch=7)
    impatient = type(wait)(
        **{"after": 0.0, ("reason" if wait.__class__ is Pending else "message"): "now"}
    )
    at_once = judged(CREATE, {NEW: impatient}).attempt
    assert at_once is not None
    assert at_once.due == T + 1


def test_throttling_is_a_failure_that_is_not_reported() -> None:
    found = judged(CREATE, {NEW: Throttled("429", after=33.0)}).attempt
    assert found == Attempt(1, T + 33, is_lacking=True, text="", batch=50)
    unsaid = judged(CREATE, {NEW: Throttled("429")}, attempt(failures=2)).attempt
    assert unsaid == Attempt(3, T + 4, is_lacking=True, text="no", batch=50)
    for throttled in (Throttled("429", after=0.5), Throttled("429")):
        short = judged(CREATE, {NEW: throttled}, now=T + 0.25).attempt
        assert short is not None
        assert short.due == T + 2


@pytest.mark.parametrize(
    ("failures", "now", "due"),
    [
        (0, 1000.0, 1001.0),
        (1, 1000.0, 1002.0),
        (1, 1000.5, 1004.0),
        (2, 1000.5, 1008.0),
        (5, 1000.0, 1056.0),
        (6, 1000.0, 1080.0),
        (60, 1080.5, 1200.0),
        (5000, 1000.0, 1080.0),
    ],
)
def test_failures_come_back_later_and_later_and_together(
    failures: int, now: float, due: float
) -> None:
    before = attempt(failures=failures) if failures else None
    found = judged(CREATE, {NEW: CloudError("no")}, before, now=now).attempt
    assert found is not None
    assert (found.failures, found.due) == (failures + 1, due)


def test_texts_of_errors_have_no_request_ids() -> None:
    found = judged(CREATE, {NEW: CloudError("no  room, request id: 12345678")}).attempt
    assert found is not None
    assert found.text == "no room, request id: <id>"


@pytest.mark.parametrize(("batch", "smaller"), [(50, 6), (16, 2), (8, 1), (7, 1), (1, 1)])
def test_a_batch_that_fails_as_a_whole_is_tried_again_in_smaller_ones(
    batch: int, smaller: int
) -> None:
    found = judged(REPLACE, CloudError("malformed"), batch=batch)
    assert (found.created, found.deleted) == (None, ())
    assert found.attempt == Attempt(1, T + 1, is_lacking=True, text="malformed", batch=smaller)


def test_whatever_a_provider_raises_is_a_failure() -> None:
    found = judged(DELETE, ValueError("defect"))
    assert found.attempt == Attempt(1, T + 1, is_lacking=True, text="defect", batch=1)
    late = judged(CREATE, CallTimeout("late"))
    assert late.attempt is not None
    assert not late.attempt.is_lacking


def test_a_pending_deletion_is_not_reported_on_a_node() -> None:
    found = judged(DELETE, {ORPHAN: Pending(5.0, "x"), OLD: Done()})
    assert found.attempt == Attempt(0, T + 5, is_lacking=True, text="", batch=50)
    assert found.deleted == (OLD,)
