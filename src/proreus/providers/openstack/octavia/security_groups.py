"""Make, change and delete the security group of each Service (`manage-security-groups`).

Neutron lets two groups have one name, so a group is always looked for before one is made, and of
two the older stays.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.firewalls import RuleRefusal, change_rules, delete_group
from proreus.cloudprovider.identity import ClusterIdentity, OwnedObject
from proreus.cloudprovider.load_balancers import LoadBalancer, LoadBalancerRef, PartChange, Pending
from proreus.cloudprovider.mark_forms import owned_object
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.steps import nothing
from proreus.providers.nova.machines import Described, id_of
from proreus.providers.nova.services import Parameters
from proreus.providers.openstack.api import Api
from proreus.providers.openstack.config import LoadBalancer as Settings
from proreus.providers.openstack.hops import revision_of
from proreus.providers.openstack.names import foreign_project
from proreus.providers.openstack.octavia import owners
from proreus.providers.openstack.octavia.group_rules import (
    PREFIX,
    GroupWork,
    PortChange,
    Rule,
    RuleChange,
    Spot,
    changed_ports,
    changed_rules,
    description_of,
    desired_rules,
    document,
    name_of,
    part_changes,
    spots,
    tags_of,
    unreached,
)
from proreus.providers.openstack.reading import Reader

log = logging.getLogger(__name__)

_SOON: Final = 1.0
_LATER: Final = 30.0
_AT_ONCE: Final = 10
_BAD_REQUEST: Final = 400
_CHANGED: Final = 412
_MEANINGS: Final = {
    "SecurityGroupRuleExists": RuleRefusal.DONE,
    "SecurityGroupInUse": RuleRefusal.IN_USE,
}
_GROUPS: Final = ("security_groups",)
_NEW: Final = "new"
"""The id of a group that is not made yet."""


class SecurityGroups:
    """The security groups of Services."""

    def __init__(self, api: Api, reader: Reader, settings: Settings) -> None:
        """Keep the client of Neutron, and the section [LoadBalancer]."""
        self._api = api
        self._reader = reader
        self._settings = settings
        self._cidrs: dict[str, str] = {}
        self._left: set[str] | None = None
        self._left_lock = asyncio.Lock()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def ensure(
        self,
        lb: LoadBalancer,
        subnets: Mapping[str, str],
        before: Callable[[], Awaitable[None]] = nothing,
    ) -> Pending | None:
        """Let the load balancers reach the nodes; delete the group if it should not be managed.

        Args:
            lb: The desired load balancer, as the framework describes it.
            subnets: The member subnets by family.
            before: Called before the first change, if there is any.

        Raises:
            InvalidRequest: A subnet of members is not known.
            CloudError: Neutron refuses, or does not answer.
        """
        if not self._settings.manage_security_groups:
            return await self._forget(lb.ref, before)
        found = await self._found(lb.ref)
        rules = await self._desired_rules(lb, subnets)
        if len(found) != 1:
            await before()
        group, *twins = found or [await self._make(lb.ref)]
        for twin in twins:
            if (pending := await self._drop(twin)) is not None:
                return pending
        work = await self._work(lb, subnets, group, rules)
        if work:
            await before()
        await self._tag(group, work.tags)
        pending = await self._set_rules(id_of(group), work.rules)
        doubt = Pending(_LATER, work.doubt) if work.doubt else None
        return await self._set_ports(work.ports) or pending or doubt

    async def foresee(self, lb: LoadBalancer, subnets: Mapping[str, str]) -> list[PartChange]:
        """Return what `ensure` would change.

        Raises:
            InvalidRequest: A subnet of members is not known.
            CloudError: Neutron does not answer.
        """
        if not self._settings.manage_security_groups:
            found = await self._found(lb.ref) if name_of(lb.ref) in await self._leftover() else []
            return [PartChange("delete", f"security group {id_of(one)}") for one in found]
        found = await self._found(lb.ref)
        rules = await self._desired_rules(lb, subnets)
        changes = [PartChange("delete", f"security group {id_of(one)}") for one in found[1:]]
        if not found:
            changes.append(PartChange("create", f"security group {name_of(lb.ref)}"))
        return [
            *changes,
            *part_changes(await self._work(lb, subnets, found[0] if found else None, rules)),
        ]

    async def _desired_rules(self, lb: LoadBalancer, subnets: Mapping[str, str]) -> frozenset[Rule]:
        """Return the rules that the Service needs."""
        if not all(subnets.values()):
            raise InvalidRequest(
                "manage-security-groups needs to know the subnet of the nodes: give"
                " member-subnet-id in [LoadBalancer] of the cloud-config"
            )
        cidrs = {family: await self._cidr(subnet) for family, subnet in subnets.items()}
        return desired_rules(lb, cidrs, self._settings.lb_provider)

    async def _work(
        self,
        lb: LoadBalancer,
        subnets: Mapping[str, str],
        group: Described | None,
        rules: Collection[Rule],
    ) -> GroupWork:
        """Return what differs between a group and the desired one; None is one not yet made."""
        described = group or {}
        observed, tags = described.get("tags"), tags_of(lb.marks)
        id_ = id_of(group) if group is not None else ""
        ports, doubt = await self._ports(id_, spots(lb, subnets))
        return GroupWork(
            # Some Neutrons have no tags, and a new group gets them when it is there.
            () if observed is None or set(tags) <= set(observed) else tags,
            changed_rules(rules, described.get("security_group_rules") or ()),
            tuple(ports),
            doubt,
        )

    async def remove(self, ref: LoadBalancerRef) -> Pending | None:
        """Delete the Service's group, whether groups are managed now or not.

        Raises:
            CloudError: Neutron refuses, or does not answer.
        """
        for group in await self._found(ref):
            if (pending := await self._drop(group)) is not None:
                return pending
        return None

    async def owned(self, cluster: ClusterIdentity) -> list[OwnedObject]:
        """Return the groups with the cluster's tag; none where Neutron has no tags.

        Raises:
            CloudError: Neutron does not answer.
        """
        tag = owners.cluster_tag(cluster.uid)
        try:
            fields = ("id", "name", "tags", "project_id")
            found = await self._here({"tags": tag, "fields": fields})
        except Refused as error:
            if error.status == _BAD_REQUEST:
                return []
            raise
        return [
            owned_object("security group", id_of(group), owners.TAGS.read(owners.tags_of(group)))
            for group in found
            if tag in owners.tags_of(group)
        ]

    async def _forget(
        self, ref: LoadBalancerRef, before: Callable[[], Awaitable[None]]
    ) -> Pending | None:
        """Delete the Service's group that is left from a time when groups were managed.

        The first call lists which Services have one.
        """
        left = await self._leftover()
        if name_of(ref) not in left:
            return None
        await before()
        if (pending := await self.remove(ref)) is not None:
            return pending
        left.discard(name_of(ref))
        return None

    async def _leftover(self) -> set[str]:
        """Return the names of Services' groups that existed at the first call."""
        async with self._left_lock:
            if self._left is None:
                found = await self._listed({"fields": ("id", "name")})
                names = (str(group["name"]) for group in found)
                self._left = {name for name in names if name.startswith(PREFIX)}
        return self._left

    async def _found(self, ref: LoadBalancerRef) -> list[Described]:
        """Return the groups of the Service's name with their rules, the oldest first.

        A cluster that was restored from a backup has Services of the same uids: what has another
        cluster's tag, or is another project's, is not ours.
        """
        named = await self._here({"name": name_of(ref)})
        ours = (group for group in named if not owners.is_of_another_cluster(group, ref.cluster))
        return sorted(ours, key=lambda group: (str(group.get("created_at")), id_of(group)))

    async def _here(self, parameters: Parameters) -> list[Described]:
        """Return those groups that are of the credentials' project."""
        found, project = await self._listed(parameters), await self._api.project()
        return [group for group in found if not foreign_project(group, project)]

    async def _listed(self, parameters: Parameters) -> list[Described]:
        try:
            return await self._api.listed(
                "neutron", "security_group_list", "security-groups", "security_groups", parameters
            )
        except Refused as error:
            # A Neutron without security groups answers with this text; a proxy with another.
            if error.is_absence and "resource could not be found" in str(error):
                return []
            raise

    async def _make(self, ref: LoadBalancerRef) -> Described:
        body = {"security_group": {"name": name_of(ref), "description": description_of(ref)}}
        answer = await self._api.change(
            "neutron", "security_group_create", "POST", "security-groups", body
        )
        made: Described = answer["security_group"]
        return made

    async def _tag(self, group: Described, tags: Collection[str]) -> None:
        if tags:
            await self._api.change(
                "neutron",
                "security_group_tag_replace",
                "PUT",
                f"security-groups/{id_of(group)}/tags",
                {"tags": sorted({*group["tags"], *tags})},
            )

    async def _set_rules(self, group: str, change: RuleChange) -> Pending | None:
        async def grant(rules: Sequence[Rule]) -> None:
            body = {"security_group_rules": [document(rule, group) for rule in rules]}
            await self._api.change(
                "neutron", "security_group_rule_create", "POST", "security-group-rules", body
            )

        async def revoke(ids: Sequence[str]) -> None:
            for id_ in ids:
                await self._api.delete(
                    "neutron", "security_group_rule_delete", f"security-group-rules/{id_}"
                )

        if await change_rules(change, grant, revoke, _MEANINGS):
            return None
        return Pending(
            _SOON, f"somebody else has changed rules of security group {group}; it is read again"
        )

    async def _ports(self, group: str, desired: Collection[Spot]) -> tuple[list[PortChange], str]:
        """Return the ports that should get or lose a group, and why some are looked at again.

        "" stands for a group not yet made.
        """
        attached = await self._reader.ports(*_GROUPS, [group], more=_GROUPS) if group else []
        servers = unreached(desired, attached)
        candidates = await self._reader.ports("device_id", servers, more=_GROUPS)
        strange = {
            **await self._reader.unlike(candidates),
            **await self._reader.strange(candidates),
        }
        for id_, why in strange.items():
            log.warning("Port %s of a Node's server gets no security group: %s", id_, why)
        doubts = (str(why) for why in strange.values() if isinstance(why, CloudError))
        candidates = [port for port in candidates if id_of(port) not in strange]
        return changed_ports(desired, attached, candidates, group or _NEW), next(doubts, "")

    async def _set_ports(self, changes: Collection[PortChange]) -> Pending | None:
        results = await asyncio.gather(*(self._set_groups(change) for change in changes))
        for error in (result for result in results if isinstance(result, CloudError)):
            raise error
        return next((result for result in results if isinstance(result, Pending)), None)

    async def _set_groups(self, change: PortChange) -> Pending | CloudError | None:
        """Change the groups of a port, unless somebody else has changed it meanwhile."""
        id_ = id_of(change.port)
        body = {"port": {"security_groups": list(change.groups)}}
        revision = revision_of(change.port)
        try:
            async with self._slots:
                await self._api.change(
                    "neutron", "port_update", "PUT", f"ports/{id_}", body, revision=revision
                )
        except Refused as error:
            if error.status == _CHANGED:
                return Pending(_SOON, f"somebody else has changed port {id_}; it is read again")
            return None if error.is_absence else error
        except CloudError as error:
            return error
        return None

    async def _drop(self, group: Described) -> Pending | None:
        changes, _ = await self._ports(id_of(group), ())
        if (pending := await self._set_ports(changes)) is not None:
            return pending
        delete = partial(
            self._api.delete, "neutron", "security_group_delete", f"security-groups/{id_of(group)}"
        )
        left = await delete_group(delete, _MEANINGS, f"security group {id_of(group)}")
        return Pending(_SOON, left) if left else None

    async def _cidr(self, subnet: str) -> str:
        if subnet not in self._cidrs:
            found = await self._api.get("neutron", "subnet_get", f"subnets/{subnet}", "subnet")
            self._cidrs[subnet] = str(found["cidr"])
        return self._cidrs[subnet]
