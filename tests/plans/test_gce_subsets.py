"""Which nodes are in the subset of an internal Service of GCE, and what is done for it."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.cloudprovider import InvalidRequest
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.kube.objects import ObjectMeta, Service, ServiceSpec
from proreus.providers.gce.balancing.addresses import is_still_free
from proreus.providers.gce.balancing.annotations import (
    INTERNAL_BEFORE,
    INTERNAL_CLASS,
    INTERNAL_ELSEWHERE,
    Options,
    handled_elsewhere,
    is_internal,
    may_have_subset,
)
from proreus.providers.gce.balancing.desired import Desired, Setting
from proreus.providers.gce.balancing.finding import is_ours
from proreus.providers.gce.balancing.members import with_groups
from proreus.providers.gce.balancing.needs import needed, unexpected
from proreus.providers.gce.balancing.parts import (
    Address,
    Backend,
    BackendService,
    Draining,
    Endpoints,
    Form,
    Kind,
    Rule,
    differing,
    merged,
)
from proreus.providers.gce.balancing.plan import (
    deletion,
    leaves_shared_check,
    obsolete,
    plan,
    wanted_form,
)
from proreus.providers.gce.balancing.steps import Hosts, Observed
from proreus.providers.gce.balancing.subsets.choice import MOST, MOST_LOCAL, chosen
from proreus.providers.gce.balancing.subsets.desired import subset_parts
from proreus.providers.gce.balancing.subsets.names import names_of, trimmed
from proreus.providers.gce.names import Machine, machine, zone_in

from .test_gce import (
    ID,
    INTERNAL,
    IP,
    LOCAL,
    PLACE,
    SETTING,
    A,
    B,
    balancer,
    calls,
    desired,
    settled,
    shown,
)

LONG_1 = "012345678901234567890123456789012345678901234567890123456789abc"
LONG_2 = "012345678901234567890123456789012345678901234567890123456789pqr"
NAMES = names_of(balancer().ref)
TCP, UDP = NAMES.rules["tcp"], NAMES.rules["udp"]


def subset(
    *ports: tuple[int, str],
    machines: tuple[Machine, ...] = (A, B),
    options: Options = INTERNAL,
    setting: Setting = SETTING,
    **spec: Any,
) -> Desired:
    return subset_parts(balancer(*ports, **spec), options, setting, machines, ("node",))


def ready(want: Desired) -> Observed:
    return settled(want)[1]


# Names


@pytest.mark.parametrize(
    ("namespace", "name", "own", "own_check", "rules"),
    [
        (
            "namespace",
            "name",
            "k8s2-7kpbhpki-namespace-name-956p2p7x",
            "k8s2-7kpbhpki-namespace-name-956p2p7x-fw",
            {
                "tcp": "k8s2-tcp-7kpbhpki-namespace-name-956p2p7x",
                "l3": "k8s2-l3-7kpbhpki-namespace-name-956p2p7x",
            },
        ),
        (
            LONG_1,
            LONG_2,
            "k8s2-7kpbhpki-01234567890123456789-0123456789012345678-hwm400mg",
            "k8s2-7kpbhpki-01234567890123456789-0123456789012345678-hwm40-fw",
            {
                "udp": "k8s2-udp-7kpbhpki-012345678901234567-01234567890123456-hwm400mg",
                "l3": "k8s2-l3-7kpbhpki-012345678901234567-012345678901234567-hwm400mg",
            },
        ),
    ],
)
def test_names_are_those_of_the_official_controller(
    namespace: str, name: str, own: str, own_check: str, rules: dict[str, str]
) -> None:
    """The values are those of its own test (l4_namer_test.go)."""
    cluster = ClusterIdentity("test", "kubesystem-uid1")
    names = names_of(LoadBalancerRef(cluster, namespace, name, "uid", "auid"))
    assert (names.own, names.own_check_firewall) == (own, own_check)
    assert rules.items() <= names.rules.items()
    assert names.shared_check == "k8s2-7kpbhpki-l4-shared-hc"
    assert names.shared_check_firewall == "k8s2-7kpbhpki-l4-shared-hc-fw"
    assert all(len(one) <= 63 for one in (own, own_check, *names.rules.values()))


@given(
    st.lists(st.text("ab", min_size=1, max_size=63), min_size=1, max_size=3), st.integers(10, 60)
)
def test_trimmed_fields_fit_and_are_beginnings(fields: list[str], most: int) -> None:
    found = trimmed(most, *fields)
    assert sum(map(len, found)) == min(most, sum(map(len, fields)))
    assert all(whole.startswith(part) for whole, part in zip(fields, found, strict=True))


# The choice


def machines_in(**zones: int) -> list[Machine]:
    return [
        machine(f"r-1-{zone}", f"{zone}{n}") for zone, count in zones.items() for n in range(count)
    ]


def sizes(machines: frozenset[Machine]) -> dict[str, int]:
    zones = sorted({one.zone for one in machines})
    return {zone[-1]: sum(one.zone == zone for one in machines) for zone in zones}


@pytest.mark.parametrize(
    ("zones", "local", "expected"),
    [
        ({}, False, {}),
        ({"a": 5}, False, {"a": 5}),
        ({"a": 100}, False, {"a": 24}),
        ({"a": 100, "b": 100}, False, {"a": 12, "b": 12}),
        ({"a": 100, "b": 100, "c": 100}, False, {"a": 8, "b": 8, "c": 8}),
        ({"a": 1, "b": 2, "c": 100}, False, {"a": 1, "b": 2, "c": 21}),
        (dict.fromkeys("abcde", 100), False, dict.fromkeys("abcde", 5)),
        ({"a": 300, "b": 300}, True, {"a": 125, "b": 125}),
        ({"a": 10, "b": 300}, True, {"a": 10, "b": 240}),
    ],
)
def test_as_many_of_each_zone_as_it_has(
    zones: dict[str, int],
    local: bool,  # noqa: FBT001 - a column
    expected: dict[str, int],
) -> None:
    found = chosen(machines_in(**zones), (), "shop/web", local=local)
    assert sizes(found) == expected


_COUNTS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 40), max_size=4)


@given(_COUNTS, st.data(), st.booleans())
def test_a_subset_is_stable_and_who_is_in_stays(
    zones: dict[str, int],
    data: st.DataObject,
    local: bool,  # noqa: FBT001 - drawn
) -> None:
    every = machines_in(**zones)
    first = chosen(every, (), "shop/web", local=local)
    assert first <= set(every)
    assert len(first) <= (MOST_LOCAL if local else MOST)
    assert chosen(reversed(every), first, "shop/web", local=local) == first
    gone = data.draw(st.sets(st.sampled_from(every), max_size=3)) if every else set()
    rest = [one for one in every if one not in gone]
    # Zones take their parts in the order of their sizes, as officially.
    if by_size(rest) == by_size(every):
        assert first - gone <= chosen(rest, first, "shop/web", local=local)


def by_size(machines: Iterable[Machine]) -> list[str]:
    counts = Counter(one.zone for one in machines)
    return sorted(counts, key=lambda zone: (counts[zone], zone))


def test_services_differ_and_the_choice_is_the_official_one() -> None:
    many = machines_in(a=100)
    one = chosen(many, (), "shop/web", local=False)
    assert one != chosen(many, (), "shop/db", local=False)
    # sha256("NODE:NAME/NAMESPACE"), the lowest first.
    ordered = sorted(
        many, key=lambda one: hashlib.sha256(f"{one.name}:web/shop".encode()).hexdigest()
    )
    assert one == frozenset(ordered[:24])


# What is made


def test_the_parts_are_made_in_their_order() -> None:
    steps, observed = settled(subset())
    assert shown(steps) == [
        f"create health check {NAMES.shared_check}",
        f"create firewall rule {NAMES.shared_check_firewall}",
        "create group of endpoints of r-1-a",
        "create group of endpoints of r-1-b",
        f"create backend service {NAMES.own}",
        "create group of endpoints of r-1-a host r-1-a/a",
        "create group of endpoints of r-1-b host r-1-b/b",
        f"create forwarding rule {TCP}",
        f"create firewall rule {NAMES.own}",
    ]
    assert plan(subset(), observed, PLACE) == ()
    backend = observed.backend(NAMES.own)
    assert backend is not None
    assert [one.group for one in backend.backends] == [
        PLACE.url(f"projects/p/zones/r-1-{zone}/networkEndpointGroups/{NAMES.own}") for zone in "ab"
    ]


def test_with_another_protocol_the_address_is_held_while_the_rule_gets_another_name() -> None:
    before = ready(subset())
    assert [one.name for one in obsolete(subset((80, "UDP")), before)] == [TCP]
    steps, after = settled(subset((80, "UDP")), before)
    assert shown(steps) == [
        f"create address {NAMES.own}",
        f"delete forwarding rule {TCP}",
        f"change backend service {NAMES.own}",
        f"create forwarding rule {UDP}",
        f"change firewall rule {NAMES.own}",
        f"delete address {NAMES.own}",
    ]
    rule = after.rule(UDP)
    assert rule is not None
    assert rule.ip == IP
    steps, _ = settled(subset((80, "TCP"), (80, "UDP")), after)
    assert f"create forwarding rule {NAMES.rules['l3']}" in shown(steps)


def test_an_own_health_check_goes_when_it_is_no_longer_used() -> None:
    local = ready(subset(**LOCAL))
    assert (Kind.CHECK, NAMES.own) in local.parts
    assert not leaves_shared_check(subset(**LOCAL), local)
    steps, after = settled(subset(), local)
    assert f"delete health check {NAMES.own}" in shown(steps)
    assert f"delete firewall rule {NAMES.own_check_firewall}" in shown(steps)
    assert (Kind.FIREWALL, NAMES.own) in after.parts
    assert leaves_shared_check(subset(**LOCAL), after)


def test_nodes_come_and_go_and_an_empty_group_stays() -> None:
    before = ready(subset(machines=(A,)))
    steps, after = settled(subset(machines=(B,)), before)
    assert shown(steps) == [
        "delete group of endpoints of r-1-a host r-1-a/a",
        "create group of endpoints of r-1-b",
        f"change backend service {NAMES.own}",
        "create group of endpoints of r-1-b host r-1-b/b",
    ]
    assert set(after.groups()) == {"r-1-a", "r-1-b"}
    refused = msgspec.structs.replace(ready(subset(machines=(A,))), refused={B: "it is gone"})
    assert not [one for one in calls(settled(subset(), refused)[0]) if isinstance(one, Hosts)]


def test_at_most_five_hundred_are_attached_at_once() -> None:
    many = tuple(machine("r-1-a", f"n{number:04}") for number in range(700))
    group = Endpoints("r-1-a", frozenset(many))
    before = ready(subset()).with_part((Kind.ENDPOINTS, "r-1-a"), group)
    leaving = [one for one in calls(plan(subset(), before, PLACE)) if isinstance(one, Hosts)]
    assert [len(one.machines) for one in leaving if not one.adds] == [500]


@pytest.mark.parametrize("want", [subset(), desired(options=INTERNAL)], ids=["subset", "all"])
def test_a_group_that_a_list_leaves_out_stays_in_the_backend_service(want: Desired) -> None:
    """Google may not reach its zone just now, while its nodes serve."""
    before, backend = ready(want), want.backend
    assert backend is not None
    unseen = before.with_part((want.group_kind, "r-1-a"), None)
    whole = with_groups(backend, want, before, PLACE)
    assert len(whole.backends) == 2
    assert with_groups(backend, want, unseen, PLACE) == whole
    group = "https://x/projects/p/zones/r-1-a/instanceGroups/other"
    other = msgspec.structs.replace(backend, backends=(Backend(group),))
    kept = with_groups(backend, want, Observed({(Kind.SERVICE, backend.name): other}), PLACE)
    assert kept.backends == ()
    assert not zone_in("https://x/projects/p/global/networks/n")


def test_everything_is_taken_down_users_first() -> None:
    observed, order = ready(subset()), list[str]()
    while steps := deletion(observed):
        order += shown(steps)
        for step in steps:
            observed = step.after(observed)
    assert order[:2] == [f"delete forwarding rule {TCP}", f"delete backend service {NAMES.own}"]
    assert "delete group of endpoints of r-1-a" in order[2:]


def test_the_nodes_subnetwork_and_ipv4_are_needed() -> None:
    with pytest.raises(InvalidRequest, match="subnetwork-name") as refused:
        subset(setting=Setting(PLACE, ID), families=("IPv6",))
    assert "spec.ipFamilies" in str(refused.value)
    with pytest.raises(InvalidRequest, match="SCTP"):
        subset((80, "SCTP"))
    assert [one.family for one in subset(families=("IPv4", "IPv6")).rules] == ["IPv4"]


# What is read, and whose it is


def test_what_is_read_before_a_plan() -> None:
    assert [f"{kind.word} {name}" for kind, name in needed(subset(), {Form.SUBSET})] == [
        f"forwarding rule {TCP}",
        f"address {NAMES.own}",
        f"firewall rule {NAMES.own}",
        f"health check {NAMES.own}",
        f"backend service {NAMES.own}",
        f"health check {NAMES.shared_check}",
        f"firewall rule {NAMES.shared_check_firewall}",
    ]
    assert unexpected(subset(), ready(subset())) == ()
    assert unexpected(subset(), ready(subset(**LOCAL)))[-1:] == ()
    left = ready(subset()).with_part((Kind.CHECK, NAMES.own), subset(**LOCAL).check)
    assert unexpected(subset(), left) == ((Kind.FIREWALL, NAMES.own_check_firewall),)


def test_the_service_s_rules_of_all_protocols_may_have_its_address() -> None:
    url = PLACE.url("projects/p/regions/r-1/forwardingRules/")
    mine = Address(name="x", address=IP, users=(f"{url}{UDP}",))
    other = Address(name="x", address=IP, users=(f"{url}{TCP}-other",))
    assert is_still_free(subset(), mine)
    assert not is_still_free(subset(), other)


def test_a_rule_without_labels_is_the_service_s_by_name_and_description() -> None:
    ref, rule = balancer().ref, subset().rules[0]
    held = rule.description.replace("}", ',"networking.gke.io/service-ip":"10.0.0.1"}')
    assert rule.form is Form.SUBSET
    assert is_ours(rule, ref)
    assert is_ours(msgspec.structs.replace(rule, description=held), ref)
    assert not is_ours(msgspec.structs.replace(rule, description=""), ref)
    assert not is_ours(msgspec.structs.replace(rule, name=f"{rule.name}-x"), ref)
    other = rule.description.replace("shop/web", "shop/web2")
    assert not is_ours(msgspec.structs.replace(rule, description=other), ref)


def service(
    *finalizers: str, class_: str | None = None, annotations: dict[str, str] | None = None
) -> Service:
    meta = ObjectMeta(name="web", finalizers=finalizers, annotations=annotations or {})
    return Service(metadata=meta, spec=ServiceSpec(load_balancer_class=class_))


@pytest.mark.parametrize(
    ("finalizers", "class_", "has_rule", "subsetting", "word"),
    [
        ((), None, False, True, ""),
        ((), INTERNAL_CLASS, False, True, ""),
        ((), INTERNAL_CLASS, False, False, "subsetting"),
        ((INTERNAL_ELSEWHERE,), None, False, True, INTERNAL_ELSEWHERE),
        ((INTERNAL_ELSEWHERE,), INTERNAL_CLASS, False, True, INTERNAL_ELSEWHERE),
        ((INTERNAL_ELSEWHERE,), None, True, True, ""),
        ((INTERNAL_BEFORE,), None, False, True, ""),
    ],
)
def test_whose_an_internal_service_is(
    finalizers: tuple[str, ...],
    class_: str | None,
    has_rule: bool,  # noqa: FBT001 - a column
    subsetting: bool,  # noqa: FBT001 - a column
    word: str,
) -> None:
    why = handled_elsewhere(
        service(*finalizers, class_=class_),
        INTERNAL,
        has_rule=has_rule,
        subsets=False,
        subsetting=subsetting,
    )
    assert (word in why) if word else not why


def test_who_gets_a_subset() -> None:
    old, new = Rule(name="a1", load_balancing_scheme="INTERNAL"), subset().rules[0]
    external = Rule(name="a1", load_balancing_scheme="EXTERNAL", target="x")
    for rule, makes, form in (
        (None, True, Form.SUBSET),
        (None, False, Form.INTERNAL),
        (old, True, Form.INTERNAL),
        (new, False, Form.SUBSET),
        (external, True, Form.SUBSET),
    ):
        assert wanted_form(INTERNAL, rule, is_default=False, makes_subsets=makes) is form
    assert is_internal(service(class_=INTERNAL_CLASS))
    assert may_have_subset(service())
    assert not may_have_subset(service(INTERNAL_BEFORE))
    assert may_have_subset(service(INTERNAL_BEFORE, class_=INTERNAL_CLASS))


@pytest.mark.parametrize(
    ("want", "have", "differs", "written"),
    [
        (Draining(30), Draining(), True, Draining(30)),
        (Draining(30), None, True, Draining(30)),
        (Draining(30), Draining(60), False, Draining(60)),
        (None, Draining(60), False, None),
        (None, None, False, None),
    ],
)
def test_a_draining_time_that_somebody_has_set_stays(
    want: Draining | None,
    have: Draining | None,
    differs: bool,  # noqa: FBT001 - a column
    written: Draining | None,
) -> None:
    wanted, there = (BackendService(name="s", connection_draining=one) for one in (want, have))
    assert bool(differing(wanted, there)) is differs
    after = merged(wanted, there)
    assert isinstance(after, BackendService)
    assert after.connection_draining == written
