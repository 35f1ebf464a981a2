"""Which address a load balancer gets, and how full the pools are."""

from ipaddress import ip_address
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proreus.cloudprovider import ClusterIdentity, HostPolicy, InvalidRequest
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.metrics import REGISTRY
from proreus.cloudprovider.selectors import Requirement, Selector
from proreus.kube.objects import (
    Service,
    ServicePort,
)
from proreus.providers.local.addresses import Pool, addresses, contains, parse_range, size
from proreus.providers.local.asked import (
    ANNOTATION_ADDRESSES,
    ANNOTATION_POOL,
    ANNOTATION_SHARING_KEY,
    Request,
    request_for,
    taken_by,
)
from proreus.providers.local.pools import Assigned, Refused, assign
from proreus.providers.local.taken import Occupied, Taken
from proreus.providers.local.usage import used, watch_pools
from proreus.testing import objects

from .local_site import Objects

HTTP = frozenset({("TCP", 80)})
HTTPS = frozenset({("TCP", 443)})


def pool(name: str, *ranges: str, **fields: Any) -> Pool:
    return Pool(name=name, ranges=tuple(parse_range(one) for one in ranges), **fields)


def request(**fields: Any) -> Request:
    return Request(**{"uid": "me", "namespace": "default", "ports": HTTP} | fields)


def taken(address: str, uid: str = "other", **fields: Any) -> Taken:
    given = {"service": f"default/{uid}", "ports": HTTP} | fields
    return Taken(address=address, uid=uid, **given)


FIRST = pool("first", "192.0.2.1-192.0.2.3", "2001:db8::1-2001:db8::3")
SECOND = pool("second", "198.51.100.7")
ASKED_FOR = pool("asked-for", "203.0.113.0/30", auto_assign=False)
TEAM = pool("team", "10.1.0.0/30", namespaces=frozenset({"team"}))
SELECTED = pool(
    "selected",
    "10.2.0.0/30",
    service_selectors=(
        Selector(match_labels={"tier": "web"}),
        Selector(match_expressions=(Requirement(key="app", operator="In", values=("a", "b")),)),
    ),
)
POOLS = (FIRST, SECOND, ASKED_FOR, TEAM, SELECTED)
ALL_OF_FIRST = [taken(f"192.0.2.{n}", f"other-{n}") for n in (1, 2, 3)]
BOTH = ("IPv4", "IPv6")


@pytest.mark.parametrize(
    ("wants", "others", "given"),
    [
        pytest.param(request(), [], ["192.0.2.1"], id="the first one"),
        pytest.param(request(), [taken("192.0.2.1")], ["192.0.2.2"], id="the first free one"),
        pytest.param(request(), ALL_OF_FIRST, ["198.51.100.7"], id="the next pool"),
        pytest.param(request(), [taken("192.0.2.1", "me")], ["192.0.2.1"], id="its own is free"),
        pytest.param(request(), [taken("not-an-address")], ["192.0.2.1"], id="a host name"),
        pytest.param(
            request(current=("lb.example", "192.0.2.3")), [], ["192.0.2.3"], id="keeps what it has"
        ),
        pytest.param(
            request(current=("203.0.113.2",)), [], ["203.0.113.2"], id="keeps what it asked for once"
        ),
        pytest.param(
            request(current=("10.9.9.9",)), [], ["192.0.2.1"], id="moves when its pool is gone"
        ),
        pytest.param(
            request(current=("192.0.2.3",)), [taken("192.0.2.3")], ["192.0.2.1"], id="another has it"
        ),
        pytest.param(
            request(requested=("192.0.2.2",), current=("192.0.2.3",)), [], ["192.0.2.2"],
            id="what it asks for comes before what it has",
        ),
        pytest.param(request(requested=("203.0.113.1",)), [], ["203.0.113.1"], id="by address"),
        pytest.param(request(pool="asked-for"), [], ["203.0.113.0"], id="by pool"),
        pytest.param(
            request(pool="second", current=("192.0.2.1",)), [], ["198.51.100.7"], id="changes the pool"
        ),
        pytest.param(request(namespace="team", pool="team"), [], ["10.1.0.0"], id="by namespace"),
        pytest.param(request(families=BOTH), [], ["192.0.2.1", "2001:db8::1"], id="both families"),
        pytest.param(
            request(families=BOTH[::-1], requested=("192.0.2.3",)), [], ["2001:db8::1", "192.0.2.3"],
            id="one of two by address",
        ),
        pytest.param(
            request(families=BOTH, pool="second"), [], ["198.51.100.7"], id="one family will do"
        ),
        pytest.param(
            request(requested=("2001:DB8:0::3",), families=("IPv6",)),
            [taken("2001:db8::3", "me")], ["2001:db8::3"], id="an address in another spelling",
        ),
        pytest.param(
            request(ports=HTTPS, sharing_key="k"), [taken("192.0.2.3", sharing_key="k")],
            ["192.0.2.3"], id="shares by key",
        ),
        pytest.param(
            request(ports=HTTPS, sharing_key="k"),
            [taken("192.0.2.3", service="team/other", sharing_key="k")],
            ["192.0.2.1"], id="does not share with another namespace",
        ),
        pytest.param(
            request(ports=HTTPS, sharing_key="k", current=("192.0.2.3",)),
            [taken("192.0.2.3", service="team/other", sharing_key="k")],
            ["192.0.2.3"], id="keeps what it shares with another namespace",
        ),
        pytest.param(
            request(pool="selected", labels={"tier": "web"}), [], ["10.2.0.0"], id="by label"
        ),
        pytest.param(
            request(requested=("10.2.0.1",), labels={"app": "b"}), [], ["10.2.0.1"],
            id="by another label",
        ),
        pytest.param(
            request(current=("10.2.0.1",), labels={"app": "c"}), [], ["192.0.2.1"],
            id="moves when its labels are selected no more",
        ),
        pytest.param(
            request(sharing_key="k"), [taken("192.0.2.3", sharing_key="k")], ["192.0.2.1"],
            id="does not share a port",
        ),
        pytest.param(
            request(ports=HTTPS), [taken("192.0.2.1", sharing_key="k")], ["192.0.2.2"],
            id="does not share without the key",
        ),
        pytest.param(
            request(ports=frozenset({("UDP", 80)}), sharing_key="k", requested=("192.0.2.3",)),
            [taken("192.0.2.3", sharing_key="k")], ["192.0.2.3"], id="protocols have ports of their own",
        ),
    ],
)  # fmt: skip
def test_a_service_gets(wants: Request, others: list[Taken], given: list[str]) -> None:
    assert assign(wants, Occupied(others), POOLS) == Assigned(tuple(given))


@pytest.mark.parametrize(
    ("wants", "others", "words"),
    [
        pytest.param(request(pool="second"), [taken("198.51.100.7")],
                     ("no free IPv4 address", "pools second", "add addresses"), id="exhausted"),
        pytest.param(request(families=BOTH, all_families=True, pool="second"), [],
                     ("second", "IPv6", "spec.ipFamilies"), id="one family is not enough"),
        pytest.param(request(requested=("192.0.2.1",)), [taken("192.0.2.1")],
                     ("192.0.2.1", "default/other", "allow-shared-ip"), id="in use by another"),
        pytest.param(request(requested=("192.0.2.1",), sharing_key="k"),
                     [taken("192.0.2.1", sharing_key="k")],
                     ("192.0.2.1", "default/other", "TCP 80"), id="the port is taken"),
        pytest.param(request(requested=("192.0.2.1",), sharing_key="k"),
                     [taken("192.0.2.1", sharing_key="q")], ("192.0.2.1", "allow-shared-ip"),
                     id="another key"),
        pytest.param(request(requested=("192.0.2.9",)), [],
                     ("192.0.2.9", "in no pool", "192.0.2.1-192.0.2.3"), id="of no pool"),
        pytest.param(request(requested=("192.0.2.1",), pool="second"), [],
                     ("192.0.2.1", "pool first", "not of second"), id="of another pool"),
        pytest.param(request(requested=("10.1.0.1",)), [],
                     ("10.1.0.1", "pool team", "does not serve the namespace default"),
                     id="of another namespace"),
        pytest.param(request(requested=("10.2.0.1",), labels={"app": "c"}), [],
                     ("10.2.0.1", "pool selected", "does not select the Service's labels"),
                     id="of other labels"),
        pytest.param(request(ports=HTTPS, requested=("192.0.2.1",), sharing_key="k"),
                     [taken("192.0.2.1", service="team/other", sharing_key="k")],
                     ("192.0.2.1", "team/other of another namespace", "share-across-namespaces"),
                     id="shared in another namespace"),
        pytest.param(request(pool="nowhere"), [], ("'nowhere'", "first, second"), id="no such pool"),
        pytest.param(request(pool="team"), [], ("'team'", "may not use"), id="not its pool"),
        pytest.param(request(requested=("web.example",)), [],
                     ("'web.example'", "spec.loadBalancerIP"), id="no address"),
        pytest.param(request(requested=("2001:db8::2%1",), families=("IPv6",)),
                     [taken("2001:db8::2")], ("'2001:db8::2%1'", "is not an IP address"),
                     id="another's with a zone"),
        pytest.param(request(requested=("2001:db8::1",)), [], ("2001:db8::1", "no IPv6"),
                     id="not its family"),
        pytest.param(request(requested=("192.0.2.1", "192.0.2.2")), [],
                     ("two IPv4", "192.0.2.1 and 192.0.2.2"), id="two of a family"),
        pytest.param(request(requested=("192.0.2.2",)), [], ("192.0.2.2", "node n1"),
                     id="of a machine"),
    ],
)  # fmt: skip
def test_a_service_is_refused(wants: Request, others: list[Taken], words: tuple[str, ...]) -> None:
    said = assign(wants, Occupied(others, {"192.0.2.2": "node n1"}), POOLS)
    assert isinstance(said, Refused)
    assert all(word in said.reason for word in words), said.reason


@pytest.mark.parametrize(
    ("wants", "others", "may_pass"),
    [
        pytest.param(request(pool="second"), [taken("198.51.100.7")], True, id="exhausted"),
        pytest.param(request(requested=("192.0.2.1",)), [taken("192.0.2.1")], True, id="taken"),
        pytest.param(request(requested=("192.0.2.9",)), [], False, id="of no pool"),
        pytest.param(request(families=("IPv6",), pool="second"), [], False, id="no such family"),
        pytest.param(request(requested=("192.0.2.2",)), [], False, id="of a machine"),
    ],
)
def test_only_what_another_service_may_give_up_is_tried_again(
    wants: Request, others: list[Taken], *, may_pass: bool
) -> None:
    said = assign(wants, Occupied(others, {"192.0.2.2": "node n1"}), POOLS)
    assert isinstance(said, Refused)
    assert isinstance(said.error, InvalidRequest) is not may_pass
    assert str(said.error) == said.reason


def test_services_of_several_namespaces_share_what_the_pool_lets_them() -> None:
    other = taken("192.0.2.2", service="team/other", sharing_key="k")
    wants = request(ports=HTTPS, sharing_key="k")
    shared = pool("first", "192.0.2.1-192.0.2.3", share_across_namespaces=True)
    assert assign(wants, Occupied([other]), [shared]) == Assigned(("192.0.2.2",))
    assert assign(wants, Occupied([other]), [FIRST]) == Assigned(("192.0.2.1",))


def test_addresses_of_machines_are_not_given_out_but_kept() -> None:
    in_use = {"192.0.2.1": "node n1", "192.0.2.2": "this machine"}
    assert assign(request(), Occupied([], in_use), POOLS) == Assigned(("192.0.2.3",))
    keeps = request(current=("192.0.2.2",))
    assert assign(keeps, Occupied([], in_use), POOLS) == Assigned(("192.0.2.2",))


def test_there_may_be_no_pool_at_all() -> None:
    said = assign(request(), Occupied([]), ())
    assert isinstance(said, Refused)
    assert "none" in said.reason


def service(uid: str = "me", ips: tuple[str, ...] = (), **fields: Any) -> Service:
    ports = (ServicePort(80), ServicePort(53, protocol="UDP"))
    given = {"ports": ports, "ip_families": ("IPv4",), **fields}
    return objects.service(uid, uid=uid, ingress=ips, **given)


def ask(of: Service, current: tuple[str, ...] = ()) -> Request:
    return request_for(
        desired_load_balancer(of, (), HostPolicy(), ClusterIdentity("c", "u")), current
    )


def test_a_service_asks_by_its_spec_its_annotations_and_its_status() -> None:
    plain = ask(service(ips=("192.0.2.3",), load_balancer_ip="192.0.2.1"), ("192.0.2.2",))
    assert plain.ports == {("TCP", 80), ("UDP", 53)}
    assert plain.requested == ("192.0.2.1",)
    assert plain.current == ("192.0.2.2", "192.0.2.3")
    assert not plain.all_families
    assert ask(service(ip_family_policy="RequireDualStack")).all_families


@pytest.mark.parametrize(
    ("annotation", "field"),
    [
        (ANNOTATION_ADDRESSES, "requested"),
        ("metallb.io/loadBalancerIPs", "requested"),
        ("metallb.universe.tf/loadBalancerIPs", "requested"),
        ("kube-vip.io/loadbalancerIPs", "requested"),
        (ANNOTATION_POOL, "pool"),
        ("metallb.io/address-pool", "pool"),
        ("metallb.universe.tf/address-pool", "pool"),
        (ANNOTATION_SHARING_KEY, "sharing_key"),
        ("metallb.io/allow-shared-ip", "sharing_key"),
        ("metallb.universe.tf/allow-shared-ip", "sharing_key"),
    ],
)
def test_annotations_of_other_balancers_are_understood(annotation: str, field: str) -> None:
    text = "192.0.2.1, 2001:db8::1" if field == "requested" else "blue"
    expected = ("192.0.2.1", "2001:db8::1") if field == "requested" else "blue"
    found = ask(service(annotations={annotation: text}, load_balancer_ip=""))
    assert getattr(found, field) == expected
    ours = {ANNOTATION_ADDRESSES: "192.0.2.9", ANNOTATION_POOL: "p", ANNOTATION_SHARING_KEY: "s"}
    if annotation not in ours:
        both = ask(service(annotations={annotation: text, **ours}))
        assert (both.requested, both.pool, both.sharing_key) == (("192.0.2.9",), "p", "s")


def test_a_shared_address_counts_once_as_used() -> None:
    every = [
        service("a", ("192.0.2.1", "2001:db8::1")),
        service("b", ("192.0.2.1",)),
        service("c", ("198.51.100.7",)),
        service("d"),
    ]
    assert [used(one, every) for one in (FIRST, SECOND, TEAM)] == [2, 1, 0]
    assert {one.address for one in taken_by(every)} == {"192.0.2.1", "2001:db8::1", "198.51.100.7"}


def test_how_full_the_pools_are_is_served_for_those_that_there_are() -> None:
    services = Objects(service("a", ("192.0.2.1",)))
    watch_pools([FIRST, SECOND], services)
    assert figures("first") == (6, 1)
    assert figures("second") == (1, 0)
    watch_pools([FIRST], services)
    assert figures("first") == (6, 1)
    assert figures("second") == (None, None)


def figures(name: str) -> tuple[float | None, float | None]:
    """Addresses in all and in use."""
    metric = "proreus_local_pool_addresses"
    return (
        REGISTRY.get_sample_value(metric, {"pool": name}),
        REGISTRY.get_sample_value(f"{metric}_used", {"pool": name}),
    )


def test_buggy_addresses_can_be_left_out() -> None:
    both = pool("p", "192.0.1.254-192.0.3.1", "2001:db8::/120", avoid_buggy_ips=True)
    given = [str(one) for one in addresses(both, "IPv4")]
    left_out = {"192.0.1.255", "192.0.2.0", "192.0.2.255", "192.0.3.0"}
    assert given[:2] == ["192.0.1.254", "192.0.2.1"]
    assert not left_out & set(given)
    assert size(both) == len(given) + 256
    said = assign(request(requested=("192.0.2.255",)), Occupied([]), [both])
    assert isinstance(said, Refused)
    assert "left out" in said.reason


UNHURRIED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
FOUR = [f"192.0.2.{n}" for n in range(4)]
OTHERS = st.lists(
    st.builds(
        taken,
        st.sampled_from(FOUR),
        st.sampled_from(["a", "b", "c", "d", "me"]),
        ports=st.sampled_from([HTTP, HTTPS]),
        sharing_key=st.sampled_from(["", "k"]),
    ),
    max_size=8,
)


@UNHURRIED
@given(
    others=OTHERS,
    ports=st.sampled_from([HTTP, HTTPS]),
    key=st.sampled_from(["", "k"]),
    current=st.lists(st.sampled_from(FOUR), max_size=1),
)
def test_an_address_is_given_exactly_where_one_can_be_had(
    others: list[Taken], ports: frozenset[tuple[str, int]], key: str, current: list[str]
) -> None:
    free = {
        address
        for address in FOUR
        if all(
            one.uid == "me" or (key and one.sharing_key == key and not one.ports & ports)
            for one in others
            if one.address == address
        )
    }
    wants = request(ports=ports, sharing_key=key, current=tuple(current))
    said = assign(wants, Occupied(others), [pool("p", "192.0.2.0/30")])
    if not free:
        assert isinstance(said, Refused)
        return
    assert isinstance(said, Assigned)
    assert set(said.addresses) <= free
    if current and current[0] in free:
        assert said.addresses == tuple(current)


@UNHURRIED
@given(st.integers(0, 2**16), st.integers(0, 700))
def test_the_size_of_a_pool_is_how_many_it_gives(first: int, more: int) -> None:
    start = ip_address("10.0.0.0") + first
    one = pool("p", f"{start}-{start + more}", avoid_buggy_ips=True)
    given = list(addresses(one, "IPv4"))
    assert size(one) == len(given)
    assert all(contains(one, address) for address in given)


def test_what_a_service_leaves_nobody_begins_to_have_while_its_status_shows_it() -> None:
    occupied = Occupied([taken("192.0.2.1", "a"), taken("192.0.2.2", "b")])
    occupied.move("a", [taken("192.0.2.2", "a")])
    assert assign(request(), occupied, [FIRST]) == Assigned(("192.0.2.3",))
    refused = assign(request(requested=("192.0.2.1",)), occupied, [FIRST])
    assert isinstance(refused, Refused)
    assert refused.may_pass
    one = request(uid="a", requested=("192.0.2.1",))
    assert assign(one, occupied, [FIRST]) == Assigned(("192.0.2.1",)), "it may come back"
    both = Occupied([taken("192.0.2.1", "a"), taken("192.0.2.1", "me")])
    both.move("a", [taken("192.0.2.2", "a")])
    assert assign(request(current=("192.0.2.1",)), both, [FIRST]) == Assigned(("192.0.2.1",))


@UNHURRIED
@given(before=OTHERS, changes=st.lists(st.tuples(st.sampled_from("abcde"), OTHERS), max_size=4))
def test_what_services_are_given_takes_the_place_of_what_they_had(
    before: list[Taken], changes: list[tuple[str, list[Taken]]]
) -> None:
    def owned(uid: str, several: list[Taken]) -> list[Taken]:
        return [msgspec.structs.replace(one, uid=uid) for one in several]

    occupied, had = Occupied(before), before
    for uid, given_ in changes:
        occupied.first_free(pool("p", "192.0.2.0/30"), "IPv4")  # and it remembers what is taken
        occupied.give(uid, owned(uid, given_))
        had = [one for one in had if one.uid != uid] + owned(uid, given_)
    anew = Occupied(had)
    for address in map(ip_address, FOUR):
        for uid in ("a", "e", "nobody"):
            assert occupied.by_others(address, uid) == anew.by_others(address, uid)
            for key in ("", "k"):
                assert sorted(occupied.shared(key, uid)) == sorted(anew.shared(key, uid))
        four = pool("p", "192.0.2.0/30")
        assert occupied.first_free(four, "IPv4") == Occupied(had).first_free(four, "IPv4")
    assert {uid: sorted(occupied.of(uid), key=str) for uid in "abcde"} == {
        uid: sorted(anew.of(uid), key=str) for uid in "abcde"
    }
