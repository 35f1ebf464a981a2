"""Take the steps of a plan of load balancers."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.load_balancers import Pending
from proreus.cloudprovider.refused import ErrorBody, Reason, Refused, cloud_error
from proreus.providers.azure import operations
from proreus.providers.azure.api import Arm, Resource, Waiting
from proreus.providers.azure.balancing import marks
from proreus.providers.azure.balancing.documents import named_ids
from proreus.providers.azure.balancing.links import FRONTENDS
from proreus.providers.azure.balancing.memberships import (
    model_interfaces,
    model_pools,
    other_balancer,
    with_pools,
)
from proreus.providers.azure.balancing.observation import IN_SET
from proreus.providers.azure.balancing.parts import Scene, State
from proreus.providers.azure.balancing.pools import FILLED, POOLS
from proreus.providers.azure.balancing.steps import (
    DeleteAddress,
    DeleteBalancer,
    DeleteLink,
    Join,
    JoinSet,
    PutAddress,
    PutBalancer,
    PutGroup,
    PutLink,
    Step,
)
from proreus.providers.azure.machines import part, properties
from proreus.providers.azure.operations import Operation

Change = Callable[[State], State]
"""A function from the state observed before a step to the state after it."""

_AT_ONCE: Final = 10
_SOON: Final = 2.0
_LEFT_OUT: Final = frozenset({Reason.NOT_FOUND, Reason.INVALID})


class Work:
    """The writes of a pass over load balancers."""

    def __init__(self, arm: Arm, scene: Scene) -> None:
        """Keep the client of Azure."""
        self._arm = arm
        self._scene = scene
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._own = {scene.place.balancer_id(name).lower() for name in scene.place.balancers}

    async def take(self, state: State, step: Step) -> Change:
        """Take a step; return how it changes the observed state.

        Raises:
            CloudError: Azure refuses it, or does not answer.
        """
        async with self._slots:
            match step.call:
                case PutAddress() | PutLink() as call:
                    return await self._put(state, call)
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
                case DeleteBalancer() as call:
                    await self._delete_balancer(state, call)
                case DeleteAddress() as call:
                    await self._delete_address(state, call)
                case DeleteLink() as call:
                    await self._delete_link(state, call)
            return step.after

    async def _put(self, state: State, call: PutAddress | PutLink) -> Change:
        is_link, key = isinstance(call, PutLink), call.id.lower()
        known = (state.links if is_link else state.addresses).get(key)
        etag = str(known.get("etag", "")) if known else ""
        read, operation = (
            (operations.LINK_GET, operations.LINK_PUT)
            if is_link
            else (operations.PUBLIC_IP_GET, operations.PUBLIC_IP_PUT)
        )
        if known is None:
            # A list may lack somebody else's of this name, such as of a copy of the cluster.
            await self._check_free(read, call.id)
        found = await self._arm.put(operation, call.id, call.document, etag=etag)
        if is_link:
            return lambda now: now.having(links={**now.links, key: found})
        return lambda now: now.having(addresses={**now.addresses, key: found})

    async def _check_free(self, operation: Operation, id_: str) -> None:
        """Let nothing be made in the place of what somebody else has made meanwhile.

        Raises:
            Refused: There is such a resource: observe again.
            CloudError: Azure does not answer.
        """
        if await self._arm.find(operation, id_) is not None:
            raise _changed(operation, f"{id_} is there, which was not shown before")

    async def _delete_balancer(self, state: State, call: DeleteBalancer) -> None:
        """Delete a load balancer, unless somebody has added to it or its pools meanwhile.

        Azure deletes it whatever its ETag is.

        Raises:
            Refused: Somebody has added to it: observe again.
            CloudError: Azure refuses, or does not answer.
        """
        id_ = self._scene.place.balancer_id(call.name)
        found = await self._arm.find(operations.LOAD_BALANCER_GET, id_)
        if found is None:
            return
        if added := _parts(found) - _parts(state.balancers.get(call.name) or {}):
            text = f"{id_} has got {', '.join(sorted(name for _, name in added))} meanwhile"
            raise _changed(operations.LOAD_BALANCER_DELETE, text)
        await self._arm.delete(operations.LOAD_BALANCER_DELETE, id_)

    async def _delete_address(self, state: State, call: DeleteAddress) -> None:
        """Delete a public IP, unless its tags say something else than when it was observed.

        Raises:
            Refused: Its tags are other ones: observe again.
            CloudError: Azure refuses, or does not answer.
        """
        found = await self._arm.find(operations.PUBLIC_IP_GET, call.id)
        if found is None:
            return
        if marks.tags(found) != marks.tags(state.addresses.get(call.id.lower()) or {}):
            text = f"the tags of {call.id} are other ones by now"
            raise _changed(operations.PUBLIC_IP_DELETE, text)
        await self._arm.delete(operations.PUBLIC_IP_DELETE, call.id)

    async def _delete_link(self, state: State, call: DeleteLink) -> None:
        """Delete a private link service, unless it is another one than when it was observed.

        Raises:
            Refused: It has other tags, or another frontend: observe again.
            CloudError: Azure refuses, or does not answer.
        """
        found = await self._arm.find(operations.LINK_GET, call.id)
        if found is None:
            return
        if _whose(found) != _whose(state.links.get(call.id.lower()) or {}):
            text = f"{call.id} has other tags, or another frontend, by now"
            raise _changed(operations.LINK_DELETE, text)
        for name in call.connections:
            at = f"{call.id}/privateEndpointConnections/{name}"
            await self._arm.delete(operations.LINK_CONNECTION_DELETE, at)
        await self._arm.delete(operations.LINK_DELETE, call.id)

    async def _put_balancer(self, call: PutBalancer) -> Change:
        id_ = self._scene.place.balancer_id(call.name)
        etag = str(call.document.get("etag", ""))
        if not etag:
            await self._check_free(operations.LOAD_BALANCER_GET, id_)
        await self._arm.put(operations.LOAD_BALANCER_PUT, id_, call.document, etag=etag)
        # Azure fills in addresses and more; the next write needs its new ETag.
        found = await self._arm.find(operations.LOAD_BALANCER_GET, id_)
        if found is None:
            text = f"Azure does not show the load balancer {call.name} yet, which it has written"
            raise Waiting(Pending(_SOON, text))
        return lambda now: now.having(balancers={**now.balancers, call.name: found})

    async def _put_group(self, call: PutGroup) -> Change:
        etag = str(call.document.get("etag", ""))
        found = await self._arm.put(
            operations.SECURITY_GROUP_PUT, self._scene.place.group_id(), call.document, etag=etag
        )
        return lambda now: now.having(group=found)

    async def _join(self, state: State, call: Join) -> str:
        try:
            if IN_SET in call.machine:
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
        # Lists of sets have no ETags, so somebody may have changed the model since.
        model = await self._arm.find(operations.SCALE_SET_GET, str(state.sets[call.set]["id"]))
        if model is None:
            return lambda now: now.having(
                sets={id_: one for id_, one in now.sets.items() if id_ != call.set}
            )
        pools = set(model_pools(model))
        if pools.issuperset(map(str.lower, call.add)) and pools.isdisjoint(call.drop):
            return lambda now: now.having(sets={**now.sets, call.set: model})
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


def _changed(operation: Operation, text: str) -> CloudError:
    """Return the error that something is not as it was observed."""
    body = ErrorBody("PreconditionFailed", text, Reason.PRECONDITION_FAILED)
    return cloud_error(operation.name, HTTPStatus.PRECONDITION_FAILED, body)


def _parts(balancer: Resource | Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return the parts of a load balancer, and who is in its pools: the type and name of each."""
    found = {
        (field, str(one.get("name")))
        for field, found in properties(balancer).items()
        if isinstance(found, list)
        for one in found
    }
    members = (
        (str(one.get("id") or one.get("name")).lower(), str(pool.get("name")))
        for pool in part(balancer, POOLS) or ()
        for field in FILLED
        for one in properties(pool).get(field) or ()
    )
    return found | {(POOLS, f"{member} in the pool {pool}") for member, pool in members}


def _whose(link: Resource | Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Return what says whose a private link service is: its tags, and its frontend."""
    return marks.tags(link), named_ids(link, FRONTENDS)


_NO_ADDRESS: Final = "its network interface has no address of the family"


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
