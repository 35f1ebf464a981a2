"""Security groups that are made for one load balancer, and live and die with it.

Their names hold the Service's UID or a digest of it, and are unique in a VPC, so that a group which
an attempt left behind is found again.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.firewalls import RuleRefusal, delete_group
from proreus.cloudprovider.identity import MARK_CLUSTER_UID
from proreus.cloudprovider.load_balancers import LoadBalancerRef, PartChange
from proreus.cloudprovider.refused import Refused
from proreus.providers.aws.groups import HostGroups, apply_change, told_changes
from proreus.providers.aws.identity import pairs_of, tags_of
from proreus.providers.aws.rules import Change, Rule, changed, rules_of, told_rules

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api

_DUPLICATE: Final = "InvalidGroup.Duplicate"
_MEANINGS: Final = {
    **dict.fromkeys(("InvalidGroup.NotFound", "InvalidGroupId.NotFound"), RuleRefusal.DONE),
    **dict.fromkeys(("DependencyViolation", "InvalidGroup.InUse"), RuleRefusal.IN_USE),
}


class GroupWish(msgspec.Struct, frozen=True):
    """The group that there is to be, with all rules that it is to have."""

    name: str
    description: str
    rules: frozenset[Rule]


class Group(msgspec.Struct, frozen=True):
    """The group that there is."""

    id: str
    rules: frozenset[Rule] = frozenset()
    tags: Mapping[str, str] = {}


class CreateGroup(msgspec.Struct, frozen=True):
    """Make the group, still without rules."""


class ChangeRules(msgspec.Struct, frozen=True):
    """Change the rules of the group."""

    group: str
    change: Change


class TagGroup(msgspec.Struct, frozen=True):
    """Put tags on the group."""

    group: str
    tags: Mapping[str, str]


GroupStep = CreateGroup | ChangeRules | TagGroup


def group_steps(
    wish: GroupWish | None, tags: Mapping[str, str], have: Group | None
) -> Iterator[GroupStep]:
    """What is to be done so that the group becomes as wished. Pure."""
    if wish is None:
        return
    if have is None:
        yield CreateGroup()
        return
    if change := changed(have.rules, wish.rules, have.rules):
        yield ChangeRules(have.id, change)
    if missing := {key: value for key, value in tags.items() if have.tags.get(key) != value}:
        yield TagGroup(have.id, missing)


def pretend_group(
    have: Group | None, step: GroupStep, wish: GroupWish | None, tags: Mapping[str, str]
) -> Group | None:
    """The group after a step; a new one has no id yet, only its name. Pure."""
    match step:
        case CreateGroup() if wish is not None:
            return Group(f"new {wish.name}", tags=tags)
        case ChangeRules(_, change) if have is not None:
            rules = (have.rules - set(change.revoke)) | set(change.grant)
            return msgspec.structs.replace(have, rules=rules)
        case TagGroup(_, missing) if have is not None:
            return msgspec.structs.replace(have, tags={**have.tags, **missing})
    raise AssertionError(step)


def told_group(step: GroupStep, wish: GroupWish | None) -> Iterator[PartChange]:
    """The lines about a step. Pure."""
    match step:
        case CreateGroup():
            yield PartChange("create", f"security group {wish.name if wish is not None else ''}")
        case ChangeRules(id_, change):
            yield from told_rules(id_, change)
        case TagGroup(id_, tags):
            yield PartChange("change", f"security group {id_}", f"tags {' '.join(sorted(tags))}")


class OwnGroups:
    """Finds, makes and deletes such groups."""

    def __init__(self, api: "Api", vpc: str) -> None:
        """Speak through `api`; groups are made in `vpc`."""
        self._api = api
        self._vpc = vpc

    async def find(self, name: str, ref: LoadBalancerRef) -> Group | None:
        """The group of that name, if there is one.

        Its name is proof that it was made for the Service, unless a mark names another cluster, of
        which one is a copy.

        Raises:
            CloudError: AWS does not answer, or it was made for another cluster.
        """
        group = await self._find(name)
        if group is None or group.tags.get(MARK_CLUSTER_UID, ref.cluster.uid) == ref.cluster.uid:
            return group
        raise CloudError(f"the security group {name} has tags of another cluster: look at it")

    async def _find(self, name: str) -> Group | None:
        found = await self._api.pages(
            "ec2",
            "DescribeSecurityGroups",
            "SecurityGroups",
            Filters=[
                {"Name": "group-name", "Values": [name]},
                {"Name": "vpc-id", "Values": [self._vpc]},
            ],
        )
        for one in found:
            return Group(
                id=one["GroupId"],
                rules=rules_of(one.get("IpPermissions") or ()),
                tags=tags_of(one),
            )
        return None

    async def take(
        self, step: GroupStep, wish: GroupWish | None, tags: Mapping[str, str], have: Group | None
    ) -> Group | None:
        """Take a step; the group as it is then.

        Raises:
            CloudError: AWS refuses.
        """
        match step:
            case CreateGroup() if wish is not None:
                return await self._create(wish, tags)
            case ChangeRules(id_, change):
                await apply_change(self._api, id_, change)
            case TagGroup(id_, missing):
                await self._api.call("ec2", "CreateTags", Resources=[id_], Tags=pairs_of(missing))
        return pretend_group(have, step, wish, tags)

    async def _create(self, wish: GroupWish, tags: Mapping[str, str]) -> Group:
        try:
            answer = await self._api.call(
                "ec2",
                "CreateSecurityGroup",
                GroupName=wish.name,
                Description=wish.description,
                VpcId=self._vpc,
                TagSpecifications=[{"ResourceType": "security-group", "Tags": pairs_of(tags)}],
            )
        except Refused as error:
            # Made by an attempt whose answer was lost.
            found = await self._find(wish.name) if error.code == _DUPLICATE else None
            if found is None:
                raise
            return found
        return Group(answer["GroupId"], tags=tags)

    async def foresee_let_go(
        self, group: Group | None, hosts: HostGroups | None
    ) -> tuple[PartChange, ...]:
        """What `let_go` would delete.

        Raises:
            CloudError: AWS does not answer.
        """
        if group is None:
            return ()
        naming = await hosts.naming({group.id}) if hosts is not None else {}
        return (*told_changes(naming), PartChange("delete", f"security group {group.id}"))

    async def let_go(self, group: Group | None, hosts: HostGroups | None) -> str:
        """Delete a group that no load balancer needs any more, and the rules that name it.

        Args:
            group: The group, if there is one.
            hosts: The groups of hosts; None to leave them alone.

        Returns:
            What there is to wait for: a load balancer that goes uses it for a while. Or "".

        Raises:
            CloudError: AWS refuses for another reason.
        """
        if group is None:
            return ""
        if hosts is not None:
            await hosts.forget_own(group.id)
        delete = partial(self._api.call, "ec2", "DeleteSecurityGroup", GroupId=group.id)
        return await delete_group(delete, _MEANINGS, f"the security group {group.id}")
