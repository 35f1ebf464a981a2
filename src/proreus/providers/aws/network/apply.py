"""Take the steps of a plan for a network load balancer, one call for each."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.refused import Refused
from proreus.providers.aws.calls import Call, send, send_instances
from proreus.providers.aws.identity import tags_of
from proreus.providers.aws.network import observe
from proreus.providers.aws.network.parts import Observed, TargetGroup
from proreus.providers.aws.network.steps import Step
from proreus.providers.aws.own_groups import OwnGroups, RuleChange

if TYPE_CHECKING:
    from proreus.providers.aws.api import Answer, Api

Effect = Callable[[Observed], Observed]
"""A function from the state observed before a step to the state after it."""

_GONE: Final = frozenset({"LoadBalancerNotFound", "ListenerNotFound", "TargetGroupNotFound"})


async def take(api: "Api", own_groups: OwnGroups, _: Observed, step: Step) -> Effect:
    """Take one step; return how it changes what was observed.

    Raises:
        CloudError: AWS refuses.
    """
    call = step.call
    if isinstance(call, RuleChange) or call.service == "ec2":
        return await own_groups.take(step)
    if call.operation == "RegisterTargets":
        refused = await send_instances(api, call, "Targets", "InvalidTarget")
        return lambda before: _refusing(step.after(before), call, refused)
    try:
        answer = await send(api, call)
    except Refused as error:
        if not (call.operation.startswith("Delete") and error.code in _GONE):
            raise
        return step.after
    return await _effect(api, step, call, answer)


async def _effect(api: "Api", step: Step, call: Call, answer: "Answer") -> Effect:
    """Return the effect of a step by what AWS answered, where that says more than the plan."""
    match call.operation:
        case "CreateLoadBalancer":
            made = await observe.with_attributes(api, answer["LoadBalancers"][0], _tags(call))
            return lambda before: before.having(made)
        case "CreateTargetGroup":
            group = await _created_group(api, answer["TargetGroups"][0], _tags(call))
            return lambda before: before.having(group)
        case "CreateListener" | "ModifyListener":
            listener = observe.listener_of(answer["Listeners"][0])
            return lambda before: before.having(listener)
        case "SetSubnets":
            zones = {zone["ZoneName"]: zone["SubnetId"] for zone in answer["AvailabilityZones"]}
            return lambda before: _in_zones(step.after(before), zones)
    return step.after


def _tags(call: Call) -> dict[str, str]:
    return tags_of(call.parameters)


async def _created_group(
    api: "Api", described: observe.Described, desired: dict[str, str]
) -> TargetGroup:
    arn = described["TargetGroupArn"]
    # AWS takes the same request once more for a success, whosesoever the group is.
    tags = await observe.tags_by_arn(api, [arn])
    if not desired.items() <= tags.get(arn, {}).items():
        raise CloudError(
            f"the target group {described['TargetGroupName']} exists with tags of another owner:"
            " delete it or correct its tags; clusters of an account need a KubernetesClusterID each"
        )
    return await observe.target_group_of(api, described, tags)


def _in_zones(observed: Observed, zones: dict[str, str]) -> Observed:
    balancer = observed.balancer and msgspec.structs.replace(observed.balancer, zones=zones)
    return msgspec.structs.replace(observed, balancer=balancer)


def _refusing(observed: Observed, call: Call, refused: dict[str, str]) -> Observed:
    arn = call.parameters["TargetGroupArn"]
    groups = tuple(
        msgspec.structs.replace(group, targets=group.targets - refused.keys())
        if group.arn == arn
        else group
        for group in observed.target_groups
    )
    return msgspec.structs.replace(
        observed, target_groups=groups, refused={**observed.refused, **refused}
    )
