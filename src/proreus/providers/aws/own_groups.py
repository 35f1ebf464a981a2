"""Security groups that are made for one load balancer, and live and die with it.

Their names hold the Service's UID or a digest of it, and are unique in a VPC, so that a group which
an attempt left behind is found again.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.identity import MARK_CLUSTER_UID
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.refused import Refused
from proreus.providers.aws.groups import HostGroups, apply_change
from proreus.providers.aws.identity import tags_of
from proreus.providers.aws.rules import Change, Rule, changed, rules_of

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api

_DUPLICATE: Final = "InvalidGroup.Duplicate"
_GONE: Final = frozenset({"InvalidGroup.NotFound", "InvalidGroupId.NotFound"})
_IN_USE: Final = frozenset({"DependencyViolation", "InvalidGroup.InUse"})


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
            case ChangeRules(id_, change) if have is not None:
                await apply_change(self._api, id_, change)
                rules = (have.rules - set(change.revoke)) | set(change.grant)
                return msgspec.structs.replace(have, rules=rules)
            case TagGroup(id_, missing) if have is not None:
                await self._api.call("ec2", "CreateTags", Resources=[id_], Tags=_pairs(missing))
                return msgspec.structs.replace(have, tags={**have.tags, **missing})
        raise AssertionError(step)

    async def _create(self, wish: GroupWish, tags: Mapping[str, str]) -> Group:
        try:
            answer = await self._api.call(
                "ec2",
                "CreateSecurityGroup",
                GroupName=wish.name,
                Description=wish.description,
                VpcId=self._vpc,
                TagSpecifications=[{"ResourceType": "security-group", "Tags": _pairs(tags)}],
            )
        except Refused as error:
            # Made by an attempt whose answer was lost.
            found = await self._find(wish.name) if error.code == _DUPLICATE else None
            if found is None:
                raise
            return found
        return Group(answer["GroupId"], tags=tags)

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
        try:
            await self._api.call("ec2", "DeleteSecurityGroup", GroupId=group.id)
        except Refused as error:
            if error.code in _IN_USE:
                return f"the security group {group.id} is in use still"
            if error.code not in _GONE:
                raise
        return ""


def _pairs(values: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in values.items()]
