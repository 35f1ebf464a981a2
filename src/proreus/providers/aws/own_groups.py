"""Makes and deletes the security groups that are made for one load balancer.

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
from proreus.providers.aws.groups import HostGroups, apply_change, rules_part_changes
from proreus.providers.aws.identity import pairs_of, tags_of
from proreus.providers.aws.rules import Change, Rule, changed, rule_part_changes, rules_of

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api

_DUPLICATE: Final = "InvalidGroup.Duplicate"
_MEANINGS: Final = {
    **dict.fromkeys(("InvalidGroup.NotFound", "InvalidGroupId.NotFound"), RuleRefusal.DONE),
    **dict.fromkeys(("DependencyViolation", "InvalidGroup.InUse"), RuleRefusal.IN_USE),
}


class DesiredGroup(msgspec.Struct, frozen=True):
    """A security group as it should be, with all its rules."""

    name: str
    description: str
    rules: frozenset[Rule]


class Group(msgspec.Struct, frozen=True):
    """A security group as it was observed."""

    id: str
    rules: frozenset[Rule] = frozenset()
    tags: Mapping[str, str] = {}


class CreateGroup(msgspec.Struct, frozen=True):
    """The step to make the group, still without rules."""


class ChangeRules(msgspec.Struct, frozen=True):
    """The step to change the rules of the group."""

    group: str
    change: Change


class TagGroup(msgspec.Struct, frozen=True):
    """The step to put tags on the group."""

    group: str
    tags: Mapping[str, str]


GroupStep = CreateGroup | ChangeRules | TagGroup


def group_steps(
    desired: DesiredGroup | None, tags: Mapping[str, str], observed: Group | None
) -> Iterator[GroupStep]:
    """Return the steps that make the group as desired. Pure."""
    if desired is None:
        return
    if observed is None:
        yield CreateGroup()
        return
    if change := changed(observed.rules, desired.rules, observed.rules):
        yield ChangeRules(observed.id, change)
    if missing := {key: value for key, value in tags.items() if observed.tags.get(key) != value}:
        yield TagGroup(observed.id, missing)


def pretend_group(
    observed: Group | None, step: GroupStep, desired: DesiredGroup | None, tags: Mapping[str, str]
) -> Group | None:
    """Return the group as it is after a step; a new one has no id yet, only its name. Pure."""
    match step:
        case CreateGroup() if desired is not None:
            return Group(f"new {desired.name}", tags=tags)
        case ChangeRules(_, change) if observed is not None:
            rules = (observed.rules - set(change.revoke)) | set(change.grant)
            return msgspec.structs.replace(observed, rules=rules)
        case TagGroup(_, missing) if observed is not None:
            return msgspec.structs.replace(observed, tags={**observed.tags, **missing})
    raise AssertionError(step)


def group_part_changes(step: GroupStep, desired: DesiredGroup | None) -> Iterator[PartChange]:
    """Return the changes of a step for `proreus plan`. Pure."""
    match step:
        case CreateGroup():
            yield PartChange(
                "create", f"security group {desired.name if desired is not None else ''}"
            )
        case ChangeRules(id_, change):
            yield from rule_part_changes(id_, change)
        case TagGroup(id_, tags):
            yield PartChange("change", f"security group {id_}", f"tags {' '.join(sorted(tags))}")


class OwnGroups:
    """The calls that find, make and delete such groups."""

    def __init__(self, api: "Api", vpc: str) -> None:
        """Keep how to call AWS, and the VPC in which groups are made."""
        self._api = api
        self._vpc = vpc

    async def find(self, name: str, ref: LoadBalancerRef) -> Group | None:
        """Return the group of that name; None if there is none.

        Its name is proof that it was made for the Service, unless a mark names another cluster:
        one of the two is a copy of the other.

        Raises:
            CloudError: AWS does not answer, or it was made for another cluster.
        """
        group = await self._find(name)
        if group is None or group.tags.get(MARK_CLUSTER_UID, ref.cluster.uid) == ref.cluster.uid:
            return group
        raise CloudError(
            f"the security group {group.id} has the name for this Service, {name}, but its tag"
            f" {MARK_CLUSTER_UID} names another cluster: delete the group if that cluster is gone,"
            " or else let the clusters use VPCs of their own"
        )

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
        for group in found:
            return Group(
                id=group["GroupId"],
                rules=rules_of(group.get("IpPermissions") or ()),
                tags=tags_of(group),
            )
        return None

    async def take(
        self,
        step: GroupStep,
        desired: DesiredGroup | None,
        tags: Mapping[str, str],
        observed: Group | None,
    ) -> Group | None:
        """Take a step; return the group as it is then.

        Raises:
            CloudError: AWS refuses.
        """
        match step:
            case CreateGroup() if desired is not None:
                return await self._create(desired, tags)
            case ChangeRules(id_, change):
                await apply_change(self._api, id_, change)
            case TagGroup(id_, missing):
                await self._api.call("ec2", "CreateTags", Resources=[id_], Tags=pairs_of(missing))
        return pretend_group(observed, step, desired, tags)

    async def _create(self, desired: DesiredGroup, tags: Mapping[str, str]) -> Group:
        try:
            answer = await self._api.call(
                "ec2",
                "CreateSecurityGroup",
                GroupName=desired.name,
                Description=desired.description,
                VpcId=self._vpc,
                TagSpecifications=[{"ResourceType": "security-group", "Tags": pairs_of(tags)}],
            )
        except Refused as error:
            # Made by an attempt whose answer was lost.
            found = await self._find(desired.name) if error.code == _DUPLICATE else None
            if found is None:
                raise
            return found
        return Group(answer["GroupId"], tags=tags)

    async def foresee_let_go(
        self, group: Group | None, hosts: HostGroups | None
    ) -> tuple[PartChange, ...]:
        """Return what `let_go` would delete.

        Raises:
            CloudError: AWS does not answer.
        """
        if group is None:
            return ()
        naming = await hosts.naming({group.id}) if hosts is not None else {}
        return (*rules_part_changes(naming), PartChange("delete", f"security group {group.id}"))

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
