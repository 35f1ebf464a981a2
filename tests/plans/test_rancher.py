"""What is done next to a load balancer of Rancher: a table of situations, and that it ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proreus.cloudprovider.ownership import Owner
from proreus.cloudprovider.requests import Request
from proreus.cloudprovider.steps import foresee, preview_plan
from proreus.cloudprovider.waits import Working
from proreus.providers.rancher.balancing.parts import (
    Balancer,
    Desired,
    External,
    Observed,
    Target,
)
from proreus.providers.rancher.balancing.plan import Change, Step, Wait, absorbed, deletion, plan
from proreus.providers.rancher.balancing.sharing import Sharing
from proreus.providers.rancher.versions import V1, V2, Version

CLUSTER = "c-1"
HOSTS = (Target("n-1", "10.0.0.1"), Target("n-2", "10.0.0.2"))


def owner(node: str, cluster: str = CLUSTER) -> Owner:
    return Owner(cluster, service_uid=node)


def external(id_: str, node: str, address: str, state: str = "active") -> External:
    return External(id_, node, (address,), state, owner(node))


DESIRED = Desired("lb-a", "of us", frozenset({"80:80/tcp"}), ((80, 30080),), HOSTS, CLUSTER, "test")
OLD = replace(DESIRED, ports=frozenset({"80:30080/tcp"}))
THERE = (external("s1", "n-1", "10.0.0.1"), external("s2", "n-2", "10.0.0.2"))
RULES = frozenset({(80, 30080, "s1"), (80, 30080, "s2")})
MADE = Balancer(
    "s9", "st", "active", DESIRED.ports, RULES, frozenset({"s1", "s2"}),
    {"ports": ["80:80/tcp"], "imageUuid": "docker:lb"}, endpoints=("10.0.0.1",),
)  # fmt: skip
OLD_MADE = replace(MADE, ports=OLD.ports, rules=frozenset())
WHOLE = Observed("st", balancer=MADE, externals=THERE)


def called(steps: tuple[Step, ...]) -> list[str]:
    """The calls, as methods and addresses; a pause is `wait`."""
    return [
        "wait" if isinstance(one.call, Wait) else f"{one.call.request.method} {one.call.request.url}"
        for one in steps
    ]  # fmt: skip


def having(**fields: object) -> Observed:
    return replace(WHOLE, balancer=replace(MADE, **fields))


def old(**fields: object) -> Observed:
    return replace(WHOLE, balancer=replace(OLD_MADE, **fields))


LB, EXTERNALS = "loadbalancerservices", "externalservices"


@pytest.mark.parametrize(
    ("what", "observed", "version", "calls"),
    [
        ("nothing is there", Observed("st"), V2, [f"POST {EXTERNALS}"] * 2),
        ("one node is new", replace(WHOLE, externals=THERE[:1]), V2, [f"POST {EXTERNALS}"]),
        ("no load balancer", replace(WHOLE, balancer=None), V2, [f"POST {LB}"]),
        ("no load balancer, v1", replace(WHOLE, balancer=None), V1, [f"POST {LB}"]),
        ("all is well", WHOLE, V2, []),
        ("all is well, v1", replace(WHOLE, balancer=OLD_MADE), V1, []),
        ("it is made", having(state="registering"), V2, ["wait"]),
        ("it is updated", having(state="updating-active", rules=frozenset()), V2, ["wait"]),
        ("it goes", having(state="removing"), V2, ["wait"]),
        ("it is off", having(state="inactive"), V2, [f"POST {LB}/s9?action=activate"]),
        ("it was upgraded", having(state="upgraded"), V2, [f"POST {LB}/s9?action=finishupgrade"]),
        ("upgrade off", having(state="canceled-upgrade"), V2, [f"POST {LB}/s9?action=rollback"]),
        (
            "rollback off", having(state="canceled-rollback"), V1,
            [f"POST {LB}/s9?action=finishupgrade"],
        ),
        ("in an unknown state", having(state="odd"), V2, ["wait"]),
        ("no address", having(endpoints=()), V2, ["wait"]),
        ("no marks", having(is_marked=False), V2, [f"PUT {LB}/s9"]),
        ("other ports", having(ports=frozenset({"81:81/tcp"})), V2, [f"PUT {LB}/s9"]),
        ("other rules", having(rules=frozenset()), V2, [f"PUT {LB}/s9"]),
        ("other links", having(links=frozenset()), V2, [f"POST {LB}/s9?action=setservicelinks"]),
        ("ports, v1", old(ports=frozenset({"81:1/tcp"})), V1, [f"POST {LB}/s9?action=upgrade"]),
        ("no marks, v1", old(is_marked=False), V1, [f"PUT {LB}/s9"]),
        ("links, v1", old(links=frozenset()), V1, [f"POST {LB}/s9?action=setservicelinks"]),
        (
            "another address", replace(WHOLE, externals=(external("s1", "n-1", "x"), THERE[1])),
            V2, [f"PUT {EXTERNALS}/s1"],
        ),
        (
            "off", replace(WHOLE, externals=(replace(THERE[0], state="inactive"), THERE[1])),
            V2, [f"POST {EXTERNALS}/s1?action=activate"],
        ),
        (
            "starting", replace(WHOLE, externals=(replace(THERE[0], state="activating"), THERE[1])),
            V2, ["wait"],
        ),
        (
            "going", replace(WHOLE, externals=(replace(THERE[0], state="removing"), THERE[1])),
            V2, ["wait"],
        ),
        (
            "one too many",
            replace(WHOLE, externals=(*THERE, external("s3", "n-3", "z")), unused=frozenset({"s3"})),
            V2, [f"DELETE {EXTERNALS}/s3"],
        ),
        (
            "it goes already",
            replace(
                WHOLE, externals=(*THERE, external("s3", "n-3", "z", "removing")),
                unused=frozenset({"s3"}),
            ),
            V2, [],
        ),
    ],
)  # fmt: skip
def test_next_steps(what: str, observed: Observed, version: Version, calls: list[str]) -> None:
    desired = DESIRED if version is V2 else OLD
    assert called(plan(desired, observed, version)) == calls, what


@pytest.mark.parametrize(
    ("what", "observed", "calls"),
    [
        ("nothing", Observed(""), []),
        ("all", replace(WHOLE, unused=frozenset({"s1"})), [f"DELETE {LB}/s9"]),
        ("it goes", having(state="removing"), ["wait"]),
        (
            "it is gone", replace(WHOLE, balancer=None, unused=frozenset({"s1", "s2"})),
            [f"DELETE {EXTERNALS}/s1", f"DELETE {EXTERNALS}/s2"],
        ),
        (
            "a part goes",
            Observed("st", externals=(external("s1", "n-1", "x", "removing"),), unused=frozenset({"s1"})),
            ["wait"],
        ),
        ("others are used", replace(WHOLE, balancer=None), []),
    ],
)  # fmt: skip
def test_next_steps_of_a_deletion(what: str, observed: Observed, calls: list[str]) -> None:
    assert called(deletion(observed)) == calls, what


def test_an_upgrade_keeps_what_the_containers_are_made_of() -> None:
    (step,) = plan(OLD, old(ports=frozenset({"81:1/tcp"})), V1)
    assert not isinstance(step.call, Wait)
    body = step.call.request.body
    assert body is not None
    assert b'"imageUuid":"docker:lb"' in body.content
    assert b'"ports":["80:30080/tcp"]' in body.content


WORDS = (
    "requested registering inactive activating active deactivating updating-active upgrading"
    " updating-inactive upgraded canceling-upgrade canceled-upgrade rolling-back removing"
    " finishing-upgrade restarting canceling-rollback canceled-rollback"
)
STATES = st.sampled_from(WORDS.split())
NODES = ("n-1", "n-2", "n.1", "n-3")
ADDRESSES = st.sampled_from(("10.0.0.1", "10.0.0.2", "10.9.9.9"))


@st.composite
def worlds(draw: st.DrawFn) -> Observed:
    """Anything that there can be, by ids of its own and names that are unique."""
    names = draw(st.lists(st.sampled_from(("n-1", "N-2", "n-3", "other")), unique=True))
    owners = st.one_of(
        st.none(), st.builds(owner, st.sampled_from(NODES), st.sampled_from((CLUSTER, "c-2")))
    )
    externals = tuple(
        External(f"s{number}", name, (draw(ADDRESSES),), draw(STATES), draw(owners))
        for number, name in enumerate(names)
    )
    ids = [one.id for one in externals]
    links = frozenset(draw(st.lists(st.sampled_from(ids)))) if ids else frozenset[str]()
    balancer = Balancer(
        "s99", "st", draw(STATES), frozenset({draw(st.sampled_from(("80:80/tcp", "81:81/tcp")))}),
        frozenset((80, 30080, id_) for id_ in links), links,
        endpoints=draw(st.sampled_from(((), ("10.0.0.1",)))), is_marked=draw(st.booleans()),
    )  # fmt: skip
    unused = {one.id for one in externals if one.owner and one.owner.cluster_uid == CLUSTER}
    return Observed(
        "st", balancer=draw(st.sampled_from((None, balancer))), externals=externals,
        unused=frozenset(unused - links),
    )  # fmt: skip


@given(
    observed=worlds(),
    nodes=st.lists(st.sampled_from(NODES), unique=True),
    version=st.sampled_from((V1, V2)),
)
def test_whatever_there_is_it_ends_and_leaves_what_is_of_others(
    observed: Observed, nodes: list[str], version: Version
) -> None:
    targets = tuple(Target(node, f"10.0.0.{number}") for number, node in enumerate(sorted(nodes)))
    desired = replace(DESIRED if version is V2 else OLD, targets=targets)
    needed = {one.id for one in observed.externals if one.owner and one.owner.service_uid in nodes}
    observed = replace(observed, unused=observed.unused - needed)
    led_to = observed.balancer.links if observed.balancer is not None else frozenset()
    steps, end = foresee(
        observed, lambda now: plan(desired, now, version), lambda now, step: step.after(now)
    )
    assert not plan(desired, end, version)
    assert preview_plan(end, lambda now: plan(desired, now, version)) == ((), end)
    theirs = [
        one
        for one in observed.externals
        if (one.owner is None and one.id not in led_to) or (one.owner and one.owner.cluster_uid != CLUSTER)
    ]  # fmt: skip
    assert all(one in end.externals for one in theirs)
    touched = {
        call.rpartition("/")[2].partition("?")[0] for call in called(steps) if call != "wait"
    }
    assert not touched & {one.id for one in theirs}
    # Every node is led to, at its address, and each by a service of its own.
    assert end.balancer is not None
    assert end.balancer.state == "active"
    by_id = {one.id: one for one in end.externals}
    found = [by_id[id_] for id_ in end.balancer.links]
    assert sorted(one.addresses[0] for one in found) == [one.address for one in targets]
    assert {one.owner for one in found} == {owner(node) for node in nodes}


@given(observed=worlds())
def test_a_deletion_ends_and_takes_only_what_nobody_needs(observed: Observed) -> None:
    _, end = foresee(observed, deletion, lambda now, step: step.after(now))
    assert end.balancer is None
    gone = {one.id for one in observed.externals} - {one.id for one in end.externals}
    assert gone == set(observed.unused)


def test_nobody_begins_to_need_what_is_being_removed() -> None:
    sharing = Sharing()
    sharing.need("u-1", ["n-1"])
    with sharing.going("n-1") as may_go:
        assert not may_go
    sharing.release("u-1")
    with sharing.going("n-1") as may_go:
        assert may_go
        with sharing.going("n-1") as twice:
            assert not twice
        with pytest.raises(Working, match="n-1"):
            sharing.need("u-2", ["n-1", "n-2"])
        assert not sharing.needed()
        sharing.need("u-2", ["n-2"])
    sharing.need("u-2", ["n-1"])
    assert sharing.needed() == {"n-1"}


@pytest.mark.parametrize(
    ("said", "linked", "kept", "expected"),
    [
        (frozenset({"s1"}), frozenset({"s2"}), frozenset({"s3"}), {"s2"}),
        (frozenset({"s1"}), None, frozenset({"s3"}), {"s1"}),
        (frozenset(), None, frozenset({"s3"}), {"s3"}),
        (frozenset(), None, None, set()),
    ],
)
def test_links_after_a_change_are_those_sent_else_those_answered_else_those_of_before(
    said: frozenset[str],
    linked: frozenset[str] | None,
    kept: frozenset[str] | None,
    expected: set[str],
) -> None:
    before = replace(
        WHOLE, balancer=None if kept is None else replace(MADE, id="old", links=kept)
    )  # fmt: skip
    change = Change(Request("service.update", "PUT", "/services/s9"), "loadBalancers", linked)
    after = absorbed(before, change, replace(MADE, links=said))
    assert after == replace(before, balancer=replace(MADE, links=frozenset(expected)))


def test_a_changed_external_service_takes_the_place_of_what_it_was() -> None:
    change = Change(Request("service.update", "PUT", "/services/s1"), "externals")
    changed = external("s1", "n-1", "10.0.0.9")
    assert absorbed(WHOLE, change, changed).externals == (THERE[1], changed)
