"""Change the rules in the security groups of hosts that let load balancers in.

Groups are shared by all load balancers, so one change at a time is made to them; what is to be
changed is decided from rules that are read within the same turn.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from proreus.cloudprovider.firewalls import RuleRefusal, change_rules
from proreus.cloudprovider.load_balancers import PartChange
from proreus.cloudprovider.steps import nothing
from proreus.cloudprovider.waits import Twice
from proreus.providers.aws.access import Access, host_group, is_new, of_strangers
from proreus.providers.aws.heirs import Heirs, find_heirs, given_to, hand_over, heirs_part_changes
from proreus.providers.aws.identity import TAG_LEGACY, ClusterTags, Described, Place, tags_of
from proreus.providers.aws.memberships import Memberships
from proreus.providers.aws.residents import Residents
from proreus.providers.aws.rules import (
    HOST_RULE,
    Change,
    Rule,
    in_doubt,
    node_ports_beside,
    of_hosts,
    permissions_of,
    rules_of,
    rules_part_changes,
    sparing,
)

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api

_MEANINGS: Final = {
    "InvalidPermission.Duplicate": RuleRefusal.DONE,
    "InvalidPermission.NotFound": RuleRefusal.DONE,
    "RulesPerSecurityGroupLimitExceeded": RuleRefusal.FULL,
}


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
            changes, heirs, refused = await self._decide(access)
            if changes or heirs:
                await before()
            await hand_over(self._api, heirs)
            await asyncio.gather(
                *(apply_change(self._api, id_, change) for id_, change in changes.items())
            )
        return refused

    async def preview(self, access: Access) -> list[PartChange]:
        """Return what `allow` would change.

        Raises:
            CloudError: AWS does not answer.
        """
        changes, heirs, _ = await self._decide(access)
        return [*rules_part_changes(changes), *heirs_part_changes(heirs)]

    async def _decide(self, access: Access) -> tuple[dict[str, Change], Heirs, dict[str, str]]:
        """Return the changes by group, which rules are handed over, and what `allow` returns."""
        groups, homes, refused = await self._read_groups(access)

        def compare() -> dict[str, Change]:
            return {id_: access.change(now, id_ in homes) for id_, now in groups.items()}

        changes = compare()
        left = {id_: (groups[id_], change.revoke) for id_, change in changes.items()}
        every = self._services.all()
        heirs = await find_heirs(
            self._api, self._vpc, self._memberships, access.name, left, services=every
        )
        if heirs:
            groups |= {id_: given_to(handed, groups[id_]) for id_, handed in heirs.items()}
            changes = compare()
        doubtful = frozenset[str]().union(*(in_doubt(one.revoke) for one in changes.values()))
        if doubtful and access.living is not None:
            living = await access.living(doubtful - {"", access.name})
            theirs = node_ports_beside(access.name, every)
            changes = {
                id_: sparing(access.name, groups[id_], change, living, theirs)
                for id_, change in changes.items()
            }
        return {id_: change for id_, change in changes.items() if change}, heirs, refused

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
        new = {id_ for id_ in group_of.values() if is_new(access, rules.get(id_, frozenset()))}
        strange = await self._residents.strangers(hosts) if new - tagged - theirs else {}
        unfit = {
            **of_strangers(group_of, new - tagged, strange),
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


async def apply_change(api: "Api", group: str, change: Change) -> None:
    """Change the rules of a group.

    Raises:
        CloudError: AWS does not answer, or refuses a rule.
    """

    async def call(operation: str, rules: Sequence[Rule]) -> None:
        await api.call("ec2", operation, GroupId=group, IpPermissions=permissions_of(rules))

    grant = partial(call, "AuthorizeSecurityGroupIngress")
    await change_rules(change, grant, partial(call, "RevokeSecurityGroupIngress"), _MEANINGS)
