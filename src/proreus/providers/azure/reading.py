"""Read machines, interfaces and addresses: each list once for a whole batch of nodes."""

import asyncio
from collections import Counter
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Hashable,
    Iterable,
    Mapping,
    MutableMapping,
)
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from proreus.cloudprovider.errors import CloudError, Unauthenticated
from proreus.cloudprovider.lookups import attempt
from proreus.providers.azure import operations
from proreus.providers.azure.api import Arm, Resource
from proreus.providers.azure.config import VMType
from proreus.providers.azure.ids import MachineId, last
from proreus.providers.azure.machines import (
    by_id,
    interface_ids,
    may_sleep,
    node_name,
    part,
    public_ids,
    uuid_of,
)
from proreus.providers.azure.operations import Operation

SINGLES: Final = 3
"""Machines of a list that are asked for one by one rather than by the whole list."""
_COMPUTE: Final = "/providers/Microsoft.Compute"
_NETWORK: Final = "/providers/Microsoft.Network"
_VIEW: Final = {"$expand": "instanceView"}
_UNIFORM: Final = "uniform"

Found = Mapping[str, Mapping[str, Any]]
"""Resources by their ids in small letters."""


class Questions:
    """What is asked for one batch of nodes: nothing is asked twice, each error is kept.

    Used as an async context manager: reads that are still under way end with it.
    """

    def __init__(
        self, arm: Arm, wanted: Iterable[MachineId], domains: MutableMapping[str, int]
    ) -> None:
        """Keep which machines are looked for; ask nothing yet.

        Args:
            arm: The client of Azure Resource Manager.
            wanted: The machines that are looked up by their ids.
            domains: The known fault domains, which never change, by the `vmId`.
        """
        self._arm = arm
        self._domains = domains
        self._few = {
            list_
            for list_, count in Counter(_list_of(one) for one in wanted).items()
            if count <= SINGLES
        }
        self._answers: dict[Hashable, asyncio.Task[Any]] = {}
        self._group = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        """Begin a group of reads, which share their answers."""
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the group of reads."""
        await self._group.__aexit__(kind, error, trace)

    async def machine(self, id_: MachineId) -> Resource | None:
        """Return a machine by its id; None if Azure says that there is none.

        A list that lacks the machine proves nothing: then the machine is asked for by itself.

        Raises:
            CloudError: Azure gives no usable answer.
        """
        if _list_of(id_) not in self._few:
            listed = await (self.of_set(id_.scale_set) if id_.set else self.of_group(id_.group))
            if (known := listed.get(id_.resource)) is not None:
                return dict(known)
        operation = operations.SCALE_SET_VM_GET if id_.set else operations.VM_GET
        found: Resource | None = await self._once(
            ("machine", id_), lambda: self._arm.find(operation, id_.resource, _VIEW)
        )
        return found

    async def moved(self, id_: MachineId | None, uuids: Collection[str]) -> str:
        """Return the id of a machine that is not where it was, but elsewhere; "" if it is nowhere.

        A scale set is moved as a whole. Without the right to read all of the subscription nothing
        is found.

        Args:
            id_: Where the machine was; None if it was looked for by its name.
            uuids: What its `vmId` may be.

        Raises:
            CloudError: Azure gives no usable answer.
        """
        kind, operation = "virtualMachines", operations.VM_LIST
        if id_ is not None and id_.set:
            kind, operation = "virtualMachineScaleSets", operations.SCALE_SET_LIST
        try:
            found = await self._listed(operation, f"{self._subscription()}{_COMPUTE}/{kind}")
        except Unauthenticated:
            return ""
        machines: Iterable[Mapping[str, Any] | None] = found.values()
        if id_ is not None and id_.set:
            there = (one for one in found if last(one) == id_.set and one != id_.scale_set)
            machines = [await self.machine(_inside(one, id_)) for one in there]
        same = (one for one in machines if one and uuid_of(one) in uuids)
        return next((str(one["id"]) for one in same), "")

    async def view(self, machine: Resource) -> Resource | None:
        """Return the instance view of a machine, with power state and fault domain.

        Raises:
            CloudError: Azure gives no usable answer.
        """
        view = part(machine, "instanceView")
        if view is not None or "instanceId" in machine:
            return dict(view) if view is not None else None
        id_ = str(machine["id"])
        if not self._arm.config.is_stack:
            statuses = await self._statuses()
            view = part(statuses.get(id_.lower(), {}), "instanceView")
            if may_sleep(machine, view):
                view = None  # Nobody says that the list of statuses tells it.
            # Nor has that list fault domains, which stand for zones.
            known = self._domains.get(uuid_of(machine) or id_)
            if view is not None and known is not None:
                return {"platformFaultDomain": known, **view}
            if view is not None and machine.get("zones"):
                return dict(view)
        whole = await self._once(
            ("view", id_.lower()), lambda: self._arm.find(operations.VM_GET, id_, _VIEW)
        )
        found = part(whole or {}, "instanceView")
        domain = (found or {}).get("platformFaultDomain")
        if domain is not None:
            self._domains[uuid_of(machine) or id_] = domain
        return dict(found) if found is not None else None

    async def _statuses(self) -> Found:
        """Return the statuses of all machines of the subscription.

        Without the right to read the statuses nothing is returned: then each machine is asked for
        by itself.
        """
        id_ = f"{self._subscription()}{_COMPUTE}/virtualMachines"
        try:
            return await self._listed(operations.VM_LIST, id_, {"statusOnly": "true"})
        except Unauthenticated:
            return {}

    async def named(self, name: str, group: str) -> list[Resource]:
        """Return the machines in a resource group whose Node has this name.

        Raises:
            CloudError: A list could not be read.
        """
        kinds = self._arm.config.machines
        found = await self.of_group(group)
        candidates = [dict(one) for one in found.values()]
        if self._arm.config.disable_availability_set_nodes:
            candidates = [one for one in candidates if part(one, "virtualMachineScaleSet", "id")]
        if kinds is VMType.VMSS:
            for set_ in (await self._sets(group)).values():
                if _may_hold(set_, name):
                    candidates += [dict(one) for one in (await self.of_set(set_["id"])).values()]
        return [one for one in candidates if node_name(one) == name]

    async def interface(self, machine: Resource) -> Resource | None:
        """Return the primary network interface of a machine; None if it has none yet.

        Raises:
            CloudError: Azure gives no usable answer.
        """
        ids = interface_ids(machine)
        if not ids:
            return None
        id_ = ids[0].lower()
        if "instanceId" in machine:
            set_ = str(machine["id"]).lower().partition("/virtualmachines/")[0]
            found = await self._listed(operations.SCALE_SET_NIC_LIST, f"{set_}/networkInterfaces")
        else:
            group = id_.partition("/providers/")[0]
            found = await self._listed(operations.NIC_LIST, f"{group}{_NETWORK}/networkInterfaces")
        interface = found.get(id_)
        return dict(interface) if interface is not None else None

    async def public(self, interface: Resource) -> dict[str, str]:
        """Return the public addresses of an interface, by the ids of their resources.

        Raises:
            CloudError: Azure gives no usable answer.
        """
        addresses: dict[str, str] = {}
        for id_ in map(str.lower, public_ids(interface)):
            set_, sign, _ = id_.partition("/virtualmachines/")
            if sign and "/virtualmachinescalesets/" in set_:
                found = await self._listed(
                    operations.SCALE_SET_IP_LIST, f"{set_}/publicipaddresses"
                )
            else:
                group = id_.partition("/providers/")[0]
                found = await self._listed(
                    operations.PUBLIC_IP_LIST, f"{group}{_NETWORK}/publicIPAddresses"
                )
            addresses[id_] = str(part(found.get(id_, {}), "ipAddress") or "")
        return addresses

    async def of_group(self, group: str) -> Found:
        """Return the machines of a resource group that are in no scale set of the mode Uniform."""
        return await self._listed(
            operations.VM_LIST, f"{self._group_id(group)}{_COMPUTE}/virtualMachines"
        )

    async def of_set(self, set_: str) -> Found:
        """Return the machines of a scale set of the mode Uniform, with their instance views."""
        return await self._listed(operations.SCALE_SET_VM_LIST, f"{set_}/virtualMachines", _VIEW)

    async def _sets(self, group: str) -> Found:
        found = await self._listed(
            operations.SCALE_SET_LIST, f"{self._group_id(group)}{_COMPUTE}/virtualMachineScaleSets"
        )
        return {
            id_: one
            for id_, one in found.items()
            if str(part(one, "orchestrationMode") or _UNIFORM).lower() == _UNIFORM
        }

    async def _listed(
        self, operation: Operation, id_: str, query: Mapping[str, str] | None = None
    ) -> Found:
        async def ask() -> Found:
            return by_id(await self._arm.listed(operation, id_, query))

        found: Found = await self._once((operation.name, id_.lower(), repr(query)), ask)
        return found

    async def _once(self, key: Hashable, ask: Callable[[], Awaitable[Any]]) -> Any:
        """Return the answer to a question that is asked once.

        Raises:
            CloudError: The question was answered with an error: the same error each time.
        """
        if key not in self._answers:
            self._answers[key] = self._group.create_task(attempt(ask))
        answer = await self._answers[key]
        if isinstance(answer, CloudError):
            raise answer
        return answer

    def _subscription(self) -> str:
        return f"/subscriptions/{self._arm.config.subscription_id}"

    def _group_id(self, group: str) -> str:
        return f"{self._subscription()}/resourceGroups/{group}"


def _inside(set_: str, id_: MachineId) -> MachineId:
    """Return the machine of the same number in another scale set."""
    group = set_.partition("/resourcegroups/")[2].partition("/")[0]
    return msgspec.structs.replace(id_, group=group)


def _list_of(id_: MachineId) -> str:
    return id_.scale_set or id_.group


def _may_hold(set_: Resource | Mapping[str, Any], name: str) -> bool:
    """Tell whether a machine of a scale set may have a name, by the set's prefix of names."""
    prefix = part(set_, "virtualMachineProfile", "osProfile", "computerNamePrefix")
    return not prefix or name.startswith(str(prefix).lower())
