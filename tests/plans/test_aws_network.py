"""What is done to a network load balancer: a table of situations, and that it ends."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.cloudprovider import InvalidRequest, PartChange, preview_plan
from proreus.cloudprovider.identity import MARK_CLUSTER_UID, ClusterIdentity
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.providers.aws.annotations import INTERNAL, PUBLIC
from proreus.providers.aws.calls import Call
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
    check,
    delete_steps,
    group_name,
    plan,
    target_group_name,
    warning,
)
from proreus.providers.aws.network.steps import Step
from proreus.providers.aws.own_groups import DesiredGroup, Group, RuleChange
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


def call(operation: str, **parameters: Any) -> Call:
    return Call("elbv2", operation, parameters)


def pairs(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def created(*groups: str) -> Call:
    secured = {"SecurityGroups": list(groups)} if groups else {}
    return call(
        "CreateLoadBalancer", Name="a1", Type="network", Scheme=PUBLIC, IpAddressType="ipv4",
        SubnetMappings=[{"SubnetId": "subnet-1"}], Tags=pairs(TAGS), **secured,
    )  # fmt: skip


def created_group(mapping: PortMapping = HTTP) -> Call:
    return call(
        "CreateTargetGroup", Name=target_group_name(DESIRED, mapping),
        Protocol=mapping.target_protocol, Port=mapping.target_port, VpcId="vpc-1",
        TargetType="instance", IpAddressType="ipv4", Tags=pairs(TAGS), HealthCheckProtocol="TCP",
        HealthCheckIntervalSeconds=30, HealthCheckPort="traffic-port", HealthyThresholdCount=3,
        UnhealthyThresholdCount=3,
    )  # fmt: skip


def forward(mapping: PortMapping, group: str) -> dict[str, Any]:
    tls = {"Certificates": [{"CertificateArn": mapping.certificate}]} if mapping.certificate else {}
    policy = {"SslPolicy": mapping.policy} if mapping.policy else {}
    return {
        "Port": mapping.port,
        "Protocol": mapping.protocol,
        "DefaultActions": [{"Type": "forward", "TargetGroupArn": group}],
        **tls,
        **policy,
    }


def new_listener(mapping: PortMapping, group: str) -> Call:
    given = forward(mapping, group)
    return call("CreateListener", LoadBalancerArn="lb", Tags=pairs(TAGS), **given)


def turned(mapping: PortMapping, group: str) -> Call:
    return call("ModifyListener", ListenerArn="l", **forward(mapping, group))


def checked(port: str = "traffic-port", **fields: Any) -> Call:
    return call(
        "ModifyTargetGroup", TargetGroupArn="tg", HealthCheckPort=port, HealthyThresholdCount=3,
        UnhealthyThresholdCount=3, **fields,
    )  # fmt: skip


def targets(operation: str, ids: Iterable[str]) -> Call:
    return call(operation, TargetGroupArn="tg", Targets=[{"Id": id_} for id_ in ids])


def subnets(*ids: str, **more: str) -> Call:
    return call("SetSubnets", LoadBalancerArn="lb", Subnets=list(ids), **more)


NEW_GROUP = Call(
    "ec2",
    "CreateSecurityGroup",
    {
        "GroupName": OWN.name,
        "Description": "",
        "TagSpecifications": [{"ResourceType": "security-group", "Tags": pairs(TAGS)}],
    },
)
LISTENER_GONE = call("DeleteListener", ListenerArn="l")
GROUP_GONE = call("DeleteTargetGroup", TargetGroupArn="tg")
PREFIXES = {"IpAddressType": DUALSTACK, "EnablePrefixForIpv6SourceNat": "on"}
PLANS: dict[str, tuple[Desired, Observed, tuple[Call | RuleChange, ...]]] = {
    "nothing there": (DESIRED, Observed(), (created(), created_group())),
    "no listener yet": (DESIRED, observed(listeners=()), (new_listener(HTTP, "tg"),)),
    "no target group yet": (DESIRED, observed(listeners=(), groups=()), (created_group(),)),
    "all as desired": (DESIRED, observed(), ()),
    "attributes": (
        desired(attributes={"cross": "false"}, target_attributes={"preserve": "false"}),
        observed(),
        (
            call(
                "ModifyLoadBalancerAttributes",
                LoadBalancerArn="lb",
                Attributes=pairs({"cross": "false"}),
            ),
            call(
                "ModifyTargetGroupAttributes",
                TargetGroupArn="tg",
                Attributes=pairs({"preserve": "false"}),
            ),
        ),
    ),
    "tags taken away": (
        DESIRED,
        observed(balancer(tags={}), groups=(group(tags={"other": "1"}),)),
        (
            call("AddTags", ResourceArns=["lb"], Tags=pairs(TAGS)),
            call("AddTags", ResourceArns=["tg"], Tags=pairs(TAGS)),
        ),
    ),
    "a subnet in a new zone": (
        desired(placed=(Placed("subnet-1", "a"), Placed("subnet-2", "b"))),
        observed(),
        (subnets("subnet-1", "subnet-2"),),
    ),
    "another subnet in the same zone": (desired(placed=(Placed("subnet-9", "a"),)), observed(), ()),
    "a new zone with given addresses": (
        desired(placed=(Placed("subnet-1", "a", "eipalloc-1"), Placed("subnet-2", "b", "eipalloc-2"))),
        observed(),
        (),
    ),
    "dual stack": (desired(address_type=DUALSTACK), observed(), (call("SetIpAddressType", LoadBalancerArn="lb", IpAddressType=DUALSTACK),)),
    "UDP for dual stack: it needs prefixes first": (
        desired(address_type=DUALSTACK, source_nat=True, mappings=(UDP,)),
        observed(groups=(group(UDP),), listeners=()),
        (subnets("subnet-1", **PREFIXES),),
    ),
    "UDP for dual stack with prefixes": (
        desired(address_type=DUALSTACK, source_nat=True, mappings=(UDP,)),
        observed(balancer(address_type=DUALSTACK, source_nat=True), (), (group(UDP),)),
        (new_listener(UDP, "tg"),),
    ),
    "a new zone of one with prefixes": (
        desired(placed=(Placed("subnet-1", "a"), Placed("subnet-2", "b"))),
        observed(balancer(source_nat=True)),
        (subnets("subnet-1", "subnet-2", **PREFIXES),),
    ),
    "security groups": (
        desired(groups=("sg-2", "sg-1")),
        observed(balancer(groups=("sg-1",))),
        (call("SetSecurityGroups", LoadBalancerArn="lb", SecurityGroups=["sg-2", "sg-1"]),),
    ),
    "security groups in another order": (
        desired(groups=("sg-2", "sg-1")),
        observed(balancer(groups=("sg-1", "sg-2"))),
        (),
    ),
    "a security group is made before all that needs it": (
        desired(own=OWN), Observed(), (created_group(), NEW_GROUP)
    ),
    "a security group gets its rules while the load balancer is made": (
        desired(own=OWN),
        Observed(target_groups=(group(),), group=Group("sg-5", tags=TAGS)),
        (created("sg-5"), RuleChange("sg-5", Change((RULE,)))),
    ),
    "made without a security group: it can have none": (desired(own=OWN), observed(), ()),
    "a given security group takes the place of its own": (
        desired(groups=("sg-1",)),
        observed(balancer(groups=("sg-5",)), group=Group("sg-5", tags=TAGS)),
        (call("SetSecurityGroups", LoadBalancerArn="lb", SecurityGroups=["sg-1"]),),
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
        (checked(HealthCheckTimeoutSeconds=5),),
    ),
    "a timeout that AWS chose": (DESIRED, observed(groups=(group(health=HealthCheck(timeout=10)),)), ()),
    "hosts come and go": (
        desired(targets=frozenset({"i-2"})),
        observed(),
        (targets("RegisterTargets", ["i-2"]), targets("DeregisterTargets", ["i-1"])),
    ),
    "a host that was refused": (
        desired(targets=frozenset({"i-1", "i-2"})),
        observed(refused={"i-2": "terminated"}),
        (),
    ),
    "many hosts": (
        desired(targets=MANY | {"i-1"}),
        observed(),
        (
            targets("RegisterTargets", sorted(MANY)[:100]),
            targets("RegisterTargets", sorted(MANY)[100:]),
        ),
    ),
    "another port of health checks": (
        desired(mappings=(msgspec.structs.replace(HTTP, health=HealthCheck(port="8080")),)),
        observed(),
        (checked("8080"),),
    ),
    "a certificate": (
        desired(mappings=(TLS,)),
        observed(),
        (turned(TLS, "tg"),),
    ),
    "another certificate": (
        desired(mappings=(TLS,)),
        observed(listeners=(listener(protocol="TLS", certificate="arn:old", policy="aws-own"),)),
        (turned(TLS, "tg"),),
    ),
    "a policy that AWS chose": (
        desired(mappings=(TLS,)),
        observed(listeners=(listener(protocol="TLS", certificate="arn:cert", policy="aws-own"),)),
        (),
    ),
    "another policy": (
        desired(mappings=(msgspec.structs.replace(TLS, policy="strict"),)),
        observed(listeners=(listener(protocol="TLS", certificate="arn:cert", policy="aws-own"),)),
        (turned(msgspec.structs.replace(TLS, policy="strict"), "tg"),),
    ),
    "another node port: its target group first": (
        desired(mappings=(msgspec.structs.replace(HTTP, target_port=30081),)),
        observed(),
        (
            created_group(msgspec.structs.replace(HTTP, target_port=30081)),
        ),
    ),
    "another protocol of health checks: the listener is turned, then the old group goes": (
        desired(mappings=(msgspec.structs.replace(HTTP, health=QUICK),)),
        observed(groups=(group(), group(msgspec.structs.replace(HTTP, health=QUICK), "new"))),
        (turned(msgspec.structs.replace(HTTP, health=QUICK), "new"),),
    ),
    "a target group that is not used any more": (
        DESIRED,
        observed(groups=(group(), group(UDP, "old"))),
        (call("DeleteTargetGroup", TargetGroupArn="old"),),
    ),
    "another transport: the port has to be free first": (
        desired(mappings=(UDP,)),
        observed(groups=(group(), group(UDP, "udp"))),
        (call("DeleteListener", ListenerArn="l"),),
    ),
    "a port too many": (
        DESIRED,
        observed(listeners=(listener(), listener(arn="l2", port=81))),
        (call("DeleteListener", ListenerArn="l2"),),
    ),
}  # fmt: skip


def calls(steps: tuple[Step, ...]) -> tuple[Call | RuleChange, ...]:
    return tuple(step.call for step in steps)


@pytest.mark.parametrize("case", PLANS)
def test_the_steps(case: str) -> None:
    wanted, found, steps = PLANS[case]
    assert calls(plan(wanted, found)) == steps


def test_target_groups_have_the_official_name() -> None:
    assert NAME == "k8s-shop-web1-dd29ecb216"


def test_target_groups_for_ipv6_have_another_name() -> None:
    assert target_group_name(desired(target_type="ipv6"), HTTP) != NAME


def test_listeners_are_deleted_before_what_they_need() -> None:
    assert calls(delete_steps(observed())) == (LISTENER_GONE,)
    assert calls(delete_steps(observed(listeners=()))) == (
        call("DeleteLoadBalancer", LoadBalancerArn="lb"),
        GROUP_GONE,
    )
    assert calls(delete_steps(Observed(target_groups=(group(),)))) == (GROUP_GONE,)
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
    assert calls(plan(late, observed())) == (targets("RegisterTargets", ["i-2"]),)
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
    assert calls(delete_steps(left)) == (() if stays else (GROUP_GONE,))


def test_what_is_new_or_the_same_can_be() -> None:
    check(desired(scheme=INTERNAL, groups=("sg-1",)), Observed())
    check(DESIRED, observed())


class Model:
    """A cloud that does what steps say, and refuses what AWS refuses."""

    def __init__(self) -> None:
        self.now = Observed()

    def take(self, step: Step) -> None:
        assert isinstance(step.call, Call)
        admit(self.now, step.call)
        self.now = step.after(self.now)
        listeners = (
            msgspec.structs.replace(one, policy="aws-own")
            if one.protocol == "TLS" and not one.policy
            else one
            for one in self.now.listeners
        )
        self.now = msgspec.structs.replace(self.now, listeners=tuple(listeners))


def admit(now: Observed, sent: Call) -> None:
    """Refuse what AWS refuses."""
    groups = {one.arn: one for one in now.target_groups}
    given = sent.parameters
    match sent.operation:
        case "CreateTargetGroup":
            assert given["Name"] not in {one.name for one in now.target_groups}
        case "CreateListener" | "ModifyListener":
            admit_listener(now, given)
        case "ModifyTargetGroup":
            assert given["TargetGroupArn"] in groups
            assert given.keys().isdisjoint({"HealthCheckProtocol", "HealthCheckIntervalSeconds"})
        case "SetIpAddressType":
            assert now.balancer is not None
            udp = any("UDP" in one.protocol for one in now.listeners)
            is_dual = given["IpAddressType"] == DUALSTACK
            assert not is_dual or now.balancer.source_nat or not udp
        case "DeleteTargetGroup":
            used = {one.target_group for one in now.listeners}
            assert given["TargetGroupArn"] not in used, "ResourceInUse"
        case "SetSubnets" | "SetSecurityGroups" | "ModifyLoadBalancerAttributes":
            assert now.balancer is not None


def admit_listener(now: Observed, given: Mapping[str, Any]) -> None:
    assert given["DefaultActions"][0]["TargetGroupArn"] in {one.arn for one in now.target_groups}
    others = (one.port for one in now.listeners if one.arn != given.get("ListenerArn"))
    assert given["Port"] not in others, "DuplicateListener"
    assert now.balancer is not None
    is_dual = now.balancer.address_type == DUALSTACK
    assert now.balancer.source_nat or not is_dual or "UDP" not in given["Protocol"]


def converge(model: Model, wanted: Desired) -> None:
    for _ in range(6):
        steps = plan(wanted, model.now)
        if not steps:
            return
        for step in steps:
            model.take(step)
            assert step.lines, step
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
            model.take(step)
    assert model.now == Observed()


@given(DESIRED_STATES, DESIRED_STATES)
def test_the_preview_is_what_is_then_done_and_omits_what_is_as_desired(
    first: Desired, second: Desired
) -> None:
    model = Model()
    converge(model, first)

    def steps(now: Observed) -> tuple[Step, ...]:
        return plan(second, now)

    lines, then = preview_plan(model.now, steps)
    assert bool(lines) == bool(steps(model.now))
    assert steps(then) == ()


def test_a_preview_names_parts_as_people_know_them() -> None:
    shown, _ = preview_plan(Observed(), lambda now: plan(DESIRED, now))
    assert PartChange("create", f"target group {NAME}", "TCP 30080") in shown
    assert PartChange("create", "listener 80", "TCP to 30080") in shown
    assert PartChange("create", "target i-1", f"target group {NAME}") in shown


def test_the_group_of_a_load_balancer_is_named_by_its_service() -> None:
    ref = LoadBalancerRef(ClusterIdentity("test", "uid"), "shop", "web", "web-uid", "a1")
    name = group_name(ref)
    assert name.startswith("k8s-shop-web-")
    assert name == group_name(msgspec.structs.replace(ref, name="another"))
    assert name != group_name(msgspec.structs.replace(ref, uid="another"))
