"""What is done so that a load balancer of Compute Engine becomes as desired, or goes."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from proreus.cloudprovider import ClusterIdentity, InvalidRequest, LoadBalancer, PartChange, foresee
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.load_balancers import HostPolicy
from proreus.cloudprovider.ownership import Naming, Tenants
from proreus.kube.objects import ObjectMeta, Service, ServicePort, ServiceSpec
from proreus.providers.gce.balancing import naming
from proreus.providers.gce.balancing.addresses import check, is_still_free
from proreus.providers.gce.balancing.annotations import STANDARD, Options
from proreus.providers.gce.balancing.desired import Desired, Setting, desired_parts
from proreus.providers.gce.balancing.firewalls import CHECK_RANGES, NOBODY, port_ranges
from proreus.providers.gce.balancing.hosts import instance_urls, machines_of, tags_for
from proreus.providers.gce.balancing.members import group_steps
from proreus.providers.gce.balancing.parts import (
    IPV4,
    IPV6,
    Address,
    Allowed,
    Check,
    Firewall,
    Form,
    Group,
    HttpCheck,
    Kind,
    Pool,
    Rule,
    differing,
    merged,
)
from proreus.providers.gce.balancing.plan import (
    deletion,
    leaves_shared_check,
    obsolete,
    other_scheme,
    plan,
    wanted_form,
)
from proreus.providers.gce.balancing.steps import (
    Change,
    Delete,
    Hosts,
    Insert,
    Observed,
    PoolCheck,
    Step,
    change,
    hosts,
    insert,
    pool_check,
)
from proreus.providers.gce.names import Machine, machine
from proreus.providers.gce.place import Place
from proreus.testing import objects

UID = "5e00aaaa-0000-4000-8000-000000000001"
CLUSTER = ClusterIdentity("test", "0b5e3a1c-0000-4000-8000-000000000001")
PLACE = Place(
    project="p",
    network_project="p",
    region="r-1",
    zones=frozenset({"r-1-a", "r-1-b"}),
    network="projects/p/global/networks/default",
)
SUBNET = "projects/p/regions/r-1/subnetworks/default"
ID = "1234"
SETTING = Setting(PLACE, ID, SUBNET)
A, B = machine("r-1-a", "a"), machine("r-1-b", "b")
NAME = "a5e00aaaa000040008000000000000001"[:32]
IP = "34.1.2.3"
IP6 = "2600:1900:1:2::"
DEFAULTS = Options()
NOTHING = Observed()


DUAL = ("IPv4", "IPv6")


def balancer(
    *ports: tuple[int, str], families: tuple[str, ...] = ("IPv4",), **spec: Any
) -> LoadBalancer:
    nodes = [objects.node(one.name, f"gce://p/{one}") for one in (A, B)]
    service = Service(
        metadata=ObjectMeta(name="web", namespace="shop", uid=UID),
        spec=ServiceSpec(
            type="LoadBalancer",
            ip_families=families,
            ports=tuple(ServicePort(*port) for port in _ports(ports or ((80, "TCP"),))),
            **spec,
        ),
    )
    return desired_load_balancer(service, nodes, HostPolicy(), CLUSTER)


def _ports(ports: Iterable[tuple[int, str]]) -> Iterable[tuple[int, str, str]]:
    return [(number, f"p-{number}", protocol) for number, protocol in ports]


def desired(
    *ports: tuple[int, str],
    options: Options = DEFAULTS,
    machines: Iterable[Machine] = (A, B),
    tags: tuple[str, ...] = ("node",),
    **spec: Any,
) -> Desired:
    form = wanted_form(options, None, is_default=False)
    lb = balancer(*ports, **spec)
    return desired_parts(lb, options, SETTING, tuple(machines), tags, form=form)


INTERNAL = Options(internal=True)
BACKEND = Options(backend_service=True)
LOCAL: dict[str, Any] = {"external_traffic_policy": "Local", "health_check_node_port": 32000}


def settled(want: Desired, before: Observed = NOTHING) -> tuple[list[Step], Observed]:
    """The steps until there are none, and what there is then; new addresses are one of ours."""

    def steps(observed: Observed) -> tuple[Step, ...]:
        has_shared = want.backend is not None and want.subset is None
        if has_shared and (groups := group_steps(want.machines, observed)):
            return groups
        found = plan(want, observed, PLACE)
        lines = shown(found)
        assert len(lines) == len(set(lines)), lines  # they are taken side by side
        return found

    def taken(observed: Observed, step: Step) -> Observed:
        after = step.after(observed)
        for rule in after.rules():
            if rule.address == "(new)":
                address = f"{IP6}/96" if rule.family == IPV6 else IP
                made = msgspec.structs.replace(rule, address=address)
                after = after.with_part((Kind.RULE, rule.name), made)
            if rule.address.endswith(f"/addresses/{rule.name}"):
                made = msgspec.structs.replace(rule, address=f"{IP6}/96")
                after = after.with_part((Kind.RULE, rule.name), made)
        return after

    found, observed = foresee(before, steps, taken)
    return list(found), observed


def shown(steps: Iterable[Step]) -> list[str]:
    return [f"{one.action} {one.part}" for step in steps for one in step.lines]


def calls(steps: Iterable[Step]) -> list[object]:
    return [step.call for step in steps]


def ready(want: Desired, *, without: tuple[tuple[Kind, str], ...] = ()) -> Observed:
    """What there is when all is as desired, without some parts."""
    observed = settled(want)[1]
    for key in without:
        observed = observed.with_part(key, None)
    return observed


def with_rule(observed: Observed, **fields: Any) -> Observed:
    rule = observed.rule(NAME)
    assert rule is not None
    return observed.with_part((Kind.RULE, NAME), msgspec.structs.replace(rule, **fields))


# External


def test_an_external_one_is_made_from_the_check_up_and_the_clients_are_let_in_last() -> None:
    steps, observed = settled(desired())
    assert shown(steps) == [
        "create HTTP health check k8s-1234-node",
        "create firewall rule k8s-1234-node-http-hc",
        f"create target pool {NAME}",
        f"create forwarding rule {NAME}",
        f"create firewall rule k8s-fw-{NAME}",
    ]
    assert plan(desired(), observed, PLACE) == ()
    pool = observed.pool(NAME)
    assert pool is not None
    assert pool.machines == {A, B}
    firewall = observed.parts[Kind.FIREWALL, f"k8s-fw-{NAME}"]
    assert firewall == Firewall(
        name=f"k8s-fw-{NAME}",
        description=f'{{"kubernetes.io/service-name":"shop/web", "kubernetes.io/service-ip":"{IP}"}}',
        network=PLACE.url(PLACE.network),
        source_ranges=("0.0.0.0/0",),
        destination_ranges=(IP,),
        target_tags=("node",),
        allowed=(Allowed("tcp", ("80",)),),
    )


def test_a_new_pool_gets_two_hundred_hosts_and_the_others_are_added() -> None:
    many = [machine("r-1-a", f"n{number:04}") for number in range(1500)]
    steps, observed = settled(desired(machines=many))
    pool = observed.pool(NAME)
    assert pool is not None
    assert pool.machines == set(many)
    sizes = [len(one.machines) for one in calls(steps) if isinstance(one, Hosts)]
    assert sizes == [1000, 300]
    (made,) = (
        one.part for one in calls(steps) if isinstance(one, Insert) and one.kind is Kind.POOL
    )
    assert isinstance(made, Pool)
    assert len(made.instances) == 200


def test_hosts_come_and_go_and_those_that_were_refused_are_not_tried_again() -> None:
    before = ready(desired(machines=(A,)))
    assert calls(plan(desired(machines=(B,)), before, PLACE)) == [
        Hosts(Kind.POOL, NAME, (B,), adds=True),
        Hosts(Kind.POOL, NAME, (A,), adds=False),
    ]
    refused = msgspec.structs.replace(before, refused={B: "gone"})
    assert plan(desired(), refused, PLACE) == ()
    fresh = Observed(refused={B: "gone"})
    pool = settled(desired(), fresh)[1].pool(NAME)
    assert pool is not None
    assert pool.machines == {A}


@pytest.mark.parametrize(
    "want",
    [
        desired((80, "TCP"), (443, "TCP")),
        desired((80, "UDP")),
        desired(session_affinity="ClientIP"),
    ],
    ids=["ports", "protocol", "affinity"],
)
def test_a_rule_that_is_made_anew_keeps_its_address(want: Desired) -> None:
    before = ready(desired())
    assert obsolete(want, before)
    steps, after = settled(want, before)
    first = steps[0].call
    assert isinstance(first, Insert)
    assert first.part == Address(
        name=NAME,
        description=naming.described_as_held("shop/web", CLUSTER.uid),
        address=IP,
        address_type="EXTERNAL",
        network_tier="PREMIUM",
    )
    assert steps[1].call == Delete(Kind.RULE, NAME)
    rule = after.rule(NAME)
    assert rule is not None
    assert rule.address == IP
    assert after.address(NAME) is None
    assert shown(steps)[-1] == f"delete address {NAME}"


MIXED = ((53, "TCP"), (53, "UDP"), (443, "TCP"))
UDP = naming.udp_rule(NAME)


def address_of(observed: Observed, name: str) -> str:
    rule = observed.rule(name)
    assert rule is not None
    return rule.address


def test_two_protocols_have_a_rule_each_with_one_address_that_is_held_meanwhile() -> None:
    steps, observed = settled(desired(*MIXED))
    assert shown(steps)[-5:] == [
        f"create forwarding rule {NAME}",
        f"create firewall rule k8s-fw-{NAME}",
        f"create address {NAME}",
        f"create forwarding rule {UDP}",
        f"delete address {NAME}",
    ]
    first, second = observed.rule(NAME), observed.rule(UDP)
    assert first is not None
    assert second is not None
    assert (first.protocol, first.port_range) == ("TCP", "53-443")
    assert (second.protocol, second.port_range) == ("UDP", "53-53")
    assert first.address == second.address
    assert first.target == second.target
    firewall = observed.parts[Kind.FIREWALL, f"k8s-fw-{NAME}"]
    assert isinstance(firewall, Firewall)
    assert firewall.allowed == (Allowed("tcp", ("53", "443")), Allowed("udp", ("53",)))
    assert plan(desired(*MIXED), observed, PLACE) == ()


def test_a_second_protocol_comes_and_goes_without_touching_the_first_rule() -> None:
    steps, mixed = settled(desired(*MIXED), ready(desired((53, "TCP"), (443, "TCP"))))
    assert f"delete forwarding rule {NAME}" not in shown(steps)
    assert address_of(mixed, UDP) == IP
    back, after = settled(desired((53, "TCP"), (443, "TCP")), mixed)
    assert shown(back) == [f"delete forwarding rule {UDP}", f"change firewall rule k8s-fw-{NAME}"]
    assert after.rule(UDP) is None


def test_the_first_protocol_goes_and_the_address_stays() -> None:
    _, after = settled(desired((53, "UDP")), ready(desired(*MIXED)))
    assert after.rule(UDP) is None
    assert address_of(after, NAME) == IP
    assert after.address(NAME) is None


def test_a_rule_of_two_that_is_made_anew_takes_the_address_of_the_other() -> None:
    lost = ready(desired(*MIXED), without=((Kind.RULE, NAME),))
    _, after = settled(desired(*MIXED), lost)
    assert address_of(after, NAME) == address_of(after, UDP) == IP
    astray = with_rule(ready(desired(*MIXED)), address="34.9.9.9")
    _, after = settled(desired(*MIXED), astray)
    assert address_of(after, NAME) == address_of(after, UDP) == "34.9.9.9"


def test_two_rules_whose_pool_is_made_anew_are_made_anew_with_their_address() -> None:
    want = desired(*MIXED, session_affinity="ClientIP")
    steps, after = settled(want, ready(desired(*MIXED)))
    assert shown(steps).count(f"create address {NAME}") == 1
    assert address_of(after, NAME) == address_of(after, UDP) == IP


def test_an_internal_one_of_two_protocols_has_one_rule_for_all_protocols_and_ports() -> None:
    before = ready(desired(options=INTERNAL))
    _, after = settled(desired(*MIXED, options=INTERNAL), before)
    rule, backend = after.rule(NAME), after.backend(NAME)
    assert rule is not None
    assert backend is not None
    assert (rule.protocol, rule.all_ports, rule.ports) == ("L3_DEFAULT", True, ())
    assert backend.protocol == "UNSPECIFIED"
    assert rule.address == IP


def test_an_attempt_that_ended_without_a_rule_goes_on_with_the_held_address() -> None:
    held = Address(name=NAME, address="34.9.9.9", address_type="EXTERNAL", network_tier="PREMIUM")
    before = ready(desired(), without=((Kind.RULE, NAME),)).with_part((Kind.ADDRESS, NAME), held)
    after = settled(desired(), before)[1]
    rule = after.rule(NAME)
    assert rule is not None
    assert rule.address == "34.9.9.9"


def test_an_address_of_the_user_s_is_not_held_nor_released() -> None:
    fixed = Address(name="fixed", address=IP, address_type="EXTERNAL", network_tier="PREMIUM")
    before = msgspec.structs.replace(ready(desired()), reserved={IPV4: fixed})
    want = desired((80, "TCP"), (443, "TCP"), load_balancer_ip=IP)
    steps, after = settled(want, before)
    assert not any("address" in line for line in shown(steps))
    rule = after.rule(NAME)
    assert rule is not None
    assert rule.address == IP


def test_an_address_that_somebody_has_reserved_under_the_rule_is_not_lost() -> None:
    kept = Address(name="kept", address=IP, address_type="EXTERNAL", network_tier=STANDARD)
    before = with_rule(ready(desired()), network_tier=STANDARD)
    steps, after = settled(
        desired((80, "TCP"), (443, "TCP")), msgspec.structs.replace(before, reserved={IPV4: kept})
    )
    assert not any("address" in line for line in shown(steps))
    rule = after.rule(NAME)
    assert rule is not None
    assert (rule.address, rule.network_tier) == (IP, STANDARD)


@pytest.mark.parametrize(
    ("fields", "is_free"),
    [
        ({}, True),
        ({"description": naming.described("shop/web")}, True),
        ({"description": naming.described("shop/second")}, False),
        ({"users": ("projects/p/regions/r/forwardingRules/theirs",)}, False),
    ],
)
def test_a_reserved_address_is_the_service_s_still_if_nobody_else_has_it(
    fields: dict[str, Any], *, is_free: bool
) -> None:
    kept = Address(name="kept", address=IP, **fields)
    assert is_still_free(desired(), kept) is is_free
    assert not is_still_free(desired(), None)


def test_another_address_that_is_asked_for_takes_the_place_of_the_former() -> None:
    before = ready(desired())
    after = settled(desired(load_balancer_ip="34.5.5.5"), before)
    assert shown(after[0])[0] == f"delete forwarding rule {NAME}"
    rule = after[1].rule(NAME)
    assert rule is not None
    assert rule.address == "34.5.5.5"


def test_a_held_address_that_nobody_asks_for_goes() -> None:
    held = Address(name=NAME, address="34.9.9.9", address_type="EXTERNAL", network_tier="PREMIUM")
    before = ready(desired(), without=((Kind.RULE, NAME),)).with_part((Kind.ADDRESS, NAME), held)
    steps, _ = settled(desired(load_balancer_ip="34.5.5.5"), before)
    assert steps[0].call == Delete(Kind.ADDRESS, NAME)
    internal = msgspec.structs.replace(held, address_type="INTERNAL")
    before = before.with_part((Kind.ADDRESS, NAME), internal)
    assert settled(desired(), before)[0][0].call == Delete(Kind.ADDRESS, NAME)


def test_only_a_tier_that_is_asked_for_replaces_another() -> None:
    standard = with_rule(ready(desired()), network_tier=STANDARD)
    assert plan(desired(), standard, PLACE) == ()
    want = desired(options=Options(is_tier_given=True))
    assert calls(plan(want, standard, PLACE)) == [Delete(Kind.RULE, NAME)]


def test_another_health_check_takes_the_place_of_the_former_without_a_new_pool() -> None:
    before = ready(desired())
    want = desired(**LOCAL)
    assert leaves_shared_check(want, before)
    steps, after = settled(want, before)
    checks_path = "projects/p/global/httpHealthChecks"
    assert PoolCheck(NAME, f"{checks_path}/k8s-1234-node", adds=False) in calls(steps)
    assert PoolCheck(NAME, f"{checks_path}/{NAME}", adds=True) in calls(steps)
    assert f"create firewall rule k8s-{NAME}-http-hc" in shown(steps)
    checks = after.parts[Kind.FIREWALL, f"k8s-{NAME}-http-hc"]
    assert isinstance(checks, Firewall)
    assert checks.destination_ranges == (IP,)
    assert f'service-ip":"{IP}"' in checks.description
    assert not leaves_shared_check(want, after)
    back, end = settled(desired(), after)
    assert shown(back)[-2:] == [
        f"delete HTTP health check {NAME}",
        f"delete firewall rule k8s-{NAME}-http-hc",
    ]
    assert (Kind.HTTP_CHECK, NAME) not in end.parts
    assert not leaves_shared_check(desired(**LOCAL), Observed())


def test_no_firewall_rule_is_made_while_no_host_has_a_tag() -> None:
    steps, _ = settled(desired(machines=(), tags=()))
    assert not any("firewall" in line for line in shown(steps))


def test_what_somebody_has_changed_is_changed_back() -> None:
    before = ready(desired())
    key = (Kind.FIREWALL, f"k8s-fw-{NAME}")
    firewall = before.parts[key]
    assert isinstance(firewall, Firewall)
    open_ = msgspec.structs.replace(firewall, source_ranges=("0.0.0.0/0", "1.2.3.4/32"))
    (step,) = plan(desired(), before.with_part(key, open_), PLACE)
    assert step.call == Change(Kind.FIREWALL, firewall)
    assert step.lines == (PartChange("change", f"firewall rule k8s-fw-{NAME}", "source_ranges"),)


def test_a_more_patient_health_check_stays_so() -> None:
    want = desired().check
    patient = msgspec.structs.replace(want, check_interval_sec=30)
    assert differing(want, patient) == ()
    other = msgspec.structs.replace(patient, port=1)
    assert merged(want, other) == patient
    assert merged(Rule(name="r"), Rule(name="r")) == Rule(name="r")


# Internal


def test_an_internal_one_is_made_from_groups_and_check_up() -> None:
    steps, observed = settled(desired(options=INTERNAL))
    assert shown(steps) == [
        "create instance group of r-1-a",
        "create instance group of r-1-b",
        "create instance group of r-1-a host r-1-a/a",
        "create instance group of r-1-b host r-1-b/b",
        "create health check k8s-1234-node",
        "create firewall rule k8s-1234-node-hc",
        f"create backend service {NAME}",
        f"create forwarding rule {NAME}",
        f"create firewall rule k8s-fw-{NAME}",
    ]
    backend = observed.backend(NAME)
    assert backend is not None
    assert [one.group.rpartition("/zones/")[2] for one in backend.backends] == [
        "r-1-a/instanceGroups/k8s-ig--1234",
        "r-1-b/instanceGroups/k8s-ig--1234",
    ]
    rule = observed.rule(NAME)
    assert rule is not None
    assert (rule.ports, rule.all_ports, rule.subnetwork) == (("80",), False, PLACE.url(SUBNET))


def test_more_than_five_ports_are_all_ports() -> None:
    ports = tuple((number, "TCP") for number in range(1, 7))
    (rule,) = desired(*ports, options=INTERNAL).rules
    assert (rule.ports, rule.all_ports) == ((), True)


def test_an_internal_protocol_is_changed_while_there_is_no_rule() -> None:
    before = ready(desired(options=INTERNAL))
    steps, after = settled(desired((80, "UDP"), options=INTERNAL), before)
    assert shown(steps) == [
        f"create address {NAME}",
        f"delete forwarding rule {NAME}",
        f"change backend service {NAME}",
        f"create forwarding rule {NAME}",
        f"change firewall rule k8s-fw-{NAME}",
        f"delete address {NAME}",
    ]
    rule = after.rule(NAME)
    assert rule is not None
    assert (rule.address, rule.protocol) == (IP, "UDP")


def test_another_subnetwork_means_another_address() -> None:
    before = ready(desired(options=INTERNAL))
    want = desired(options=Options(internal=True, subnet="other"))
    assert calls(plan(want, before, PLACE)) == [Delete(Kind.RULE, NAME)]
    held = Address(name=NAME, address=IP, address_type="INTERNAL", subnetwork=SUBNET)
    gone = before.with_part((Kind.RULE, NAME), None).with_part((Kind.ADDRESS, NAME), held)
    assert settled(want, gone)[0][0].call == Delete(Kind.ADDRESS, NAME)
    without = Setting(PLACE, ID)
    unknown = desired_parts(balancer(), INTERNAL, without, (A, B), ("node",), form=Form.INTERNAL)
    assert plan(unknown, before, PLACE) == ()


def test_a_shared_backend_service_takes_the_place_of_the_own_one() -> None:
    before = ready(desired(options=INTERNAL))
    want = desired(options=Options(internal=True, shares_backend=True))
    assert want.backend is not None
    assert want.backend.name.startswith("k8s-1234-internal-tcp-nmv1-")
    steps, after = settled(want, before)
    assert after.backend(NAME) is None
    assert f"delete backend service {NAME}" in shown(steps)


def test_the_own_check_of_an_internal_one_goes_once_nothing_uses_it() -> None:
    before = ready(desired(options=INTERNAL, **LOCAL))
    want = desired(options=INTERNAL)
    assert leaves_shared_check(desired(options=INTERNAL, **LOCAL), ready(want))
    steps, _ = settled(want, before)
    assert shown(steps)[-2:] == [
        f"delete health check {NAME}",
        f"delete firewall rule {NAME}-hc",
    ]


def test_the_firewall_rule_of_older_managers_goes() -> None:
    before = ready(desired(options=INTERNAL))
    old = before.with_part((Kind.FIREWALL, NAME), Firewall(name=NAME))
    assert calls(plan(desired(options=INTERNAL), old, PLACE)) == [Delete(Kind.FIREWALL, NAME)]


def test_groups_lose_what_is_no_host_and_have_a_thousand_at_most() -> None:
    many = frozenset(machine("r-1-a", f"n{number:04}") for number in range(1200))
    groups = Observed(
        {
            (Kind.GROUP, "r-1-a"): Group("r-1-a"),
            (Kind.GROUP, "r-1-b"): Group("r-1-b", frozenset({B})),
        }
    )
    add, remove = calls(group_steps(many, groups))
    assert isinstance(add, Hosts)
    assert len(add.machines) == 1000
    assert remove == Hosts(Kind.GROUP, "r-1-b", (B,), adds=False)


def test_a_backend_service_waits_for_its_check_and_a_rule_for_its_backend_service() -> None:
    groups = Observed({(Kind.GROUP, "r-1-a"): Group("r-1-a", frozenset({A}))})
    want = desired(options=INTERNAL, machines=(A,))
    assert {type(one) for one in calls(plan(want, groups, PLACE))} == {Insert}
    assert not any(
        "service" in line or "rule a5" in line for line in shown(plan(want, groups, PLACE))
    )


# Both


def test_another_kind_is_told() -> None:
    assert other_scheme(desired(), ready(desired(options=INTERNAL)).rule(NAME))
    assert not other_scheme(desired(), ready(desired()).rule(NAME))
    assert not other_scheme(desired(), None)
    assert not obsolete(desired(), Observed())
    before = ready(desired(options=INTERNAL))
    steps = calls(plan(desired(), before, PLACE))
    assert Delete(Kind.RULE, NAME) in steps
    assert not any(isinstance(one, Insert) and one.kind is Kind.ADDRESS for one in steps)


@pytest.mark.parametrize(
    ("reserved", "problem"),
    [
        (None, "it is not reserved in the region"),
        (Address(name="x", address=IP, network_tier=STANDARD), "it is of the network tier STANDARD"),
        (
            Address(name="x", address=IP, network_tier="PREMIUM", users=("projects/p/a/other",)),
            "other has it",
        ),
        (
            Address(
                name="x", address=IP, network_tier="PREMIUM",
                description=naming.described("bank/vault"),
            ),
            "it belongs to the Service bank/vault",
        ),
    ],
)  # fmt: skip
def test_an_address_that_the_service_cannot_have_is_refused(
    reserved: Address | None, problem: str
) -> None:
    want = desired(load_balancer_ip=IP)
    with pytest.raises(InvalidRequest, match=problem):
        check(
            want,
            Observed(reserved={} if reserved is None else {IPV4: reserved}),
            balancer().ref,
            Tenants(),
        )


def test_an_address_that_it_may_have_is_not_refused() -> None:
    want, ref = desired(load_balancer_ip=IP), balancer().ref
    free = Address(name="x", address=IP, network_tier="PREMIUM")
    check(want, Observed(reserved={IPV4: free}), ref, Tenants())
    check(want, ready(want), ref, Tenants(named_objects=Naming.LISTED))
    check(desired(), Observed(), ref, Tenants())
    check(desired(options=INTERNAL, load_balancer_ip="10.0.0.9"), Observed(), ref, Tenants())
    with pytest.raises(InvalidRequest, match="does not list it"):
        check(want, Observed(reserved={IPV4: free}), ref, Tenants(named_objects=Naming.LISTED))


@pytest.mark.parametrize("options", [Options(), INTERNAL])
def test_a_load_balancer_goes_from_the_rule_down(options: Options) -> None:
    before = ready(desired(options=options, **LOCAL))
    own = {key: one for key, one in before.parts.items() if NAME in key[1]}
    held = Address(name=NAME, address=IP)
    observed = Observed({**own, (Kind.ADDRESS, NAME): held})
    steps, after = foresee(observed, deletion, lambda seen, step: step.after(seen))
    assert steps[0].call == Delete(Kind.RULE, NAME)
    assert after.parts == {}
    kinds = [one.kind for one in calls(steps) if isinstance(one, Delete)]
    user = Kind.SERVICE if options.internal else Kind.POOL
    checks = Kind.CHECK if options.internal else Kind.HTTP_CHECK
    assert kinds.index(user) < kinds.index(checks)


def test_what_was_foreseen_of_a_pool_that_is_not_there_changes_nothing() -> None:
    assert pool_check(NAME, "x", adds=True).after(Observed()) == Observed()
    assert hosts(Kind.POOL, NAME, (A,), adds=True).after(Observed()) == Observed()


def test_a_rule_waits_while_the_pool_has_another_affinity() -> None:
    want = desired(session_affinity="ClientIP")
    before = ready(desired(), without=((Kind.RULE, NAME),))
    assert calls(plan(want, before, PLACE)) == [Delete(Kind.POOL, NAME)]


def test_a_rule_whose_pool_is_not_shown_stays() -> None:
    """Google deletes no pool to which a rule leads, so it is there."""
    before = ready(desired(), without=((Kind.POOL, NAME),))
    made = [call.kind for call in calls(plan(desired(), before, PLACE)) if isinstance(call, Insert)]
    assert made == [Kind.POOL]
    assert not any(isinstance(call, Delete) for call in calls(plan(desired(), before, PLACE)))


def test_a_rule_waits_while_the_backend_service_has_another_protocol() -> None:
    want = desired((80, "UDP"), options=INTERNAL)
    before = ready(desired(options=INTERNAL), without=((Kind.RULE, NAME),))
    (step,) = plan(want, before, PLACE)
    assert isinstance(step.call, Change)


def test_a_pool_s_check_waits_until_there_is_another() -> None:
    before = ready(desired(), without=((Kind.HTTP_CHECK, "k8s-1234-node"),))
    (step,) = plan(desired(), before, PLACE)
    assert isinstance(step.call, Insert)
    other = before.pool(NAME)
    assert other is not None
    bare = before.with_part((Kind.POOL, NAME), msgspec.structs.replace(other, health_checks=()))
    assert len(plan(desired(), bare, PLACE)) == 1
    wrong = msgspec.structs.replace(other, health_checks=("projects/p/global/httpHealthChecks/x",))
    assert len(plan(desired(), before.with_part((Kind.POOL, NAME), wrong), PLACE)) == 1


# What is desired


def test_what_google_cannot_do_is_refused_with_all_problems_at_once() -> None:
    with pytest.raises(InvalidRequest) as caught:
        desired((80, "TCP"), (53, "SCTP"), load_balancer_ip="fd00::1")
    told = str(caught.value)
    for part in ("SCTP must be TCP or UDP", "spec.loadBalancerIP"):
        assert part in told


def test_nobody_is_let_in_where_no_range_is_of_the_family() -> None:
    want = desired(load_balancer_source_ranges=("fd00::/8",))
    assert want.firewalls[IPV4].source_ranges == (NOBODY[IPV4],)


def test_health_checks_come_from_google_s_ranges() -> None:
    want = desired(**LOCAL)
    assert isinstance(want.check, HttpCheck)
    assert (want.check.port, want.check.request_path) == (32000, "/healthz")
    assert set(want.check_firewalls[IPV4].source_ranges) == set(CHECK_RANGES)
    internal = desired(options=INTERNAL, **LOCAL).check
    assert isinstance(internal, Check)
    assert internal.http_health_check.port == 32000


@pytest.mark.parametrize(
    ("ports", "ranges"),
    [
        ([80], ("80",)),
        ([80, 443], ("80", "443")),
        ([8082, 8080, 8081, 80], ("80", "8080-8082")),
        ([1, 2, 2, 4, 5], ("1-2", "4-5")),
    ],
)
def test_ports_as_ranges(ports: list[int], ranges: tuple[str, ...]) -> None:
    assert port_ranges(ports) == ranges


def test_a_node_of_another_project_or_region_is_no_host() -> None:
    nodes = [
        objects.node("good", "gce://p/r-1-a/a"),
        objects.node("foreign", "gce://q/r-1-a/b"),
        objects.node("far", "gce://p/r-2-a/c"),
        objects.node("odd", "aws:///x"),
    ]
    service = balancer().service
    lb = desired_load_balancer(service, nodes, HostPolicy(), CLUSTER)
    found, rejected = machines_of(lb.hosts, PLACE)
    assert found == {"good": A}
    assert rejected.keys() == {"foreign", "far", "odd"}
    assert "region" in rejected["far"]


def test_the_tags_of_hosts() -> None:
    nodes = {"a": A, "b": B}
    assert tags_for(nodes, {}, ["given"]) == (("given",), {})
    tags, missing = tags_for(nodes, {A: "node", B: ""}, [])
    assert tags == ("node",)
    assert "node-tags" in missing["b"]


def test_urls_of_instances() -> None:
    assert instance_urls([B, A], PLACE)[0].endswith("projects/p/zones/r-1-a/instances/a")


def test_descriptions_tell_their_owner() -> None:
    owner = naming.owner_in(naming.described("shop/web"))
    assert owner is not None
    assert owner.key == "shop/web"
    assert naming.owner_in("something") is None


def test_each_step_in_words() -> None:
    check_ = "projects/p/global/httpHealthChecks/hc"
    words = [
        *insert(Kind.RULE, Rule(name="r", protocol="TCP", all_ports=True)).lines,
        *change(Kind.FIREWALL, Firewall(name="f"), ("allowed", "network")).lines,
        *hosts(Kind.GROUP, "r-1-a", (A,), adds=False).lines,
        *pool_check("pool", check_, adds=True).lines,
        *pool_check("pool", check_, adds=False).lines,
    ]
    assert words == [
        PartChange("create", "forwarding rule r", "TCP all ports"),
        PartChange("change", "firewall rule f", "allowed, network"),
        PartChange("delete", "instance group of r-1-a host r-1-a/a"),
        PartChange("change", "target pool pool", "health check hc"),
        PartChange("change", "target pool pool", "no health check hc"),
    ]
