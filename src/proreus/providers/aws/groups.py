"""The security groups of hosts, and the rules in them that let load balancers in.

Groups are shared by all load balancers, so one change at a time is made to them; what is to be
changed is decided from rules that are read within the same turn.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from proreus.cloudprovider.firewalls import RuleRefusal, change_rules
from proreus.cloudprovider.load_balancers import PartChange
from proreus.cloudprovider.steps import nothing
from proreus.providers.aws.identity import (
    TAG_LEGACY,
    ClusterTags,
    Described,
    Place,
    owning_clusters,
    tags_of,
)
from proreus.providers.aws.memberships import Memberships
from proreus.providers.aws.rules import (
    HOST_RULE,
    Change,
    Rule,
    changed,
    idle_health,
    idle_mtu,
    made_for,
    of_hosts,
    permissions_of,
    rules_of,
    shared_health,
    told_rules,
)

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api

_MEANINGS: Final = {
    "InvalidPermission.Duplicate": RuleRefusal.DONE,
    "InvalidPermission.NotFound": RuleRefusal.DONE,
    "RulesPerSecurityGroupLimitExceeded": RuleRefusal.FULL,
}


def host_group(instance: Described, tagged: Collection[str]) -> str:
    """The group of an instance in which load balancers are let in. Pure.

    Args:
        instance: As EC2 describes it.
        tagged: Ids of the groups with the cluster's tag.

    Raises:
        ValueError: It cannot be told which; says why.
    """
    groups = [one["GroupId"] for one in instance.get("SecurityGroups") or ()]
    ours = [one for one in groups if one in tagged]
    if len(ours) == 1:
        return str(ours[0])
    if len(ours) > 1:
        raise ValueError(
            f"several of its security groups have the cluster's tag: {', '.join(ours)}"
        )
    if len(groups) == 1:
        return str(groups[0])
    raise ValueError(
        "it has several security groups, none with the cluster's tag"
        if groups
        else "it has no security group"
    )


class Access(msgspec.Struct, frozen=True):
    """How a load balancer is to reach its hosts, and no other instances.

    Attributes:
        instances: Ids of its hosts; none: all its rules are taken away.
        change: What to do to a group with such rules, in which there is a host, or none. Pure.
        is_marked: Tells rules by which a group without the cluster's tag is one to change: its
            hosts may have left it, or be gone. Pure.
    """

    instances: frozenset[str]
    change: Callable[[frozenset[Rule], bool], Change]
    is_marked: Callable[[frozenset[Rule]], bool]


def network_access(name: str, instances: Collection[str], want: frozenset[Rule]) -> Access:
    """For clients of a network load balancer. Pure.

    Args:
        name: The load balancer's.
        instances: Ids of its hosts.
        want: The rules that their groups need; see `rules.of_network`.
    """

    def change(have: frozenset[Rule], is_home: bool) -> Change:  # noqa: FBT001 - one caller
        return _network_change(name, have, want if is_home else frozenset())

    return Access(frozenset(instances), change, lambda have: bool(made_for(name, have)))


def classic_access(group: str, instances: Collection[str], *, is_own: bool) -> Access:
    """For a classic load balancer. Pure.

    Args:
        group: Its first security group.
        instances: Ids of its hosts.
        is_own: Whether the group was made for it. One that was given others may use, too, so
            nothing is taken from it before `HostGroups.forget_given`.
    """
    wanted = frozenset({of_hosts(group, "" if is_own else HOST_RULE)})
    ours: frozenset[Rule] = wanted if is_own else frozenset()

    def change(have: frozenset[Rule], is_home: bool) -> Change:  # noqa: FBT001 - one caller
        return changed(have, wanted if is_home else frozenset(), ours)

    return Access(frozenset(instances), change, lambda have: bool(have & ours))


class HostGroups:
    """Lets load balancers reach hosts."""

    def __init__(self, api: "Api", place: Place) -> None:
        """Speak through `api`."""
        self._api = api
        self._tags: ClusterTags = place.tags
        self._vpc = place.vpc
        self._turn = asyncio.Lock()
        self._memberships = Memberships(api)

    async def allow(
        self, access: Access, before: Callable[[], Awaitable[None]] = nothing
    ) -> Mapping[str, str]:
        """Change the groups as a load balancer needs it, in one turn.

        Args:
            access: What it needs.
            before: Called before the first change, if there is any.

        Returns:
            By instance id why one has no group for it.

        Raises:
            CloudError: AWS does not answer, or refuses a rule.
        """
        async with self._turn:
            changes, refused = await self.foresee(access)
            if changes:
                await before()
            await asyncio.gather(
                *(apply_change(self._api, id_, one) for id_, one in changes.items())
            )
        return refused

    async def foresee(self, access: Access) -> tuple[dict[str, Change], dict[str, str]]:
        """What `allow` would change, by the ids of groups, and what it would answer.

        Raises:
            CloudError: AWS does not answer.
        """
        groups, homes, refused = await self._look(access)
        changes = {id_: access.change(have, id_ in homes) for id_, have in groups.items()}
        return {id_: one for id_, one in changes.items() if one}, refused

    async def forget_own(self, group: str) -> None:
        """Take away every rule that names the group of a load balancer: it is to be deleted.

        Raises:
            CloudError: AWS does not answer, or refuses.
        """
        async with self._turn:
            await self._revoke(await self.naming({group}))

    async def forget_given(
        self, groups: Collection[str], used: Callable[[], Awaitable[Collection[str]]]
    ) -> None:
        """Take away what was made for groups that were given.

        Args:
            groups: Their ids.
            used: Tells which groups load balancers still have. It is asked within the turn, so
                that one which comes meanwhile lets its group in afterwards.

        Raises:
            CloudError: AWS does not answer, or refuses.
        """
        async with self._turn:
            if idle := set(groups) - set(await used()):
                await self._revoke(await self.naming(idle, HOST_RULE))

    async def naming(self, groups: Collection[str], description: str = "") -> dict[str, Change]:
        """How to take away the rules that name groups, by the groups in which they are.

        Args:
            groups: The ids of those that are named.
            description: Of the rules that count; "" for all.

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
            str(one["GroupId"]): Change(
                revoke=tuple(
                    rule
                    for rule in sorted(rules_of(one.get("IpPermissions") or ()))
                    if rule.source in groups and description in {"", rule.description}
                )
            )
            for one in found
        }

    async def _revoke(self, changes: Mapping[str, Change]) -> None:
        for group, change in changes.items():
            await apply_change(self._api, group, change)

    async def _look(
        self, access: Access
    ) -> tuple[dict[str, frozenset[Rule]], set[str], dict[str, str]]:
        """The rules of the groups to change, the hosts' groups, and who has none.

        All groups of the network are looked through where a host is in one without the cluster's
        tag, and where there is no host: nothing tells then in which groups hosts have been.
        """
        instances = access.instances
        is_whole = not instances or not self._tags.id
        described = await self._groups(with_tag=not is_whole)
        tagged = {one["GroupId"] for one in self._tags.mine(described)} if self._tags.id else set()
        group_of: dict[str, str] = {}
        refused: dict[str, str] = {}
        for one in await self._memberships.of(instances):
            try:
                group_of[one["InstanceId"]] = host_group(one, tagged)
            except ValueError as error:
                refused[one["InstanceId"]] = str(error)
        if not is_whole and not tagged.issuperset(group_of.values()):
            described = await self._groups(with_tag=False)
        rules = {one["GroupId"]: rules_of(one.get("IpPermissions") or ()) for one in described}
        theirs = {one["GroupId"] for one in described if self._is_anothers(one)}
        homes = {
            id_
            for id_ in group_of.values()
            if id_ not in theirs or not _is_new(access, rules.get(id_, frozenset()))
        }
        refused |= {
            instance: f"its security group {id_} is another cluster's: tag it {self._tags.key}"
            for instance, id_ in group_of.items()
            if id_ not in homes
        }
        concerned = {
            id_: have
            for id_, have in rules.items()
            if id_ in tagged or id_ in homes or access.is_marked(have)
        }
        return concerned, homes, refused

    def _is_anothers(self, group: Described) -> bool:
        tags = tags_of(group)
        return not self._tags.has(tags) and bool(owning_clusters(tags))

    async def _groups(self, *, with_tag: bool) -> list[Described]:
        """The groups of the network; if `with_tag`, those with a tag of the cluster's kind."""
        filters = [{"Name": "vpc-id", "Values": [self._vpc]}]
        if with_tag:
            keys = [self._tags.key, *([TAG_LEGACY] if self._tags.is_legacy else ())]
            filters.append({"Name": "tag-key", "Values": keys})
        return await self._api.pages(
            "ec2", "DescribeSecurityGroups", "SecurityGroups", Filters=filters
        )


def _is_new(access: Access, have: frozenset[Rule]) -> bool:
    """Tell whether a group lacks rules of a load balancer and has none yet that were made for it.

    What has been let in goes on being so.
    """
    return bool(access.change(have, True).grant) and not access.is_marked(have)  # noqa: FBT003


def told_changes(changes: Mapping[str, Change]) -> Iterator[PartChange]:
    """The lines about changes of groups, by their ids. Pure."""
    for group, change in changes.items():
        yield from told_rules(group, change)


async def apply_change(api: "Api", group: str, change: Change) -> None:
    """Change the rules of a group.

    Raises:
        CloudError: AWS does not answer, or refuses a rule.
    """

    async def call(operation: str, rules: Sequence[Rule]) -> None:
        await api.call("ec2", operation, GroupId=group, IpPermissions=permissions_of(rules))

    grant = partial(call, "AuthorizeSecurityGroupIngress")
    await change_rules(change, grant, partial(call, "RevokeSecurityGroupIngress"), _MEANINGS)


def _network_change(name: str, have: frozenset[Rule], want: frozenset[Rule]) -> Change:
    own = made_for(name, have) - shared_health(name, have)
    remaining = (have - own) | want
    idle = idle_mtu(have, remaining) | idle_health(have, remaining)
    return changed(have, want, own | idle)
