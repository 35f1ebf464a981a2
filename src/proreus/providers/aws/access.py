"""Say by which rules a load balancer reaches its hosts, and in which of their groups. Pure."""

from collections.abc import Awaitable, Callable, Collection, Mapping

import msgspec

from proreus.providers.aws.identity import Described
from proreus.providers.aws.rules import (
    HOST_RULE,
    Change,
    Rule,
    changed,
    idle_health,
    idle_mtu,
    made_for,
    of_hosts,
    shared_health,
)


def host_group(instance: Described, tagged: Collection[str]) -> str:
    """Return the security group of an instance in which load balancers are let in. Pure.

    Args:
        instance: The instance as EC2 describes it.
        tagged: The ids of the groups with the cluster's tag.

    Raises:
        ValueError: The group cannot be determined; says why.
    """
    groups = [group["GroupId"] for group in instance.get("SecurityGroups") or ()]
    ours = [id_ for id_ in groups if id_ in tagged]
    if len(ours) == 1:
        return str(ours[0])
    if len(ours) > 1:
        raise ValueError(
            "the instance has several security groups with the cluster's tag"
            f" ({', '.join(ours)}): leave the tag on one of them"
        )
    if len(groups) == 1:
        return str(groups[0])
    raise ValueError(
        "the instance has several security groups, none with the cluster's tag: tag one of them"
        if groups
        else "the instance has no security group: give it one"
    )


Living = Callable[[Collection[str]], Awaitable[Collection[str]]]
"""A function that asks AWS which load balancers there are."""


class Access(msgspec.Struct, frozen=True):
    """The rules by which a load balancer reaches its hosts, and no other instances.

    Attributes:
        instances: The ids of the load balancer's hosts; without any, all its rules are revoked.
        change: Returns the change of a group with these rules that has a host, or none. Pure.
        is_marked: Tells whether the rules of a group without the cluster's tag show that the group
            is to be changed: its hosts may have left it, or be gone. Pure.
        name: The load balancer's name, where `living` is given.
        living: Returns the names of all network load balancers of Services; it is given the names
            of those that count most.
        given: The given group that the rules let in; "" if it is the load balancer's own.
    """

    instances: frozenset[str]
    change: Callable[[frozenset[Rule], bool], Change]
    is_marked: Callable[[frozenset[Rule]], bool]
    name: str = ""
    living: Living | None = None
    given: str = ""


def network_access(
    name: str, instances: Collection[str], desired: frozenset[Rule], living: Living
) -> Access:
    """Return how clients of a network load balancer reach its hosts. Pure.

    Args:
        name: The load balancer's name.
        instances: Ids of its hosts.
        desired: The rules that their groups need; see `rules.of_network`.
        living: Returns the names of all network load balancers of Services.
    """

    def change(observed: frozenset[Rule], is_home: bool) -> Change:  # noqa: FBT001 - one caller
        return _network_change(name, observed, desired if is_home else frozenset())

    return Access(
        frozenset(instances),
        change,
        lambda observed: bool(made_for(name, observed)),
        name,
        living,
    )


def classic_access(group: str, instances: Collection[str], *, is_own: bool) -> Access:
    """Return how a classic load balancer reaches its hosts. Pure.

    Args:
        group: Its first security group.
        instances: Ids of its hosts.
        is_own: Whether the group was made for the load balancer. Others may use a given group, too,
            so nothing is revoked for a given one before `HostGroups.forget_given`.
    """
    desired = frozenset({of_hosts(group, "" if is_own else HOST_RULE)})
    ours: frozenset[Rule] = desired if is_own else frozenset()

    def change(observed: frozenset[Rule], is_home: bool) -> Change:  # noqa: FBT001 - one caller
        return changed(observed, desired if is_home else frozenset(), ours)

    given = "" if is_own else group
    return Access(frozenset(instances), change, lambda seen: bool(seen & ours), given=given)


def _network_change(name: str, observed: frozenset[Rule], desired: frozenset[Rule]) -> Change:
    own = made_for(name, observed) - shared_health(name, observed)
    remaining = (observed - own) | desired
    idle = idle_mtu(observed, remaining) | idle_health(observed, remaining)
    return changed(observed, desired, own | idle)


def of_strangers(
    group_of: Mapping[str, str], new: Collection[str], strange: Mapping[str, str]
) -> dict[str, str]:
    """Return the strange instances in groups that no other host has, with the reason. Pure.

    Args:
        group_of: The groups of the hosts' instances.
        new: The groups without the cluster's tag that would get their first rules.
        strange: By id why an instance is taken for somebody else's.
    """
    common = {id_ for instance, id_ in group_of.items() if instance not in strange}
    return {
        instance: strange[instance]
        for instance, id_ in group_of.items()
        if id_ in new and id_ not in common
    }


def is_new(access: Access, observed: frozenset[Rule]) -> bool:
    """Tell whether a group lacks rules of a load balancer and has none yet that were made for it.

    Rules that were made for it before stay.
    """
    return (
        bool(access.change(observed, True).grant)  # noqa: FBT003
        and not access.is_marked(observed)
    )
