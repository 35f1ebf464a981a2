"""Find who needs a rule for clients that another load balancer leaves, and hand it over.

To AWS a port and a source make one rule. It has the description of the load balancer that came
first, whosesoever the others are, such as another cluster's whose nodes are in the same group.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from proreus.cloudprovider.load_balancers import PartChange
from proreus.providers.aws.identity import Described
from proreus.providers.aws.memberships import Memberships
from proreus.providers.aws.names import service_balancer
from proreus.providers.aws.rules import (
    Rule,
    clients_of,
    handed_to,
    permissions_of,
    rule_text,
    transports,
)

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api

Heirs = Mapping[str, Mapping[Rule, Rule]]
"""By group the rules that are handed over, each with what it is afterwards."""


async def find_heirs(
    api: "Api",
    vpc: str,
    memberships: Memberships,
    name: str,
    revoked: Mapping[str, Iterable[Rule]],
) -> Heirs:
    """Return which rules other Services' network load balancers need, to be theirs.

    Those have a target group with the rule's port, and a target that is in the rule's group.

    Args:
        api: The client of AWS.
        vpc: The VPC of the groups.
        memberships: The groups of instances.
        name: The load balancer that leaves rules.
        revoked: The rules that it leaves, by group.

    Raises:
        CloudError: AWS does not answer, or a target group went away meanwhile.
    """
    left = {id_: clients_of(name, rules) for id_, rules in revoked.items()}
    ports = {(rule.protocol, rule.from_port) for rules in left.values() for rule in rules}
    found: dict[str, dict[Rule, Rule]] = {}
    listed = await api.pages("elbv2", "DescribeTargetGroups", "TargetGroups") if ports else ()
    for other, opened, arn in sorted(users(listed, vpc, name)):
        if not ports & opened:
            continue
        health = await api.call("elbv2", "DescribeTargetHealth", TargetGroupArn=arn)
        ids = {str(one["Target"]["Id"]) for one in health["TargetHealthDescriptions"]}
        for id_ in left.keys() & _groups(await memberships.of(ids)):
            needed = (one for one in left[id_] if (one.protocol, one.from_port) in opened)
            for rule in needed:
                found.setdefault(id_, {}).setdefault(rule, handed_to(other, rule))
    return found


def users(
    listed: Iterable[Described], vpc: str, name: str
) -> Iterator[tuple[str, frozenset[tuple[str, int]], str]]:
    """Return the target groups of other Services' network load balancers. Pure.

    Args:
        listed: Target groups as AWS describes them.
        vpc: The VPC in which they are.
        name: The load balancer that does not count.

    Returns:
        The load balancer's name, protocols with the port of the hosts, and the ARN of each.
    """
    for one in listed:
        if one.get("VpcId") != vpc or one.get("TargetType") != "instance":
            continue
        opened = frozenset((protocol, one["Port"]) for protocol in transports(one["Protocol"]))
        for balancer in one.get("LoadBalancerArns") or ():
            other = service_balancer(balancer)
            if other not in {"", name}:
                yield other, opened, str(one["TargetGroupArn"])


def given_to(handed: Mapping[Rule, Rule], observed: frozenset[Rule]) -> frozenset[Rule]:
    """Return the rules of a group after some have been handed over. Pure."""
    return frozenset(handed.get(rule, rule) for rule in observed)


def heirs_part_changes(heirs: Heirs) -> Iterator[PartChange]:
    """Return the rules that are handed over for `proreus plan`. Pure."""
    for id_, handed in heirs.items():
        for rule in handed.values():
            detail = f"{rule_text(rule)}, described as {rule.description}"
            yield PartChange("change", f"rule of security group {id_}", detail)


async def hand_over(api: "Api", heirs: Heirs) -> None:
    """Give rules the description of another load balancer; they stay in force meanwhile.

    Raises:
        CloudError: AWS refuses, or a rule is gone.
    """
    for id_, handed in heirs.items():
        await api.call(
            "ec2",
            "UpdateSecurityGroupRuleDescriptionsIngress",
            GroupId=id_,
            IpPermissions=permissions_of(handed.values()),
        )


def _groups(instances: Iterable[Described]) -> Collection[str]:
    return {group["GroupId"] for one in instances for group in one.get("SecurityGroups") or ()}
