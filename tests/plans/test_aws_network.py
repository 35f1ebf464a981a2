"""What is done to a network load balancer: a table of situations, and that it ends."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.cloudprovider import InvalidRequest, PartChange, foresee
from proreus.cloudprovider.identity import MARK_CLUSTER_UID, ClusterIdentity
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.providers.aws.annotations import INTERNAL, PUBLIC
from proreus.providers.aws.identity import TAG_SERVICE, ClusterTags, Place
from proreus.providers.aws.listeners import HealthCheck, PortMapping
from proreus.providers.aws.network.balancers import ours
from proreus.providers.aws.network.parts import (
    DUALSTACK,
    Balancer,
    Desired,
    Listener,
    Observed,
    Placed,
    TargetGroup,
)
from proreus.providers.aws.network.plan import (
    AddTags,
    ChangeAddressType,
    ChangeAttributes,
    ChangeGroups,
    ChangeHealthCheck,
    ChangeListener,
    ChangeSubnets,
    CreateBalancer,
    CreateListener,
    CreateTargetGroup,
    Delete,
    Deregister,
    Register,
    Step,
    check,
    delete_steps,
    plan,
    target_group_name,
    warning,
)
from proreus.providers.aws.network.preview import part_changes, pretend
from proreus.providers.aws.own_groups import ChangeRules, CreateGroup, DesiredGroup, Group
from proreus.providers.aws.rules import Change, Rule

TAGS = {"kubernetes.io/service-name": "shop/web"}
HTTP = PortMapping(80, "TCP", 30080, "TCP", HealthCheck())
TLS = PortMapping(80, "TLS", 30080, "TCP", HealthCheck(), "arn:cert")
UDP = PortMapping(80, "UDP", 30080, "UDP", HealthCheck())
DESIRED = Desired(
    name="a1",
    cluster="prod",
    service=("shop", "web-1"),
    tags=TAGS,
    scheme=PUBLIC,
    address_type="ipv4",
    source_nat=False,
    target_type="ipv4",
    vpc="vpc-1",
    placed=(Placed("subnet-1", "a"),),
    own=None,
    groups=(),
    mappings=(HTTP,),
    targets=frozenset({"i-1"}),
    attributes={"cross": "true"},
    target_attributes={"preserve": "true"},
)


def desired(**fields: Any) -> Desired:
    return msgspec.structs.replace(DESIRED, **fields)


def balancer(**fields: Any) -> Balancer:
    default = Balancer(
        arn="lb", name="a1", dns_name="lb.example.com", scheme=PUBLIC, state="active",
        address_type="ipv4", zones={"a": "subnet-1"}, attributes={"cross": "true", "x": "y"},
        tags=TAGS,
    )  # fmt: skip
    return msgspec.structs.replace(default, **fields)


def group(mapping: PortMapping = HTTP, arn: str = "tg", **fields: Any) -> TargetGroup:
    default = TargetGroup(
        arn, target_group_name(DESIRED, mapping), mapping.health, frozenset({"i-1"}),
        {"preserve": "true"}, TAGS,
    )  # fmt: skip
    return msgspec.structs.replace(default, **fields)


def listener(**fields: Any) -> Listener:
    return msgspec.structs.replace(Listener("l", 80, "TCP", "tg"), **fields)


def observed(
    lb: Balancer | None = None,
    listeners: tuple[Listener, ...] | None = None,
    groups: tuple[TargetGroup, ...] | None = None,
    **fields: Any,
) -> Observed:
    return Observed(
        lb or balancer(),
        (listener(),) if listeners is None else listeners,
        (group(),) if groups is None else groups,
        **fields,
    )


NAME = target_group_name(DESIRED, HTTP)
RULE = Rule("tcp", 80, 80, "0.0.0.0/0")
OWN = DesiredGroup("k8s-shop-web1-1", "", frozenset({RULE}))
QUICK = HealthCheck("HTTP", "31000", "/healthz")
MANY = frozenset(f"i-{n:03}" for n in range(150))
PLANS: dict[str, tuple[Desired, Observed, tuple[Step, ...]]] = {
    "nothing there": (DESIRED, Observed(), (CreateBalancer(), CreateTargetGroup(NAME, HTTP))),
    "no listener yet": (DESIRED, observed(listeners=()), (CreateListener(HTTP, "tg"),)),
    "no target group yet": (DESIRED, observed(listeners=(), groups=()), (CreateTargetGroup(NAME, HTTP),)),
    "all as desired": (DESIRED, observed(), ()),
    "attributes": (
        desired(attributes={"cross": "false"}, target_attributes={"preserve": "false"}),
        observed(),
        (
            ChangeAttributes("lb", {"cross": "false"}),
            ChangeAttributes("tg", {"preserve": "false"}, of_target_group=True),
        ),
    ),
    "tags taken away": (
        DESIRED,
        observed(balancer(tags={}), groups=(group(tags={"other": "1"}),)),
        (AddTags("lb", TAGS), AddTags("tg", TAGS)),
    ),
    "a subnet in a new zone": (
        desired(placed=(Placed("subnet-1", "a"), Placed("subnet-2", "b"))),
        observed(),
        (ChangeSubnets(("subnet-1", "subnet-2")),),
    ),
    "another subnet in the same zone": (desired(placed=(Placed("subnet-9", "a"),)), observed(), ()),
    "a new zone with given addresses": (
        desired(placed=(Placed("subnet-1", "a", "eipalloc-1"), Placed("subnet-2", "b", "eipalloc-2"))),
        observed(),
        (),
    ),
    "dual stack": (desired(address_type=DUALSTACK), observed(), (ChangeAddressType(DUALSTACK),)),
    "UDP for dual stack: it needs prefixes first": (
        desired(address_type=DUALSTACK, source_nat=True, mappings=(UDP,)),
        observed(groups=(group(UDP),), listeners=()),
        (ChangeSubnets(("subnet-1",), source_nat=True),),
    ),
    "UDP for dual stack with prefixes": (
        desired(address_type=DUALSTACK, source_nat=True, mappings=(UDP,)),
        observed(balancer(address_type=DUALSTACK, source_nat=True), (), (group(UDP),)),
        (CreateListener(UDP, "tg"),),
    ),
    "a new zone of one with prefixes": (
        desired(placed=(Placed("subnet-1", "a"), Placed("subnet-2", "b"))),
        observed(balancer(source_nat=True)),
        (ChangeSubnets(("subnet-1", "subnet-2"), source_nat=True),),
    ),
    "security groups": (
        desired(groups=("sg-2", "sg-1")),
        observed(balancer(groups=("sg-1",))),
        (ChangeGroups(("sg-2", "sg-1")),),
    ),
    "security groups in another order": (
        desired(groups=("sg-2", "sg-1")),
        observed(balancer(groups=("sg-1", "sg-2"))),
        (),
    ),
    "a security group is made before all that needs it": (
        desired(own=OWN), Observed(), (CreateTargetGroup(NAME, HTTP), CreateGroup())
    ),
    "a security group gets its rules while the load balancer is made": (
        desired(own=OWN),
        Observed(target_groups=(group(),), group=Group("sg-5", tags=TAGS)),
        (CreateBalancer(("sg-5",)), ChangeRules("sg-5", Change((RULE,)))),
    ),
    "made without a security group: it can have none": (desired(own=OWN), observed(), ()),
    "a given security group takes the place of its own": (
        desired(groups=("sg-1",)),
        observed(balancer(groups=("sg-5",)), group=Group("sg-5", tags=TAGS)),
        (ChangeGroups(("sg-1",)),),
    ),
    "its own security group is as desired": (
        desired(own=OWN),
        observed(balancer(groups=("sg-5",)), group=Group("sg-5", frozenset({RULE}), TAGS)),
        (),
    ),
    "groups of which nothing is desired": (DESIRED, observed(balancer(groups=("sg-5",))), ()),
    "a timeout of health checks": (
        desired(mappings=(msgspec.structs.replace(HTTP, health=HealthCheck(timeout=5)),)),
        observed(groups=(group(health=HealthCheck(timeout=10)),)),
        (ChangeHealthCheck("tg", HealthCheck(timeout=5)),),
    ),
    "a timeout that AWS chose": (DESIRED, observed(groups=(group(health=HealthCheck(timeout=10)),)), ()),
    "hosts come and go": (
        desired(targets=frozenset({"i-2"})),
        observed(),
        (Register("tg", ("i-2",)), Deregister("tg", ("i-1",))),
    ),
    "a host that was refused": (
        desired(targets=frozenset({"i-1", "i-2"})),
        observed(refused={"i-2": "terminated"}),
        (),
    ),
    "many hosts": (
        desired(targets=MANY | {"i-1"}),
        observed(),
        (Register("tg", tuple(sorted(MANY))[:100]), Register("tg", tuple(sorted(MANY))[100:])),
    ),
    "another port of health checks": (
        desired(mappings=(msgspec.structs.replace(HTTP, health=HealthCheck(port="8080")),)),
        observed(),
        (ChangeHealthCheck("tg", HealthCheck(port="8080")),),
    ),
    "a certificate": (
        desired(mappings=(TLS,)),
        observed(),
        (ChangeListener("l", TLS, "tg"),),
    ),
    "another certificate": (
        desired(mappings=(TLS,)),
        observed(listeners=(listener(protocol="TLS", certificate="arn:old", policy="aws-own"),)),
        (ChangeListener("l", TLS, "tg"),),
    ),
    "a policy that AWS chose": (
        desired(mappings=(TLS,)),
        observed(listeners=(listener(protocol="TLS", certificate="arn:cert", policy="aws-own"),)),
        (),
    ),
    "another policy": (
        desired(mappings=(msgspec.structs.replace(TLS, policy="strict"),)),
        observed(listeners=(listener(protocol="TLS", certificate="arn:cert", policy="aws-own"),)),
        (ChangeListener("l", msgspec.structs.replace(TLS, policy="strict"), "tg"),),
    ),
    "another node port: its target group first": (
        desired(mappings=(msgspec.structs.replace(HTTP, target_port=30081),)),
        observed(),
        (
            CreateTargetGroup(
                target_group_name(DESIRED, msgspec.structs.replace(HTTP, target_port=30081)),
                msgspec.structs.replace(HTTP, target_port=30081),
            ),
        ),
    ),
    "another protocol of health checks: the listener is turned, then the old group goes": (
        desired(mappings=(msgspec.structs.replace(HTTP, health=QUICK),)),
        observed(groups=(group(), group(msgspec.structs.replace(HTTP, health=QUICK), "new"))),
        (ChangeListener("l", msgspec.structs.replace(HTTP, health=QUICK), "new"),),
    ),
    "a target group that is not used any more": (
        DESIRED,
        observed(groups=(group(), group(UDP, "old"))),
        (Delete(group(UDP, "old")),),
    ),
    "another transport: the port has to be free first": (
        desired(mappings=(UDP,)),
        observed(groups=(group(), group(UDP, "udp"))),
        (Delete(listener()),),
    ),
    "a port too many": (
        DESIRED,
        observed(listeners=(listener(), listener(arn="l2", port=81))),
        (Delete(listener(arn="l2", port=81)),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PLANS)
def test_the_steps(case: str) -> None:
    wanted, found, steps = PLANS[case]
    assert plan(wanted, found) == steps


def test_target_groups_have_the_official_name() -> None:
    assert NAME == "k8s-shop-web1-dd29ecb216"


def test_target_groups_for_ipv6_have_another_name() -> None:
    assert target_group_name(desired(target_type="ipv6"), HTTP) != NAME


def test_listeners_are_deleted_before_what_they_need() -> None:
    assert delete_steps(observed()) == (Delete(listener()),)
    assert delete_steps(observed(listeners=())) == (Delete(balancer()), Delete(group()))
    assert delete_steps(Observed(target_groups=(group(),))) == (Delete(group()),)
    assert delete_steps(Observed()) == ()


REFUSED: dict[str, tuple[Desired, Observed, str]] = {
    "became internal": (
        desired(scheme=INTERNAL),
        observed(),
        "internal: the load balancer is public",
    ),
    "became public": (
        DESIRED,
        observed(balancer(scheme=INTERNAL)),
        "the load balancer is internal",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_change_is_refused_by_its_field(case: str) -> None:
    wanted, found, message = REFUSED[case]
    with pytest.raises(InvalidRequest, match=message):
        check(wanted, found)


def test_security_groups_that_come_too_late_are_reported_and_the_rest_is_done() -> None:
    late = desired(groups=("sg-1",), targets=frozenset({"i-1", "i-2"}))
    check(late, observed())
    assert "security-groups: the load balancer was made without" in warning(late, observed())
    assert plan(late, observed()) == (Register("tg", ("i-2",)),)
    assert warning(late, Observed()) == ""
    assert warning(late, observed(balancer(groups=("sg-2",)))) == ""
    assert warning(DESIRED, observed()) == ""


@pytest.mark.parametrize(
    ("mine", "tags", "stays"),
    [
        ("", {"kubernetes.io/cluster/other": "owned"}, True),
        ("", {"KubernetesCluster": "other"}, True),
        ("", {"kubernetes.io/cluster/other": "owned", MARK_CLUSTER_UID: "uid"}, False),
        ("", {}, False),
        ("mine", {"kubernetes.io/cluster/mine": "owned"}, False),
        ("mine", {"kubernetes.io/cluster/other": "owned"}, True),
        ("mine", {}, True),
    ],
)
def test_a_target_group_that_is_in_no_use_stays_if_it_is_another_clusters(
    mine: str, tags: dict[str, str], *, stays: bool
) -> None:
    ref = LoadBalancerRef(ClusterIdentity("test", "uid"), "shop", "web", "web-uid", "a1")
    place = Place("us-east-1", "vpc", "", ClusterTags(mine))
    found = group(tags={TAG_SERVICE: "shop/web", **tags})
    left = ours(Observed(None, (), (found,)), ref, place)
    assert delete_steps(left) == (() if stays else (Delete(found),))


def test_what_is_new_or_the_same_can_be() -> None:
    check(desired(scheme=INTERNAL, groups=("sg-1",)), Observed())
    check(DESIRED, observed())


class Model:
    """A cloud that does what steps say, and refuses what AWS refuses."""

    def __init__(self) -> None:
        self.now = Observed()

    def take(self, step: Step, wanted: Desired) -> None:
        admit(self.now, step)
        self.now = pretend(self.now, step, wanted)
        listeners = (
            msgspec.structs.replace(one, policy="aws-own")
            if one.protocol == "TLS" and not one.policy
            else one
            for one in self.now.listeners
        )
        self.now = msgspec.structs.replace(self.now, listeners=tuple(listeners))


def admit(now: Observed, step: Step) -> None:
    """Refuse what AWS refuses."""
    groups = {one.arn: one for one in now.target_groups}
    match step:
        case CreateTargetGroup(name):
            assert name not in {one.name for one in now.target_groups}
        case CreateListener(mapping, target_group):
            admit_listener(now, "", mapping, target_group)
        case ChangeListener(arn, mapping, target_group):
            admit_listener(now, arn, mapping, target_group)
        case ChangeHealthCheck(arn, health):
            old = groups[arn].health
            assert (health.protocol, health.interval) == (old.protocol, old.interval)
        case ChangeAddressType(address_type):
            assert now.balancer is not None
            udp = any("UDP" in one.protocol for one in now.listeners)
            assert address_type != DUALSTACK or now.balancer.source_nat or not udp
        case Delete(TargetGroup() as part):
            used = {one.target_group for one in now.listeners}
            assert part.arn not in used, "ResourceInUse"
        case ChangeAttributes() | AddTags() | ChangeGroups() | ChangeSubnets():
            assert now.balancer is not None


def admit_listener(now: Observed, arn: str, mapping: PortMapping, target_group: str) -> None:
    assert target_group in {one.arn for one in now.target_groups}
    others = (one.port for one in now.listeners if one.arn != arn)
    assert mapping.port not in others, "DuplicateListener"
    assert now.balancer is not None
    is_dual = now.balancer.address_type == DUALSTACK
    assert now.balancer.source_nat or not is_dual or "UDP" not in mapping.protocol


def converge(model: Model, wanted: Desired) -> None:
    for _ in range(6):
        steps = plan(wanted, model.now)
        if not steps:
            return
        for step in steps:
            model.take(step, wanted)
            assert list(part_changes(step, wanted, model.now)), step
    raise AssertionError(plan(wanted, model.now))


MAPPINGS = st.lists(
    st.builds(
        lambda port, protocol, to, health: PortMapping(
            port, protocol, to, "TCP" if protocol == "TLS" else protocol, health,
            "arn:cert" if protocol == "TLS" else "",
        ),
        st.sampled_from((80, 443)),
        st.sampled_from(("TCP", "TLS", "UDP", "TCP_UDP")),
        st.sampled_from((30080, 30081)),
        st.sampled_from((HealthCheck(), HealthCheck(port="8080"), QUICK)),
    ),
    max_size=2,
    unique_by=lambda one: one.port,
)  # fmt: skip
DESIRED_STATES = st.builds(
    lambda mappings, targets, zones, stack, cross: desired(
        mappings=tuple(mappings), targets=targets, address_type=stack, attributes={"cross": cross},
        source_nat=stack == DUALSTACK and any("UDP" in one.protocol for one in mappings),
        placed=tuple(Placed(zone, zone) for zone in sorted(zones)),
    ),
    MAPPINGS,
    st.frozensets(st.sampled_from(("i-1", "i-2", "i-3"))),
    st.sets(st.sampled_from("abc"), min_size=1),
    st.sampled_from(("ipv4", DUALSTACK)),
    st.sampled_from(("true", "false")),
)  # fmt: skip


@given(st.lists(DESIRED_STATES, min_size=1, max_size=3))
def test_from_any_desired_state_to_any_other_it_ends_with_the_desired_one(
    desired: list[Desired],
) -> None:
    model = Model()
    for wanted in desired:
        converge(model, wanted)
        assert {one.port for one in model.now.listeners} == {one.port for one in wanted.mappings}
        assert model.now.balancer is not None
        assert model.now.balancer.address_type == wanted.address_type
        assert len(model.now.target_groups) == len(wanted.mappings)
        assert all(one.targets == wanted.targets for one in model.now.target_groups)
    for _ in range(3):
        for step in delete_steps(model.now):
            model.take(step, desired[-1])
    assert model.now == Observed()


@given(DESIRED_STATES, DESIRED_STATES)
def test_the_preview_is_what_is_then_done_and_omits_what_is_as_desired(
    first: Desired, second: Desired
) -> None:
    model = Model()
    converge(model, first)

    def steps(now: Observed) -> tuple[Step, ...]:
        return plan(second, now)

    found, then = foresee(model.now, steps, lambda now, step: pretend(now, step, second))
    assert bool(found) == bool(steps(model.now))
    assert steps(then) == ()
    assert len([one for step in found for one in part_changes(step, second, then)]) >= len(found)


def test_a_preview_names_parts_as_people_know_them() -> None:
    steps, then = foresee(
        Observed(), lambda now: plan(DESIRED, now), lambda a, b: pretend(a, b, DESIRED)
    )
    shown = [one for step in steps for one in part_changes(step, DESIRED, then)]
    assert PartChange("create", f"target group {NAME}", "TCP 30080") in shown
    assert PartChange("create", "listener 80", "TCP to 30080") in shown
    assert PartChange("create", "target i-1", f"target group {NAME}") in shown
