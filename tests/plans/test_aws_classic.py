"""What is done so that a classic load balancer becomes as desired."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.cloudprovider import InvalidRequest, PartChange, preview_plan
from proreus.providers.aws.annotations import INTERNAL, PUBLIC
from proreus.providers.aws.calls import Call
from proreus.providers.aws.classic.parts import Balancer, Desired, Observed
from proreus.providers.aws.classic.plan import (
    PROXY_POLICY,
    TLS_POLICY_TYPE,
    check,
    group_name,
    groups_of,
    plan,
)
from proreus.providers.aws.classic.steps import Step
from proreus.providers.aws.listeners import ClassicHealthCheck, Listener
from proreus.providers.aws.own_groups import DesiredGroup, Group, RuleChange
from proreus.providers.aws.rules import Change, Rule

TAGS = {"kubernetes.io/service-name": "shop/web"}
HTTP = Listener(80, "TCP", 30080, "TCP")
TLS = Listener(443, "SSL", 30443, "TCP", "arn:one")
RULE = Rule("tcp", 80, 80, "0.0.0.0/0")
OLD_RULE = Rule("tcp", 81, 81, "0.0.0.0/0")
HEALTH = ClassicHealthCheck("TCP:30080")
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "AccessLog": {"Enabled": False},
    "ConnectionSettings": {"IdleTimeout": 60},
}
POLICY = "k8s-SSLNegotiationPolicy-strict"
PROXY_TYPE = {PROXY_POLICY: "ProxyProtocolPolicyType"}
DESIRED = Desired(
    name="a1",
    tags=TAGS,
    scheme=PUBLIC,
    subnets={"subnet-1": "a", "subnet-2": "b"},
    own=DesiredGroup("k8s-elb-a1", "", frozenset({RULE})),
    groups=(),
    listeners=frozenset({HTTP}),
    health=HEALTH,
    targets=frozenset({"i-1"}),
    attributes=ATTRIBUTES,
)
GROUP = Group("sg-1", frozenset({RULE}), TAGS)


def desired(**fields: Any) -> Desired:
    return msgspec.structs.replace(DESIRED, **fields)


def balancer(**fields: Any) -> Balancer:
    default = Balancer(
        name="a1", dns_name="a1.example.com", scheme=PUBLIC,
        subnets=frozenset({"subnet-1", "subnet-2"}), zones=frozenset("ab"), groups=("sg-1",),
        listeners=frozenset({HTTP}), health=HEALTH, targets=frozenset({"i-1"}),
        attributes={**ATTRIBUTES, "AccessLog": {"Enabled": False, "EmitInterval": 60}},
        tags={**TAGS, "other": "1"},
    )  # fmt: skip
    return msgspec.structs.replace(default, **fields)


def observed(
    group: Group | None = GROUP, refused: dict[str, str] | None = None, **fields: Any
) -> Observed:
    return Observed(balancer(**fields), group, refused or {})


def subnets(*names: str) -> dict[str, Any]:
    """Subnets such as a1, which is in zone a."""
    return {"subnets": frozenset(names), "zones": frozenset(one[0] for one in names)}


def placed(*names: str) -> Desired:
    return desired(subnets={one: one[0] for one in names})


def call(operation: str, **parameters: Any) -> Call:
    return Call("elb", operation, {"LoadBalancerName": "a1", **parameters})


def pairs(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def created(*groups: str) -> Call:
    listener = {
        "LoadBalancerPort": 80,
        "Protocol": "TCP",
        "InstancePort": 30080,
        "InstanceProtocol": "TCP",
    }
    return call(
        "CreateLoadBalancer",
        Listeners=[listener],
        Subnets=["subnet-1", "subnet-2"],
        SecurityGroups=list(groups),
        Tags=pairs(TAGS),
    )


def created_policy(name: str, type_: str, attribute: str, value: str) -> Call:
    return call(
        "CreateLoadBalancerPolicy",
        PolicyName=name,
        PolicyTypeName=type_,
        PolicyAttributes=[{"AttributeName": attribute, "AttributeValue": value}],
    )


def subnets_call(verb: str, id_: str) -> Call:
    return call(f"{verb}Subnets", Subnets=[id_])


def targets_call(operation: str, id_: str) -> Call:
    return call(operation, Instances=[{"InstanceId": id_}])


def backend(port: int, *policies: str) -> Call:
    return call(
        "SetLoadBalancerPoliciesForBackendServer", InstancePort=port, PolicyNames=list(policies)
    )


NEW_GROUP = Call(
    "ec2",
    "CreateSecurityGroup",
    {
        "GroupName": "k8s-elb-a1",
        "Description": "",
        "TagSpecifications": [{"ResourceType": "security-group", "Tags": pairs(TAGS)}],
    },
)
PLANS: dict[str, tuple[Desired, Observed, tuple[Call | RuleChange, ...]]] = {
    "nothing there: the group first": (DESIRED, Observed(), (NEW_GROUP,)),
    "the group has its rules while the load balancer is made": (
        DESIRED,
        Observed(group=Group("sg-1", frozenset({OLD_RULE}), TAGS)),
        (RuleChange("sg-1", Change((RULE,), (OLD_RULE,))), created("sg-1")),
    ),
    "given groups": (
        desired(own=None, groups=("sg-8", "sg-9")),
        Observed(),
        (created("sg-8", "sg-9"),),
    ),
    "all as desired": (DESIRED, observed(), ()),
    "a group without our tags": (
        DESIRED,
        observed(Group("sg-1", frozenset({RULE}))),
        (Call("ec2", "CreateTags", {"Resources": ["sg-1"], "Tags": pairs(TAGS)}),),
    ),
    "the group was deleted by somebody": (DESIRED, observed(None), (NEW_GROUP,)),
    "an extra group": (desired(groups=("sg-9",)), observed(), (call("ApplySecurityGroupsToLoadBalancer", SecurityGroups=["sg-1", "sg-9"]),)),
    "groups in another order": (
        desired(groups=("sg-9",)),
        observed(groups=("sg-9", "sg-1")),
        (),
    ),
    "a subnet in a new zone": (
        placed("a1", "b1", "c1"), observed(**subnets("a1", "b1")), (subnets_call("AttachLoadBalancerTo", "c1"),)
    ),
    "a subnet too many": (
        placed("a1"), observed(**subnets("a1", "b1")), (subnets_call("DetachLoadBalancerFrom", "b1"),)
    ),
    "another subnet of the same zone": (
        placed("a1", "b2"), observed(**subnets("a1", "b1")), (subnets_call("DetachLoadBalancerFrom", "b1"),)
    ),
    "other zones: the new one first": (
        placed("c1"), observed(**subnets("a1", "b1")), (subnets_call("AttachLoadBalancerTo", "c1"),)
    ),
    "other subnets in all zones: it always stands in one": (
        placed("a2", "b2"), observed(**subnets("a1", "b1")), (subnets_call("DetachLoadBalancerFrom", "b1"),)
    ),
    "another subnet in the only zone": (
        placed("a2"), observed(**subnets("a1")), (subnets_call("DetachLoadBalancerFrom", "a1"),)
    ),
    "a new port": (
        desired(listeners=frozenset({HTTP, TLS})), observed(), (
            call(
                "CreateLoadBalancerListeners",
                Listeners=[
                    {
                        "LoadBalancerPort": 443,
                        "Protocol": "SSL",
                        "InstancePort": 30443,
                        "InstanceProtocol": "TCP",
                        "SSLCertificateId": "arn:one",
                    }
                ],
            ),
        )
    ),
    "another node port: the old listener goes first": (
        desired(listeners=frozenset({Listener(80, "TCP", 30081, "TCP")})),
        observed(),
        (call("DeleteLoadBalancerListeners", LoadBalancerPorts=[80]),),
    ),
    "a certificate for the first time": (
        desired(listeners=frozenset({msgspec.structs.replace(HTTP, protocol="SSL", certificate="c")})),
        observed(),
        (call("DeleteLoadBalancerListeners", LoadBalancerPorts=[80]),),
    ),
    "another certificate": (
        desired(listeners=frozenset({msgspec.structs.replace(TLS, certificate="arn:two")})),
        observed(listeners=frozenset({TLS})),
        (
            call(
                "SetLoadBalancerListenerSSLCertificate",
                LoadBalancerPort=443,
                SSLCertificateId="arn:two",
            ),
        ),
    ),
    "proxy protocol": (desired(proxy_protocol=True), observed(), (created_policy(PROXY_POLICY, "ProxyProtocolPolicyType", "ProxyProtocol", "true"),)),
    "proxy protocol, whose policy is there": (
        desired(proxy_protocol=True),
        observed(policies=PROXY_TYPE),
        (backend(30080, PROXY_POLICY),),
    ),
    "proxy protocol is on": (
        desired(proxy_protocol=True),
        observed(policies=PROXY_TYPE, backend_policies={30080: (PROXY_POLICY,)}),
        (),
    ),
    "proxy protocol off; policies of others stay": (
        DESIRED,
        observed(backend_policies={30080: ("mine", PROXY_POLICY), 30081: (PROXY_POLICY,)}),
        (backend(30080, "mine"), backend(30081)),
    ),
    "a policy of TLS": (
        desired(tls_policy="strict", listeners=frozenset({HTTP, TLS})),
        observed(listeners=frozenset({HTTP, TLS})),
        (created_policy(POLICY, TLS_POLICY_TYPE, "Reference-Security-Policy", "strict"),),
    ),
    "a policy of TLS that is there; what is not about TLS stays": (
        desired(tls_policy="strict", listeners=frozenset({HTTP, TLS})),
        observed(
            listeners=frozenset({HTTP, TLS}),
            policies={POLICY: TLS_POLICY_TYPE, "old": TLS_POLICY_TYPE, "sticky": "Stickiness"},
            listener_policies={443: ("sticky", "old", "unknown"), 80: ()},
        ),
        (
            call(
                "SetLoadBalancerPoliciesOfListener",
                LoadBalancerPort=443,
                PolicyNames=["sticky", POLICY],
            ),
        ),
    ),
    "a policy of TLS that is set": (
        desired(tls_policy="strict", listeners=frozenset({TLS})),
        observed(
            listeners=frozenset({TLS}),
            policies={POLICY: TLS_POLICY_TYPE},
            listener_policies={443: (POLICY,)},
        ),
        (),
    ),
    "a health check": (
        desired(health=ClassicHealthCheck("TCP:1")),
        observed(),
        (
            call(
                "ConfigureHealthCheck",
                HealthCheck={
                    "Target": "TCP:1",
                    "HealthyThreshold": 2,
                    "UnhealthyThreshold": 6,
                    "Timeout": 5,
                    "Interval": 10,
                },
            ),
        ),
    ),
    "attributes: only what differs": (
        desired(attributes={**ATTRIBUTES, "ConnectionSettings": {"IdleTimeout": 30}}),
        observed(),
        (
            call(
                "ModifyLoadBalancerAttributes",
                LoadBalancerAttributes={"ConnectionSettings": {"IdleTimeout": 30}},
            ),
        ),
    ),
    "tags": (DESIRED, observed(tags={"other": "1"}), (Call("elb", "AddTags", {"LoadBalancerNames": ["a1"], "Tags": pairs(TAGS)}),)),
    "hosts come and go": (
        desired(targets=frozenset({"i-2", "i-3"})),
        observed(refused={"i-3": "gone"}),
        (
            targets_call("RegisterInstancesWithLoadBalancer", "i-2"),
            targets_call("DeregisterInstancesFromLoadBalancer", "i-1"),
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PLANS)
def test_the_steps(case: str) -> None:
    wanted, found, steps = PLANS[case]
    assert tuple(step.call for step in plan(wanted, found)) == steps


REFUSED: dict[str, tuple[Desired, Observed, str]] = {
    "became internal": (desired(scheme=INTERNAL), observed(), "internal: the load balancer is public"),
    "became public": (DESIRED, observed(scheme=INTERNAL), "internal: the load balancer is internal"),
    "a timeout that is too long": (
        desired(health=ClassicHealthCheck("TCP:1", timeout=10)), Observed(), "healthcheck-timeout",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_by_its_field(case: str) -> None:
    wanted, found, message = REFUSED[case]
    with pytest.raises(InvalidRequest, match=message):
        check(wanted, found)


def test_what_is_new_or_the_same_can_be() -> None:
    check(desired(scheme=INTERNAL), Observed())
    check(DESIRED, observed())


class Model:
    """A cloud that does what steps say, and refuses what AWS refuses."""

    def __init__(self) -> None:
        self.now = Observed()

    def take(self, step: Step) -> None:
        operation = "" if isinstance(step.call, RuleChange) else step.call.operation
        if operation == "CreateSecurityGroup":
            assert self.now.group is None
        elif operation == "CreateLoadBalancer":
            assert self.now.balancer is None
        elif isinstance(step.call, RuleChange):
            assert self.now.group is not None
        else:
            assert self.now.balancer is not None
            admit(self.now.balancer, step.call)
        self.now = step.after(self.now)
        if operation in {"AttachLoadBalancerToSubnets", "DetachLoadBalancerFromSubnets"}:
            assert self.now.balancer is not None
            # AWS knows the zones of all subnets.
            placed = msgspec.structs.replace(
                self.now.balancer, **subnets(*self.now.balancer.subnets)
            )
            self.now = msgspec.structs.replace(self.now, balancer=placed)


def admit(lb: Balancer, sent: Call) -> None:
    """Refuse what AWS refuses."""
    ports = {one.port for one in lb.listeners}
    given = sent.parameters
    match sent.operation:
        case "AttachLoadBalancerToSubnets":
            assert {one[0] for one in given["Subnets"]}.isdisjoint(lb.zones)
        case "CreateLoadBalancerListeners":
            assert {one["LoadBalancerPort"] for one in given["Listeners"]}.isdisjoint(ports)
        case "DeleteLoadBalancerListeners":
            assert ports.issuperset(given["LoadBalancerPorts"])
        case "SetLoadBalancerListenerSSLCertificate":
            port = given["LoadBalancerPort"]
            assert [one.port for one in lb.listeners if one.certificate].count(port) == 1
        case "CreateLoadBalancerPolicy":
            assert given["PolicyName"] not in lb.policies
        case "SetLoadBalancerPoliciesForBackendServer":
            assert lb.policies.keys() >= set(given["PolicyNames"])
        case "SetLoadBalancerPoliciesOfListener":
            assert [lb.policies[one] for one in given["PolicyNames"]] == [TLS_POLICY_TYPE]


LISTENERS = st.frozensets(
    st.builds(
        lambda port, to, certificate: Listener(
            port, "SSL" if certificate else "TCP", to, "TCP", certificate
        ),
        st.sampled_from((80, 443)),
        st.sampled_from((30080, 30443)),
        st.sampled_from(("", "arn:one", "arn:two")),
    ),
    min_size=1,
    max_size=2,
).filter(lambda found: len({one.port for one in found}) == len(found))
DESIRED_STATES = st.builds(
    lambda listeners, targets, subnets, groups, own, proxy, policy: desired(
        listeners=listeners, targets=targets, proxy_protocol=proxy, tls_policy=policy,
        subnets={one: one[0] for one in subnets}, groups=groups,
        own=None if groups and not own else DESIRED.own,
    ),
    LISTENERS,
    st.frozensets(st.sampled_from(("i-1", "i-2", "i-3"))),
    st.lists(
        st.sampled_from(("a1", "a2", "b1", "b2", "c1")), min_size=1, unique_by=lambda one: one[0]
    ),
    st.sampled_from(((), ("sg-8",), ("sg-8", "sg-9"))),
    st.booleans(),
    st.booleans(),
    st.sampled_from(("", "strict", "lax")),
)  # fmt: skip


def converge(model: Model, wanted: Desired) -> None:
    for _ in range(12):
        steps = plan(wanted, model.now)
        if not steps:
            return
        for step in steps:
            model.take(step)
            assert step.lines, step
    raise AssertionError(plan(wanted, model.now))


@given(st.lists(DESIRED_STATES, min_size=1, max_size=3))
def test_from_any_desired_state_to_any_other_it_ends_with_the_desired_one(
    desired: list[Desired],
) -> None:
    model = Model()
    for wanted in desired:
        converge(model, wanted)
        found = model.now.balancer
        assert found is not None
        assert (found.listeners, found.targets, found.health) == (
            wanted.listeners, wanted.targets, wanted.health
        )  # fmt: skip
        assert found.subnets == set(wanted.subnets)
        assert set(found.groups) == set(groups_of(wanted, model.now))
        ports = {one.instance_port for one in wanted.listeners} if wanted.proxy_protocol else set()
        assert {port for port, names in found.backend_policies.items() if names} == ports
        if wanted.tls_policy:
            tls = {one.port for one in wanted.listeners if one.certificate}
            policy = (f"k8s-SSLNegotiationPolicy-{wanted.tls_policy}",)
            assert {port: found.listener_policies[port] for port in tls} == dict.fromkeys(
                tls, policy
            )


@given(DESIRED_STATES, DESIRED_STATES)
def test_the_preview_ends_with_what_is_desired_and_has_no_line_for_what_is_so(
    first: Desired, second: Desired
) -> None:
    model = Model()
    converge(model, first)

    def steps(now: Observed) -> tuple[Step, ...]:
        return plan(second, now)

    found, then = preview_plan(model.now, steps)
    assert bool(found) == bool(steps(model.now))
    converge(model, second)
    assert then.balancer is not None
    assert model.now.balancer is not None
    fields = ("subnets", "groups", "listeners", "targets", "listener_policies", "health")
    for field in fields:
        assert getattr(then.balancer, field) == getattr(model.now.balancer, field), field


def test_a_preview_names_parts_as_people_know_them() -> None:
    shown, _ = preview_plan(Observed(), lambda now: plan(DESIRED, now))
    assert shown[0] == PartChange(
        "create", f"security group {DESIRED.own.name if DESIRED.own else ''}"
    )
    assert {one.part.split()[0] for one in shown} >= {"load", "listener", "target", "rule"}


def test_the_group_of_a_load_balancer_has_the_official_name() -> None:
    assert group_name("a1b2") == "k8s-elb-a1b2"
