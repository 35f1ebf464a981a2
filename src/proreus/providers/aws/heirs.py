"""Find who needs a rule for clients that another load balancer leaves, and hand it over.

To AWS a port and a source make one rule. It has the description of the load balancer that came
first, whosesoever the others are, such as another cluster's whose nodes are in the same group.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final

from proreus.cloudprovider.desired import source_ranges
from proreus.cloudprovider.load_balancers import PartChange
from proreus.cloudprovider.names import default_load_balancer_name
from proreus.kube.objects import KubeObject, Service
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

_FAMILIES: Final = ("IPv4", "IPv6")

Heirs = Mapping[str, Mapping[Rule, Rule]]
"""By group the rules that are handed over, each with what it is afterwards."""
Ports = frozenset[tuple[str, int]]
"""Protocols, each with a port of hosts."""


async def find_heirs(
    api: "Api",
    vpc: str,
    memberships: Memberships,
    name: str,
    groups: Mapping[str, tuple[frozenset[Rule], Iterable[Rule]]],
    *,
    services: Iterable[KubeObject],
) -> Heirs:
    """Return which rules other Services' network load balancers need, to be theirs.

    Those have a target group with the rule's port, and a target that is in the rule's group.

    Args:
        api: The client of AWS.
        vpc: The VPC of the groups.
        memberships: The groups of instances.
        name: The load balancer that leaves rules.
        groups: The rules of each group, and those that the load balancer leaves.
        services: The Services of this cluster.

    Raises:
        CloudError: AWS does not answer, or a target group went away meanwhile.
    """
    left = {id_: clients_of(name, revoked) for id_, (_, revoked) in groups.items()}
    ports = _ports(rule for rules in left.values() for rule in rules)
    using: dict[str, dict[str, Ports]] = defaultdict(dict)
    listed = await api.pages("elbv2", "DescribeTargetGroups", "TargetGroups") if ports else ()
    for user, opened, arn in users(listed, vpc):
        if not ports & opened:
            continue
        health = await api.call("elbv2", "DescribeTargetHealth", TargetGroupArn=arn)
        ids = {str(one["Target"]["Id"]) for one in health["TargetHealthDescriptions"]}
        for id_ in left.keys() & _groups(await memberships.of(ids)):
            using[id_][user] = using[id_].get(user, frozenset()) | opened
    known = sources_of(services, frozenset().union(*using.values()))
    found = {
        id_: heirs_in(name, left[id_], groups[id_][0], one, known) for id_, one in using.items()
    }
    return {id_: handed for id_, handed in found.items() if handed}


def sources_of(services: Iterable[KubeObject], names: Collection[str]) -> dict[str, frozenset[str]]:
    """Return whom load balancers of Services let in, CIDRs by their names, for these. Pure."""
    found = {}
    for one in services if names else ():
        name = default_load_balancer_name(one.metadata.uid)
        if name not in names or not isinstance(one, Service):
            continue
        problems: list[str] = []
        ranges = source_ranges(one, _FAMILIES, problems)
        if ranges and not problems:
            found[name] = frozenset(chain.from_iterable(ranges.values()))
    return found


def heirs_in(
    name: str,
    left: Iterable[Rule],
    observed: frozenset[Rule],
    using: Mapping[str, Ports],
    known: Mapping[str, Collection[str]],
) -> dict[Rule, Rule]:
    """Return which rules of a group are handed over, each with what it is afterwards. Pure.

    A load balancer that goes on using a port lets other sources in from now on. Whoever else uses
    the port, and has a rule of its own there, gets no rule for the former ones: nobody can tell
    that it needs it, and if not, each would hand it back to the other, and it would stay for good.

    Args:
        name: The load balancer that leaves rules.
        left: The rules that it leaves.
        observed: All rules of the group.
        using: At which ports load balancers have targets in the group, by name.
        known: Whom load balancers of this cluster let in; they get no rule for other sources.
    """
    kept = using.get(name, frozenset())
    found: dict[Rule, Rule] = {}
    for other in sorted(using.keys() - {name}):
        needed = using[other] - (kept & _ports(clients_of(other, observed)))
        for rule in left:
            is_meant = rule.source in known.get(other, (rule.source,))
            if is_meant and (rule.protocol, rule.from_port) in needed:
                found.setdefault(rule, handed_to(other, rule))
    return found


def _ports(rules: Iterable[Rule]) -> Ports:
    return frozenset((rule.protocol, rule.from_port) for rule in rules)


def users(listed: Iterable[Described], vpc: str) -> Iterator[tuple[str, Ports, str]]:
    """Return the target groups of Services' network load balancers. Pure.

    Args:
        listed: Target groups as AWS describes them.
        vpc: The VPC in which they are.

    Returns:
        The load balancer's name, protocols with the port of the hosts, and the ARN of each.
    """
    for one in listed:
        if one.get("VpcId") != vpc or one.get("TargetType") != "instance":
            continue
        opened = frozenset((protocol, one["Port"]) for protocol in transports(one["Protocol"]))
        for balancer in one.get("LoadBalancerArns") or ():
            if name := service_balancer(balancer):
                yield name, opened, str(one["TargetGroupArn"])


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
