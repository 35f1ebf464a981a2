"""What is done next to a load balancer of Octavia: a table of situations, and that it ends."""

from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.cloudprovider import (
    MARK_FINGERPRINT,
    ClusterIdentity,
    LoadBalancerRef,
    PartChange,
)
from proreus.providers.openstack.octavia import owners, records
from proreus.providers.openstack.octavia.parts import Balancer, Listener, Member, Monitor, Pool
from proreus.providers.openstack.octavia.plan import (
    ACTIVE,
    Broken,
    Change,
    Drop,
    DropBalancer,
    MakeBalancer,
    MakeListener,
    MakeMonitor,
    MakePool,
    ReadPool,
    SetMembers,
    Step,
    Taken,
    Wait,
    deletion,
    departure,
    is_last,
    plan,
)
from proreus.providers.openstack.octavia.preview import part_changes, pretend

HOSTS = (Member("10.0.0.5", 30080, name="a"), Member("10.0.0.6", 30080, name="b"))
CHECK = Monitor("TCP", {"delay": 5}, id="m")
POOL = Pool("TCP", {"lb_algorithm": "ROUND_ROBIN"}, HOSTS, CHECK, id="p")
HTTP = Listener("TCP", 80, {"connection_limit": -1}, POOL, id="l")
DNS = Listener("UDP", 80, {}, msgspec.structs.replace(POOL, protocol="UDP", id="q"), id="k")
DESIRED = Balancer("web", {"description": "d"}, {"vip_subnet_id": "s"}, (HTTP, DNS))


T = TypeVar("T", bound=msgspec.Struct)


def but(of: T, **changes: Any) -> T:
    return msgspec.structs.replace(of, **changes)


THERE = but(DESIRED, id="b", status=ACTIVE, fields={"description": "d", "tags": ["x"]})


def with_pool(**changes: Any) -> Balancer:
    return but(THERE, listeners=(but(HTTP, pool=but(POOL, **changes)), DNS))


def with_listener(**changes: Any) -> Balancer:
    return but(THERE, listeners=(but(HTTP, **changes), DNS))


SITUATIONS: dict[str, tuple[Balancer | None, Step | None]] = {
    "nothing": (None, MakeBalancer(DESIRED, with_parts=True)),
    "all as desired, with a field that nobody asked for": (THERE, None),
    "work": (but(THERE, status="PENDING_UPDATE"), Wait("PENDING_UPDATE")),
    "an error without an address": (but(THERE, status="ERROR"), DropBalancer("b", cascade=True)),
    "another description": (
        but(THERE, fields={"description": "x"}),
        Change("loadbalancers", "b", {"description": "d"}),
    ),
    "a listener too many": (
        but(THERE, listeners=(*THERE.listeners, but(HTTP, port=81, id="old"))),
        Drop("listeners", "old"),
    ),
    "a listener of another protocol at its port": (
        with_listener(protocol="HTTP"),
        Drop("listeners", "l"),
    ),
    "a pool that nobody uses": (but(THERE, stray=("s",)), Drop("pools", "s")),
    "a listener too few": (but(THERE, listeners=(HTTP,)), MakeListener(DNS)),
    "another limit": (
        with_listener(fields={"connection_limit": 5}),
        Change("listeners", "l", {"connection_limit": -1}),
    ),
    "a listener without its pool": (with_listener(pool=None), MakePool(POOL, "l")),
    "a listener with somebody else's pool": (
        with_listener(pool=None, has_strange_pool=True),
        Change("listeners", "l", {"default_pool_id": None}),
    ),
    "a pool of another protocol": (with_pool(protocol="PROXY"), Drop("pools", "p")),
    "another method": (
        with_pool(fields={"lb_algorithm": "SOURCE_IP"}),
        Change("pools", "p", {"lb_algorithm": "ROUND_ROBIN"}),
    ),
    "a member too few": (with_pool(members=HOSTS[:1]), SetMembers("p", HOSTS)),
    "a member by another name": (with_pool(members=(but(HOSTS[0], name="x"), HOSTS[1])), None),
    "a member that is asked at another port": (
        with_pool(members=(but(HOSTS[0], monitor_port=1), HOSTS[1])),
        SetMembers("p", HOSTS),
    ),
    "a pool whose members are not known": (with_pool(is_read=False), ReadPool("p")),
    "the same, and a listener too few": (
        but(with_pool(is_read=False), listeners=(but(HTTP, pool=but(POOL, is_read=False)),)),
        MakeListener(DNS),
    ),
    "no monitor": (with_pool(monitor=None), MakeMonitor(CHECK, "p")),
    "another sort of monitor": (
        with_pool(monitor=but(CHECK, type="HTTP")),
        Drop("healthmonitors", "m"),
    ),
    "a slower monitor": (
        with_pool(monitor=but(CHECK, fields={"delay": 9})),
        Change("healthmonitors", "m", {"delay": 5}),
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_next_step_follows_from_what_there_is(name: str) -> None:
    observed, step = SITUATIONS[name]
    assert plan(DESIRED, observed, at_once=True, cascade=True, is_known=False) == step


def test_parts_are_made_one_by_one_where_the_provider_needs_it() -> None:
    assert plan(DESIRED, None, at_once=False, cascade=True, is_known=False) == MakeBalancer(
        DESIRED, with_parts=False
    )


def test_one_whose_address_is_known_is_not_deleted_in_an_error() -> None:
    assert (
        plan(DESIRED, but(THERE, status="ERROR"), at_once=True, cascade=True, is_known=True)
        == Broken()
    )


def test_what_is_not_desired_of_a_listener_is_deleted() -> None:
    bare = but(DESIRED, listeners=(but(HTTP, pool=None), DNS))
    assert plan(bare, THERE, at_once=True, cascade=True, is_known=True) == Drop("pools", "p")
    gone = but(THERE, listeners=bare.listeners)
    assert plan(bare, gone, at_once=True, cascade=True, is_known=True) is None
    unasked = but(DESIRED, listeners=(but(HTTP, pool=but(POOL, monitor=None)), DNS))
    assert plan(unasked, THERE, at_once=True, cascade=True, is_known=True) == Drop(
        "healthmonitors", "m"
    )
    assert plan(unasked, with_pool(monitor=None), at_once=True, cascade=True, is_known=True) is None


def test_a_port_that_somebody_else_listens_at_is_reported_before_anything_is_done() -> None:
    observed = but(THERE, fields={}, listeners=(HTTP,), taken=frozenset({("UDP", 80)}))
    assert plan(DESIRED, observed, at_once=True, cascade=True, is_known=True) == Taken("UDP", 80)


def test_one_that_others_use_is_not_deleted_in_an_error() -> None:
    observed = but(THERE, status="ERROR", others=frozenset({"x"}))
    assert plan(DESIRED, observed, at_once=True, cascade=True, is_known=False) == Broken()


def test_who_leaves_takes_parts_first_and_then_tags() -> None:
    assert departure(THERE, []) == Drop("listeners", "l")
    left = but(THERE, listeners=(), stray=("p",))
    assert departure(left, []) == Drop("pools", "p")
    last = but(left, stray=())
    assert departure(last, ["y"]) == Change("loadbalancers", "b", {"tags": ["y"]})
    assert departure(last, ["x"]) is None
    assert departure(but(last, status="PENDING_UPDATE"), []) == Wait("PENDING_UPDATE")
    assert departure(but(last, status="ERROR"), []) == Broken()


def test_deletion_is_one_request_where_the_provider_can() -> None:
    assert deletion(THERE, cascade=True) == DropBalancer("b", cascade=True)
    assert deletion(but(THERE, status="ERROR"), cascade=True) == DropBalancer("b", cascade=True)
    assert deletion(but(THERE, status="PENDING_DELETE"), cascade=True) == Wait("PENDING_DELETE")
    assert deletion(but(THERE, status="DELETED"), cascade=True) is None
    assert deletion(None, cascade=True) is None


def test_one_in_an_error_without_parts_goes_without_cascade_and_one_with_parts_is_reported() -> (
    None
):
    bare = but(THERE, listeners=(), status="ERROR")
    for observed, step in (
        (bare, DropBalancer("b", cascade=False)),
        (but(bare, stray=("p",)), Broken()),
        (but(THERE, status="ERROR"), Broken()),
    ):
        assert deletion(observed, cascade=False) == step
        assert plan(DESIRED, observed, at_once=False, cascade=False, is_known=False) == step


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (DropBalancer("b", cascade=True), True),
        (Change("loadbalancers", "b", {"tags": []}), True),
        (Wait("PENDING_DELETE"), True),
        (Wait("PENDING_UPDATE"), False),
        (Drop("listeners", "l"), False),
        (Broken(), False),
    ],
)
def test_the_last_step_leaves_nothing_of_the_service(step: Step, *, expected: bool) -> None:
    assert is_last(step) is expected


def test_deletion_goes_part_by_part_where_it_cannot() -> None:
    assert deletion(THERE, cascade=False) == Drop("listeners", "l")
    left = but(THERE, listeners=(), stray=("p",))
    assert deletion(left, cascade=False) == Drop("pools", "p")
    gone = DropBalancer("b", cascade=False)
    assert deletion(but(left, stray=()), cascade=False) == gone


FIELDS = st.dictionaries(st.sampled_from("ab"), st.integers(0, 1))
MEMBERS = st.lists(st.sampled_from(HOSTS), unique=True).map(tuple)
MONITORS = st.none() | st.builds(Monitor, st.sampled_from(["TCP", "HTTP"]), FIELDS)
POOLS = st.none() | st.builds(Pool, st.sampled_from(["TCP", "PROXY"]), FIELDS, MEMBERS, MONITORS)
LISTENERS = st.lists(
    st.builds(
        Listener, st.sampled_from(["TCP", "HTTP", "UDP"]), st.integers(80, 82), FIELDS, POOLS
    ),
    unique_by=lambda one: one.key,
    max_size=4,
).map(tuple)
BALANCERS = st.builds(Balancer, st.just("web"), FIELDS, st.just({}), LISTENERS)


@given(BALANCERS, BALANCERS, st.booleans())
def test_every_way_from_one_desired_state_to_another_ends_at_it(
    before: Balancer,
    after: Balancer,
    at_once: bool,  # noqa: FBT001
) -> None:
    there: Balancer | None = None
    for desired in (before, after):
        for _ in range(60):
            step = plan(desired, there, at_once=at_once, cascade=at_once, is_known=True)
            if step is None:
                break
            assert list(part_changes(step, there)), step
            there = pretend(there, step)
        assert step is None, step
        assert there is not None
        assert {one.key for one in there.listeners} == {one.key for one in desired.listeners}
        assert there.stray == ()
    for _ in range(60):
        step = deletion(there, cascade=at_once)
        if step is None:
            break
        there = pretend(there, step)
    assert there is None


def test_a_preview_names_parts_as_people_know_them() -> None:
    shown = [
        (one.action, one.part) for one in part_changes(MakeBalancer(DESIRED, with_parts=True), None)
    ]
    assert shown == [
        ("create", "load balancer web"),
        ("create", "listener TCP/80"), ("create", "pool "),
        ("create", "member 10.0.0.5:30080"), ("create", "member 10.0.0.6:30080"),
        ("create", "monitor TCP"),
        ("create", "listener UDP/80"), ("create", "pool "),
        ("create", "member 10.0.0.5:30080"), ("create", "member 10.0.0.6:30080"),
        ("create", "monitor TCP"),
    ]  # fmt: skip
    new = Member("10.0.0.7", 30080, name="c")
    moved = but(HOSTS[1], monitor_port=1)
    assert list(part_changes(SetMembers("p", (moved, new)), THERE)) == [
        PartChange("change", "member 10.0.0.6:30080", "subnet_id=, monitor_port=1"),
        PartChange("create", "member 10.0.0.7:30080", "c"),
        PartChange("delete", "member 10.0.0.5:30080"),
    ]
    (one,) = part_changes(Drop("listeners", "l"), THERE)
    assert one == PartChange("delete", "listener TCP/80")
    (one,) = part_changes(Change("pools", "p", {"lb_algorithm": "SOURCE_IP"}), THERE)
    assert one == PartChange("change", "pool p", "lb_algorithm=SOURCE_IP")


REF = LoadBalancerRef(ClusterIdentity("c", "c-uid"), "shop", "web", "uid", "auid")
RECORDED = f"{MARK_FINGERPRINT}=c-uid/uid/made.hosts"
DESCRIBED = {"id": "b", "tags": ["x", RECORDED, f"{MARK_FINGERPRINT}=c-uid/other/made.hosts"]}
BARE = ["x", f"{MARK_FINGERPRINT}=c-uid/other/made.hosts"]
LABELS = {"tags": ["x", RECORDED, "y"]}

CLEARED: dict[str, tuple[Step, str, Step]] = {
    "a change of a part: the record goes first": (
        Drop("listeners", "l"), "hosts", Change("loadbalancers", "b", {"tags": BARE})
    ),
    "a change of the load balancer: with it": (
        Change("loadbalancers", "b", {"description": "d"}),
        "hosts",
        Change("loadbalancers", "b", {"description": "d", "tags": BARE}),
    ),
    "a change of its tags: with it": (
        Change("loadbalancers", "b", LABELS),
        "hosts",
        Change("loadbalancers", "b", {"tags": ["x", "y"]}),
    ),
    "members come and go: that makes it void": (
        SetMembers("p", HOSTS[:1]), "hosts", SetMembers("p", HOSTS[:1])
    ),
    "members stay and are asked otherwise": (
        SetMembers("p", (but(HOSTS[0], monitor_port=1), HOSTS[1])),
        "hosts",
        Change("loadbalancers", "b", {"tags": BARE}),
    ),
    "the load balancer goes, and the record with it": (
        DropBalancer("b", cascade=True), "hosts", DropBalancer("b", cascade=True)
    ),
    "it was written beside other members, so it says nothing": (
        Drop("listeners", "l"), "others", Drop("listeners", "l")
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CLEARED)
def test_no_record_is_left_that_is_not_true(name: str) -> None:
    step, hosts, first = CLEARED[name]
    assert records.before(step, DESCRIBED, but(THERE, hosts=hosts), REF) == first


def test_a_record_counts_for_the_members_that_it_was_written_beside() -> None:
    record = records.written("made", "hosts")
    assert records.valid(record, "hosts") == "made"
    assert records.valid(record, "others") == ""
    assert records.valid("", records.hosts_of(())) == ""


def test_members_are_recognised_by_their_ids_in_any_order() -> None:
    def pool(id_: str, *members: str) -> dict[str, Any]:
        listed = [{"id": one} for one in members]
        return {"id": id_, "members": listed, "loadbalancers": [{"id": "b"}]}

    one = records.hosts_of([pool("p", "m", "n"), pool("q")])
    assert one == records.hosts_of([pool("q"), pool("p", "n", "m")])
    both = [pool("q"), pool("p", "n", "m")]
    assert records.by_balancer(both) == {"b": both}
    for other in ([pool("p", "m")], [pool("p", "m", "o"), pool("q")], [pool("p", "m", "n")], []):
        assert records.hosts_of(other) != one


def test_of_two_records_of_one_service_none_counts_and_both_go() -> None:
    twice = {"tags": [RECORDED, RECORDED.replace("made", "else"), "x"]}
    assert owners.record_of(DESCRIBED, "c-uid", "uid") == "made.hosts"
    assert owners.record_of(twice, "c-uid", "uid") == ""
    assert owners.recorded(owners.tags_of(twice), REF, "") == ["x"]
    assert owners.recorded(["x", RECORDED], REF, "new") == [
        "x", f"{MARK_FINGERPRINT}=c-uid/uid/new"
    ]  # fmt: skip
    assert RECORDED not in owners.without(DESCRIBED, REF)
