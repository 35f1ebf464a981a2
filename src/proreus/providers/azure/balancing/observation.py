"""Observe the resources of load balancers, in as few calls as Azure has for it."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final

from proreus.cloudprovider.errors import CloudError, InvalidRequest, Unauthenticated
from proreus.cloudprovider.lookups import attempt
from proreus.cloudprovider.refused import Refused
from proreus.providers.azure import operations
from proreus.providers.azure.api import Arm, Resource
from proreus.providers.azure.balancing.addresses import user_elsewhere
from proreus.providers.azure.balancing.balancers import listed
from proreus.providers.azure.balancing.claims import shown_beside
from proreus.providers.azure.balancing.documents import named_id
from proreus.providers.azure.balancing.parts import Job, Scene, State
from proreus.providers.azure.config import PoolType
from proreus.providers.azure.ids import last, machine_id, resource_id
from proreus.providers.azure.machines import by_id, part, properties, set_of
from proreus.providers.azure.operations import Operation

_COMPUTE: Final = "/providers/Microsoft.Compute"
_NETWORK: Final = "/providers/Microsoft.Network"
IN_SET: Final = "/virtualmachinescalesets/"
"""What the id of a machine in a scale set of the mode Uniform has within, in small letters."""

MOST_ALONE: Final = 20
"""Machines, or addresses, that are asked for by themselves because a list lacks them."""
_MALFORMED: Final = frozenset({"InvalidResourceGroup", "InvalidSubscriptionId"})
"""Codes of what a place cannot be called."""
_OF_NO_SUBNET: Final = "PrivateIPAddressNotInAnySubnet"
"""The code of an address that nothing in the network can have."""


class Observer:
    """The reads of a pass over load balancers."""

    def __init__(self, arm: Arm, scene: Scene) -> None:
        """Keep the client of Azure."""
        self._arm = arm
        self._scene = scene
        self._refused: dict[str, str] = {}

    async def observe(self, jobs: Sequence[Job]) -> State:
        """Read all that a plan needs, in as few calls as Azure has for it.

        Raises:
            CloudError: A resource could not be read.
        """
        place = self._scene.place
        group_id = place.group_id()
        *balancers, group = await asyncio.gather(
            *(
                self._arm.find(operations.LOAD_BALANCER_GET, place.balancer_id(name))
                for name in place.balancers
            ),
            self._arm.find(operations.SECURITY_GROUP_GET, group_id) if group_id else _nothing(),
        )
        if group_id and group is None:
            raise CloudError(
                f"the security group {group_id} is not there: make it, or correct securityGroupName"
                " in the cloud-config"
            )
        pools = _configurations(balancers)
        addresses, nics, sets, vm_sets, links = await asyncio.gather(
            self._addresses(jobs, balancers),
            self._interfaces(jobs, pools),
            self._sets(jobs, pools),
            self._vm_sets(jobs),
            self._links(jobs),
        )
        elsewhere, taken = await self._elsewhere(jobs, addresses, balancers)
        return State(
            dict(zip(place.balancers, balancers, strict=True)),
            addresses,
            group,
            _members(pools, nics),
            {
                machine: one
                for one in nics.values()
                if (machine := str((part(one, "virtualMachine") or {}).get("id", "")).lower())
                and properties(one).get("primary", True)
            },
            sets,
            refused=self._refused,
            vm_sets=vm_sets,
            links=links,
            elsewhere=elsewhere,
            taken=taken,
        )

    async def _addresses(
        self, jobs: Iterable[Job], balancers: Iterable[Resource | None]
    ) -> dict[str, Resource]:
        """Read the public addresses of every resource group that may have one of the Services.

        An address that a frontend has is there: if a list lacks it, it is asked for by itself.
        """
        named = {self._scene.place.address_group(job.options).lower() for job in jobs}
        groups = {self._scene.place.config.resource_group.lower()}
        used = {
            named_id(one, "publicIPAddress")
            for balancer in balancers
            for one in listed(balancer, "frontendIPConfigurations")
        } - {""}
        groups |= {found.group for one in used if (found := resource_id(one))}
        subscription = self._scene.place.config.network_subscription
        lists = await self._in_groups(operations.PUBLIC_IP_LIST, groups, named)
        known = {id_: dict(one) for found in lists for id_, one in by_id(found).items()}
        here = f"/subscriptions/{subscription}/".lower()
        missing = sorted(id_ for id_ in used - known.keys() if id_.startswith(here))
        if len(missing) > MOST_ALONE:
            raise CloudError(
                f"Azure's lists lack {len(missing)} public IPs that load balancers have, such as"
                f" {missing[0]}: nothing is changed until they are whole"
            )
        return known | await self._each(operations.PUBLIC_IP_GET, missing)

    async def _elsewhere(
        self,
        jobs: Iterable[Job],
        known: Mapping[str, Resource],
        balancers: Iterable[Resource | None],
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Return the former addresses of Services that something else has, or may have, by now.

        The second are those that something in the network surely has.
        """
        frontends = (one for each in balancers for one in listed(each, "frontendIPConfigurations"))
        there = {part(one, "ipAddress") for one in known.values()}
        there |= {part(one, "privateIPAddress") for one in frontends}
        former = set[str]()
        for job in jobs:
            named = set(job.options.additional)
            if job.lb is None:
                former |= job.left | named
            else:
                # One that was its load balancer's is that still, though the Service names it.
                former |= job.before - (named & shown_beside(job.ref.last_ingress, job.lb.families))
        former -= {"", *there}
        public = {ip for ip in former if ip_address(ip).is_global}
        # A network may have addresses that are others' on the Internet.
        outside, answers = await asyncio.gather(self._public_elsewhere(public), self._asked(former))
        taken = frozenset(ip for ip in former if _is_taken(answers[ip]))
        unsure = frozenset(ip for ip in former - public if _may_be_taken(answers[ip]))
        return outside | unsure | taken, taken

    async def _asked(self, addresses: set[str]) -> dict[str, Resource | CloudError]:
        """Return what the network says of addresses: whether something has them."""
        asking = (
            attempt(
                self._arm.ask,
                operations.ADDRESS_CHECK,
                f"{self._scene.place.net_id()}/CheckIPAddressAvailability",
                {"ipAddress": ip},
            )
            for ip in addresses
        )
        return dict(zip(addresses, await asyncio.gather(*asking), strict=True))

    async def _public_elsewhere(self, shown: set[str]) -> frozenset[str]:
        """Return the addresses of former public IPs that something else has, or may have, by now.

        A Service names the resource group of such a one no more, so all groups are asked. Without
        the right to that nothing tells who has it.
        """
        place = self._scene.place
        if not shown:
            return frozenset()
        all_groups = f"/subscriptions/{place.config.network_subscription}{_NETWORK}"
        try:
            found = await self._arm.listed(
                operations.PUBLIC_IP_LIST, f"{all_groups}/publicIPAddresses"
            )
        except Unauthenticated:
            return frozenset(shown)
        used = (str(part(one, "ipAddress")) for one in found if user_elsewhere(one, place))
        return frozenset(shown.intersection(used))

    async def _interfaces(
        self, jobs: Sequence[Job], pools: Mapping[str, Sequence[str]]
    ) -> dict[str, Resource]:
        """Read the interfaces of machines that are in no scale set of the mode Uniform."""
        members = [one for found in pools.values() for one in found if IN_SET not in one]
        alone = [one for one in self._machines(jobs) if IN_SET not in one]
        if self._scene.place.config.pools is PoolType.NODE_IP and not members:
            return {}
        path = f"{_NETWORK}/networkInterfaces"
        lists = await self._of_groups(operations.NIC_LIST, path, members, alone)
        return {id_: dict(one) for found in lists for id_, one in by_id(found).items()}

    async def _sets(
        self, jobs: Sequence[Job], pools: Mapping[str, Sequence[str]]
    ) -> dict[str, Resource]:
        members = [one for found in pools.values() for one in found if IN_SET in one]
        inside = [one for one in self._machines(jobs) if IN_SET in one]
        if self._scene.place.config.pools is PoolType.NODE_IP and not members:
            return {}
        path = f"{_COMPUTE}/virtualMachineScaleSets"
        lists = await self._of_groups(operations.SCALE_SET_LIST, path, members, inside)
        return {id_: dict(one) for found in lists for id_, one in by_id(found).items()}

    async def _links(self, jobs: Sequence[Job]) -> dict[str, Resource]:
        """Read private link services, where Services of the cluster have any or one goes."""
        place = self._scene.place
        named = {job.options.link.group.lower() for job in jobs if job.options.link is not None}
        is_asked = bool(named or self._scene.has_links)
        if not is_asked and all(job.lb is not None for job in jobs):
            return {}
        groups = {place.link_group.lower()}
        try:
            lists = await self._in_groups(operations.LINK_LIST, groups, named - {""})
        except Unauthenticated:
            # A role from before this was read may lack the right.
            if is_asked:
                raise
            return {}
        return {id_: dict(one) for found in lists for id_, one in by_id(found).items()}

    async def _in_groups(
        self, operation: Operation, own: Collection[str], named: Collection[str]
    ) -> list[list[Resource]]:
        """Read a list of resource groups: the cluster's own, and those that annotations name.

        Raises:
            InvalidRequest: One that annotations alone name is not the credentials' to read.
            CloudError: A list could not be read.
        """
        subscription = self._scene.place.config.network_subscription
        head, kind = f"/subscriptions/{subscription}/resourceGroups", last(operation.kind)

        async def listed_(group: str) -> list[Resource]:
            try:
                return await self._arm.listed(operation, f"{head}/{group}{_NETWORK}/{kind}")
            except Unauthenticated as error:
                if group in own:
                    raise
                text = f"the resource group {group}, which an annotation names, cannot be read"
                raise InvalidRequest(f"{text}: {error}") from error

        return list(await asyncio.gather(*map(listed_, sorted({*own, *named}))))

    async def _vm_sets(self, jobs: Sequence[Job]) -> dict[str, str]:
        """Read the sets of machines whose ids do not name them, where they count.

        A machine that a list lacks is asked for by itself, unless there are many such.
        """
        if not self._scene.place.config.multiple_standard_load_balancer_configurations:
            return {}
        alone = {one for one in self._machines(jobs) if IN_SET not in one}
        lists = await self._of_groups(operations.VM_LIST, f"{_COMPUTE}/virtualMachines", (), alone)
        listed_ = {id_: one for found in lists for id_, one in by_id(found).items()}
        missing = sorted(alone - listed_.keys() - self._refused.keys())[:MOST_ALONE]
        known = listed_ | await self._each(operations.VM_GET, missing)
        return {id_: set_of(one) for id_, one in known.items()}

    async def _of_groups(
        self, operation: Operation, path: str, members: Iterable[str], hosts: Iterable[str]
    ) -> list[Sequence[Resource]]:
        """Read a list of each resource group that machines are in.

        A kubelet can name any group on its Node: one that nothing in a pool is in, and that Azure
        does not show, is left out, and with it the hosts that are said to be there.
        """
        needed, named = set(map(_group, members)), {one: _group(one) for one in hosts}
        config = self._scene.place.config
        own = f"/subscriptions/{config.subscription_id}/resourceGroups/{config.resource_group}"
        groups = sorted({*needed, *named.values()})
        lists = await asyncio.gather(
            *(attempt(self._arm.listed, operation, f"{group}{path}") for group in groups)
        )
        found: list[Sequence[Resource]] = []
        for group, one in zip(groups, lists, strict=True):
            if not isinstance(one, CloudError):
                found.append(one)
            elif group in {*needed, own.lower()} or not is_hidden(one):
                raise one
            else:
                self._refused |= {id_: str(one) for id_, of in named.items() if of == group}
        return found

    async def _each(self, operation: Operation, ids: Sequence[str]) -> dict[str, Resource]:
        """Ask for resources one by one; those that are not there are left out."""
        asked = await asyncio.gather(*(self._arm.find(operation, id_) for id_ in ids))
        return {id_: one for id_, one in zip(ids, asked, strict=True) if one}

    def _machines(self, jobs: Sequence[Job]) -> set[str]:
        hosts = (host for job in jobs if job.lb is not None for host in job.lb.hosts)
        found = (machine_id(host.provider_id) for host in hosts)
        return {one.resource for one in found if one is not None}


def _may_be_taken(answer: Resource | CloudError) -> bool:
    """Tell whether something may have an address, by Azure's answer about it.

    Without the right to ask nothing tells that.

    Raises:
        CloudError: Azure may tell soon.
    """
    if isinstance(answer, Refused):
        return answer.code != _OF_NO_SUBNET
    if isinstance(answer, CloudError) and not isinstance(answer, Unauthenticated):
        raise answer
    return isinstance(answer, CloudError) or answer.get("available") is not True


def _is_taken(answer: Resource | CloudError) -> bool:
    """Tell whether something surely has an address, by Azure's answer about it."""
    return not isinstance(answer, CloudError) and answer.get("available") is False


def _group(machine: str) -> str:
    return machine.partition("/providers/")[0]


def is_hidden(error: CloudError) -> bool:
    """Tell whether Azure says that there can be no such place, or that nothing of it may be seen.

    A subscription that is no UUID is no absence to Azure, but a bad request.
    """
    if isinstance(error, Refused):
        return error.status == HTTPStatus.NOT_FOUND or error.code in _MALFORMED
    return isinstance(error, Unauthenticated)


async def _nothing() -> None:
    return None


def _configurations(balancers: Iterable[Resource | None]) -> dict[str, list[str]]:
    """Return the ids of IP configurations of machines by the ids of the pools they are in."""
    found: dict[str, list[str]] = {}
    for balancer in balancers:
        for pool in listed(balancer, "backendAddressPools"):
            ids = [
                str(one.get("id", "")).lower()
                for one in properties(pool).get("backendIPConfigurations") or ()
            ]
            found[str(pool.get("id", "")).lower()] = ids
    return found


def _members(
    pools: Mapping[str, Sequence[str]], nics: Mapping[str, Resource]
) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for pool, ids in pools.items():
        machines = set()
        for id_ in ids:
            nic = id_.partition("/ipconfigurations/")[0]
            if IN_SET in nic:
                machines.add(nic.partition("/networkinterfaces/")[0])
            elif nic in nics:
                owner = part(nics[nic], "virtualMachine") or {}
                machines.add(str(owner.get("id", "")).lower())
        found[pool] = frozenset(machines - {""})
    return found
