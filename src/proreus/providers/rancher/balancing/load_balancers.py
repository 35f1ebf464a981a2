"""The capability `LoadBalancers` of the provider `rancher`.

A load balancer is a load balancer service in the stack of the official manager, and an external
service for each node. Rancher answers before its work is done: then the verb answers `Pending`.
"""

import asyncio
import functools
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.identity import ClusterIdentity, OwnedObject
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
    nodes_with_pods,
)
from proreus.cloudprovider.lookups import check_nodes_shown
from proreus.cloudprovider.ownership import Owner
from proreus.cloudprovider.refused import Reason, Refused
from proreus.cloudprovider.steps import converge, preview_plan
from proreus.cloudprovider.waits import Missed, Waits, Working
from proreus.kube.objects import IP_MODE_PROXY, KubeObject, LoadBalancerIngress, Service
from proreus.providers.rancher.api import Api
from proreus.providers.rancher.balancing import documents, owners
from proreus.providers.rancher.balancing.desired import (
    check,
    desired_balancer,
    desired_fingerprint,
    rejected,
)
from proreus.providers.rancher.balancing.parts import (
    BALANCERS,
    Balancer,
    Desired,
    External,
    Observed,
)
from proreus.providers.rancher.balancing.plan import (
    Change,
    Step,
    Wait,
    absorbed,
    deletion,
    plan,
    preparation,
    tidying,
)
from proreus.providers.rancher.balancing.reading import STACK, Reader
from proreus.providers.rancher.balancing.sharing import Sharing
from proreus.providers.rancher.instances import Hosts
from proreus.providers.rancher.names import parsed, uuid_of

_AT_ONCE: Final = 8
"""Changes that are sent side by side."""
PACE: Final = tuple(min(0.3 * 1.6**times, 15.0) for times in range(10))
"""Seconds until Rancher is asked again whether it is done."""


class RancherLoadBalancers:
    """The verbs of `LoadBalancers` for one Service at a time."""

    def __init__(
        self, api: Api, hosts: Hosts, nodes: Lister[KubeObject], *, confirm: float
    ) -> None:
        """Keep the client of Rancher, the reader of hosts, and all nodes.

        `confirm` is the provider's.
        """
        self._api = api
        self._hosts = hosts
        self._nodes = nodes
        self._missed = Missed(confirm)
        self._sharing = Sharing()
        self._reader = Reader(api, self._sharing)
        self._waits = Waits(PACE)
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._turn = asyncio.Lock()
        self._deleted: set[str] = set()

    def host_policy(self, service: Service) -> HostPolicy:
        """Choose the nodes with ready pods where only these may get traffic; IPv4 only."""
        return nodes_with_pods(service, "IPv4")

    async def ensure(self, lb: LoadBalancer) -> EnsureAnswer:
        """Make or change the load balancer, as far as Rancher allows it now."""
        check(lb)
        failure = ""
        try:
            desired = desired_balancer(lb, self._api.version)
            self._sharing.need(lb.ref.uid, [target.node for target in desired.targets])
            observed = await self._reader.observe(lb.ref, desired.targets)
            if observed.balancer is not None:
                failure = observed.balancer.failure
            elif lb.ref.last_ingress:
                await self._check_environment(lb)
            self._missed.check(lb.ref, is_there=observed.balancer is not None)
            if not observed.stack or preparation(desired, observed, self._api.version):
                observed = await self._prepared(lb.ref, desired)
            steps = functools.partial(plan, desired, version=self._api.version)
            take = functools.partial(self._take, lb.ref)
            observed = await converge(observed, steps, take)
            await self._tidy(lb.ref, observed)
        except Working as working:
            if failure:
                raise CloudError(
                    f"Rancher has failed to change the load balancer, and is asked again: {failure}"
                ) from None
            return self._waits.answer(lb.ref.uid, working)
        self._waits.done(lb.ref.uid)
        shown = observed.balancer.endpoints if observed.balancer is not None else ()
        # Hosts may be nodes: nodes must not lead what comes for a port of one to pods (KEP-1860).
        ingress = tuple(LoadBalancerIngress(ip=ip, ip_mode=IP_MODE_PROXY) for ip in shown)
        return Ensured(ingress, rejected(lb))

    async def preview(self, lb: LoadBalancer) -> Sequence[PartChange]:
        """Return what `ensure` would change."""
        check(lb)
        desired = desired_balancer(lb, self._api.version)
        try:
            observed = await self._reader.observe(lb.ref, desired.targets)
        except Working as working:
            raise CloudError(working.reason) from None
        stack = () if observed.stack else (PartChange("create", f"stack {STACK}"),)
        lines, _ = preview_plan(
            observed, functools.partial(plan, desired, version=self._api.version)
        )
        return (*stack, *lines)

    def fingerprint(self, lb: LoadBalancer) -> str:
        """Return the fingerprint that `list_owned` shows if all is as desired, the status, too."""
        check(lb)
        if any(point.ip_mode != IP_MODE_PROXY for point in lb.ref.last_ingress):
            return ""  # as a former version or another manager has shown it
        return desired_fingerprint(desired_balancer(lb, self._api.version), self._api.version)

    async def delete(self, ref: LoadBalancerRef) -> DeleteAnswer:
        """Remove what was made for a Service, and external services that nobody needs any more."""
        self._sharing.release(ref.uid)
        try:
            observed = await self._reader.observe(ref, None)
            if observed.balancer is not None:
                self._deleted.add(ref.uid)
            await converge(observed, deletion, functools.partial(self._take, ref))
        except Working as working:
            return self._waits.answer(ref.uid, working)
        was_there = ref.uid in self._deleted
        if ref.last_ingress and not was_there:
            await check_nodes_shown(self._nodes.all(), parsed, self._hosts.by_uuid)
        self._deleted.discard(ref.uid)
        self._waits.done(ref.uid)
        return Done(found=was_there)

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        """List load balancers and external services with the cluster's marks.

        No fingerprint is shown while there is an external service to which nothing leads, such as
        of an `ensure` that was cut off: the next one removes it.
        """
        services, links, externals = await self._reader.all()
        version = self._api.version
        used = documents.led_to(services, links, version)
        found = [
            OwnedObject("external service", one.id)
            for one in externals.values()
            if one.owner is not None and one.owner.cluster_uid == cluster.uid
        ]
        is_tidy = used >= {one.id for one in found}
        for service in services:
            owner = owners.owner_of(service)
            if owner is None or owner.cluster_uid != cluster.uid:
                continue
            one = documents.balancer(service, version, owner, links.get(str(service["id"]), ()))
            shown = documents.shown_fingerprint(one, externals, version) if is_tidy else ""
            found.append(
                OwnedObject(
                    "load balancer service",
                    one.id,
                    owners.service_of(service),
                    owner.service_uid,
                    fingerprint=shown,
                    addresses=one.endpoints,
                )
            )
        return found

    async def _check_environment(self, lb: LoadBalancer) -> None:
        """Refuse to make anew what may be in another environment: the hosts would be missing, too.

        Raises:
            CloudError: None of the nodes' hosts is in this environment.
        """
        known = {uuid_of(host) for host in await self._hosts.all()}
        if known.isdisjoint({parsed(host.provider_id) for host in lb.hosts}):
            raise CloudError(
                "neither the Service's load balancer nor a host of its nodes is in this"
                " environment: are the keys in the cloud-config those of another one?"
            )

    async def _prepared(self, ref: LoadBalancerRef, desired: Desired) -> Observed:
        """Make the stack and external services, once for all Services ensured at the same time."""
        async with self._turn:
            observed = await self._reader.observe(ref, desired.targets)
            if not observed.stack:
                stack = await self._reader.make_stack()
                observed = msgspec.structs.replace(observed, stack=stack)
            steps = functools.partial(preparation, desired, version=self._api.version)
            return await converge(observed, steps, functools.partial(self._take, ref))

    async def _tidy(self, ref: LoadBalancerRef, observed: Observed) -> None:
        """Remove external services that no Service needs any more.

        Of Services that are ensured side by side, the last one to lead away from a node finds out.
        """
        own = observed.balancer.id if observed.balancer is not None else ""
        unused = await self._reader.unused(observed.externals, ref.cluster, own)
        observed = msgspec.structs.replace(observed, unused=unused)
        await converge(observed, tidying, functools.partial(self._take, ref))

    async def _take(
        self, ref: LoadBalancerRef, observed: Observed, step: Step
    ) -> Callable[[Observed], Observed]:
        """Take a step; return a function from the state observed before it to the state after it.

        Raises:
            Working: Rancher works on it, or on something that has to be done before.
            CloudError: Rancher refuses, or does not answer.
        """
        call = step.call
        if isinstance(call, Wait):
            raise Working(call.reason)
        async with self._slots:
            if call.request.method != "DELETE":
                return await self._send(ref, call)
            node = _node_of(call, observed)
            if not node:
                return await self._remove(ref, step, call)
            with self._sharing.going(node) as may_go:
                return await self._remove(ref, step, call) if may_go else step.after

    async def _remove(
        self, ref: LoadBalancerRef, step: Step, call: Change
    ) -> Callable[[Observed], Observed]:
        """Remove a service; one that is gone already is no error."""
        try:
            return await self._send(ref, call)
        except Refused as error:
            if error.is_absence:
                return step.after
            raise

    async def _send(self, ref: LoadBalancerRef, call: Change) -> Callable[[Observed], Observed]:
        try:
            described = await self._api.change(call.request)
        except Refused as error:
            if error.reason is Reason.CONFLICT:
                raise Working(f"Rancher still works on the load balancer: {error}") from error
            raise
        made: Balancer | External = documents.external(described)
        if call.kind == BALANCERS:
            owner = Owner(ref.cluster.uid, service_uid=ref.uid)
            made = documents.balancer(described, self._api.version, owner)
        return lambda now: absorbed(now, call, made)


def _node_of(call: Change, observed: Observed) -> str:
    """Return the node whose external service a request removes; "" for a load balancer."""
    id_ = call.request.url.rpartition("/")[2]
    if call.kind == BALANCERS:
        return ""
    return next(
        (one.owner.service_uid for one in observed.externals if one.id == id_ and one.owner), ""
    )
