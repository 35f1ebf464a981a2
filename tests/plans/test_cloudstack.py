"""What is done next to a load balancer of CloudStack: a table of situations, and that it ends."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proreus.cloudprovider import PartChange
from proreus.providers.cloudstack.balancing.parts import (
    Address,
    Desired,
    Network,
    Observed,
    Opening,
    Policy,
    Rule,
)
from proreus.providers.cloudstack.balancing.plan import (
    Acquire,
    Assign,
    ChangeRule,
    Claim,
    Close,
    DropRule,
    HandOver,
    MakeRule,
    MarkAddress,
    MarkRules,
    Open,
    Release,
    Step,
    Stick,
    Unassign,
    Unclaim,
    Unstick,
    Wait,
    deletion,
    plan,
)
from proreus.providers.cloudstack.balancing.preview import after, part_changes

EVERYONE = frozenset({"0.0.0.0/0"})
SOME = frozenset({"192.0.2.0/24"})
MORE = SOME | {"198.51.100.0/24"}
NETWORK = Network("n", has_firewall=True)
TIER = Network("n", vpc="v", acl="a")
HOSTS = frozenset({"vm-1", "vm-2"})
IP = Address("203.0.113.1", "ip", is_ours=True)
WEB = Rule("a1-tcp-80", "tcp", 80, 30080, "roundrobin", EVERYONE, "n")
TLS = Rule("a1-tcp-443", "tcp", 443, 30443, "roundrobin", EVERYONE, "n")
DESIRED = Desired((WEB,), HOSTS, EVERYONE, NETWORK, can_change_sources=True)
MADE = replace(WEB, address="ip", members=HOSTS, id="r", state="Active")
OPEN = Opening(("tcp", 80), EVERYONE, "f")
WHOLE = Observed(rules=(MADE,), address=IP, openings=(OPEN,))
OF_OTHERS = replace(OPEN, id="official", is_ours=False)
IN_TIER = replace(DESIRED, network=TIER)
WHOLE_TIER = replace(WHOLE, openings=(), items=(OPEN,))


@pytest.mark.parametrize(
    ("what", "desired", "observed", "steps"),
    [
        ("as desired", {}, {}, ()),
        ("no address is known to be free", {}, {"address": None}, (Acquire(""),)),
        ("a free one is claimed first", {}, {"address": Address("1.1.1.1")},
         (Claim("n", "1.1.1.1"),)),
        ("a claimed one is acquired", {}, {"address": Address("1.1.1.1"), "claim": "1.1.1.1"},
         (Acquire("1.1.1.1"),)),
        ("a claim of another goes first", {}, {"address": Address("1.1.1.1"), "claim": "2.2.2.2"},
         (Unclaim("n"),)),
        ("what was acquired is marked", {},
         {"address": replace(IP, is_ours=False), "claim": IP.ip, "rules": ()}, (MarkAddress("ip"),)),
        ("what somebody else has got is not, whatever an old claim says", {},
         {"address": replace(IP, is_ours=False, is_shared=True), "claim": IP.ip}, (Unclaim("n"),)),
        ("the official manager's address is marked before its rules", {},
         {"address": replace(IP, is_ours=False, is_adopted=True),
          "rules": (replace(MADE, is_marked=False),)}, (MarkAddress("ip"),)),
        ("then its rules", {}, {"rules": (replace(MADE, is_marked=False),)}, (MarkRules(("r",)),)),
        ("a given address is not marked", {}, {"address": replace(IP, is_ours=False)}, ()),
        ("the claim goes when rules come", {}, {"claim": IP.ip, "rules": (), "openings": ()},
         (MakeRule(replace(WEB, address="ip")), Unclaim("n"))),
        ("a port is closed before its rule goes", {"rules": (TLS,)}, {},
         (Close("f", in_acl=False),)),
        ("then the rule goes", {"rules": (TLS,)}, {"openings": ()}, (DropRule("r"),)),
        ("a port of an address that others share stays open for them", {"rules": (TLS,)},
         {"rules": (replace(TLS, address="ip", members=HOSTS, id="s"),
                    replace(MADE, address="other"))}, (DropRule("r"),)),
        ("another node port needs another rule, and stays open",
         {"rules": (replace(WEB, node_port=30081),)}, {}, (DropRule("r"),)),
        ("a rule that CloudStack deletes is waited for", {},
         {"rules": (replace(MADE, state="Revoke"),)}, (Wait("r"),)),
        ("sources are changed", {"rules": (replace(WEB, cidrs=SOME),)}, {},
         (ChangeRule("r", {"cidrlist": "192.0.2.0/24"}, replace(WEB, cidrs=SOME)),)),
        ("or need another rule", {"rules": (replace(WEB, cidrs=SOME),),
         "can_change_sources": False}, {}, (DropRule("r"),)),
        ("new machines", {}, {"rules": (replace(MADE, members=frozenset({"vm-1"})),)},
         (Assign("r", ("vm-2",)),)),
        ("old machines", {"members": frozenset({"vm-1"})}, {}, (Unassign("r", ("vm-2",)),)),
        ("clients are bound to machines", {"affinity_seconds": 60}, {}, (Stick("r", 60),)),
        ("they are", {"affinity_seconds": 60},
         {"rules": (replace(MADE, policies=(Policy("p", 60),)),)}, ()),
        ("for another time: a policy goes first", {"affinity_seconds": 30},
         {"rules": (replace(MADE, policies=(Policy("p", 60),)),)}, (Unstick("p"),)),
        ("no longer: the policy goes before the algorithm", {},
         {"rules": (replace(MADE, algorithm="source", policies=(Policy("p", 60),)),)},
         (Unstick("p"),)),
        ("a policy of others suffices", {"affinity_seconds": 60},
         {"rules": (replace(MADE, policies=(Policy("p", 0, is_ours=False),)),)}, ()),
        ("and stays", {}, {"rules": (replace(MADE, policies=(Policy("p", 0, is_ours=False),)),)},
         ()),
        ("a port is opened", {}, {"openings": ()}, (Open(("tcp", 80), EVERYONE),)),
        ("lists that share nothing: first open", {"sources": SOME}, {},
         (Open(("tcp", 80), SOME),)),
        ("then close", {"sources": SOME},
         {"openings": (OPEN, replace(OPEN, cidrs=SOME, id="g"))}, (Close("f", in_acl=False),)),
        ("lists that overlap: first close", {"sources": SOME},
         {"openings": (replace(OPEN, cidrs=MORE),)}, (Close("f", in_acl=False),)),
        ("nobody is let in", {"sources": frozenset()}, {}, (Close("f", in_acl=False),)),
        ("an address that is not used goes", {}, {"spare": (Address("9.9.9.9", "old"),)},
         (Release("old"),)),
        ("unless others use it", {}, {"spare": (Address("9.9.9.9", "old", is_shared=True),)},
         (HandOver("old"),)),
    ],
)  # fmt: skip
def test_next_steps(
    what: str, desired: dict[str, Any], observed: dict[str, Any], steps: tuple[Step, ...]
) -> None:
    assert plan(replace(DESIRED, **desired), replace(WHOLE, **observed)) == steps, what


@pytest.mark.parametrize(
    ("what", "desired", "observed", "steps"),
    [
        ("as desired", {}, {}, ()),
        ("an item is made", {}, {"items": ()}, (Open(("tcp", 80), EVERYONE, "a"),)),
        ("one of nobody suffices", {}, {"items": (OF_OTHERS,)}, ()),
        ("ours is kept beside it", {}, {"items": (OF_OTHERS, OPEN)}, ()),
        ("one of nobody is left alone", {"sources": SOME}, {"items": (OF_OTHERS,)},
         (Open(("tcp", 80), SOME, "a"),)),
        ("ours is closed once there is another, although they overlap", {"sources": MORE},
         {"items": (replace(OPEN, cidrs=SOME),)}, (Open(("tcp", 80), MORE, "a"),)),
        ("then ours goes", {"sources": MORE},
         {"items": (replace(OPEN, cidrs=SOME), replace(OPEN, cidrs=MORE, id="g"))},
         (Close("f", in_acl=True),)),
        ("with the rule only ours goes", {"rules": (TLS,)}, {"items": (OF_OTHERS, OPEN)},
         (Close("f", in_acl=True),)),
        ("a list that nobody can change", {"network": replace(TIER, acl="")}, {"items": ()}, ()),
    ],
)  # fmt: skip
def test_next_steps_in_a_tier_of_a_vpc(
    what: str, desired: dict[str, Any], observed: dict[str, Any], steps: tuple[Step, ...]
) -> None:
    assert plan(replace(IN_TIER, **desired), replace(WHOLE_TIER, **observed)) == steps, what


@pytest.mark.parametrize(
    ("what", "observed", "network", "steps"),
    [
        ("nothing is left", Observed(), "", ()),
        ("all is closed first", replace(WHOLE, items=(OPEN, OF_OTHERS)), "",
         (Close("f", in_acl=False), Close("f", in_acl=True))),
        ("then rules go", replace(WHOLE, openings=()), "", (DropRule("r"),)),
        ("or are waited for", Observed(rules=(replace(MADE, state="Revoke"),)), "", (Wait("r"),)),
        ("the official manager's address is marked while rules prove it",
         Observed(rules=(MADE,), address=Address("1.1.1.1", "ip", is_adopted=True)), "",
         (MarkAddress("ip"),)),
        ("and released", Observed(address=replace(IP, is_adopted=True)), "", (Release("ip"),)),
        ("what is only claimed is marked",
         Observed(spare=(Address("9.9.9.9", "old"),), claim="9.9.9.9"), "n",
         (MarkAddress("old"),)),
        ("then the claim goes",
         Observed(spare=(Address("9.9.9.9", "old", is_ours=True),), claim="9.9.9.9"), "n",
         (Unclaim("n"),)),
        ("addresses last", Observed(spare=(Address("9.9.9.9", "old", is_ours=True),)), "n",
         (Release("old"),)),
        ("a given address stays", Observed(address=replace(IP, is_ours=False)), "", ()),
    ],
)  # fmt: skip
def test_next_steps_of_a_deletion(
    what: str, observed: Observed, network: str, steps: tuple[Step, ...]
) -> None:
    assert deletion(observed, network) == steps, what


protocols = st.sampled_from([("tcp", 80), ("tcp-proxy", 80), ("udp", 80), ("tcp", 443)])
cidrs = st.sampled_from([EVERYONE, SOME, MORE])
members = st.frozensets(st.sampled_from(["vm-1", "vm-2", "vm-3"]))
there = st.builds(
    Rule,
    name=st.sampled_from(["a1-80", "a1-tcp-80"]),
    protocol=st.sampled_from(["tcp", "udp"]),
    port=st.sampled_from([80, 443, 8080]),
    node_port=st.sampled_from([30080, 30443]),
    algorithm=st.sampled_from(["roundrobin", "source"]),
    cidrs=cidrs,
    network=st.sampled_from(["n", "m"]),
    address=st.sampled_from(["ip", "old"]),
    members=members,
    is_marked=st.booleans(),
    policies=st.sampled_from([(), (Policy("p", 60),), (Policy("q", 30),)]),
)
opened = st.builds(
    Opening,
    key=st.tuples(st.sampled_from(["tcp", "udp"]), st.sampled_from([80, 443, 8080])),
    cidrs=cidrs,
    is_ours=st.booleans(),
)
addresses = st.one_of(
    st.none(),
    st.just(Address("1.1.1.1")),
    st.builds(Address, st.just("1.1.1.1"), st.just("ip"), st.booleans(), st.booleans()),
)


def numbered(items: list[Any], letter: str) -> tuple[Any, ...]:
    return tuple(replace(one, id=f"{letter}{number}") for number, one in enumerate(items))


@given(
    wanted=st.lists(protocols, min_size=1, unique_by=lambda one: (one[0] == "udp", one[1])),
    rules=st.lists(there, max_size=4, unique_by=lambda one: one.key),
    openings=st.lists(opened, max_size=4),
    address=addresses,
    claim=st.sampled_from(["", "1.1.1.1", "2.2.2.2"]),
    network=st.sampled_from([NETWORK, TIER]),
    sources=st.sampled_from([EVERYONE, SOME, frozenset[str]()]),
    hosts=members,
    can_change=st.booleans(),
    affinity=st.sampled_from([None, 60]),
)
def test_the_steps_come_to_an_end_and_then_all_is_as_desired_and_foretold(  # noqa: PLR0917 - parts
    wanted: list[tuple[str, int]],
    rules: list[Rule],
    openings: list[Opening],
    address: Address | None,
    claim: str,
    network: Network,
    sources: frozenset[str],
    hosts: frozenset[str],
    can_change: bool,  # noqa: FBT001 - hypothesis gives it
    affinity: int | None,
) -> None:
    desired = Desired(
        tuple(
            Rule(f"a1-{protocol}-{port}", protocol, port, 30080, "roundrobin", SOME, "n")
            for protocol, port in wanted
        ),
        hosts, sources, network, can_change_sources=can_change, affinity_seconds=affinity,
    )  # fmt: skip
    found = numbered(openings, "o")
    observed = Observed(
        rules=numbered(rules, "r") if address and address.id else (),
        address=address,
        claim=claim,
        openings=tuple(replace(one, is_ours=True) for one in found) if network is NETWORK else (),
        items=found if network is TIER else (),
        spare=(Address("9.9.9.9", "old"),),
    )
    told: list[PartChange] = []
    for _ in range(12):
        steps = plan(desired, observed)
        for step in steps:
            told += part_changes(step, observed)
            observed = after(observed, step, ip="3.3.3.3")
        if not steps:
            break
    else:
        raise AssertionError("the steps have no end")
    assert {one.key for one in observed.rules} == {one.key for one in desired.rules}
    assert all(one.members == hosts and one.cidrs == SOME for one in observed.rules)
    times = [] if affinity is None else [affinity]
    assert all([of.seconds for of in one.policies] == times for one in observed.rules)
    assert not observed.spare
    assert not observed.claim
    for rule in desired.rules:
        kept = [one for one in observed.openings if one.key == rule.key]
        if network is NETWORK:
            assert {one.cidrs for one in kept} == ({sources} if sources else set())
    assert PartChange("delete", "public address old") in told


def test_each_step_of_a_deletion_is_the_last_of_its_kind() -> None:
    observed = Observed(
        rules=(MADE, replace(TLS, address="ip", id="s")),
        address=Address("1.1.1.1", "ip", is_adopted=True),
        openings=(OPEN,),
        items=(replace(OPEN, id="i"),),
        spare=(Address("9.9.9.9", "old", is_shared=True),),
        claim="9.9.9.9",
    )
    rounds: list[tuple[Step, ...]] = []
    while steps := deletion(observed, "n"):
        rounds.append(steps)
        for step in steps:
            observed = after(observed, step)
    assert rounds == [
        (MarkAddress("ip"),),
        (MarkAddress("old"),),
        (Unclaim("n"),),
        (Close("f", in_acl=False), Close("i", in_acl=True)),
        (DropRule("r"), DropRule("s")),
        (HandOver("old"), Release("ip")),
    ]


def test_preview_names_every_step_that_a_person_would_care_about() -> None:
    steps: tuple[Step, ...] = (
        Acquire("1.1.1.1"), MarkAddress("ip"), HandOver("old"), Release("ip"), MakeRule(WEB),
        ChangeRule("r", {"algorithm": "source"}, WEB), MarkRules(("r",)), Assign("r", ("vm-1",)),
        Unassign("r", ("vm-2",)), Open(("tcp", 80), SOME, "a"), Close("f", in_acl=False),
        DropRule("r"), Claim("n", "1.1.1.1"), Unclaim("n"), Wait("r"), Stick("r", 60),
        Unstick("p"),
    )  # fmt: skip
    told = [str(line.part) for step in steps for line in part_changes(step, WHOLE)]
    assert told == [
        "public address 1.1.1.1", "public address ip", "public address old", "public address ip",
        "rule a1-tcp-80", "rule a1-tcp-80", "rule a1-tcp-80", "machine vm-1", "machine vm-2",
        "access list item tcp/80", "firewall rule tcp/80", "rule a1-tcp-80", "stickiness policy",
        "stickiness policy p",
    ]  # fmt: skip
