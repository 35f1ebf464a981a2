"""Security groups: what is still in use cannot be deleted; how many rules one may have."""

from collections.abc import Iterator
from typing import Any

from .world import Answer, AWSError, Params, World, corrects


@corrects("ec2", "CreateSecurityGroup")
def create(world: World, params: Params) -> Answer:
    """A new one is not seen everywhere at once (EC2 API, eventual consistency)."""
    answer = world.moto("ec2", world.operation, params)
    world.born[answer["GroupId"]] = world.now()
    return answer


def is_seen(world: World, id_: str) -> bool:
    return world.age(id_) >= world.faults.settings.lag


@corrects("ec2", "DeleteSecurityGroup")
def delete(world: World, params: Params) -> Answer:
    """Refused while another group's rules or an interface name it (DeleteSecurityGroup)."""
    id_ = params.get("GroupId", "")
    for user in _users(world, id_):
        raise AWSError("DependencyViolation", f"resource {id_} has a dependent object ({user})")
    return world.moto("ec2", "DeleteSecurityGroup", params)


def _users(world: World, id_: str) -> Iterator[str]:
    for group in world.moto("ec2", "DescribeSecurityGroups")["SecurityGroups"]:
        rules = [*group["IpPermissions"], *group["IpPermissionsEgress"]]
        named = {pair.get("GroupId") for rule in rules for pair in rule["UserIdGroupPairs"]}
        if group["GroupId"] != id_ and id_ in named:
            yield group["GroupId"]
    for nic in world.moto("ec2", "DescribeNetworkInterfaces")["NetworkInterfaces"]:
        if id_ in {group["GroupId"] for group in nic["Groups"]}:
            yield nic["NetworkInterfaceId"]
    for one in world.moto("elb", "DescribeLoadBalancers")["LoadBalancerDescriptions"]:
        if id_ in one["SecurityGroups"]:
            yield one["LoadBalancerName"]
    for one in world.moto("elbv2", "DescribeLoadBalancers")["LoadBalancers"]:
        if id_ in one.get("SecurityGroups", ()):
            yield one["LoadBalancerName"]
    released = world.released.get(id_)
    if released is not None and world.now() < released + world.faults.settings.detach:
        yield "an interface that is being deleted"


@corrects("ec2", "AuthorizeSecurityGroupIngress")
def authorize(world: World, params: Params) -> Answer:
    """A group has at most 60 rules, counted by source (VPC user guide, quotas)."""
    id_ = params.get("GroupId", "")
    if not is_seen(world, id_):
        raise AWSError("InvalidGroup.NotFound", f"The security group '{id_}' does not exist")
    groups = world.moto("ec2", "DescribeSecurityGroups", {"GroupIds": [id_]})["SecurityGroups"]
    have = _count(groups[0]["IpPermissions"])
    if have + _count(params.get("IpPermissions") or []) > world.faults.settings.rules_per_group:
        raise AWSError(
            "RulesPerSecurityGroupLimitExceeded",
            "The maximum number of rules per security group has been reached.",
        )
    return world.moto("ec2", world.operation, params)


def _count(permissions: list[dict[str, Any]]) -> int:
    kinds = ("IpRanges", "Ipv6Ranges", "PrefixListIds", "UserIdGroupPairs")
    return sum(len(one.get(kind) or ()) for one in permissions for kind in kinds)


def release(world: World, ids: list[str]) -> None:
    """A load balancer with these groups was deleted; its interfaces go a little later."""
    for id_ in ids:
        world.released[id_] = world.now()
