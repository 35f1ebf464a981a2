"""The security groups of hosts, and the rules in them that let load balancers in.

Groups are shared by all load balancers, so one change at a time is made to them; what is to be
changed is decided from rules that are read within the same turn.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from proreus.cloudprovider.refused import Refused
from proreus.providers.aws.identity import TAG_LEGACY, ClusterTags, Described, Place
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
)

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api

_HAS_ALREADY: Final = "InvalidPermission.Duplicate"
_HAD_NOT: Final = "InvalidPermission.NotFound"
_FULL: Final = "RulesPerSecurityGroupLimitExceeded"


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


class HostGroups:
    """Lets load balancers reach hosts."""

    def __init__(self, api: "Api", place: Place) -> None:
        """Speak through `api`."""
        self._api = api
        self._tags: ClusterTags = place.tags
        self._vpc = place.vpc
        self._turn = asyncio.Lock()
        self._memberships = Memberships(api)

    async def allow_network(
        self, name: str, instances: Collection[str], want: frozenset[Rule]
    ) -> Mapping[str, str]:
        """Let the clients of a network load balancer reach its hosts, and no other instances.

        Args:
            name: The load balancer's.
            instances: Ids of its hosts; none: all its rules are taken away.
            want: The rules that their groups need; see `rules.of_network`.

        Returns:
            By instance id why one has no group for it.

        Raises:
            CloudError: AWS does not answer, or refuses a rule.
        """

        def change(have: frozenset[Rule], is_home: bool) -> Change:  # noqa: FBT001 - one caller
            return _network_change(name, have, want if is_home else frozenset())

        return await self._allow(instances, change, lambda have: bool(made_for(name, have)))

    async def allow_classic(
        self, group: str, instances: Collection[str], *, is_own: bool
    ) -> Mapping[str, str]:
        """Let a classic load balancer reach its hosts.

        Args:
            group: Its first security group.
            instances: Ids of its hosts.
            is_own: Whether the group was made for it: then it reaches no other instances. One that
                was given others may use, too, so nothing is taken from it before `forget_given`.

        Returns:
            By instance id why one has no group for it.

        Raises:
            CloudError: AWS does not answer, or refuses a rule.
        """
        rule = of_hosts(group, "" if is_own else HOST_RULE)
        wanted: frozenset[Rule] = frozenset({rule})
        ours: frozenset[Rule] = wanted if is_own else frozenset()

        def change(have: frozenset[Rule], is_home: bool) -> Change:  # noqa: FBT001 - one caller
            return changed(have, wanted if is_home else frozenset(), ours)

        return await self._allow(instances, change, lambda have: bool(have & ours))

    async def forget_own(self, group: str) -> None:
        """Take away every rule that names the group of a load balancer: it is to be deleted.

        Raises:
            CloudError: AWS does not answer, or refuses.
        """
        async with self._turn:
            await self._revoke({group}, lambda _: True)

    async def forget_given(
        self, groups: Collection[str], used: Callable[[], Awaitable[Collection[str]]]
    ) -> None:
        """Take away what `allow_classic` has made for groups that were given.

        Args:
            groups: Their ids.
            used: Tells which groups load balancers still have. It is asked within the turn, so
                that one which comes meanwhile lets its group in afterwards.

        Raises:
            CloudError: AWS does not answer, or refuses.
        """
        async with self._turn:
            if idle := set(groups) - set(await used()):
                await self._revoke(idle, lambda rule: rule.description == HOST_RULE)

    async def _revoke(self, groups: Collection[str], is_ours: Callable[[Rule], bool]) -> None:
        found = await self._api.pages(
            "ec2",
            "DescribeSecurityGroups",
            "SecurityGroups",
            Filters=[
                {"Name": "vpc-id", "Values": [self._vpc]},
                {"Name": "ip-permission.group-id", "Values": sorted(groups)},
            ],
        )
        for one in found:
            rules = (
                rule
                for rule in sorted(rules_of(one.get("IpPermissions") or ()))
                if rule.source in groups and is_ours(rule)
            )
            await apply_change(self._api, one["GroupId"], Change(revoke=tuple(rules)))

    async def _allow(
        self,
        instances: Collection[str],
        change: Callable[[frozenset[Rule], bool], Change],
        is_marked: Callable[[frozenset[Rule]], bool],
    ) -> Mapping[str, str]:
        """Change every group, told its rules and whether a host is in it, in one turn.

        `is_marked` tells rules by which a group without the cluster's tag is one to change: its
        hosts may have left it, or be gone.
        """
        async with self._turn:
            groups, homes, refused = await self._look(instances, is_marked)
            await asyncio.gather(
                *(
                    apply_change(self._api, id_, change(have, id_ in homes))
                    for id_, have in groups.items()
                )
            )
        return refused

    async def _look(
        self, instances: Collection[str], is_marked: Callable[[frozenset[Rule]], bool]
    ) -> tuple[dict[str, frozenset[Rule]], set[str], dict[str, str]]:
        """The rules of the groups to change, the hosts' groups, and who has none.

        All groups of the network are looked through where a host is in one without the cluster's
        tag, and where there is no host: nothing tells then in which groups hosts have been.
        """
        is_whole = not instances or not self._tags.id
        described = await self._groups(with_tag=not is_whole)
        tagged = {one["GroupId"] for one in self._tags.mine(described)} if self._tags.id else set()
        homes: set[str] = set()
        refused: dict[str, str] = {}
        for one in await self._memberships.of(instances):
            try:
                homes.add(host_group(one, tagged))
            except ValueError as error:
                refused[one["InstanceId"]] = str(error)
        if not is_whole and not homes <= tagged:
            described = await self._groups(with_tag=False)
        rules = {one["GroupId"]: rules_of(one.get("IpPermissions") or ()) for one in described}
        concerned = {
            id_: have
            for id_, have in rules.items()
            if id_ in tagged or id_ in homes or is_marked(have)
        }
        return concerned, homes, refused

    async def _groups(self, *, with_tag: bool) -> list[Described]:
        """The groups of the network; if `with_tag`, those with a tag of the cluster's kind."""
        filters = [{"Name": "vpc-id", "Values": [self._vpc]}]
        if with_tag:
            keys = [self._tags.key, *([TAG_LEGACY] if self._tags.is_legacy else ())]
            filters.append({"Name": "tag-key", "Values": keys})
        return await self._api.pages(
            "ec2", "DescribeSecurityGroups", "SecurityGroups", Filters=filters
        )


async def apply_change(api: "Api", group: str, change: Change) -> None:
    """Change the rules of a group.

    Grant first, so that nobody is locked out in between, unless there is no room for both.

    Raises:
        CloudError: AWS does not answer, or refuses a rule.
    """
    try:
        await _each(api, "AuthorizeSecurityGroupIngress", group, change.grant, _HAS_ALREADY)
    except Refused as error:
        if error.code != _FULL or not change.revoke:
            raise
        await _each(api, "RevokeSecurityGroupIngress", group, change.revoke, _HAD_NOT)
        await _each(api, "AuthorizeSecurityGroupIngress", group, change.grant, _HAS_ALREADY)
    else:
        await _each(api, "RevokeSecurityGroupIngress", group, change.revoke, _HAD_NOT)


async def _each(
    api: "Api", operation: str, group: str, rules: tuple[Rule, ...], done_already: str
) -> None:
    """In one call; one by one if somebody else has done some of it."""
    if not rules:
        return
    try:
        await api.call("ec2", operation, GroupId=group, IpPermissions=permissions_of(rules))
    except Refused as error:
        if error.code != done_already:
            raise
        for rule in rules if len(rules) > 1 else ():
            await _each(api, operation, group, (rule,), done_already)


def _network_change(name: str, have: frozenset[Rule], want: frozenset[Rule]) -> Change:
    own = made_for(name, have) - shared_health(name, have)
    remaining = (have - own) | want
    idle = idle_mtu(have, remaining) | idle_health(have, remaining)
    return changed(have, want, own | idle)
