"""Decisions of the gateway of the provider `local`: who gets which connections."""

from collections import Counter
from collections.abc import Mapping
from ipaddress import ip_network
from typing import Any

import pytest

from proreus.cloudprovider import ClusterIdentity, Frontend, HealthCheck, Host, LoadBalancer
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.kube.objects import Service
from proreus.providers.local.plan import (
    HERE,
    Check,
    Condition,
    Machine,
    Member,
    Pool,
    Reach,
    State,
    Target,
    check_of,
    chosen,
    deleted,
    ensured,
    is_asking,
    judged,
    keeping,
    sketch,
    swept,
    targets,
)
from proreus.providers.local.slots import slots

CLUSTER = ClusterIdentity("one", "cluster-uid")
REACH = Reach(
    (ip_network("10.9.0.0/16"), ip_network("fd00:9::/64")), frozenset({"10.9.0.1"}), marks=3
)
ADDRESSES = {"IPv4": "192.0.2.1"}
KUBE_PROXY = HealthCheck(10256, "/healthz")
UNKNOWN, SERVING, REFUSING, SILENT = Condition
LATER = 1030.0


def host(name: str, *addresses: str, v6: tuple[str, ...] = ()) -> Host:
    every = {"IPv4": addresses, "IPv6": v6}
    return Host(name, f"local://{name}", {family: one for family, one in every.items() if one})


ONE, TWO, THREE = (host(name, f"10.9.0.{n}") for n, name in enumerate(("one", "two", "three"), 11))


def desired(
    *hosts: Host,
    uid: str = "web",
    cluster: ClusterIdentity = CLUSTER,
    check: HealthCheck = KUBE_PROXY,
    local: bool = False,
    ports: tuple[tuple[str, int, int], ...] = (("TCP", 80, 30080),),
    families: tuple[str, ...] = ("IPv4",),
    ranges: tuple[str, ...] = ("0.0.0.0/0",),
    affinity: int | None = None,
) -> LoadBalancer:
    return LoadBalancer(
        ref=LoadBalancerRef(cluster, "default", uid, uid, uid),
        service=Service(),
        marks={},
        frontends=tuple(
            Frontend(protocol, port, node_port, family)
            for family in families
            for protocol, port, node_port in ports
        ),
        hosts=hosts,
        health_check=check,
        source_ranges={"IPv4": ranges, "IPv6": ("::/0",)},
        families=families,
        local_traffic=local,
        affinity_seconds=affinity,
    )


def after(
    *several: LoadBalancer,
    state: State | None = None,
    leave: float = 0.0,
    addresses: Mapping[str, str] = ADDRESSES,
) -> State:
    state = state or State()
    for one in several:
        state, rejected = ensured(state, one, addresses, REACH, leave=leave)
        assert not rejected
    return state


OTHER = ClusterIdentity("two", "uid-of-two")


@pytest.mark.parametrize(
    ("second", "named"),
    [
        (host("one", "10.9.0.22"), "one@uid-of-two"),
        (host("one", "10.9.0.11", v6=("fd00:9::22",)), "one@uid-of-two"),
        (ONE, "one"),  # a cluster that was made anew on the same machines
        (TWO, "two"),
    ],
)
def test_nodes_of_several_clusters_may_have_one_name(second: Host, named: str) -> None:
    both = ("IPv4", "IPv6")
    first, later = desired(ONE), desired(second, uid="later", cluster=OTHER, families=both)
    alone = after(later, addresses={"IPv4": "192.0.2.2", "IPv6": "2001:db8::2"})
    state = after(first)
    state = after(later, state=state, addresses={"IPv4": "192.0.2.2", "IPv6": "2001:db8::2"})
    assert state.machines["one"].addresses == {"IPv4": "10.9.0.11"}
    assert nodes_of(state) == ["one"]
    assert nodes_of(state, "later") == [named]
    assert len({one.mark for one in state.machines.values()}) == len(state.machines)
    assert sketch(state, "later") == sketch(alone, "later")
    assert after(first, state=state) == state
    assert after(later, state=state, addresses={"IPv4": "192.0.2.2", "IPv6": "2001:db8::2"}) == (
        state
    )


def test_clusters_that_shared_a_machine_by_its_name_get_one_each() -> None:
    """As an earlier version let them: the traffic of both went to the node of one."""
    other = desired(host("one", "10.9.0.22"), uid="later", cluster=OTHER)
    state = after(other, addresses={"IPv4": "192.0.2.2"})
    shared = State(
        {**state.balancers, "web": after(desired(ONE)).balancers["web"]},
        state.pools,
        state.machines,
    )
    state = after(desired(ONE), state=shared)
    assert nodes_of(state) == ["one@cluster-uid"]
    assert state.machines["one@cluster-uid"].addresses == {"IPv4": "10.9.0.11"}
    assert state.machines["one"].addresses == {"IPv4": "10.9.0.22"}


def pool_of(state: State, uid: str = "web", family: str = "IPv4") -> Pool:
    return state.pools[state.balancers[uid].pools[family]]


def nodes_of(state: State, uid: str = "web", family: str = "IPv4") -> list[str]:
    return [one.node for one in pool_of(state, uid, family).members]


def told(state: State, **conditions: Condition) -> State:
    return judged(
        state,
        {
            Target(state.machines[node].addresses["IPv4"], pool_of(state).check): condition
            for node, condition in conditions.items()
        },
    )


def test_a_balancer_has_what_is_desired() -> None:
    ports = (("UDP", 53, 30053), ("TCP", 53, 30054))
    state = after(desired(ONE, TWO, ports=ports, ranges=("10.0.0.0/8", "10.1.0.0/16"), affinity=60))
    one = state.balancers["web"]
    assert one.cluster == "cluster-uid"
    assert one.service == "default/web"
    assert one.addresses == ADDRESSES
    assert one.ports == (("tcp", 53), ("udp", 53))
    assert one.ranges == {"IPv4": ("10.0.0.0/8",)}, "a range within another one is refused by nft"
    assert one.affinity == 60
    assert nodes_of(state) == ["one", "two"]
    assert state.machines == {
        "one": Machine(1, {"IPv4": "10.9.0.11"}),
        "two": Machine(2, {"IPv4": "10.9.0.12"}),
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Check(10256, "/healthz", needed=False)),
        (
            {"check": HealthCheck(31000, "/healthz"), "local": True},
            Check(31000, "/healthz", needed=True),
        ),
        ({"check": HealthCheck(), "local": True}, Check(30080, "", needed=True)),
        ({"check": HealthCheck(), "ports": (("UDP", 53, 30053),)}, Check()),
        ({"check": HealthCheck(), "ports": (("TCP", 53, 0),)}, Check()),
    ],
    ids=["Cluster", "Local", "Local without its port", "UDP has no answer", "no node port"],
)
def test_how_nodes_are_asked(changes: dict[str, Any], expected: Check) -> None:
    assert check_of(desired(ONE, **changes)) == expected


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (host("far", "172.16.0.1", "not an address"), "172.16.0.1, not an address is not"),
        (host("bare"), "it has no IPv4 address"),
        (host("six", v6=("fd00:9::6",)), "it has no IPv4 address"),
    ],
    ids=["behind a router", "no address", "wrong family"],
)
def test_a_host_that_cannot_be_reached_is_rejected_and_the_others_serve(
    bad: Host, reason: str
) -> None:
    state, rejected = ensured(State(), desired(ONE, bad), ADDRESSES, REACH)
    assert list(rejected) == [bad.node]
    assert rejected[bad.node].startswith(reason)
    assert nodes_of(state) == ["one"]
    assert list(state.machines) == ["one"]


def test_the_first_near_address_of_a_host_is_used() -> None:
    state = after(desired(host("one", "172.16.0.1", "10.9.0.77")))
    assert state.machines["one"].addresses == {"IPv4": "10.9.0.77"}


def test_a_host_of_one_family_serves_that_family() -> None:
    both = host("both", "10.9.0.20", v6=("fd00:9::20",))
    state = after(
        desired(ONE, both, families=("IPv4", "IPv6")),
        addresses={"IPv4": "192.0.2.1", "IPv6": "2001:db8::1"},
    )
    assert nodes_of(state) == ["both", "one"]
    assert nodes_of(state, family="IPv6") == ["both"]
    assert state.machines["both"].addresses == {"IPv4": "10.9.0.20", "IPv6": "fd00:9::20"}


def test_this_machine_as_a_node_has_no_mark_while_it_has_the_address() -> None:
    here, moved = host("here", "10.9.0.1"), host("here", "10.9.0.99")
    state = after(desired(ONE, here))
    assert state.machines["here"].mark == HERE
    assert after(desired(ONE, moved), state=state).machines["here"].mark == 2
    assert after(desired(ONE, here), state=after(desired(ONE, moved))).machines["here"].mark == HERE


def test_marks_are_kept_reused_late_and_may_run_out() -> None:
    state = after(desired(ONE, TWO))
    state = swept(after(desired(TWO), state=state), 0.0)
    assert state.machines["two"].mark == 2
    state = after(desired(TWO, THREE), state=state)
    assert state.machines["three"].mark == 3, "1 may still be on old connections"
    state = after(desired(ONE, TWO, THREE), state=state)
    assert state.machines["one"].mark == 1
    state, rejected = ensured(state, desired(ONE, host("four", "10.9.0.4")), ADDRESSES, REACH)
    assert rejected == {
        "four": "the gateway can mark 3 nodes only: set more bits in gateway mark-mask"
    }


def test_services_with_the_same_nodes_and_check_share_a_pool() -> None:
    state = after(desired(ONE, TWO), desired(TWO, ONE, uid="same"), desired(ONE, uid="fewer"))
    local = desired(ONE, TWO, uid="local", check=HealthCheck(31000, "/healthz"), local=True)
    state = after(local, state=state)
    keys = {uid: one.pools["IPv4"] for uid, one in state.balancers.items()}
    assert keys["web"] == keys["same"]
    assert len(set(keys.values())) == 3


def test_a_new_pool_knows_what_is_known_of_its_nodes() -> None:
    state = told(after(desired(ONE, TWO)), one=SERVING, two=SILENT)
    state = after(desired(ONE, TWO, THREE), state=state)
    assert pool_of(state).members == (
        Member("one", SERVING),
        Member("three", UNKNOWN),
        Member("two", SILENT),
    )


def test_a_host_that_is_removed_drains() -> None:
    state = told(after(desired(ONE, TWO, THREE)), one=SERVING, two=SERVING)
    state = after(desired(ONE, THREE), state=state, leave=LATER)
    assert Member("two", SERVING, LATER) in pool_of(state).members
    assert "two" not in chosen(pool_of(state))
    assert "two" in keeping(pool_of(state))
    state = after(desired(ONE), state=state, leave=LATER + 100)
    assert Member("two", SERVING, LATER) in pool_of(state).members, "it keeps its time"
    assert nodes_of(swept(state, LATER - 1)) == ["one", "three", "two"]
    assert nodes_of(swept(state, LATER)) == ["one", "three"]
    assert set(swept(state, LATER).machines) == {"one", "three"}


def test_a_host_that_comes_back_stays() -> None:
    state = after(desired(ONE), state=after(desired(ONE, TWO)), leave=LATER)
    state = after(desired(ONE, TWO), state=state, leave=LATER)
    assert pool_of(state).members == (Member("one"), Member("two"))


def test_a_pool_that_others_drain_in_keeps_doing_so() -> None:
    state = after(desired(ONE), desired(ONE, TWO, uid="other"))
    state = after(desired(ONE, uid="other"), state=state, leave=LATER)
    state = after(desired(ONE), state=state, leave=LATER)
    assert pool_of(state).members == (Member("one"), Member("two", UNKNOWN, LATER))


def test_without_draining_a_host_is_gone_at_once() -> None:
    state = swept(after(desired(ONE), state=after(desired(ONE, TWO))), 0.0)
    assert nodes_of(state) == ["one"]
    assert list(state.machines) == ["one"]


def test_a_deleted_balancer_leaves_nothing() -> None:
    state = swept(deleted(after(desired(ONE, TWO)), "web"), 0.0)
    assert state == State({}, {}, {})


EITHER, NEEDED, UNASKED = Check(1, "/"), Check(1, "/", needed=True), Check()


@pytest.mark.parametrize(
    ("check", "members", "new", "old"),
    [
        (EITHER, {"a": UNKNOWN, "b": SERVING}, "ab", "ab"),
        (EITHER, {"a": REFUSING, "b": SERVING}, "b", "ab"),
        (EITHER, {"a": SILENT, "b": SERVING}, "b", "b"),
        (EITHER, {"a": SILENT, "b": REFUSING}, "b", "b"),
        (EITHER, {"a": SILENT, "b": SILENT}, "ab", "ab"),
        (EITHER, {}, "", ""),
        (NEEDED, {"a": UNKNOWN, "b": SERVING}, "b", "ab"),
        (NEEDED, {"a": SILENT, "b": REFUSING}, "", "b"),
        (NEEDED, {"a": SILENT}, "", ""),
        (UNASKED, {"a": UNKNOWN}, "a", "a"),
    ],
)
def test_who_gets_new_connections_and_who_keeps_old_ones(
    check: Check, members: dict[str, Condition], new: str, old: str
) -> None:
    pool = Pool("IPv4", check, tuple(Member(*one) for one in members.items()))
    assert "".join(chosen(pool)) == new
    assert "".join(keeping(pool)) == old


@pytest.mark.parametrize(
    ("check", "members", "asking"),
    [
        (NEEDED, {"a": UNKNOWN, "b": UNKNOWN}, True),
        (NEEDED, {"a": UNKNOWN, "b": REFUSING}, True),
        (NEEDED, {"a": UNKNOWN, "b": SERVING}, False),
        (NEEDED, {"a": SILENT, "b": REFUSING}, False),
        (NEEDED, {}, False),
        (EITHER, {"a": UNKNOWN}, False),
        (UNASKED, {"a": UNKNOWN}, False),
    ],
)
def test_nobody_is_refused_before_the_nodes_have_been_asked(
    check: Check, members: dict[str, Condition], *, asking: bool
) -> None:
    pool = Pool("IPv4", check, tuple(Member(*one) for one in members.items()))
    assert is_asking(pool) is asking


def test_leaving_nodes_get_nothing_new_even_if_all_others_are_silent() -> None:
    pool = Pool("IPv4", EITHER, (Member("a", SILENT), Member("b", SERVING, LATER)))
    assert chosen(pool) == ("a",)
    assert keeping(pool) == ("a", "b")


def test_each_node_is_asked_once_for_all_services_alike() -> None:
    state = after(
        desired(ONE, TWO), desired(ONE, uid="other"), desired(ONE, uid="u", check=HealthCheck())
    )
    udp = desired(ONE, uid="udp", check=HealthCheck(), ports=(("UDP", 1, 2),))
    state = after(udp, state=state)
    kube_proxy = Check(10256, "/healthz")
    assert targets(state) == {
        Target("10.9.0.11", kube_proxy),
        Target("10.9.0.12", kube_proxy),
        Target("10.9.0.11", Check(30080)),
    }


def test_the_health_of_a_node_counts_in_every_pool_with_that_check() -> None:
    state = after(desired(ONE, TWO), desired(ONE, uid="other"))
    state = told(state, one=SILENT)
    assert pool_of(state).members == (Member("one", SILENT), Member("two", UNKNOWN))
    assert pool_of(state, "other").members == (Member("one", SILENT),)


@pytest.mark.parametrize(
    "other",
    [
        desired(ONE),
        desired(ONE, host("two", "10.9.0.99")),
        desired(ONE, TWO, ports=(("TCP", 81, 30080),)),
        desired(ONE, TWO, ranges=("10.0.0.0/8",)),
        desired(ONE, TWO, affinity=10),
        desired(ONE, TWO, check=HealthCheck(31000, "/healthz")),
    ],
    ids=["hosts", "address", "ports", "ranges", "affinity", "check"],
)
def test_the_sketch_of_another_desired_state_differs(other: LoadBalancer) -> None:
    assert sketch(after(desired(ONE, TWO)), "web") != sketch(after(other), "web")


def test_the_sketch_depends_on_what_is_desired_alone() -> None:
    state = told(after(desired(THREE, uid="x"), desired(ONE, TWO, THREE)), one=SILENT)
    state = after(desired(ONE, TWO), state=state, leave=LATER, addresses={"IPv4": "192.0.2.9"})
    assert sketch(state, "web") == sketch(after(desired(TWO, ONE)), "web")


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_slots_are_given_out_evenly(count: int) -> None:
    shares = Counter(slots(tuple(f"node-{number}" for number in range(count))))
    assert len(shares) == count
    assert max(shares.values()) - min(shares.values()) <= 1


def test_slots_of_nobody_are_none() -> None:
    assert slots(()) == ()


def test_a_node_that_goes_takes_hardly_anybody_elses_connections_with_it() -> None:
    before = slots(("a", "b", "c", "d"))
    now = slots(("a", "b", "d"))
    others = [(one, other) for one, other in zip(before, now, strict=True) if one != "c"]
    assert sum(one != other for one, other in others) < len(before) / 10


def test_an_address_that_no_machine_of_a_network_can_have_makes_no_host() -> None:
    rogue = host("rogue", "10.9.255.255", v6=("fd00:9::",))
    _, rejected = ensured(State(), desired(ONE, rogue), ADDRESSES, REACH)
    assert list(rejected) == ["rogue"]
    assert "10.9.255.255" in rejected["rogue"]
    assert not REACH.is_near("fd00:9::")
    assert Reach((ip_network("10.9.0.2/31"),)).is_near("10.9.0.3")
