"""Observe what NSX-T has for a Service."""

import asyncio
import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import LoadBalancerRef, Pending
from proreus.cloudprovider.ownership import Verdict
from proreus.cloudprovider.refused import Refused
from proreus.providers.vsphere.nsxt.api import Api
from proreus.providers.vsphere.nsxt.balancing import owners
from proreus.providers.vsphere.nsxt.balancing.described import (
    chosen_service,
    others_of,
    parts_of,
    realized_address,
)
from proreus.providers.vsphere.nsxt.balancing.parts import (
    IP_POOL,
    Observed,
    Part,
    Service,
    group_id,
    tags_of,
)
from proreus.providers.vsphere.nsxt.balancing.sharing import Shared
from proreus.providers.vsphere.nsxt.config import LoadBalancerSection
from proreus.providers.vsphere.nsxt.errors import BAD_PATH
from proreus.providers.vsphere.nsxt.operations import (
    ALLOCATIONS,
    GROUPS,
    IP_POOLS,
    MONITORS,
    PERSISTENCE,
    POOLS,
    SERVERS,
    SERVICES,
    Document,
    Place,
)

LISTED: Final = (SERVERS, POOLS, MONITORS, PERSISTENCE)
"""The kinds of which all objects are listed: there are only those of load balancers."""


class Reader:
    """A reader of load balancers and their parts."""

    def __init__(self, api: Api, section: LoadBalancerSection) -> None:
        """Keep the client, and the section [LoadBalancer]."""
        self._api = api
        self._section = section
        self._lists = Shared(self._read_lists)
        self._allocated: dict[str, Shared[Sequence[Document]]] = {}

    async def observe(
        self, ref: LoadBalancerRef, pools: Iterable[str], *, is_deletion: bool = False
    ) -> Observed:
        """Observe all parts that are a Service's, and the load balancer service.

        Args:
            ref: The Service.
            pools: The ids of the IP pools of all classes.
            is_deletion: Whether the reading is for a deletion, so that a load balancer service that
                cannot be used is no error.

        Raises:
            CloudError: NSX-T gives no usable answer, or the load balancer service cannot be used.
        """
        group = Part(Place(GROUPS), group_id(ref))
        lists, found = await asyncio.gather(
            self._lists.get(), self._api.find(group.place, group.id)
        )
        allocated, others = await self._allocations_of(ref, {*pools} - {""})
        parts = parts_of(ref, self._section.owner, lists, allocated)
        if found is not None and self._verdict(found, ref, ()) is Verdict.MARKED:
            parts.append(replace(group, document=found))
        searched = {*pools, *(tags_of(one.document).get(IP_POOL, "") for one in parts)} - {""}
        more, of_others = await self._allocations_of(ref, searched - {*pools})
        parts += [*allocated, *more]
        others += of_others
        own = {one.id for one in parts if one.kind == SERVERS}
        is_expected = is_deletion or bool(ref.last_ingress)
        if is_expected and not own and not any(one.kind == ALLOCATIONS for one in parts):
            parts += await self._allocations_elsewhere(ref, searched)
        service = None
        if not (is_deletion and self._section.lb_service_id):
            service = self._service(ref.cluster, lists[SERVICES], lists[SERVERS], own)
        path = service.part.path if service is not None else ""
        others += others_of(lists[SERVERS], own, searched, path)
        return Observed(service, tuple(parts), tuple(others))

    async def _read_lists(self) -> Mapping[str, Sequence[Document]]:
        kinds = (*LISTED, SERVICES)
        lists = await asyncio.gather(*(self._api.listed(Place(kind)) for kind in kinds))
        return dict(zip(kinds, lists, strict=True))

    async def service(self, cluster: ClusterIdentity) -> Service | None:
        """Observe the load balancer service alone.

        Raises:
            CloudError: NSX-T gives no usable answer, or the load balancer service cannot be used.
        """
        services, servers = await asyncio.gather(
            self._api.listed(Place(SERVICES)), self._api.listed(Place(SERVERS))
        )
        return self._service(cluster, services, servers, ())

    async def address(self, part: Part) -> Part | Pending:
        """Return an allocation with its address, or with the reason why it gets none."""
        given = str(part.document.get("allocation_ip") or "")
        realized = await self._api.realized(part.path)
        address, failure = realized_address(realized)
        if not address and not failure:
            return Pending(0.0, "NSX-T allocates the address")
        return replace(part, address=address or given, failure="" if address else failure)

    async def allocations(self, pool: str) -> Sequence[Document]:
        """Return all allocations of an IP pool; none of a pool that is not there."""
        read = functools.partial(self._read_allocations, pool)
        return await self._allocated.setdefault(pool, Shared(read)).get()

    async def _read_allocations(self, pool: str) -> Sequence[Document]:
        try:
            return await self._api.listed(Place(ALLOCATIONS, pool))
        except Refused as error:
            is_nowhere = error.code == BAD_PATH and f"[/infra/{IP_POOLS}/{pool}]" in error.text
            if error.is_absence or is_nowhere:
                return ()
            raise

    async def _allocations_of(
        self, ref: LoadBalancerRef, pools: Collection[str]
    ) -> tuple[list[Part], list[Document]]:
        """Return what `_allocations` does, of several pools."""
        found: list[Part] = []
        others: list[Document] = []
        for pool in sorted(pools):
            mine, theirs = await self._allocations(ref, pool)
            found += mine
            others += theirs
        return found, others

    async def _allocations(
        self, ref: LoadBalancerRef, pool: str
    ) -> tuple[list[Part], list[Document]]:
        """Return the allocations of a pool that are the Service's, and those that surely are not.

        Of one of the Service's name that nothing proves to be its own nobody knows.
        """
        found, others = [], []
        for document in await self.allocations(pool):
            related = self._verdict(document, ref, ())
            if related not in {Verdict.MARKED, Verdict.UNPROVEN}:
                others.append(document)
                continue
            part = Part(Place(ALLOCATIONS, pool), str(document["id"]), document)
            answer = await self.address(part)
            if isinstance(answer, Part):
                part = answer
            # What only bears official tags is proven by its address alone.
            related = self._verdict(document, ref, (part.address,))
            if related.is_ours:
                found.append(replace(part, is_marked=related is Verdict.MARKED))
        return found, others

    async def _allocations_elsewhere(
        self, ref: LoadBalancerRef, searched: Collection[str]
    ) -> list[Part]:
        """Return the Service's allocations in pools that no class has any more.

        Only a virtual server says of which pool it is. Where the last one is gone, such as one of
        another port whose successor could not be made, all pools are looked through.
        """
        pools = {str(one["id"]) for one in await self._api.listed(Place(IP_POOLS))}
        found = [await self._allocations(ref, pool) for pool in sorted(pools - {*searched})]
        # Addresses of several pools may be the same: here only marks prove.
        return [one for of_pool, _ in found for one in of_pool if one.is_marked]

    def _verdict(
        self, document: Document, ref: LoadBalancerRef, addresses: Iterable[str]
    ) -> Verdict:
        return owners.verdict_of(document, ref, self._section.owner, addresses)

    def _service(
        self,
        cluster: ClusterIdentity,
        services: Sequence[Document],
        servers: Sequence[Document],
        own: Iterable[str],
    ) -> Service | None:
        mine = set(own)
        in_use = {
            str(one.get("lb_service_path") or "")
            for one in servers
            if str(one["id"]) in mine or owners.is_of_cluster(one, cluster)
        }
        found = chosen_service(services, self._section, cluster, in_use)
        if found is None:
            return None
        part = Part(Place(SERVICES), str(found["id"]), found)
        on_it = {
            str(one["id"]) for one in servers if one.get("lb_service_path") == part.path
        } - mine
        is_ours = not self._section.lb_service_id and (
            owners.is_of_cluster(found, cluster)
            or owners.is_adoptable_service(found, cluster, self._section.owner)
        )
        return Service(part, is_ours, len(on_it))
