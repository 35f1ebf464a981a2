"""The rules of security groups: tables, and the properties of comparing them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.providers.aws.listeners import HealthCheck, Listener, PortMapping
from proreus.providers.aws.rules import (
    CLIENT_RULE,
    HEALTH_RULE,
    MTU_RULE,
    Change,
    Rule,
    changed,
    idle_health,
    idle_mtu,
    in_doubt,
    made_for,
    of_classic,
    of_hosts,
    of_network,
    permissions_of,
    rules_of,
    shared_health,
    sparing,
)

ANYWHERE = ("0.0.0.0/0",)
SUBNETS = ("10.0.1.0/24", "10.0.2.0/24")
CLIENT, HEALTH = f"{CLIENT_RULE}=web", f"{HEALTH_RULE}=web"
NODES = HealthCheck("HTTP", "31000", "/healthz")


def tcp(port: int, source: str, description: str = "") -> Rule:
    return Rule("tcp", port, port, source, description)


def mapping(protocol: str = "TCP", health: HealthCheck | None = None) -> PortMapping:
    return PortMapping(80, protocol, 30080, protocol, health or HealthCheck())


def test_a_permission_is_read_rule_by_rule() -> None:
    permissions: list[dict[str, Any]] = [
        {
            "IpProtocol": "tcp",
            "FromPort": 80,
            "ToPort": 80,
            "IpRanges": [{"CidrIp": "10.0.0.0/8", "Description": "a"}, {"CidrIp": "192.0.2.0/24"}],
            "Ipv6Ranges": [{"CidrIpv6": "::/0"}],
            "UserIdGroupPairs": [{"GroupId": "sg-1", "UserId": "123456789012"}],
        },
        {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": "sg-2"}]},
    ]
    assert rules_of(permissions) == {
        tcp(80, "10.0.0.0/8", "a"),
        tcp(80, "192.0.2.0/24"),
        tcp(80, "::/0"),
        tcp(80, "sg-1"),
        of_hosts("sg-2"),
    }


RULES = st.builds(
    Rule,
    st.sampled_from(("tcp", "udp")),
    st.just(80),
    st.integers(80, 82),
    st.sampled_from(("10.0.0.0/8", "192.0.2.0/24", "2001:db8::/32", "sg-1")),
    st.sampled_from(("", CLIENT, HEALTH, MTU_RULE)),
) | st.just(of_hosts("sg-2"))
SETS = st.frozensets(RULES, max_size=8)


@given(SETS)
def test_rules_survive_being_written_and_read(rules: frozenset[Rule]) -> None:
    assert rules_of(permissions_of(rules)) == rules


def bare(rules: frozenset[Rule]) -> set[tuple[str, int, int, str]]:
    return {(one.protocol, one.from_port, one.to_port, one.source) for one in rules}


@given(SETS, SETS, SETS)
def test_after_a_change_all_desired_rules_are_there_and_those_of_others_stay(
    have: frozenset[Rule], want: frozenset[Rule], ours: frozenset[Rule]
) -> None:
    change = changed(have, want, ours)
    assert set(change.revoke) <= have & ours
    assert bare(frozenset(change.grant)).isdisjoint(bare(have))
    after = (have - set(change.revoke)) | set(change.grant)
    assert bare(after) >= bare(want)
    assert bare(after & have & ours) <= bare(want)
    assert not changed(after, want, ours)


def test_nothing_to_do_is_false() -> None:
    assert not Change()
    assert Change(grant=(tcp(80, "10.0.0.0/8"),))


def test_a_classic_load_balancer_lets_clients_in_at_its_ports() -> None:
    listeners = (Listener(80, "TCP", 30080, "TCP"), Listener(443, "SSL", 30443, "TCP", "arn"))
    assert of_classic(listeners, ("10.0.0.0/8", "2001:db8::/32")) == {
        tcp(80, "10.0.0.0/8"),
        tcp(443, "10.0.0.0/8"),
        Rule("icmp", 3, 4, "10.0.0.0/8"),
        tcp(80, "2001:db8::/32"),
        tcp(443, "2001:db8::/32"),
        Rule("icmpv6", 2, 0, "2001:db8::/32"),
    }


NETWORK: dict[str, tuple[tuple[PortMapping, ...], tuple[str, ...], set[Rule]]] = {
    "open to all: health checks are let in, too": (
        (mapping(),),
        ANYWHERE,
        {tcp(30080, "0.0.0.0/0", CLIENT), Rule("icmp", 3, 4, "0.0.0.0/0", MTU_RULE)},
    ),
    "some clients": (
        (mapping(),),
        ("192.0.2.0/24",),
        {
            tcp(30080, "192.0.2.0/24", CLIENT),
            Rule("icmp", 3, 4, "192.0.2.0/24", MTU_RULE),
            *(tcp(30080, subnet, HEALTH) for subnet in SUBNETS),
        },
    ),
    "clients of a subnet, where a port and a source make one rule": (
        (mapping(),),
        (SUBNETS[0],),
        {
            tcp(30080, SUBNETS[0], CLIENT),
            Rule("icmp", 3, 4, SUBNETS[0], MTU_RULE),
            *(tcp(30080, subnet, HEALTH) for subnet in SUBNETS[1:]),
        },
    ),
    "no clients": ((mapping(),), (), {tcp(30080, subnet, HEALTH) for subnet in SUBNETS}),
    "another port for health checks": (
        (mapping(health=NODES),),
        ANYWHERE,
        {
            tcp(30080, "0.0.0.0/0", CLIENT),
            Rule("icmp", 3, 4, "0.0.0.0/0", MTU_RULE),
            *(tcp(31000, subnet, HEALTH) for subnet in SUBNETS),
        },
    ),
    "udp, whose health checks are tcp": (
        (mapping("UDP"),),
        ANYWHERE,
        {
            Rule("udp", 30080, 30080, "0.0.0.0/0", CLIENT),
            Rule("icmp", 3, 4, "0.0.0.0/0", MTU_RULE),
            *(tcp(30080, subnet, HEALTH) for subnet in SUBNETS),
        },
    ),
    "tcp and udp": (
        (mapping("TCP_UDP"),),
        ANYWHERE,
        {
            tcp(30080, "0.0.0.0/0", CLIENT),
            Rule("udp", 30080, 30080, "0.0.0.0/0", CLIENT),
            Rule("icmp", 3, 4, "0.0.0.0/0", MTU_RULE),
        },
    ),
}


@pytest.mark.parametrize("case", NETWORK)
def test_what_a_network_load_balancer_needs_of_its_hosts(case: str) -> None:
    mappings, ranges, rules = NETWORK[case]
    assert of_network("web", mappings, ranges, SUBNETS) == rules


def test_rules_of_other_load_balancers_are_not_its_own() -> None:
    rules = {tcp(1, "10.0.0.0/8", CLIENT), tcp(2, "10.0.0.0/8", HEALTH), tcp(3, "10.0.0.0/8")}
    others = {tcp(4, "10.0.0.0/8", f"{CLIENT}2"), Rule("icmp", 3, 4, "10.0.0.0/8", MTU_RULE)}
    assert made_for("web", rules | others) == rules - {tcp(3, "10.0.0.0/8")}


def test_a_shared_rule_goes_with_the_last_client_that_needs_it() -> None:
    shared = {Rule("icmp", 3, 4, source, MTU_RULE) for source in ("10.0.0.0/8", "192.0.2.0/24")}
    other = tcp(1, "10.0.0.0/8", f"{CLIENT_RULE}=other")
    assert idle_mtu(shared, {other}) == {Rule("icmp", 3, 4, "192.0.2.0/24", MTU_RULE)}


def test_the_rule_of_health_checks_at_a_shared_port_stays_while_others_have_clients() -> None:
    own = {tcp(30080, "0.0.0.0/0", CLIENT), tcp(30080, "10.0.0.0/24", HEALTH)}
    shared = tcp(10256, "10.0.0.0/24", HEALTH)
    other = tcp(30081, "0.0.0.0/0", f"{CLIENT_RULE}=other")
    assert shared_health("web", frozenset({*own, shared, other})) == {shared}
    assert shared_health("web", frozenset({*own, shared})) == frozenset()


def test_rules_of_health_checks_go_when_nobody_has_clients() -> None:
    have = {tcp(10256, "10.0.0.0/24", HEALTH), tcp(10256, "10.0.1.0/24", "of an operator")}
    assert idle_health(have, {tcp(30081, "0.0.0.0/0", f"{CLIENT_RULE}=other")}) == frozenset()
    assert idle_health(have, have) == {tcp(10256, "10.0.0.0/24", HEALTH)}


OTHERS = tcp(30081, "10.0.0.0/8", "of an operator")
THEIRS = tcp(30081, "10.0.0.0/24", f"{HEALTH_RULE}=other")
SHARED = tcp(10256, "10.0.0.0/24", HEALTH)
OWN = tcp(30080, "10.0.0.0/24", HEALTH)
PATH = Rule("icmp", 3, 4, "10.0.0.0/8", MTU_RULE)
PATH_ELSEWHERE = Rule("icmp", 3, 4, "192.0.2.0/24", MTU_RULE)
CLIENTS = tcp(30080, "192.0.2.0/24", CLIENT)
REVOKED = (CLIENTS, OWN, SHARED, THEIRS, PATH, PATH_ELSEWHERE)
LEFT = {
    "nobody else lives": ({OTHERS}, set(), set()),
    "it lives itself": ({OTHERS}, {"web"}, set()),
    "the other one lives": ({OTHERS}, {"other"}, {THEIRS, SHARED, PATH}),
    "one lives whose clients it lets in itself": (
        {OTHERS, tcp(30082, "10.0.0.0/8", f"{CLIENT_RULE}=third")}, {"third"}, set()
    ),
    "one lives whose clients nothing lets in": (set(), {"third"}, set()),
}  # fmt: skip


@pytest.mark.parametrize("case", LEFT)
def test_what_living_load_balancers_may_need_is_left(case: str) -> None:
    others, living, left = LEFT[case]
    observed = frozenset({*REVOKED, *others})
    assert in_doubt(REVOKED) == {"web", "other", ""}
    assert in_doubt((CLIENTS,)) == frozenset()
    spared = sparing("web", observed, Change(revoke=REVOKED), living)
    assert set(spared.revoke) == set(REVOKED) - left
