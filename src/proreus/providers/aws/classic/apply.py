"""Take the steps of a plan for a classic load balancer, one call for each."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from proreus.providers.aws.calls import send, send_instances
from proreus.providers.aws.classic.observe import balancer_of
from proreus.providers.aws.classic.parts import Observed
from proreus.providers.aws.classic.steps import Step
from proreus.providers.aws.own_groups import OwnGroups, RuleChange

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api

Effect = Callable[[Observed], Observed]
"""A function from the state observed before a step to the state after it."""


async def take(api: "Api", own_groups: OwnGroups, _: Observed, step: Step) -> Effect:
    """Take one step; return how it changes what was observed.

    Raises:
        CloudError: AWS refuses.
    """
    call = step.call
    if isinstance(call, RuleChange) or call.service == "ec2":
        return await own_groups.take(step)
    if call.operation in {
        "RegisterInstancesWithLoadBalancer",
        "DeregisterInstancesFromLoadBalancer",
    }:
        # Of those to deregister: what AWS does not know any more is not registered any more.
        refused = await send_instances(api, call, "Instances", "InvalidInstance")
        is_new = call.operation == "RegisterInstancesWithLoadBalancer"
        return lambda before: _refusing(step.after(before), refused if is_new else {})
    answer = await send(api, call)
    if call.operation == "CreateLoadBalancer":
        return lambda before: _having(step.after(before), dns_name=str(answer["DNSName"]))
    if call.operation in {"AttachLoadBalancerToSubnets", "DetachLoadBalancerFromSubnets"}:
        # Only AWS knows the zones of all subnets.
        names = [call.parameters["LoadBalancerName"]]
        answer = await api.call("elb", "DescribeLoadBalancers", LoadBalancerNames=names)
        now = balancer_of(answer["LoadBalancerDescriptions"][0])
        return lambda before: _having(before, subnets=now.subnets, zones=now.zones)
    return step.after


def _having(observed: Observed, **fields: Any) -> Observed:
    balancer = observed.balancer and msgspec.structs.replace(observed.balancer, **fields)
    return msgspec.structs.replace(observed, balancer=balancer)


def _refusing(observed: Observed, refused: dict[str, str]) -> Observed:
    registered = observed.balancer.targets if observed.balancer is not None else frozenset()
    return msgspec.structs.replace(
        _having(observed, targets=registered - refused.keys()),
        refused={**observed.refused, **refused},
    )
