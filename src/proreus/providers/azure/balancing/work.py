"""Observe the resources of load balancers, and take the steps of a plan."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.refused import Reason, Refused
from proreus.providers.azure import operations
from proreus.providers.azure.api import Arm, Resource
from proreus.providers.azure.balancing.balancers import listed
from proreus.providers.azure.balancing.memberships import (
    model_interfaces,
    other_balancer,
    with_pools,
)
from proreus.providers.azure.balancing.parts import Job, Scene, State
from proreus.providers.azure.balancing.steps import (
    DeleteAddress,
    DeleteBalancer,
    Join,
    JoinSet,
    PutAddress,
    PutBalancer,
    PutGroup,
    Step,
)
from proreus.providers.azure.config import PoolType
from proreus.providers.azure.ids import machine_id, resource_id
from proreus.providers.azure.machines import by_id, part, properties, set_of

Change = Callable[[State], State]
"""A function from the state observed before a step to the state after it."""

_AT_ONCE: Final = 10
_COMPUTE: Final = "/providers/Microsoft.Compute"
_NETWORK: Final = "/providers/Microsoft.Network"
_IN_SET: Final = "/virtualmachinescalesets/"
_LEFT_OUT: Final = frozenset({Reason.NOT_FOUND, Reason.INVALID})


class Work:
    """A pass over load balancers: its reads of Azure and its writes."""

    def __init__(self, arm: Arm, scene: Scene) -> None:
        """Keep the client of Azure."""
        self._arm = arm
        self._scene = scene
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._own = {scene.place.balancer_id(name).lower() for name in scene.place.balancers}

    async def observe(self, jobs: Sequence[Job]) -> State:
        """Read all that a plan needs, in as few calls as Azure has for it.

        Raises:
            CloudError: Something could not be read.
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
        addresses, nics, sets, vm_sets = await asyncio.gather(
            self._addresses(jobs, balancers),
            self._interfaces(jobs, pools),
            self._sets(jobs, pools),
            self._vm_sets(jobs),
        )
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
            vm_sets=vm_sets,
        )

    async def _addresses(
        self, jobs: Iterable[Job], balancers: Iterable[Resource | None]
    ) -> dict[str, Resource]:
        """Read the public addresses of every resource group that may have one of the Services."""
        groups = {self._scene.place.address_group(job.options).lower() for job in jobs}
        groups.add(self._scene.place.config.resource_group.lower())
        for balancer in balancers:
            for one in listed(balancer, "frontendIPConfigurations"):
                public = (properties(one).get("publicIPAddress") or {}).get("id", "")
                if found := resource_id(str(public)):
                    groups.add(found.group.lower())
        subscription = self._scene.place.config.network_subscription
        lists = await asyncio.gather(
            *(
                self._arm.listed(
                    operations.PUBLIC_IP_LIST,
                    f"/subscriptions/{subscription}/resourceGroups/{group}{_NETWORK}"
                    "/publicIPAddresses",
                )
                for group in sorted(groups)
            )
        )
        return {id_: dict(one) for found in lists for id_, one in by_id(found).items()}

    async def _interfaces(
        self, jobs: Sequence[Job], pools: Mapping[str, Sequence[str]]
    ) -> dict[str, Resource]:
        """Read the interfaces of machines that are in no scale set of the mode Uniform."""
        members = [one for found in pools.values() for one in found if _IN_SET not in one]
        alone = [one for one in self._machines(jobs) if _IN_SET not in one]
        if self._scene.place.config.pools is PoolType.NODE_IP and not members:
            return {}
        groups = {one.partition("/providers/")[0] for one in (*members, *alone)}
        lists = await asyncio.gather(
            *(
                self._arm.listed(operations.NIC_LIST, f"{group}{_NETWORK}/networkInterfaces")
                for group in sorted(groups)
            )
        )
        return {id_: dict(one) for found in lists for id_, one in by_id(found).items()}

    async def _sets(
        self, jobs: Sequence[Job], pools: Mapping[str, Sequence[str]]
    ) -> dict[str, Resource]:
        members = [one for found in pools.values() for one in found if _IN_SET in one]
        inside = [one for one in self._machines(jobs) if _IN_SET in one]
        if self._scene.place.config.pools is PoolType.NODE_IP and not members:
            return {}
        groups = {one.partition("/providers/")[0] for one in (*members, *inside)}
        lists = await asyncio.gather(
            *(
                self._arm.listed(
                    operations.SCALE_SET_LIST, f"{group}{_COMPUTE}/virtualMachineScaleSets"
                )
                for group in sorted(groups)
            )
        )
        return {id_: dict(one) for found in lists for id_, one in by_id(found).items()}

    async def _vm_sets(self, jobs: Sequence[Job]) -> dict[str, str]:
        """Read the sets of machines whose ids do not name them, where they count."""
        if not self._scene.place.config.multiple_standard_load_balancer_configurations:
            return {}
        groups = {
            one.partition("/providers/")[0] for one in self._machines(jobs) if _IN_SET not in one
        }
        lists = await asyncio.gather(
            *(
                self._arm.listed(operations.VM_LIST, f"{group}{_COMPUTE}/virtualMachines")
                for group in sorted(groups)
            )
        )
        return {id_: set_of(one) for found in lists for id_, one in by_id(found).items()}

    def _machines(self, jobs: Sequence[Job]) -> set[str]:
        hosts = (host for job in jobs if job.lb is not None for host in job.lb.hosts)
        found = (machine_id(host.provider_id) for host in hosts)
        return {one.resource for one in found if one is not None}

    async def take(self, state: State, step: Step) -> Change:
        """Take a step; return how it changes the observed state.

        Raises:
            CloudError: Azure refuses it, or does not answer.
        """
        async with self._slots:
            match step.call:
                case PutAddress() as call:
                    return await self._put_address(state, call)
                case PutBalancer() as call:
                    return await self._put_balancer(call)
                case PutGroup() as call:
                    return await self._put_group(call)
                case JoinSet() as call:
                    return await self._join_set(state, call)
                case Join() as call:
                    if reason := await self._join(state, call):
                        why = {call.machine: reason}
                        return lambda now: now.having(refused={**now.refused, **why})
                case DeleteAddress(id_):
                    await self._arm.delete(operations.PUBLIC_IP_DELETE, id_)
                case DeleteBalancer(name):
                    id_ = self._scene.place.balancer_id(name)
                    await self._arm.delete(operations.LOAD_BALANCER_DELETE, id_)
            return step.after

    async def _put_address(self, state: State, call: PutAddress) -> Change:
        known = state.addresses.get(call.id.lower())
        etag = str(known.get("etag", "")) if known else ""
        found = await self._arm.put(operations.PUBLIC_IP_PUT, call.id, call.document, etag=etag)
        return lambda now: now.having(addresses={**now.addresses, call.id.lower(): found})

    async def _put_balancer(self, call: PutBalancer) -> Change:
        id_ = self._scene.place.balancer_id(call.name)
        etag = str(call.document.get("etag", ""))
        await self._arm.put(operations.LOAD_BALANCER_PUT, id_, call.document, etag=etag)
        # Azure fills in addresses and more; the next write needs its new ETag.
        found = await self._arm.get(operations.LOAD_BALANCER_GET, id_)
        return lambda now: now.having(balancers={**now.balancers, call.name: found})

    async def _put_group(self, call: PutGroup) -> Change:
        etag = str(call.document.get("etag", ""))
        found = await self._arm.put(
            operations.SECURITY_GROUP_PUT, self._scene.place.group_id(), call.document, etag=etag
        )
        return lambda now: now.having(group=found)

    async def _join(self, state: State, call: Join) -> str:
        try:
            if _IN_SET in call.machine:
                return await self._change_set_machine(call)
            return await self._change_interface(state, call)
        except Refused as error:
            if error.reason not in _LEFT_OUT:
                raise
            return str(error)

    async def _change_interface(self, state: State, call: Join) -> str:
        interface = state.interfaces.get(call.machine)
        if interface is None:
            return "" if not call.add else "Azure shows no network interface of the machine"
        if reason := _kept_out(interface, call.add, self._own):
            return reason
        document = with_pools(interface, call.add, call.drop)
        if document is None:
            return _NO_ADDRESS if call.add else ""
        etag = str(interface.get("etag", ""))
        await self._arm.put(operations.NIC_PUT, str(interface["id"]), document, etag=etag)
        return ""

    async def _change_set_machine(self, call: Join) -> str:
        machine = await self._arm.find(operations.SCALE_SET_VM_GET, call.machine)
        if machine is None:
            return "" if not call.add else "Azure has no such machine"
        interfaces = list(
            part(machine, "networkProfileConfiguration", "networkInterfaceConfigurations") or ()
        )
        changed = _changed_models(interfaces, call.add, call.drop, self._own)
        if isinstance(changed, str):
            return changed if call.add else ""
        network = {"networkInterfaceConfigurations": changed}
        body: Resource = {
            "location": machine.get("location"),
            "properties": {
                "hardwareProfile": part(machine, "hardwareProfile") or {},
                "networkProfileConfiguration": network,
            },
        }
        etag = str(machine.get("etag", ""))
        await self._arm.put(operations.SCALE_SET_VM_PUT, call.machine, body, etag=etag)
        return ""

    async def _join_set(self, state: State, call: JoinSet) -> Change:
        model = state.sets[call.set]
        interfaces = model_interfaces(model)
        changed = _changed_models(interfaces, call.add, call.drop, self._own)
        if isinstance(changed, str):
            return lambda now: now.having(refused={**now.refused, call.set: changed})
        profile = {"networkInterfaceConfigurations": changed}
        # Without the SKU: its capacity may be another one by now, and to write the one that was
        # read would delete the machines that came since. What is left out stays as it is.
        body: Resource = {
            "location": model.get("location"),
            "properties": {"virtualMachineProfile": {"networkProfile": profile}},
        }
        id_, etag = str(model["id"]), str(model.get("etag", ""))
        found = await self._arm.put(operations.SCALE_SET_PUT, id_, body, etag=etag)
        return lambda now: now.having(sets={**now.sets, call.set: found})


_NO_ADDRESS: Final = "its network interface has no address of the family"


async def _nothing() -> None:
    return None


def _kept_out(interface: Mapping[str, Any], pools: Iterable[str], own: Collection[str]) -> str:
    for pool in pools:
        if other := other_balancer(interface, pool, own):
            return f"its network interface is in another load balancer of this kind: {other}"
    return ""


def _changed_models(
    interfaces: Sequence[Any], add: Collection[str], drop: Collection[str], own: Collection[str]
) -> list[Any] | str:
    """Return models of interfaces, the primary one in these pools, or why that cannot be."""
    ordered = sorted(interfaces, key=lambda one: not properties(one).get("primary"))
    if not ordered:
        return "it has no network interface yet"
    if reason := _kept_out(ordered[0], add, own):
        return reason
    changed = with_pools(ordered[0], add, drop)
    if changed is None:
        return _NO_ADDRESS
    return [changed if one is ordered[0] else one for one in interfaces]


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
            if _IN_SET in nic:
                machines.add(nic.partition("/networkinterfaces/")[0])
            elif nic in nics:
                owner = part(nics[nic], "virtualMachine") or {}
                machines.add(str(owner.get("id", "")).lower())
        found[pool] = frozenset(machines - {""})
    return found
