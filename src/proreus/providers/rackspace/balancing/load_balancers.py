"""The capability `LoadBalancers` of the provider `rackspace`.

A Service has a Cloud Load Balancer for each port, which share one address. A change puts a load
balancer to work for some seconds, in which it takes no other: that is answered with `Pending`.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.identity import (
    MARK_SERVICE,
    MARK_SERVICE_UID,
    ClusterIdentity,
    OwnedObject,
)
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
    nodes_with_pods,
)
from proreus.cloudprovider.lookups import check_nodes_shown, check_shown
from proreus.cloudprovider.mark_forms import owner_of
from proreus.cloudprovider.ownership import refusal, shown_by_others
from proreus.cloudprovider.steps import converge, preview_plan
from proreus.cloudprovider.waits import Missed, Waits, Working, has_left, showing_only
from proreus.kube.objects import IP_MODE_PROXY, KubeObject, LoadBalancerIngress, Service
from proreus.providers.nova.servers import Servers
from proreus.providers.rackspace.api import Api
from proreus.providers.rackspace.balancing import owners
from proreus.providers.rackspace.balancing.annotations import Options, read_options
from proreus.providers.rackspace.balancing.balancers import Balancers
from proreus.providers.rackspace.balancing.desired import (
    Chosen,
    check,
    chosen,
    desired_balancers,
    fingerprint,
)
from proreus.providers.rackspace.balancing.documents import (
    Described,
    existing,
    marks_of,
    vips,
    visible,
)
from proreus.providers.rackspace.balancing.parts import (
    ACTIVE,
    GOING,
    SERVICENET,
    Desired,
    Existing,
    Observed,
    Settings,
)
from proreus.providers.rackspace.balancing.plan import (
    addresses,
    check_observed,
    check_states,
    deletion,
    is_settled,
    plan,
)
from proreus.providers.rackspace.balancing.steps import Step
from proreus.providers.rackspace.config import RackspaceConfig
from proreus.providers.rackspace.names import parsed

PACE: Final = tuple(min(2.0 * 1.5**times, 10.0) for times in range(5))
"""Seconds until Rackspace is asked again whether it is done."""
MOST_STEPS: Final = 1000
"""Rounds of a preview: more than a load balancer can need."""


class Case(msgspec.Struct, frozen=True):
    """A Service: its desired and its observed load balancers.

    Attributes:
        desired: The desired load balancers.
        observed: The observed load balancers.
        nodes: Its hosts.
        by_hand: The addresses that load balancers have which no Service's of the cluster are.
    """

    desired: Desired
    observed: Observed
    nodes: Chosen
    by_hand: frozenset[str]


class RackspaceLoadBalancers:
    """The verbs of `LoadBalancers` for one Service at a time."""

    def __init__(
        self,
        api: Api,
        servers: Servers,
        config: RackspaceConfig,
        nodes: Lister[KubeObject],
        services: Lister[KubeObject],
        *,
        confirm: float,
    ) -> None:
        """Keep the client of Rackspace, servers, the cloud-config, all nodes and all Services.

        `confirm` is the provider's.
        """
        self._servers = servers
        self._nodes = nodes
        self._services = services
        self._missed = Missed(confirm)
        self._balancers = Balancers(api)
        self._config = config
        self._waits = Waits(PACE)
        self._deleted: set[str] = set()
        self._made: dict[str, tuple[int, ...]] = {}
        self._naming = asyncio.Lock()

    def host_policy(self, service: Service) -> HostPolicy:
        """Choose the nodes with ready pods where only these may get traffic.

        ServiceNet has IPv4 only.
        """
        is_inside = read_options(service.metadata.annotations).type == SERVICENET
        families = ("IPv4",) if is_inside else ("IPv4", "IPv6")
        return nodes_with_pods(service, *families)

    async def ensure(self, lb: LoadBalancer) -> EnsureAnswer:
        """Make or change the load balancers; `Pending` while Rackspace still works on one.

        Services that begin to use an address which they name do so one after the other: the first
        one's marks say whose it is.
        """
        is_new = lb.requested_address not in {"", *(point.ip for point in lb.ref.last_ingress)}
        async with self._naming if is_new else nullcontext():
            return await self._ensure(lb)

    async def _ensure(self, lb: LoadBalancer) -> EnsureAnswer:
        try:
            case = await self._sure_case(lb)
        except Working as working:
            return self._waits.answer(lb.ref.uid, working)
        first = plan(case.desired, case.observed)
        with showing_only(lb.ref, _held(case.observed)):
            take = partial(self._take, lb.ref.uid)
            observed = await converge(case.observed, lambda now: plan(case.desired, now), take)
            check_states(observed)
        if not is_settled(case.desired, observed):
            self._made[lb.ref.uid] = tuple(one.id for one in observed.existing)
            is_left = has_left(lb.ref, _held(observed))
            return self._pending(lb.ref.uid, observed, is_moving=bool(first), withdrawn=is_left)
        self._forget(lb.ref.uid)
        # What others have at an address that is shared nodes must not lead to pods.
        shared = {*case.by_hand, lb.requested_address}
        ingress = [
            LoadBalancerIngress(ip=ip, ip_mode=IP_MODE_PROXY if ip in shared else None)
            for ip in addresses(case.desired, observed)
        ]
        return Ensured(tuple(ingress), case.nodes.rejected)

    async def preview(self, lb: LoadBalancer) -> Sequence[PartChange]:
        """Return what `ensure` would change, in all its rounds."""
        case = await self._case(lb)
        check_states(case.observed)
        staying = (one for one in case.observed.existing if one.status != GOING)
        awake = Observed(tuple(replace(one, status=ACTIVE) for one in staying))
        lines, _ = preview_plan(awake, lambda now: plan(case.desired, now), rounds=MOST_STEPS)
        return lines

    def fingerprint(self, lb: LoadBalancer) -> str:
        """Return the fingerprint that `list_owned` shows if all is as desired."""
        shown = {point.ip for point in lb.ref.last_ingress if point.ip_mode == IP_MODE_PROXY}
        if lb.requested_address and lb.requested_address not in shown:
            return ""
        options = read_options(lb.service.metadata.annotations)
        check(lb, options)
        return fingerprint(self._desired(lb, options)[0])

    async def delete(self, ref: LoadBalancerRef) -> DeleteAnswer:
        """Delete what was made for a Service; with the last one its address goes."""
        listed, made = await self._balancers.all(), self._made.get(ref.uid, ())
        observed = await self._balancers.of_service(ref, listed, {}, made)
        if observed.existing:
            self._deleted.add(ref.uid)
        elif ref.last_ingress and ref.uid not in self._deleted:
            await check_nodes_shown(self._nodes.all(), parsed, self._servers.by_id)
        first = deletion(observed)
        observed = await converge(observed, deletion, self._balancers.take)
        if observed.existing:
            return self._pending(ref.uid, observed, is_moving=bool(first))
        self._forget(ref.uid)
        was_there = ref.uid in self._deleted
        self._deleted.discard(ref.uid)
        return Done(found=was_there)

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        """List load balancers with the cluster's metadata, each with its Service's fingerprint."""
        listed = await self._balancers.all()
        named = (one for one in listed if owners.has_our_form(str(one.get("name", ""))))
        details = await self._balancers.details(int(one["id"]) for one in named)
        by_service: dict[str, list[Existing]] = {}
        for described in details.values():
            owner = None if described is None else owner_of(marks_of(described))
            if described is not None and owner is not None and owner.cluster_uid == cluster.uid:
                by_service.setdefault(owner.service_uid, []).append(existing(described))
        return [
            OwnedObject(
                "load balancer",
                str(one.id),
                one.marks.get(MARK_SERVICE, ""),
                one.marks.get(MARK_SERVICE_UID, ""),
                fingerprint=_observed_fingerprint(of_service),
                addresses=tuple(vip.address for vip in one.vips),
            )
            for of_service in by_service.values()
            for one in of_service
        ]

    async def _sure_case(self, lb: LoadBalancer) -> Case:
        """Return what is desired and observed, if no more is missing than surely is.

        Raises:
            Working: The load balancer of an address in the status is to be looked for once more.
        """
        look = partial(self._check_account, lb)
        async with self._missed.doubting(lb.ref, look):
            case = await self._case(lb)
        is_there = bool(case.observed.existing)
        if not is_there:
            await look()
        self._missed.check(lb.ref, is_there=is_there)
        return case

    async def _check_account(self, lb: LoadBalancer) -> None:
        if lb.ref.last_ingress:
            # What is in another account would be made anew: the hosts are missing there, too.
            ids = (id_ for host in lb.hosts if (id_ := parsed(host.provider_id)))
            await check_shown(ids, self._servers.by_id)

    async def _case(self, lb: LoadBalancer) -> Case:
        options = read_options(lb.service.metadata.annotations)
        check(lb, options)
        desired, nodes = self._desired(lb, options)
        listed = await self._balancers.all()
        parts = {one.key: _parts(one) for one in desired.balancers}
        observed = await self._balancers.of_service(
            lb.ref, listed, parts, self._made.get(lb.ref.uid, ())
        )
        with showing_only(lb.ref, _held(observed)):
            if lb.requested_address:
                shared = await self._named(lb, desired, listed, observed)
                desired = replace(desired, place=replace(desired.place, shared=shared))
            check_observed(desired, observed)
        own = {one.id for one in observed.existing}
        strangers = (
            one for one in owners.of_none(listed, self._services.all()) if int(one["id"]) not in own
        )
        by_hand = frozenset(vip.address for one in strangers for vip in vips(one))
        return Case(desired, observed, nodes, by_hand)

    def _desired(self, lb: LoadBalancer, options: Options) -> tuple[Desired, Chosen]:
        most = self._config.cloud_load_balancers.max_nodes
        nodes = chosen(lb, most)
        return desired_balancers(lb, options, self._config.load_balancer, nodes, most), nodes

    async def _named(
        self, lb: LoadBalancer, desired: Desired, listed: Iterable[Described], observed: Observed
    ) -> frozenset[int]:
        """Return the ids of the virtual IPs that a Service names by their address.

        Raises:
            InvalidRequest: There is no such virtual IP, it is of another kind, or it belongs to
                others.
        """
        ip = lb.requested_address
        holders = [one for one in listed if ip in {vip.address for vip in vips(one)}]
        if not holders:
            raise InvalidRequest(
                f"spec.loadBalancerIP: no load balancer of this account has the address {ip}:"
                " Rackspace keeps an address only as long as a load balancer has it"
            )
        of_kind = [
            vip
            for vip in vips(holders[0])
            if vip.type == desired.place.type and vip.version in desired.place.versions
        ]
        if {vip.version for vip in of_kind} != desired.place.versions:
            raise InvalidRequest(
                f"spec.loadBalancerIP: load balancer {holders[0]['id']}, which has {ip}, does not"
                f" have addresses of {desired.place.type} for {', '.join(lb.families)}"
            )
        ours = {vip.id for one in observed.existing for vip in one.vips}
        if new := {vip.id for vip in of_kind} - ours:
            # Who has another address of that load balancer need not have the one that is named.
            users = await self._users(lb.ref, new, listed)
            self._check_users(lb, holders, users, {vip.address for vip in of_kind})
        return frozenset(vip.id for vip in of_kind)

    async def _users(
        self, ref: LoadBalancerRef, ids: set[int], listed: Iterable[Described]
    ) -> list[Described]:
        """Return the load balancers that have virtual IPs, by their ids, with their metadata.

        Lists may lack what was made for another Service a moment ago.
        """
        there = [one for one in listed if _has_any(one, ids)]
        made = {id_ for uid, of in self._made.items() if uid != ref.uid for id_ in of}
        details = await self._balancers.sure_details(there, made)
        return [one for one in details.values() if one is not None and _has_any(one, ids)]

    def _check_users(
        self,
        lb: LoadBalancer,
        holders: Iterable[Described],
        users: Iterable[Described],
        ips: Iterable[str],
    ) -> None:
        """Refuse addresses that a Service may not begin to use, being those of others."""
        named = [owner for one in users if (owner := owner_of(marks_of(one))) is not None]
        # Load balancers with marks may be missing: deleted by hand, and to be made anew.
        for ip in ips:
            named += shown_by_others(ip, lb.ref, self._services.all())
        names = (lb.requested_address, *(str(one["id"]) for one in holders))
        if why := refusal(named, lb.ref, self._config.tenants, names):
            raise InvalidRequest(
                f"spec.loadBalancerIP: {lb.requested_address} cannot be used: {why}"
            )

    async def _take(
        self, uid: str, observed: Observed, step: Step
    ) -> Callable[[Observed], Observed]:
        """Take a step; remember at once what it makes, since another step may fail."""
        after = await self._balancers.take(observed, step)
        known = {one.id for one in observed.existing}
        if made := [one.id for one in after(observed).existing if one.id not in known]:
            self._made[uid] = (*self._made.get(uid, ()), *made)
        return after

    def _forget(self, uid: str) -> None:
        """Forget what is remembered of a Service between two verbs."""
        self._waits.done(uid)
        self._made.pop(uid, None)

    def _pending(
        self, uid: str, observed: Observed, *, is_moving: bool, withdrawn: bool = False
    ) -> Pending:
        """Return `Pending` with the delay of the next try: short first, longer without progress."""
        busy = [f"{one.id} is {one.status}" for one in observed.existing if one.status != ACTIVE]
        reason = f"Rackspace works on load balancers: {', '.join(busy) or 'others come next'}"
        return self._waits.pending(uid, reason, is_moving=is_moving, withdrawn=withdrawn)


def _held(observed: Observed) -> set[str]:
    """Return the addresses that a Service's load balancers have."""
    return {vip.address for one in observed.existing for vip in one.vips}


def _has_any(balancer: Described, ids: set[int]) -> bool:
    """Tell whether a load balancer has one of these virtual IPs."""
    return any(vip.id in ids for vip in vips(balancer))


def _parts(settings: Settings) -> set[str]:
    """Return the fields that details of a load balancer as desired would have."""
    found = {
        "accessList": settings.access,
        "connectionThrottle": settings.max_connections,
        "healthMonitor": settings.monitor,
        "sessionPersistence": settings.persistence,
    }
    return {"metadata", *(field for field, value in found.items() if value)}


def _observed_fingerprint(found: Sequence[Existing]) -> str:
    """Return the digest of a Service's load balancers; "" unless all are active on one address."""
    is_one = len({one.vip_ids for one in found}) == 1
    if not is_one or any(one.status != ACTIVE for one in found):
        return ""
    every = [vip for one in found for vip in one.vips]
    return visible(
        (one.settings for one in found),
        (vip.type for vip in every),
        (vip.version for vip in every),
    )
