"""What is done so that a load balancer of Compute Engine gets a backend service, and IPv6."""

from typing import Any

import msgspec
import pytest

from proreus.cloudprovider import InvalidRequest
from proreus.cloudprovider.ownership import Tenants
from proreus.providers.gce.balancing import naming
from proreus.providers.gce.balancing.addresses import check
from proreus.providers.gce.balancing.annotations import STANDARD, Options
from proreus.providers.gce.balancing.desired import Desired, Setting, desired_parts
from proreus.providers.gce.balancing.firewalls import CHECK_RANGES_V6, NOBODY
from proreus.providers.gce.balancing.leftovers import forms_beside, leftovers
from proreus.providers.gce.balancing.needs import needed, unexpected
from proreus.providers.gce.balancing.parts import (
    IPV4,
    IPV6,
    Address,
    Check,
    Firewall,
    Form,
    Kind,
    Pool,
    Rule,
)
from proreus.providers.gce.balancing.plan import former_form, plan, wanted_form
from proreus.providers.gce.balancing.steps import Delete, Insert, Key, Observed

from .test_gce import (
    BACKEND,
    DUAL,
    INTERNAL,
    IP,
    IP6,
    LOCAL,
    MIXED,
    NAME,
    PLACE,
    SUBNET,
    UDP,
    A,
    balancer,
    calls,
    desired,
    ready,
    settled,
    shown,
)

SECOND = f"{NAME}-ipv6"
FIRST_IS_V6 = ("IPv6", "IPv4")


def dual(*ports: tuple[int, str], options: Options = INTERNAL, **spec: Any) -> Desired:
    return desired(*ports, options=options, **{"families": DUAL, **spec})


def rules(observed: Observed) -> dict[str, Rule]:
    return {one.name: one for one in observed.rules()}


# Backend services of external load balancers


def test_an_external_one_with_a_backend_service_has_a_health_check_of_the_region() -> None:
    steps, observed = settled(desired(options=BACKEND))
    assert shown(steps)[4:] == [
        "create regional health check k8s-1234-node",
        "create firewall rule k8s-1234-netlb-hc".replace("1234", "1234-node"),
        f"create backend service {NAME}",
        f"create forwarding rule {NAME}",
        f"create firewall rule k8s-fw-{NAME}",
    ]
    backend = observed.backend(NAME)
    assert backend is not None
    assert backend.load_balancing_scheme == "EXTERNAL"
    assert "/regions/r-1/healthChecks/" in backend.health_checks[0]
    assert len(backend.backends) == 2
    rule = rules(observed)[NAME]
    assert (rule.ports, rule.network_tier, rule.network) == (("80",), "PREMIUM", "")
    assert not rule.is_elsewhere
    assert plan(desired(options=BACKEND), observed, PLACE) == ()


def test_more_than_five_ports_of_an_external_backend_service_are_a_range() -> None:
    ports = tuple((number, "TCP") for number in range(10, 70, 10))
    (rule,) = desired(*ports, options=BACKEND).rules
    assert (rule.ports, rule.port_range) == ((), "10-60")


def test_two_protocols_of_an_external_backend_service_go_by_one_rule() -> None:
    _, observed = settled(desired(*MIXED, options=BACKEND))
    (rule,) = observed.rules()
    assert (rule.protocol, rule.all_ports) == ("L3_DEFAULT", True)


@pytest.mark.parametrize("ports", [((80, "TCP"),), MIXED])
@pytest.mark.parametrize("spec", [{}, LOCAL])
def test_from_a_target_pool_to_a_backend_service_and_back_the_address_stays(
    ports: tuple[tuple[int, str], ...], spec: dict[str, Any]
) -> None:
    pool, backend = desired(*ports, **spec), desired(*ports, options=BACKEND, **spec)
    steps, after = settled(backend, ready(pool))
    assert rules(after)[NAME].address == IP
    assert UDP not in rules(after)
    assert after.pool(NAME) is None
    assert shown(steps)[-1] == f"delete address {NAME}"
    assert (Kind.HTTP_CHECK, NAME) not in after.parts
    back, end = settled(pool, after)
    assert rules(end)[NAME].address == IP
    assert end.backend(NAME) is None
    assert f"delete backend service {NAME}" in shown(back)
    assert (Kind.REGION_CHECK, NAME) not in end.parts
    assert (Kind.FIREWALL, f"{NAME}-hc") not in end.parts


def test_which_form_a_service_gets() -> None:
    pool = ready(desired()).rule(NAME)
    backend = ready(desired(options=BACKEND)).rule(NAME)
    internal = ready(desired(options=INTERNAL)).rule(NAME)
    assert wanted_form(INTERNAL, pool, is_default=True) is Form.INTERNAL
    assert wanted_form(BACKEND, pool, is_default=False) is Form.EXTERNAL
    assert wanted_form(Options(), backend, is_default=False) is Form.POOL
    for rule, form in ((None, Form.EXTERNAL), (pool, Form.POOL), (internal, Form.EXTERNAL)):
        assert wanted_form(Options(), rule, is_default=True) is form


def test_the_form_that_a_load_balancer_had_before_is_known_or_supposed() -> None:
    pool, backend = desired(), desired(options=BACKEND)
    assert former_form(pool, ready(backend).rule(NAME), tuple(Form)) is Form.EXTERNAL
    assert former_form(pool, ready(pool).rule(NAME), tuple(Form)) is None
    assert former_form(pool, None, tuple(Form)) is None
    known = msgspec.structs.replace(pool, last_addresses=(IP,))
    assert former_form(known, None, tuple(Form)) is Form.EXTERNAL
    assert former_form(known, None, (Form.POOL, Form.INTERNAL)) is None
    internal = msgspec.structs.replace(desired(options=INTERNAL), last_addresses=(IP,))
    assert former_form(internal, None, tuple(Form)) is None


def test_what_is_left_in_the_other_scheme_goes_and_nothing_else() -> None:
    """Of parts that both have by the same name their scheme tells; the firewall rule is for both."""
    pool, backend, inside = desired(), desired(options=BACKEND), desired(options=INTERNAL)
    forms = (Form.POOL, Form.INTERNAL, Form.EXTERNAL)
    address = {(Kind.ADDRESS, NAME): Address(name=NAME, address=IP, address_type="EXTERNAL")}
    made = {one.form: ready(one).with_parts(address) for one in (pool, backend, inside)}
    assert forms_beside(inside, forms) == (Form.POOL, Form.EXTERNAL)
    assert forms_beside(pool, forms) == forms_beside(backend, forms) == (Form.INTERNAL,)
    own = {(Kind.ADDRESS, NAME), (Kind.RULE, NAME)}

    def left(want: Desired, form: Form) -> set[Key]:
        found = leftovers(want, made[form], forms).parts
        return {key for key in found if key[1].removeprefix("k8s-fw-") == NAME}

    assert left(inside, Form.POOL) == {*own, (Kind.POOL, NAME)}
    assert left(inside, Form.EXTERNAL) == {*own, (Kind.SERVICE, NAME)}
    assert left(pool, Form.INTERNAL) == {(Kind.RULE, NAME), (Kind.SERVICE, NAME)}
    for want in (pool, backend):
        for form in (Form.POOL, Form.EXTERNAL):
            assert left(want, form) == set()


# IPv6


@pytest.mark.parametrize("options", [INTERNAL, BACKEND])
def test_two_families_have_a_rule_each_and_firewall_rules_of_their_own(options: Options) -> None:
    want = dual(options=options)
    steps, observed = settled(want)
    first, second = rules(observed)[NAME], rules(observed)[SECOND]
    assert (first.ip, second.ip) == (IP, IP6)
    assert (first.ip_version, second.ip_version) == ("", "IPV6")
    assert first.backend_service == second.backend_service
    assert second.subnetwork == PLACE.url(SUBNET)
    firewall = observed.parts[Kind.FIREWALL, f"k8s-fw-{SECOND}"]
    assert isinstance(firewall, Firewall)
    assert firewall.source_ranges == ("::/0",)
    assert firewall.destination_ranges == (f"{IP6}/96",)
    shared = want.check_firewalls[IPV6]
    assert shared.name.endswith("-hc-ipv6")
    assert shared.source_ranges == CHECK_RANGES_V6[want.form]
    assert shared.name in " ".join(shown(steps))
    assert plan(want, observed, PLACE) == ()


def test_the_second_family_goes_with_its_firewall_rules_first() -> None:
    before = ready(dual(**LOCAL))
    assert (Kind.FIREWALL, f"{SECOND}-hc") in before.parts
    want = desired(options=INTERNAL, **LOCAL)
    steps, after = settled(want, before)
    assert shown(steps) == [
        f"delete firewall rule k8s-fw-{SECOND}",
        f"delete firewall rule {SECOND}-hc",
        f"delete forwarding rule {SECOND}",
    ]
    assert after == ready(want)


def test_the_own_check_of_two_families_goes_with_both_firewall_rules() -> None:
    steps, after = settled(dual(), ready(dual(**LOCAL)))
    assert f"delete firewall rule {SECOND}-hc" in shown(steps)
    assert f"delete firewall rule {NAME}-hc" in shown(steps)
    assert rules(after)[SECOND].ip == IP6


def test_each_family_keeps_its_address_while_its_rule_is_made_anew() -> None:
    steps, after = settled(dual((443, "TCP"), options=BACKEND), ready(dual(options=BACKEND)))
    held = {
        one.part.name: one.part
        for one in calls(steps)
        if isinstance(one, Insert) and isinstance(one.part, Address)
    }
    assert held.keys() == {NAME, SECOND}
    assert (held[NAME].address, held[NAME].prefix_length) == (IP, 0)
    assert (held[SECOND].address, held[SECOND].prefix_length) == (IP6, 96)
    assert {one.ip for one in after.rules()} == {IP, IP6}
    assert not any(isinstance(one, Address) for one in after.parts.values())


def test_a_held_address_of_ipv6_is_named_by_its_reservation() -> None:
    want = dual()
    lost = ready(want, without=((Kind.RULE, SECOND),))
    reserved = Address(name="kept", address=IP6, address_type="INTERNAL", subnetwork=SUBNET)
    observed = msgspec.structs.replace(lost, reserved={IPV6: reserved})
    (step,) = calls(plan(want, observed, PLACE))
    assert isinstance(step, Insert)
    assert isinstance(step.part, Rule)
    assert step.part.address == PLACE.url("projects/p/regions/r-1/addresses/kept")


def test_a_service_whose_first_family_is_ipv6_has_that_under_the_official_name() -> None:
    want = desired(options=INTERNAL, families=FIRST_IS_V6)
    _, observed = settled(want)
    assert rules(observed)[NAME].ip == IP6
    assert rules(observed)[f"{NAME}-ipv4"].ip == IP
    alone = desired(options=INTERNAL, families=("IPv6",))
    assert [one.name for one in settled(alone, observed)[1].rules()] == [NAME]


def test_a_requested_address_is_for_its_family_alone() -> None:
    want = dual(load_balancer_ip="2600:1900:1:2:0:0:0:0")
    assert want.requested_of(IPV6) == IP6
    assert want.requested_of(IPV4) == ""
    steps, _ = settled(want)
    made = {
        one.part.name: one.part.address
        for one in calls(steps)
        if isinstance(one, Insert) and isinstance(one.part, Rule)
    }
    assert made == {NAME: "", SECOND: IP6}
    check(want, ready(want), balancer().ref, Tenants())
    external = dual(options=BACKEND, load_balancer_ip=IP6)
    with pytest.raises(InvalidRequest, match="it is not reserved"):
        check(external, Observed(), balancer().ref, Tenants())


def test_nobody_is_let_in_by_a_family_without_ranges() -> None:
    want = dual(load_balancer_source_ranges=("192.0.2.0/24",))
    assert want.firewalls[IPV6].source_ranges == (NOBODY[IPV6],)


def parts_for(lb: Any, options: Options, setting: Setting, form: Form) -> Desired:
    return desired_parts(lb, options, setting, (A,), ("node",), form=form)


def test_what_cannot_have_ipv6_is_told() -> None:
    lb = balancer(families=DUAL)
    without = Setting(PLACE, "1234")
    with pytest.raises(InvalidRequest, match="subnetwork-name"):
        parts_for(lb, INTERNAL, without, Form.INTERNAL)
    standard = Options(backend_service=True, tier=STANDARD, is_tier_given=True)
    setting = Setting(PLACE, "1234", SUBNET)
    with pytest.raises(InvalidRequest, match="Standard has no IPv6"):
        parts_for(lb, standard, setting, Form.EXTERNAL)
    pool = parts_for(lb, Options(), without, Form.POOL)
    assert [one.family for one in pool.rules] == [IPV4]
    assert pool.firewalls.keys() == {IPV4}
    with pytest.raises(InvalidRequest, match="a target pool has IPv4 only"):
        parts_for(balancer(families=("IPv6",)), Options(), without, Form.POOL)


# What is read


def kinds(keys: Any) -> list[str]:
    return sorted(f"{kind.word} {name.replace(NAME, '*')}" for kind, name in keys)


def test_what_is_read_of_a_target_pool() -> None:
    assert kinds(needed(desired(), {Form.POOL})) == [
        "HTTP health check *",
        "HTTP health check k8s-1234-node",
        "address *",
        "firewall rule k8s-1234-node-http-hc",
        "firewall rule k8s-fw-*",
        "forwarding rule *",
        "forwarding rule *-udp",
        "target pool *",
    ]


def test_what_is_read_of_a_backend_service() -> None:
    assert kinds(needed(desired(options=INTERNAL), {Form.INTERNAL})) == [
        "address *",
        "backend service *",
        "firewall rule *",
        "firewall rule k8s-1234-node-hc",
        "firewall rule k8s-fw-*",
        "forwarding rule *",
        "forwarding rule *-ipv6",
        "health check *",
        "health check k8s-1234-node",
    ]
    local = kinds(needed(desired(options=BACKEND, **LOCAL), {Form.EXTERNAL}))
    assert "regional health check *" in local
    assert "firewall rule *-hc" in local
    assert "address *-ipv6" in kinds(needed(dual(), {Form.INTERNAL}))


def test_what_another_form_had_is_read_where_it_may_be() -> None:
    both = kinds(needed(desired(options=BACKEND), {Form.POOL, Form.EXTERNAL}))
    assert {"target pool *", "HTTP health check *", "firewall rule k8s-*-http-hc"} <= set(both)


def test_what_was_found_unexpectedly_is_read_whole() -> None:
    assert unexpected(desired(options=INTERNAL), ready(desired(options=INTERNAL))) == ()
    found = Observed({(Kind.RULE, SECOND): Rule(name=SECOND)})
    assert kinds(unexpected(desired(options=INTERNAL), found)) == [
        "address *-ipv6",
        "firewall rule *-ipv6-hc",
        "firewall rule k8s-fw-*-ipv6",
    ]
    own = Observed({(Kind.CHECK, NAME): Check(name=NAME)})
    assert kinds(unexpected(desired(options=INTERNAL), own)) == [
        "firewall rule *-hc",
        "firewall rule k8s-*-http-hc",
    ]


def test_what_a_load_balancer_may_consist_of_by_its_rule() -> None:
    v6 = Rule(name=NAME, ip_version="IPV6")
    names = {name for kind, name in naming.parts_of(NAME, v6, [Form.INTERNAL])}
    assert f"{NAME}-ipv4" in names
    assert SECOND not in names
    every = {name for _, name in naming.parts_of(NAME, None, Form)}
    assert {SECOND, f"{NAME}-ipv4", UDP} <= every


def test_a_pool_left_from_before_goes_before_the_rule_comes() -> None:
    left = Observed({(Kind.POOL, NAME): Pool(name=NAME)})
    assert Delete(Kind.POOL, NAME) in calls(plan(desired(options=BACKEND), left, PLACE))
    assert Delete(Kind.POOL, NAME) not in calls(plan(desired(options=INTERNAL), left, PLACE))
