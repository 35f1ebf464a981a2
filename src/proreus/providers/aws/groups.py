"""Change the rules in the security groups of hosts that let load balancers in.

Groups are shared by all load balancers, so one change at a time is made to them; what is to be
changed is decided from rules that are read within the same turn.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from proreus.cloudprovider.firewalls import RuleRefusal, change_rules
from proreus.cloudprovider.steps import nothing
from proreus.cloudprovider.waits import Twice
from proreus.providers.aws.identity import TAG_LEGACY, ClusterTags, Described, Place, tags_of
from proreus.providers.aws.memberships import Memberships
from proreus.providers.aws.residents import Residents
from proreus.providers.aws.rules import (
    HOST_RULE,
    Change,
    Rule,
    changed,
    idle_health,
    idle_mtu,
    in_doubt,
    made_for,
    node_ports_beside,
    of_hosts,
    permissions_of,
    rules_of,
    shared_health,
    sparing,
)

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api

_MEANINGS: Final = {
    "InvalidPermission.Duplicate": RuleRefusal.DONE,
    "InvalidPermission.NotFound": RuleRefusal.DONE,
    "RulesPerSecurityGroupLimitExceeded": RuleRefusal.FULL,
}


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


class HostGroups:
    """The security groups of hosts, in which load balancers are let in."""

    def __init__(self, api: "Api", place: Place, *, confirm: float) -> None:
        """Keep the client of AWS, and which cluster and VPC the groups belong to.

        `confirm` is the provider's.
        """
        self._api = api
        self._services = api.context.listers["services"]
        self._tags: ClusterTags = place.tags
        self._vpc = place.vpc
        self._turn = asyncio.Lock()
        self._memberships = Memberships(api)
        self._residents = Residents(api, place)
        # By the given group: which looks show it at no load balancer, beside one or none.
        self._idle: dict[str, Twice] = defaultdict(partial(Twice, confirm))

    async def allow(
        self, access: Access, before: Callable[[], Awaitable[None]] = nothing
    ) -> Mapping[str, str]:
        """Change the groups of hosts so that a load balancer reaches them, one change at a time.

        Args:
            access: The rules that the load balancer needs.
            before: Called before the first change, if there is any.

        Returns:
            By instance id the reason why an instance has no group for these rules.

        Raises:
            CloudError: AWS does not answer, or refuses a rule.
        """
        async with self._turn:
            self._idle.pop(access.given, None)  # a look before this one was made says nothing
            changes, refused = await self.foresee(access)
            if changes:
                await before()
            await asyncio.gather(
                *(apply_change(self._api, id_, change) for id_, change in changes.items())
            )
        return refused

    async def foresee(self, access: Access) -> tuple[dict[str, Change], dict[str, str]]:
        """Return what `allow` would change, by the ids of groups, and what it would return.

        Raises:
            CloudError: AWS does not answer.
        """
        groups, homes, refused = await self._read_groups(access)
        changes = {id_: access.change(observed, id_ in homes) for id_, observed in groups.items()}
        doubtful = frozenset[str]().union(*(in_doubt(one.revoke) for one in changes.values()))
        if doubtful and access.living is not None:
            living = await access.living(doubtful - {"", access.name})
            theirs = node_ports_beside(access.name, self._services.all())
            changes = {
                id_: sparing(access.name, groups[id_], change, living, theirs)
                for id_, change in changes.items()
            }
        return {id_: change for id_, change in changes.items() if change}, refused

    async def forget_own(self, group: str, is_unused: Callable[[], bool]) -> bool:
        """Revoke every rule that names a load balancer's group, which is to be deleted.

        Where some are others', such as an operator's, nothing is revoked unless the group
        `is_unused`. Returns whether all are gone.

        Raises:
            CloudError: AWS does not answer, or refuses.
        """
        async with self._turn:
            changes = await self.naming({group})
            found = {rule for change in changes.values() for rule in change.revoke}
            is_done = found <= {of_hosts(group)} or is_unused()
            await self._revoke(changes if is_done else {})
        return is_done

    async def forget_given(
        self,
        groups: Collection[str],
        used: Callable[[], Awaitable[Collection[str]]],
        beside: str = "",
    ) -> frozenset[str]:
        """Revoke the rules that were made for given groups which no load balancer has any more.

        That must be so in two looks, 10 seconds apart: a list may lack a load balancer which is
        there, and whose hosts nobody would reach any more.

        Args:
            groups: The ids of the given groups.
            used: Returns the groups that load balancers still have. It is called within the turn,
                so that a load balancer which is made meanwhile lets its group in afterwards.
            beside: The name of the load balancer that does not count.

        Returns:
            The groups that have to be looked at once more.

        Raises:
            CloudError: AWS does not answer, or refuses.
        """
        async with self._turn:
            idle = set(groups) - set(await used())
            sure = {id_ for id_ in groups if self._idle[id_].is_sure(beside, is_so=id_ in idle)}
            if sure:
                await self._revoke(await self.naming(sure, HOST_RULE))
            return frozenset(idle - sure)

    async def naming(self, groups: Collection[str], description: str = "") -> dict[str, Change]:
        """Return the changes that revoke all rules naming these groups, by the group to change.

        Args:
            groups: The ids of the groups that the rules name.
            description: The description of the rules that count; "" for all rules.

        Raises:
            CloudError: AWS does not answer.
        """
        found = await self._api.pages(
            "ec2",
            "DescribeSecurityGroups",
            "SecurityGroups",
            Filters=[
                {"Name": "vpc-id", "Values": [self._vpc]},
                {"Name": "ip-permission.group-id", "Values": sorted(groups)},
            ],
        )
        return {
            str(group["GroupId"]): Change(
                revoke=tuple(
                    rule
                    for rule in sorted(rules_of(group.get("IpPermissions") or ()))
                    if rule.source in groups and description in {"", rule.description}
                )
            )
            for group in found
        }

    async def _revoke(self, changes: Mapping[str, Change]) -> None:
        for group, change in changes.items():
            await apply_change(self._api, group, change)

    async def _read_groups(
        self, access: Access
    ) -> tuple[dict[str, frozenset[Rule]], set[str], dict[str, str]]:
        """Return the rules of the groups to change, the hosts' groups, and the hosts without any.

        All groups of the VPC are read where a host is in one without the cluster's tag, and where
        there is no host: nothing shows then in which groups hosts have been. While a host's group
        is not known, those that may be it are not changed: what was let in goes on being so.
        """
        instances = access.instances
        is_whole = not instances or not self._tags.id
        described = await self._groups(with_tag=not is_whole)
        mine = self._tags.mine(described) if self._tags.id else []
        tagged = {group["GroupId"] for group in mine}
        group_of: dict[str, str] = {}
        refused = {
            id_: f"EC2 left {id_} out of its answer, so its security group is not known"
            for id_ in instances
        }
        hosts = await self._memberships.of(instances)
        for instance in hosts:
            refused.pop(instance["InstanceId"])
            try:
                group_of[instance["InstanceId"]] = host_group(instance, tagged)
            except ValueError as error:
                refused[instance["InstanceId"]] = str(error)
        if not is_whole and not tagged.issuperset(group_of.values()):
            described = await self._groups(with_tag=False)
        rules = {
            group["GroupId"]: rules_of(group.get("IpPermissions") or ()) for group in described
        }
        is_known = not refused
        theirs = {group["GroupId"] for group in described if self._tags.is_anothers(tags_of(group))}
        new = {id_ for id_ in group_of.values() if _is_new(access, rules.get(id_, frozenset()))}
        strange = await self._residents.strangers(hosts) if new - tagged - theirs else {}
        unfit = {
            **_of_strangers(group_of, new - tagged, strange),
            **{
                instance: f"its security group {id_} is another cluster's: tag it {self._tags.key}"
                for instance, id_ in group_of.items()
                if id_ in theirs & new
            },
        }
        homes = {id_ for instance, id_ in group_of.items() if instance not in unfit}
        refused |= unfit
        concerned = {
            id_: observed
            for id_, observed in rules.items()
            if id_ in homes or (is_known and (id_ in tagged or access.is_marked(observed)))
        }
        return concerned, homes, refused

    async def _groups(self, *, with_tag: bool) -> list[Described]:
        """Return the groups of the VPC; if `with_tag`, those with the cluster's tag."""
        filters = [{"Name": "vpc-id", "Values": [self._vpc]}]
        if with_tag:
            keys = [self._tags.key, *([TAG_LEGACY] if self._tags.is_legacy else ())]
            filters.append({"Name": "tag-key", "Values": keys})
        return await self._api.pages(
            "ec2", "DescribeSecurityGroups", "SecurityGroups", Filters=filters
        )


def _of_strangers(
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


def _is_new(access: Access, observed: frozenset[Rule]) -> bool:
    """Tell whether a group lacks rules of a load balancer and has none yet that were made for it.

    Rules that were made for it before stay.
    """
    return (
        bool(access.change(observed, True).grant)  # noqa: FBT003
        and not access.is_marked(observed)
    )


async def apply_change(api: "Api", group: str, change: Change) -> None:
    """Change the rules of a group.

    Raises:
        CloudError: AWS does not answer, or refuses a rule.
    """

    async def call(operation: str, rules: Sequence[Rule]) -> None:
        await api.call("ec2", operation, GroupId=group, IpPermissions=permissions_of(rules))

    grant = partial(call, "AuthorizeSecurityGroupIngress")
    await change_rules(change, grant, partial(call, "RevokeSecurityGroupIngress"), _MEANINGS)


def _network_change(name: str, observed: frozenset[Rule], desired: frozenset[Rule]) -> Change:
    own = made_for(name, observed) - shared_health(name, observed)
    remaining = (observed - own) | desired
    idle = idle_mtu(observed, remaining) | idle_health(observed, remaining)
    return changed(observed, desired, own | idle)
