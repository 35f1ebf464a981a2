"""What is done next to load balancers of Rackspace: a table of situations, and that it ends."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import settings as limits
from hypothesis import strategies as st
from msgspec.structs import replace

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.providers.rackspace.balancing.parts import (
    Desired,
    Existing,
    Item,
    Member,
    Monitor,
    Observed,
    Place,
    Settings,
    Vip,
)
from proreus.providers.rackspace.balancing.plan import (
    addresses,
    check_observed,
    check_states,
    deletion,
    is_settled,
    plan,
)

V4 = Vip(1, "203.0.113.1", "PUBLIC", "IPV4")
OTHER = Vip(2, "203.0.113.2", "PUBLIC", "IPV4")
INSIDE = Vip(3, "10.180.0.1", "SERVICENET", "IPV4")
V6 = Vip(4, "2001:db8::4", "PUBLIC", "IPV6")
PLACE = Place("PUBLIC", frozenset({"IPV4"}))
MEMBERS = frozenset({Member("10.0.0.1", 30080), Member("10.0.0.2", 30080)})
MARKS = {"proreus/service-uid": "u"}
WEB = Settings("a-tcp-80", "TCP", 80, "ROUND_ROBIN", 30, MEMBERS)
TLS = replace(WEB, name="a-tcp-443", port=443)
DNS = replace(WEB, name="a-udp-80", protocol="UDP")
HTTP = replace(WEB, protocol="HTTP")
CHECK = Monitor("CONNECT", 10, 10, 3)
BY_HTTP = Monitor("HTTP", 10, 10, 3, "/", "^2")
DENY = Item("0.0.0.0/0", "DENY")
ALLOW = Item("192.0.2.0/24", "ALLOW")
MORE = Item("198.51.100.0/24", "ALLOW")


def desired(*settings: Settings, place: Place = PLACE, most: int = 25) -> Desired:
    return Desired(settings or (WEB,), place, MARKS, most)


def there(
    settings: Settings = WEB, id_: int = 7, vips: tuple[Vip, ...] = (V4,), **fields: Any
) -> Existing:
    numbered = enumerate(sorted(settings.members), 100)
    return Existing(
        **{
            "id": id_, "status": "ACTIVE", "vips": vips, "settings": settings, "marks": MARKS,
            "member_ids": {(one.address, one.port): number for number, one in numbered},
            "item_ids": {one.address: n for n, one in enumerate(sorted(settings.access), 200)},
            "mark_ids": {"proreus/service-uid": 300}, **fields,
        }
    )  # fmt: skip


def calls(found: Any) -> list[str]:
    """The steps as requests, without bodies."""
    return [f"{step.call.method} {step.call.path}" for step in found]


def having(*existing: Existing) -> Observed:
    return Observed(existing)


LB = "loadbalancers"
GUARDED = replace(WEB, access=frozenset({ALLOW, DENY}))


@pytest.mark.parametrize(
    ("what", "wanted", "observed", "steps"),
    [
        ("nothing", desired(), having(), [f"POST {LB}"]),
        ("the first brings the address", desired(WEB, TLS), having(), [f"POST {LB}"]),
        ("others share it", desired(WEB, TLS, DNS), having(there(WEB, status="BUILD")),
         [f"POST {LB}", f"POST {LB}"]),
        ("a named address is there before", desired(WEB, TLS, place=replace(PLACE, shared=frozenset({2}))),
         having(), [f"POST {LB}", f"POST {LB}"]),
        ("as desired", desired(), having(there()), []),
        ("at work", desired(TLS), having(there(TLS, status="PENDING_UPDATE")), []),
        ("a port too many", desired(), having(there(), there(TLS, 8)), [f"DELETE {LB}/8"]),
        ("a port too many, at work", desired(),
         having(there(), there(TLS, 8, status="PENDING_UPDATE")), []),
        ("a port for another", desired(TLS), having(there()), [f"POST {LB}"]),
        ("none is deleted while the other is made", desired(TLS),
         having(there(), there(TLS, 8, status="BUILD")), []),
        ("a port that is being deleted", desired(WEB, TLS),
         having(there(), there(TLS, 8, status="PENDING_DELETE")), []),
        ("twice the same", desired(), having(there(), there(WEB, 8)), [f"DELETE {LB}/8"]),
        ("another address that is older than what stays", desired(),
         having(there(TLS, 1), there(DNS, 2, (OTHER,)), there(WEB, 3)), [f"DELETE {LB}/2"]),
        ("another address that is younger than what stays", desired(),
         having(there(TLS, 1), there(WEB, 3), there(DNS, 4, (OTHER,))),
         [f"DELETE {LB}/1", f"DELETE {LB}/4"]),
        ("another address, older, and UDP in the way of HTTP", desired(HTTP),
         having(there(DNS, 1), there(DNS, 2, (OTHER,)), there(WEB, 3)), [f"DELETE {LB}/2"]),
        ("another address, older, that cannot go", desired(HTTP),
         having(there(DNS, 1), there(DNS, 2, (OTHER,), status="ERROR"), there(WEB, 3)), []),
        ("two addresses", desired(WEB, TLS), having(there(), there(TLS, 8, (OTHER,))),
         [f"POST {LB}"]),
        ("from inside to outside", desired(), having(there(WEB, 7, (INSIDE,))), [f"POST {LB}"]),
        ("from inside to outside, made", desired(),
         having(there(WEB, 7, (INSIDE,)), there(WEB, 8)), [f"DELETE {LB}/7"]),
        ("to a named address", desired(place=replace(PLACE, shared=frozenset({2}))),
         having(there()), [f"POST {LB}"]),
        ("UDP in the way of HTTP", desired(HTTP, TLS),
         having(there(), there(TLS, 8), there(DNS, 9)), [f"DELETE {LB}/9"]),
        ("UDP in the way of HTTP, going", desired(HTTP, TLS),
         having(there(), there(TLS, 8), there(DNS, 9, status="PENDING_DELETE")), []),
        ("HTTP in the way of UDP", desired(DNS, TLS), having(there(HTTP), there(TLS, 8)),
         [f"DELETE {LB}/7"]),
        ("another algorithm", desired(replace(WEB, algorithm="RANDOM")), having(there()),
         [f"PUT {LB}/7"]),
        ("another protocol", desired(HTTP), having(there()), [f"PUT {LB}/7"]),
        ("another protocol, checked by HTTP", desired(),
         having(there(replace(HTTP, monitor=BY_HTTP))), [f"DELETE {LB}/7/healthmonitor"]),
        ("sources", desired(GUARDED), having(there()), [f"POST {LB}/7/accesslist"]),
        ("sources before all else", desired(replace(GUARDED, algorithm="RANDOM")), having(there()),
         [f"POST {LB}/7/accesslist"]),
        ("other sources", desired(replace(WEB, access=frozenset({MORE, DENY}))),
         having(there(GUARDED)), [f"POST {LB}/7/accesslist"]),
        ("old sources", desired(GUARDED),
         having(there(replace(WEB, access=frozenset({ALLOW, MORE, DENY})))),
         [f"DELETE {LB}/7/accesslist?id=202"]),
        ("an address with the other word", desired(GUARDED),
         having(there(replace(WEB, access=frozenset({replace(ALLOW, type="DENY"), DENY})))),
         [f"DELETE {LB}/7/accesslist?id=201"]),
        ("everyone again", desired(), having(there(GUARDED)), [f"DELETE {LB}/7/accesslist"]),
        ("a node", desired(), having(there(replace(WEB, members=frozenset()))),
         [f"POST {LB}/7/nodes"]),
        ("a node too many", desired(replace(WEB, members=frozenset())), having(there()),
         [f"DELETE {LB}/7/nodes?id=100&id=101"]),
        ("no room for a node", desired(most=1),
         having(there(replace(WEB, members=frozenset({Member("10.0.0.9", 1)})))),
         [f"DELETE {LB}/7/nodes?id=100"]),
        ("more nodes than are allowed", desired(most=1),
         having(there(replace(WEB, members=frozenset({Member("10.0.0.1", 30080)})))),
         [f"POST {LB}/7/nodes"]),
        ("a node that somebody has disabled", desired(),
         having(there(replace(WEB, members=frozenset({Member("10.0.0.2", 30080),
                Member("10.0.0.1", 30080, "DISABLED")})))), [f"PUT {LB}/7/nodes/100"]),
        ("checks", desired(replace(WEB, monitor=CHECK)), having(there()),
         [f"PUT {LB}/7/healthmonitor"]),
        ("no checks", desired(), having(there(replace(WEB, monitor=CHECK))),
         [f"DELETE {LB}/7/healthmonitor"]),
        ("affinity", desired(replace(WEB, persistence="SOURCE_IP")), having(there()),
         [f"PUT {LB}/7/sessionpersistence"]),
        ("no affinity", desired(), having(there(replace(WEB, persistence="SOURCE_IP"))),
         [f"DELETE {LB}/7/sessionpersistence"]),
        ("a limit", desired(replace(WEB, max_connections=5)), having(there()),
         [f"PUT {LB}/7/connectionthrottle"]),
        ("no limit", desired(), having(there(replace(WEB, max_connections=5))),
         [f"DELETE {LB}/7/connectionthrottle"]),
        ("no marks", desired(), having(there(marks={})), [f"POST {LB}/7/metadata"]),
        ("wrong marks", desired(), having(there(marks={"proreus/service-uid": "x"})),
         [f"DELETE {LB}/7/metadata?id=300"]),
    ],
)  # fmt: skip
def test_the_next_steps(what: str, wanted: Desired, observed: Observed, steps: list[str]) -> None:
    found = calls(plan(wanted, observed))
    assert found == steps
    assert is_settled(wanted, observed) == (what == "as desired")


def test_a_hundred_items_are_replaced_without_letting_anybody_in() -> None:
    old = {Item(f"192.0.2.{n}/32", "ALLOW") for n in range(60)} | {DENY}
    new = {Item(f"198.51.100.{n}/32", "ALLOW") for n in range(60)} | {DENY}
    wanted = desired(replace(WEB, access=frozenset(new)))
    observed = having(there(replace(WEB, access=frozenset(old))))
    sizes = []
    while found := plan(wanted, observed):
        (step,) = found
        observed = step.after(observed)
        (one,) = observed.existing
        assert DENY in one.settings.access
        sizes.append(len(one.settings.access))
        missing = {item.address: 0 for item in one.settings.access}
        observed = having(replace(one, item_ids=missing))
    assert max(sizes) <= 100
    assert observed.existing[0].settings.access == new


def test_all_that_takes_changes_is_deleted_and_what_has_failed_is_tried() -> None:
    observed = having(
        there(),
        there(TLS, 8, status="PENDING_UPDATE"),
        there(DNS, 9, status="ERROR"),
        there(DNS, 10, status="PENDING_DELETE"),
    )
    assert calls(deletion(observed)) == [f"DELETE {LB}/7", f"DELETE {LB}/9"]


@pytest.mark.parametrize(
    ("wanted", "observed", "text"),
    [
        (desired(place=Place("PUBLIC", frozenset({"IPV4", "IPV6"}))), having(there()),
         "spec.ipFamilies: load balancer 7 has addresses of IPV4"),
        (desired(place=replace(PLACE, shared=frozenset({1}))), having(there(WEB, 7, (V4, V6))),
         "spec.ipFamilies"),
        (desired(DNS), having(there(HTTP)), "80 of HTTP cannot become one of UDP"),
    ],
)  # fmt: skip
def test_what_no_step_can_mend_is_refused(wanted: Desired, observed: Observed, text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_observed(wanted, observed)
    assert text in str(refused.value)


def test_one_that_has_failed_is_told_and_the_others_are_changed() -> None:
    observed = having(there(status="ERROR"), there(TLS, 8))
    edited = replace(TLS, algorithm="RANDOM")
    assert calls(plan(desired(WEB, edited), observed)) == [f"PUT {LB}/8"]
    with pytest.raises(CloudError, match=r"7 \(ERROR\): Rackspace's support"):
        check_states(observed)
    check_states(having(there(TLS, 8)))


@pytest.mark.parametrize(
    ("wanted", "observed"),
    [
        (desired(), having()),
        (desired(), having(there(WEB, 7, (INSIDE,)))),
        (desired(DNS), having(there())),
        (desired(DNS), having(there(HTTP, status="PENDING_DELETE"))),
        (desired(place=replace(PLACE, shared=frozenset({2}))), having(there(WEB, 7, (V4, V6)))),
    ],
)
def test_what_can_be_mended_is_not_refused(wanted: Desired, observed: Observed) -> None:
    check_observed(wanted, observed)


def test_the_addresses_are_those_of_the_oldest_that_fits() -> None:
    both = Place("PUBLIC", frozenset({"IPV4", "IPV6"}))
    wanted = desired(WEB, TLS, place=both)
    observed = having(there(WEB, 7, (INSIDE,)), there(TLS, 8, (V4, V6)))
    assert addresses(wanted, observed) == (V4.address, V6.address)
    assert addresses(wanted, having()) == ()


SETTINGS = st.builds(
    Settings,
    name=st.sampled_from(["a", "b"]),
    protocol=st.sampled_from(["TCP", "HTTP", "UDP", "TCP_CLIENT_FIRST"]),
    port=st.sampled_from([80, 443]),
    algorithm=st.sampled_from(["RANDOM", "ROUND_ROBIN"]),
    timeout=st.just(30),
    members=st.frozensets(
        st.sampled_from([Member(f"10.0.0.{n}", 80) for n in range(1, 16)]), max_size=15
    ),
    access=st.sampled_from([frozenset(), frozenset({ALLOW, DENY}), frozenset({MORE, DENY})]),
    persistence=st.sampled_from(["", "SOURCE_IP"]),
    max_connections=st.sampled_from([0, 5]),
)
EXISTING = st.builds(
    there,
    SETTINGS,
    st.integers(1, 99),
    st.sampled_from([(V4,), (OTHER,), (INSIDE,)]),
    marks=st.sampled_from([MARKS, {}, {"proreus/service-uid": "x"}]),
)


@limits(max_examples=40)
@given(
    settings=st.lists(SETTINGS, min_size=1, max_size=3, unique_by=lambda one: one.key),
    existing=st.lists(EXISTING, max_size=4, unique_by=lambda one: one.id),
    most=st.sampled_from([15, 16, 25]),
    is_killed=st.booleans(),
)
@example(
    settings=[HTTP],
    existing=[there(WEB, 3), there(DNS, 1), there(DNS, 2, (OTHER,))],
    most=25,
    is_killed=False,
)
@example(
    settings=[WEB],
    existing=[there(WEB, 3), there(TLS, 1), there(TLS, 2, (OTHER,))],
    most=25,
    is_killed=True,
)
def test_steps_end_as_desired_and_the_address_stays(
    settings: list[Settings], existing: list[Existing], most: int, *, is_killed: bool
) -> None:
    """Also if the manager is killed after the first step of each round."""
    tcp = {one.port: one.protocol for one in settings if one.key[0] == "tcp"}
    settings = [one for one in settings if one.key[0] == "tcp" or tcp.get(one.port) != "HTTP"]
    wanted = desired(*settings, most=most)
    observed = Observed(tuple(existing))
    try:
        check_observed(wanted, observed)
    except InvalidRequest:
        return
    before, held = addresses_that_fit(observed), addresses(wanted, observed)
    for _ in range(120):
        found = plan(wanted, observed)
        if not found:
            break
        assert len({step.call.balancer for step in found if step.call.balancer}) == len(
            [step for step in found if step.call.balancer]
        )
        for step in found[:1] if is_killed else found:
            observed = renumbered(step.after(observed))
        if before:
            assert addresses_that_fit(observed) & before
        assert addresses(wanted, observed) == held or not held
    assert is_settled(wanted, observed)
    assert sorted(one.settings.key for one in observed.existing) == sorted(
        one.key for one in settings
    )
    by_key = {one.key: one for one in settings}
    assert all(one.settings == by_key[one.settings.key] for one in observed.existing)


def addresses_that_fit(observed: Observed) -> set[str]:
    return {vip.address for one in observed.existing for vip in one.vips if PLACE.fits(one)}


def renumbered(observed: Observed) -> Observed:
    """As Rackspace would number what is new."""
    found: list[Existing] = []
    for one in observed.existing:
        id_ = one.id or 100 + len(found)
        vips = one.vips if one.vips[0].address else (Vip(50, "203.0.113.50", "PUBLIC", "IPV4"),)
        found.append(there(one.settings, id_, vips, marks=one.marks, status=one.status))
    return Observed(tuple(found))
