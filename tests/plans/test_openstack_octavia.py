"""What is done next to a load balancer of Octavia: a table of situations, and that it ends."""

from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.providers.openstack.octavia.parts import Balancer, Listener, Member, Monitor, Pool
from proreus.providers.openstack.octavia.plan import (
    ACTIVE,
    Broken,
    Change,
    Drop,
    DropBalancer,
    Look,
    MakeBalancer,
    MakeListener,
    MakeMonitor,
    MakePool,
    SetMembers,
    Step,
    Taken,
    Wait,
    deletion,
    departure,
    plan,
)

HOSTS = (Member("10.0.0.5", 30080, name="a"), Member("10.0.0.6", 30080, name="b"))
CHECK = Monitor("TCP", {"delay": 5}, id="m")
POOL = Pool("TCP", {"lb_algorithm": "ROUND_ROBIN"}, HOSTS, CHECK, id="p")
HTTP = Listener("TCP", 80, {"connection_limit": -1}, POOL, id="l")
DNS = Listener("UDP", 80, {}, msgspec.structs.replace(POOL, protocol="UDP", id="q"), id="k")
WISH = Balancer("web", {"description": "d"}, {"vip_subnet_id": "s"}, (HTTP, DNS))


T = TypeVar("T", bound=msgspec.Struct)


def but(of: T, **changes: Any) -> T:
    return msgspec.structs.replace(of, **changes)


THERE = but(WISH, id="b", status=ACTIVE, fields={"description": "d", "tags": ["x"]})


def with_pool(**changes: Any) -> Balancer:
    return but(THERE, listeners=(but(HTTP, pool=but(POOL, **changes)), DNS))


def with_listener(**changes: Any) -> Balancer:
    return but(THERE, listeners=(but(HTTP, **changes), DNS))


SITUATIONS: dict[str, tuple[Balancer | None, Step | None]] = {
    "nothing": (None, MakeBalancer(WISH, with_parts=True)),
    "all as wished, with a field that nobody asked for": (THERE, None),
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
    "a pool whose members are not known": (with_pool(is_read=False), Look("p")),
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
    actual, step = SITUATIONS[name]
    assert plan(WISH, actual, at_once=True, cascade=True, is_known=False) == step


def test_parts_are_made_one_by_one_where_the_provider_needs_it() -> None:
    assert plan(WISH, None, at_once=False, cascade=True, is_known=False) == MakeBalancer(
        WISH, with_parts=False
    )


def test_one_whose_address_is_known_is_not_deleted_in_an_error() -> None:
    assert (
        plan(WISH, but(THERE, status="ERROR"), at_once=True, cascade=True, is_known=True)
        == Broken()
    )


def test_what_is_not_wished_of_a_listener_is_taken_away() -> None:
    bare = but(WISH, listeners=(but(HTTP, pool=None), DNS))
    assert plan(bare, THERE, at_once=True, cascade=True, is_known=True) == Drop("pools", "p")
    gone = but(THERE, listeners=bare.listeners)
    assert plan(bare, gone, at_once=True, cascade=True, is_known=True) is None
    unasked = but(WISH, listeners=(but(HTTP, pool=but(POOL, monitor=None)), DNS))
    assert plan(unasked, THERE, at_once=True, cascade=True, is_known=True) == Drop(
        "healthmonitors", "m"
    )
    assert plan(unasked, with_pool(monitor=None), at_once=True, cascade=True, is_known=True) is None


def test_a_port_that_somebody_else_listens_at_is_told_before_anything_is_done() -> None:
    actual = but(THERE, fields={}, listeners=(HTTP,), taken=frozenset({("UDP", 80)}))
    assert plan(WISH, actual, at_once=True, cascade=True, is_known=True) == Taken("UDP", 80)


def test_one_that_others_use_is_not_deleted_in_an_error() -> None:
    actual = but(THERE, status="ERROR", others=frozenset({"x"}))
    assert plan(WISH, actual, at_once=True, cascade=True, is_known=False) == Broken()


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


def test_one_in_an_error_without_parts_goes_without_cascade_and_one_with_parts_is_told() -> None:
    bare = but(THERE, listeners=(), status="ERROR")
    for actual, step in (
        (bare, DropBalancer("b", cascade=False)),
        (but(bare, stray=("p",)), Broken()),
        (but(THERE, status="ERROR"), Broken()),
    ):
        assert deletion(actual, cascade=False) == step
        assert plan(WISH, actual, at_once=False, cascade=False, is_known=False) == step


def test_deletion_goes_part_by_part_where_it_cannot() -> None:
    assert deletion(THERE, cascade=False) == Drop("listeners", "l")
    left = but(THERE, listeners=(), stray=("p",))
    assert deletion(left, cascade=False) == Drop("pools", "p")
    gone = DropBalancer("b", cascade=False)
    assert deletion(but(left, stray=()), cascade=False) == gone


class Octavia:
    """Does what a plan says, as Octavia would."""

    def __init__(self, there: Balancer | None) -> None:
        self.there = there
        self.made = 0

    def id(self) -> str:
        self.made += 1
        return f"new-{self.made}"

    def do(self, step: Step) -> None:
        there = self.there
        if isinstance(step, MakeBalancer):
            parts = step.wanted.listeners if step.with_parts else ()
            listeners = tuple(self.whole(one) for one in parts)
            self.there = but(step.wanted, id=self.id(), status=ACTIVE, listeners=listeners)
        elif isinstance(step, DropBalancer):
            self.there = None
        elif there is not None:
            self.there = self.changed(there, step)

    def whole(self, of: Listener) -> Listener:
        pool = of.pool
        if pool is not None:
            monitor = but(pool.monitor, id=self.id()) if pool.monitor else None
            pool = but(pool, id=self.id(), monitor=monitor)
        return but(of, id=self.id(), pool=pool)

    def changed(self, there: Balancer, step: Step) -> Balancer:
        if isinstance(step, Change) and step.collection == "loadbalancers":
            return but(there, fields={**there.fields, **step.fields})
        if isinstance(step, MakeListener):
            new = but(step.wanted, id=self.id(), pool=None)
            return but(there, listeners=(*there.listeners, new))
        if isinstance(step, Drop) and step.collection == "listeners":
            gone = [one for one in there.listeners if one.id == step.id]
            left = tuple(one for one in there.listeners if one.id != step.id)
            loose = [one.pool.id for one in gone if one.pool is not None]
            return but(there, listeners=left, stray=(*there.stray, *loose))
        listeners = tuple(self.of_listener(one, step) for one in there.listeners)
        stray = tuple(one for one in there.stray if not (isinstance(step, Drop) and one == step.id))
        return but(there, listeners=listeners, stray=stray)

    def of_listener(self, one: Listener, step: Step) -> Listener:
        if isinstance(step, Change) and step.id == one.id:
            return but(one, fields={**one.fields, **step.fields})
        if isinstance(step, MakePool) and step.listener == one.id:
            return but(one, pool=but(step.wanted, id=self.id(), members=(), monitor=None))
        pool = one.pool
        if pool is None:
            return one
        if isinstance(step, Drop) and step.id == pool.id:
            return but(one, pool=None)
        if isinstance(step, Change) and step.id == pool.id:
            pool = but(pool, fields={**pool.fields, **step.fields})
        elif isinstance(step, SetMembers) and step.pool == pool.id:
            pool = but(pool, members=step.members)
        elif isinstance(step, MakeMonitor) and step.pool == pool.id:
            pool = but(pool, monitor=but(step.wanted, id=self.id()))
        elif pool.monitor is not None and isinstance(step, Drop) and step.id == pool.monitor.id:
            pool = but(pool, monitor=None)
        elif pool.monitor is not None and isinstance(step, Change) and step.id == pool.monitor.id:
            fields = {**pool.monitor.fields, **step.fields}
            pool = but(pool, monitor=but(pool.monitor, fields=fields))
        return but(one, pool=pool)


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
def test_every_way_from_one_wish_to_another_ends_at_it(
    before: Balancer,
    after: Balancer,
    at_once: bool,  # noqa: FBT001
) -> None:
    octavia = Octavia(None)
    for wish in (before, after):
        for _ in range(60):
            step = plan(wish, octavia.there, at_once=at_once, cascade=at_once, is_known=True)
            if step is None:
                break
            octavia.do(step)
        assert step is None, step
        there = octavia.there
        assert there is not None
        assert {one.key for one in there.listeners} == {one.key for one in wish.listeners}
        assert there.stray == ()
    for _ in range(60):
        step = deletion(octavia.there, cascade=at_once)
        if step is None:
            break
        octavia.do(step)
    assert octavia.there is None
