"""Make and delete the security groups that are made for one load balancer.

Their names hold the Service's UID or a digest of it, and are unique in a VPC, so that a group which
an attempt left behind is found again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.firewalls import RuleRefusal, delete_group
from proreus.cloudprovider.identity import MARK_CLUSTER_UID
from proreus.cloudprovider.load_balancers import LoadBalancerRef, PartChange
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.steps import PlannedCall
from proreus.cloudprovider.waits import Twice
from proreus.providers.aws.calls import Call, missing, send
from proreus.providers.aws.errors import LacksRight
from proreus.providers.aws.groups import HostGroups, apply_change
from proreus.providers.aws.identity import TAG_CLUSTER, Place, pairs_of, tags_of
from proreus.providers.aws.rules import (
    Change,
    Rule,
    changed,
    rule_part_changes,
    rules_of,
    rules_part_changes,
)

if TYPE_CHECKING:
    from proreus.providers.aws.api import Api

Observed = TypeVar("Observed", bound=msgspec.Struct)

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


class RuleChange(msgspec.Struct, frozen=True):
    """The calls that change the rules of a group."""

    group: str
    change: Change


GroupStep = PlannedCall[Call | RuleChange, Any]
"""A step to the security group in the field `group` of what is observed of a load balancer."""


def group_steps(
    desired: DesiredGroup | None, tags: Mapping[str, str], observed: Group | None
) -> Iterator[GroupStep]:
    """Return the steps that make the group as desired; one to be made has no id yet. Pure."""
    if desired is None:
        return
    if observed is None:
        new = Group(f"new {desired.name}", tags=tags)
        parameters = {
            "GroupName": desired.name,
            "Description": desired.description,
            "TagSpecifications": [{"ResourceType": "security-group", "Tags": pairs_of(tags)}],
        }
        line = PartChange("create", f"security group {desired.name}")
        call = Call("ec2", "CreateSecurityGroup", parameters)
        yield GroupStep(call, lambda before: with_group(before, new), (line,))
        return
    if change := changed(observed.rules, desired.rules, observed.rules):
        rules = (observed.rules - set(change.revoke)) | set(change.grant)
        lines = tuple(rule_part_changes(observed.id, change))
        yield GroupStep(RuleChange(observed.id, change), _having(rules=rules), lines)
    if lacking := missing(tags, observed.tags):
        parameters = {"Resources": [observed.id], "Tags": pairs_of(lacking)}
        detail = f"tags {' '.join(sorted(lacking))}"
        yield GroupStep(
            Call("ec2", "CreateTags", parameters),
            _having(tags={**observed.tags, **lacking}),
            (PartChange("change", f"security group {observed.id}", detail),),
        )


def with_group(before: Observed, group: Group) -> Observed:
    """Return the observed state of a load balancer with this group of its own. Pure."""
    return msgspec.structs.replace(before, group=group)


def _having(**fields: object) -> Callable[[Any], Any]:
    """Return the effect of a step: the load balancer's own group gets these fields."""
    return lambda before: with_group(before, msgspec.structs.replace(before.group, **fields))


async def users_of_groups(api: "Api", beside: str) -> Mapping[str, Sequence[str]]:
    """Return the names of all classic load balancers but one, by their security groups.

    Those of other kinds reach hosts without rules that name a group.

    Raises:
        CloudError: AWS does not answer.
    """
    users: dict[str, list[str]] = {}
    for one in await api.pages("elb", "DescribeLoadBalancers", "LoadBalancerDescriptions"):
        if one["LoadBalancerName"] != beside:
            for group in one.get("SecurityGroups") or ():
                users.setdefault(group, []).append(str(one["LoadBalancerName"]))
    return users


class OwnGroups:
    """The calls that find, make and delete such groups."""

    def __init__(self, api: "Api", place: Place, *, confirm: float) -> None:
        """Keep the client of AWS, and the place in which groups are made.

        `confirm` is the provider's.
        """
        self._api = api
        self._vpc = place.vpc
        self._tags = place.tags
        self._unused = Twice(confirm)

    async def find(self, name: str, ref: LoadBalancerRef) -> Group | None:
        """Return the group of that name; None if there is none.

        The group's name is proof that it was made for the Service, unless a tag names another
        cluster: one of the two clusters is a copy of the other.

        Raises:
            CloudError: AWS does not answer, or the group was made for another cluster.
        """
        return self._made_for(ref.cluster.uid, name, await self._find(name))

    def _made_for(self, cluster_uid: str, name: str, group: Group | None) -> Group | None:
        """Return the group of that name unless it was made for another cluster. Pure.

        Raises:
            CloudError: It was.
        """
        tags = group.tags if group is not None else {}
        is_marked = tags.get(MARK_CLUSTER_UID, cluster_uid) != cluster_uid
        if group is None or not (is_marked or self._tags.is_anothers(tags)):
            return group
        raise CloudError(
            f"the security group {group.id} has the name for this Service, {name}, but a tag"
            f" ({MARK_CLUSTER_UID} or {TAG_CLUSTER}…) names another cluster: delete the group if"
            " that cluster is gone, or else let the clusters use VPCs of their own"
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

    async def take(self, step: GroupStep) -> Callable[[Any], Any]:
        """Take a step; return how it changes what was observed.

        Raises:
            CloudError: AWS refuses.
        """
        call = step.call
        if isinstance(call, RuleChange):
            await apply_change(self._api, call.group, call.change)
        elif call.operation == "CreateSecurityGroup":
            group = await self._create(call.parameters)
            return lambda before: with_group(before, group)
        else:
            await send(self._api, call)
        return step.after

    async def _create(self, parameters: Mapping[str, Any]) -> Group:
        tags = tags_of(parameters["TagSpecifications"][0])
        try:
            answer = await self._api.call(
                "ec2", "CreateSecurityGroup", VpcId=self._vpc, **parameters
            )
        except Refused as error:
            # Made by an attempt whose answer was lost, or by a copy of this cluster.
            name = parameters["GroupName"]
            found = await self._find(name) if error.code == _DUPLICATE else None
            if found is None:
                raise
            self._made_for(tags.get(MARK_CLUSTER_UID, ""), name, found)
            return found
        return Group(answer["GroupId"], tags=tags)

    async def foresee_let_go(
        self, group: Group | None, hosts: HostGroups | None, beside: str
    ) -> tuple[PartChange, ...]:
        """Return what `let_go` would delete.

        Raises:
            CloudError: AWS does not answer.
        """
        if group is None or (hosts and await self._others(group.id, beside)):
            return ()
        naming = await hosts.naming({group.id}) if hosts is not None else {}
        return (*rules_part_changes(naming), PartChange("delete", f"security group {group.id}"))

    async def let_go(self, group: Group | None, hosts: HostGroups | None, beside: str) -> str:
        """Delete a group that no load balancer needs any more, and the rules that name it.

        Args:
            group: The group to delete, or None.
            hosts: The groups of the hosts; None to leave their rules alone.
            beside: The name of the load balancer that the group was made for.

        Returns:
            The reason to wait: a load balancer that is being deleted uses the group for a while. ""
                if there is none.

        Raises:
            CloudError: AWS refuses for another reason.
        """
        if group is None:
            return ""
        if hosts is not None:
            # What else has the group needs the rules that let it in, whoever made them.
            if others := await self._others(group.id, beside):
                self._unused.is_sure(group.id, is_so=False)
                return f"the security group {group.id} is in use by {', '.join(others)}, too"
            # A list may lack what has it, and nobody makes others' rules anew.
            is_unused = partial(self._unused.is_sure, group.id, is_so=True)
            if not await hosts.forget_own(group.id, is_unused):
                return f"whether others use security group {group.id} is looked up once more"
            self._unused.is_sure(group.id, is_so=False)
        delete = partial(self._api.call, "ec2", "DeleteSecurityGroup", GroupId=group.id)
        return await delete_group(delete, _MEANINGS, f"the security group {group.id}")

    async def _others(self, group: str, beside: str) -> Sequence[str]:
        """Return what else has a group: load balancers by name, or network interfaces by id.

        Interfaces of the load balancer itself, which descriptions tell, go a little later.
        """
        if names := (await users_of_groups(self._api, beside)).get(group):
            return names
        filters = [{"Name": "group-id", "Values": [group]}]
        try:
            found = await self._api.pages(
                "ec2", "DescribeNetworkInterfaces", "NetworkInterfaces", Filters=filters
            )
        except LacksRight:
            return ()  # the official manager needs no such right
        own = (f"ELB {beside}", f"ELB net/{beside}/")
        return [
            str(one["NetworkInterfaceId"])
            for one in found
            if not f"{one.get('Description') or ''}".startswith(own)
        ]
