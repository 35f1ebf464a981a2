"""Read and change load balancers of Octavia; each change is one request."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.refused import Refused
from proreus.providers.nova.machines import Described, id_of
from proreus.providers.nova.services import Parameters
from proreus.providers.openstack.api import Api
from proreus.providers.openstack.octavia import documents, owners, records
from proreus.providers.openstack.octavia.parts import Balancer
from proreus.providers.openstack.octavia.plan import (
    ACTIVE,
    ERROR,
    Change,
    Drop,
    DropBalancer,
    MakeBalancer,
    MakeListener,
    MakeMonitor,
    MakePool,
    SetMembers,
    Step,
)

_CONFLICT = 409
_SINGULAR = {
    "loadbalancers": "loadbalancer",
    "listeners": "listener",
    "pools": "pool",
    "healthmonitors": "healthmonitor",
}


class Octavia:
    """The API of Octavia."""

    def __init__(self, api: Api) -> None:
        """Keep the client of OpenStack."""
        self._api = api

    async def project(self) -> str:
        """Return the id of the credentials' project; "" without any.

        Raises:
            CloudError: No token is issued.
        """
        return await self._api.project()

    async def balancers(self, parameters: Parameters) -> list[Described]:
        """List load balancers of the project, filtered.

        One without a VIP is left out: it went while Octavia read the list, the VIP's row after its
        own.

        Raises:
            CloudError: Octavia gives no usable answer.
        """
        found = await self._list("loadbalancers", parameters)
        return [one for one in found if _has_vip(one)]

    async def pools(self) -> list[Described]:
        """List all pools of the project, each with ids of members and of its load balancer.

        Raises:
            CloudError: Octavia gives no usable answer.
        """
        return await self._list("pools", {})

    async def balancer(self, id_: str) -> Described | None:
        """Read a load balancer by its id; return None if there is none, as in `balancers`.

        Raises:
            CloudError: Octavia gives no usable answer.
        """
        path = f"lbaas/loadbalancers/{id_}"
        found = await self._api.find("octavia", "loadbalancer_get", path, "loadbalancer")
        return found if found is not None and _has_vip(found) else None

    async def observe(self, described: Described, ref: LoadBalancerRef) -> Balancer:
        """Read a load balancer with the parts that are a Service's, and no others.

        For a load balancer that Octavia works on only its own fields; members and monitors are for
        `look`.

        Raises:
            CloudError: Octavia gives no usable answer.
        """
        if described.get("provisioning_status") not in {ACTIVE, ERROR}:
            found = documents.observed(described, (), ())
            return msgspec.structs.replace(found, others=owners.others(described, (), ref))
        id_ = id_of(described)
        listeners = await self._list("listeners", {"load_balancer_id": id_})
        pools = await self._list("pools", {"loadbalancer_id": id_})
        own = [listener for listener in listeners if owners.is_part_of(listener, described, ref)]
        foreign = [listener for listener in listeners if listener not in own]
        used = {str(one.get("default_pool_id")) for one in own}
        kept = [
            pool
            for pool in pools
            if owners.is_part_of(pool, described, ref)
            or (id_of(pool) in used and _is_former(pool, described, ref))
        ]
        strange = {id_of(pool) for pool in pools if pool not in kept}
        return msgspec.structs.replace(
            documents.observed(described, own, kept, strange),
            taken=frozenset(documents.port_of(one) for one in foreign),
            others=owners.others(described, foreign, ref),
            hosts=records.hosts_of(kept),
        )

    async def read_pool(self, lb: Balancer, pool: str) -> Balancer:
        """Add members and monitor of a pool to an observed load balancer.

        Raises:
            CloudError: Octavia gives no usable answer.
        """
        listeners = []
        for listener in lb.listeners:
            found = listener.pool
            if found is not None and found.id == pool:
                monitor = None
                if id_ := documents.monitor_of(found):
                    path = f"lbaas/healthmonitors/{id_}"
                    monitor = await self._api.get(
                        "octavia", "healthmonitor_get", path, "healthmonitor"
                    )
                found = documents.read(found, await self._members(pool), monitor)
            listeners.append(msgspec.structs.replace(listener, pool=found))
        return msgspec.structs.replace(lb, listeners=tuple(listeners))

    async def take(self, step: Step, balancer: str, tags: Sequence[str]) -> None:
        """Take a step of a plan, by one request.

        Args:
            step: The step to take.
            balancer: The load balancer's id.
            tags: The tags of objects that are made.

        Raises:
            CloudError: Octavia refuses, or does not answer.
        """
        if isinstance(step, MakeBalancer):
            body = documents.balancer(step.desired, tags, whole=step.with_parts)
            await self._post("loadbalancers", body)
        elif isinstance(step, DropBalancer):
            how = "?cascade=true" if step.cascade else ""
            await self._delete("loadbalancers", f"{step.id}{how}")
        elif isinstance(step, MakeListener):
            body = documents.listener(step.desired, tags, whole=False)
            await self._post("listeners", {**body, "loadbalancer_id": balancer})
        elif isinstance(step, MakePool):
            body = documents.pool(step.desired, tags, whole=False)
            await self._post("pools", {**body, "listener_id": step.listener})
        elif isinstance(step, MakeMonitor):
            body = documents.monitor(step.desired, tags)
            await self._post("healthmonitors", {**body, "pool_id": step.pool})
        elif isinstance(step, SetMembers):
            members = [documents.member(member) for member in step.members]
            path = f"lbaas/pools/{step.pool}/members"
            await self._change("pool_member_update", "PUT", path, {"members": members})
        elif isinstance(step, Change):
            name = _SINGULAR[step.collection]
            path = f"lbaas/{step.collection}/{step.id}"
            await self._change(f"{name}_update", "PUT", path, {name: dict(step.fields)})
        elif isinstance(step, Drop):
            await self._delete(step.collection, step.id)

    async def _members(self, pool: str) -> list[Described]:
        path = f"lbaas/pools/{pool}/members"
        return await self._api.listed("octavia", "pool_member_list", path, "members")

    async def _list(self, collection: str, parameters: Parameters) -> list[Described]:
        operation = f"{_SINGULAR[collection]}_list"
        path = f"lbaas/{collection}"
        return await self._api.listed("octavia", operation, path, collection, parameters)

    async def _post(self, collection: str, body: Mapping[str, Any]) -> None:
        name = _SINGULAR[collection]
        await self._change(f"{name}_create", "POST", f"lbaas/{collection}", {name: dict(body)})

    async def _delete(self, collection: str, id_: str) -> None:
        path = f"lbaas/{collection}/{id_}"
        await self._api.delete("octavia", f"{_SINGULAR[collection]}_delete", path)

    async def _change(
        self, operation: str, method: str, path: str, body: Mapping[str, Any] | None
    ) -> None:
        await self._api.change("octavia", operation, method, path, body)


def is_immutable(error: Refused) -> bool:
    """Tell whether an error means that Octavia still works on the load balancer or its parts."""
    text = str(error).lower()
    return error.status == _CONFLICT and ("immutable" in text or "invalid state pending" in text)


def _has_vip(described: Described) -> bool:
    return bool(described.get("vip_address"))


def _is_former(pool: Described, described: Described, ref: LoadBalancerRef) -> bool:
    """Tell whether a pool that a Service's listener uses has a name as official ones once had.

    Before they cut names, they had the number last, where anybody's pool may have one.
    """
    names = (f"pool_{name}_" for name in owners.own_names(described, ref))
    return not owners.tags_of(pool) and str(pool.get("name") or "").startswith(tuple(names))
