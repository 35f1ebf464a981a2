"""The capability `LoadBalancers` of NSX-T.

A load balancer is a virtual server with a pool and a monitor for each port, all at one address of
an IP pool, on one load balancer service of the cluster.
"""

import asyncio
import functools
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from proreus.cloudprovider.addresses import plain_address
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.identity import MARK_SERVICE_UID, ClusterIdentity, OwnedObject
from proreus.cloudprovider.listers import Lister
from proreus.cloudprovider.load_balancers import (
    DeleteAnswer,
    Done,
    EnsureAnswer,
    Ensured,
    HostPolicy,
    LoadBalancer,
    LoadBalancerRef,
    PartChange,
    Pending,
)
from proreus.cloudprovider.mark_forms import owned_object
from proreus.cloudprovider.ownership import kept_by_name
from proreus.cloudprovider.steps import converge, preview_plan
from proreus.cloudprovider.waits import Missed, Waits, Working, showing_only
from proreus.kube.objects import KubeObject, LoadBalancerIngress, Service
from proreus.providers.vsphere.nsxt.api import Api
from proreus.providers.vsphere.nsxt.balancing import desired, owners, steps
from proreus.providers.vsphere.nsxt.balancing.catalog import Catalog
from proreus.providers.vsphere.nsxt.balancing.desired import Material
from proreus.providers.vsphere.nsxt.balancing.parts import (
    IP_POOL,
    TITLES,
    Desired,
    Observed,
    Part,
    tags_of,
)
from proreus.providers.vsphere.nsxt.balancing.plan import deletion, plan, withdrawal
from proreus.providers.vsphere.nsxt.balancing.reading import LISTED, Reader
from proreus.providers.vsphere.nsxt.balancing.shapes import desired_shape, observed_shape
from proreus.providers.vsphere.nsxt.balancing.work import Work, no_address
from proreus.providers.vsphere.nsxt.config import ClassSection, LoadBalancerSection, classes
from proreus.providers.vsphere.nsxt.operations import (
    ALLOCATIONS,
    GROUPS,
    SERVICES,
    Place,
)

PACE: Final = tuple(min(0.5 * 1.6**times, 15.0) for times in range(9))
"""Seconds until NSX-T is asked again whether it is done."""


class NsxtLoadBalancers:
    """The verbs of `LoadBalancers` for one Service at a time."""

    def __init__(
        self,
        api: Api,
        section: LoadBalancerSection,
        own: Mapping[str, ClassSection],
        services: Lister[KubeObject],
        *,
        confirm: float,
    ) -> None:
        """Keep the client and the cloud-config.

        Args:
            api: The client of NSX-T.
            section: The section [LoadBalancer].
            own: The sections [LoadBalancerClass].
            services: All Services.
            confirm: The provider's.
        """
        self._api = api
        self._section = section
        self._services = services
        self._classes = classes(section, own)
        self._catalog = Catalog(api, self._classes.values())
        self._reader = Reader(api, section)
        self._work = Work(api, self._reader, services)
        self._waits = Waits(PACE)
        self._missed = Missed(confirm)
        self._deleted: set[str] = set()

    def host_policy(self, service: Service) -> HostPolicy:
        """Choose all nodes, and the first IP family of the Service."""
        return HostPolicy(families=(desired.family(service),))

    async def ensure(self, lb: LoadBalancer) -> EnsureAnswer:
        """Make or change the load balancer."""
        try:
            observed = await self._ensure(lb)
        except Working as working:
            return self._waits.answer(lb.ref.uid, working)
        self._waits.done(lb.ref.uid)
        _, rejected = desired.members(lb)
        return Ensured((LoadBalancerIngress(ip=observed.address),), rejected)

    async def preview(self, lb: LoadBalancer) -> Sequence[PartChange]:
        """Return what `ensure` would change."""
        wanted, observed = await self._case(lb)
        lines, _ = preview_plan(observed, self._plan(wanted))
        return lines

    def fingerprint(self, lb: LoadBalancer) -> str:
        """Return the fingerprint that `list_owned` shows if all is as desired."""
        desired.check(lb)
        chosen = desired.class_of(lb.service, self._classes)
        named = Material("", {key: one.token for key, one in chosen.profiles.items()})
        return desired_shape(desired.desired_balancer(lb, chosen, named, self._section, ""))

    async def delete(self, ref: LoadBalancerRef) -> DeleteAnswer:
        """Delete what was made for a Service, and the load balancer service with the last one.

        The Service's address proves nothing once it is deleted, so it is withdrawn first.
        """
        pools = await self._catalog.pools()
        tags = owners.service_tags(ref, self._section.owner, self._section.additional_tags)
        take = functools.partial(self._work.take, ref)
        try:
            for _ in range(2):
                observed = await self._reader.observe(ref, pools, is_deletion=True)
                if observed.parts:
                    self._deleted.add(ref.uid)
                    if ref.last_ingress:
                        await converge(observed, functools.partial(withdrawal, tags=tags), take)
                        return Pending(0.0, "the load balancer is deleted", withdrawn=True)
                await converge(observed, deletion, take)
                if not observed.parts:
                    break
                # Others on the load balancer service may have been deleted side by side: whoever
                # finds none left after the end of its own parts is the last one.
        except Working as working:
            return self._waits.answer(ref.uid, working)
        self._waits.done(ref.uid)
        was_there = ref.uid in self._deleted
        self._deleted.discard(ref.uid)
        return Done(found=was_there)

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        """List all objects with the cluster's marks."""
        kinds = (*LISTED, GROUPS, SERVICES)
        lists = await asyncio.gather(*(self._api.listed(Place(kind)) for kind in kinds))
        parts = [
            Part(Place(kind), str(one["id"]), one)
            for kind, documents in zip(kinds, lists, strict=True)
            for one in documents
            if owners.is_of_cluster(one, cluster)
        ]
        named = {tags_of(one.document).get(IP_POOL, "") for one in parts}
        for pool in sorted({*await self._catalog.pools(), *named} - {""}):
            parts += [
                Part(Place(ALLOCATIONS, pool), str(one["id"]), one)
                for one in await self._reader.allocations(pool)
                if owners.is_of_cluster(one, cluster)
            ]
        return self._owned(parts, await self._catalog.profile_names())

    def _owned(self, parts: Sequence[Part], names: Mapping[str, str]) -> list[OwnedObject]:
        """Describe all parts; those of a Service show its fingerprint.

        Which class a Service is of, a listing does not tell; nor whether that gives profiles by
        name or by path. So there is a fingerprint for each way that any class has.
        """
        scopes = owners.scopes(self._section.additional_tags)
        ways = sorted(
            {
                frozenset(key for key, profile in one.profiles.items() if not profile.id)
                for one in self._classes.values()
            },
            key=sorted,
        )
        by_service: dict[str, list[Part]] = {}
        for one in parts:
            by_service.setdefault(tags_of(one.document).get(MARK_SERVICE_UID, ""), []).append(one)
        found = []
        for uid, of_it in by_service.items():
            address = Observed(None, tuple(of_it)).address
            shapes = [observed_shape(of_it, scopes, by_name, names) for by_name in ways]
            for number, one in enumerate(of_it):
                shape = shapes[number] if number < len(shapes) else ""
                owned = owned_object(TITLES[one.kind], one.id, tags_of(one.document))
                if uid and address:
                    owned = replace(owned, fingerprint=shape, addresses=(address,))
                found.append(owned)
        return found

    async def _ensure(self, lb: LoadBalancer) -> Observed:
        async with self._missed.doubting(lb.ref):
            wanted, observed = await self._case(lb)
        self._missed.check(lb.ref, is_there=bool(observed.parts))
        take = functools.partial(self._work.take, lb.ref)
        late = [one for one in observed.of(ALLOCATIONS) if one.address and not observed.address]
        had = (one.address for one in observed.of(ALLOCATIONS) if not one.failure)
        held = {observed.address, *had}
        with showing_only(lb.ref, held | self._named(lb.ref, observed)):
            for one in late:
                await self._work.check(lb.ref, one, observed)
            try:
                return await converge(observed, self._plan(wanted), take)
            except Working as working:
                failures = [one.failure for one in observed.of(ALLOCATIONS) if one.failure]
                if failures:
                    raise CloudError(no_address(failures[0])) from working
                raise

    async def _case(self, lb: LoadBalancer) -> tuple[Desired, Observed]:
        desired.check(lb)
        chosen = desired.class_of(lb.service, self._classes)
        protocols = {one.protocol for one in lb.frontends}
        material = await self._catalog.material(chosen, protocols)
        pools = {*await self._catalog.pools(), material.pool}
        observed = await self._reader.observe(lb.ref, pools)
        if not (observed.address or observed.of(ALLOCATIONS)):
            with showing_only(lb.ref, self._named(lb.ref, observed)):
                desired.check_requested(lb, self._services.all(), observed)
        wanted = desired.desired_balancer(lb, chosen, material, self._section, str(uuid.uuid4()))
        return wanted, observed

    def _named(self, ref: LoadBalancerRef, observed: Observed) -> set[str]:
        """Return the addresses that stay a Service's since it names them and nobody has them."""
        named = kept_by_name(ref, self._services.all())
        return {one for one in named if plain_address(one) not in observed.taken}

    def _plan(self, wanted: Desired) -> Callable[[Observed], Sequence[steps.Step]]:
        section = self._section
        tags = owners.cluster_tags(wanted.ref.cluster, section.owner, section.additional_tags)

        def next_steps(observed: Observed) -> Sequence[steps.Step]:
            desired.check_address(wanted, observed)
            return plan(wanted, observed, tags)

        return next_steps
