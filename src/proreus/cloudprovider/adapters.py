"""Make the batched provider interface from functions for one Service or one route.

    self.load_balancers = per_service(self._ensure, self._delete)
    self.load_balancers = from_verbs(verbs)
    self.routes = per_route(self._list, self._create, self._delete)

Items run side by side up to `concurrency`, and a failing one costs only itself.
"""

import functools
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Protocol

from proreus.cloudprovider.errors import CloudError, NotSupported
from proreus.cloudprovider.identity import ClusterIdentity, OwnedObject
from proreus.cloudprovider.load_balancers import (
    DeleteAnswer,
    Done,
    EnsureAnswer,
    HostPolicy,
    LoadBalancer,
    LoadBalancerRef,
    LoadBalancers,
    PartChange,
    Pending,
)
from proreus.cloudprovider.lookups import each
from proreus.cloudprovider.routes import Route, Routes
from proreus.kube.objects import Node, Service

Ensure = Callable[[LoadBalancer], Awaitable[EnsureAnswer]]
Delete = Callable[[LoadBalancerRef], Awaitable[DeleteAnswer]]
Preview = Callable[[LoadBalancer], Awaitable[Sequence[PartChange]]]
ChangeRoute = Callable[[ClusterIdentity, Route], Awaitable[object]]
ListOwned = Callable[[ClusterIdentity], Awaitable[Sequence[OwnedObject]]]


class ServiceVerbs(Protocol):
    """The verbs for one Service each, as `per_service` explains them."""

    async def ensure(self, lb: LoadBalancer, /) -> EnsureAnswer:
        """Make or change one load balancer."""

    async def delete(self, ref: LoadBalancerRef, /) -> DeleteAnswer:
        """Delete every part of one load balancer."""

    async def preview(self, lb: LoadBalancer, /) -> Sequence[PartChange]:
        """Return what `ensure` would change, found by reading only."""

    async def list_owned(self, cluster: ClusterIdentity, /) -> Sequence[OwnedObject]:
        """List what carries the cluster's marks."""

    def fingerprint(self, lb: LoadBalancer, /) -> str:
        """Return what `list_owned` shows for a load balancer that is as desired."""

    def host_policy(self, service: Service, /) -> HostPolicy:
        """Choose which nodes are hosts."""


def per_service(
    ensure: Ensure,
    delete: Delete,
    *,
    update_hosts: Ensure | None = None,
    group: Callable[[LoadBalancerRef], Hashable] = lambda lb: lb.uid,
    host_policy: Callable[[Service], HostPolicy] = lambda _: HostPolicy(),
    list_owned: ListOwned | None = None,
    fingerprint: Callable[[LoadBalancer], str] = lambda _: "",
    preview: Preview | None = None,
    concurrency: int = 1,
) -> LoadBalancers:
    """Make the capability `LoadBalancers` from functions for one Service each.

    Args:
        ensure: Makes or changes one load balancer; an error that it raises is the answer for that
            Service.
        delete: Deletes every part of one load balancer.
        update_hosts: Is called in place of `ensure` when only hosts differ; `ensure` by default.
        group: Returns the name that load balancers sharing cloud objects have in common; by default
            none share.
        host_policy: Which nodes are hosts; by default all, in both families.
        list_owned: Lists the cloud objects with the cluster's marks, if the cloud can.
        fingerprint: Returns what `list_owned` shows for a load balancer that is as desired; a
            CloudError that it raises means that there is no fingerprint.
        preview: Returns what `ensure` would change, by reading only, if the provider can tell; an
            error that it raises is the answer for that Service.
        concurrency: How many members of one group are worked on at once; more than one is safe
            only where they do not change what they share.
    """
    return _PerService(
        ensure,
        delete,
        update_hosts=update_hosts or ensure,
        group=group,
        host_policy=host_policy,
        list_owned=list_owned or _cannot_list,
        fingerprint=fingerprint,
        preview=preview or _cannot_preview,
        concurrency=concurrency,
    )


def per_route(
    list_routes: Callable[[ClusterIdentity], Awaitable[Sequence[Route]]],
    create: ChangeRoute,
    delete: ChangeRoute,
    *,
    concurrency: int = 1,
) -> Routes:
    """Make the capability `Routes` from functions for one route each.

    The routes lead to machines. An error that `create` or `delete` raises is that route's answer.
    Routes are deleted before others are created, since names and destinations may be unique.

    Args:
        list_routes: Lists all routes of a cluster, or raises.
        create: Makes a route; a route that is there already is no error.
        delete: Deletes a route as it was listed; a route that is gone already is no error.
        concurrency: How many routes are created or deleted at once.
    """
    return _PerRoute(list_routes, create, delete, concurrency)


def from_verbs(verbs: ServiceVerbs) -> LoadBalancers:
    """Make the capability `LoadBalancers` from an object with all verbs for one Service each."""
    return per_service(
        verbs.ensure,
        verbs.delete,
        host_policy=verbs.host_policy,
        list_owned=verbs.list_owned,
        fingerprint=verbs.fingerprint,
        preview=verbs.preview,
    )


class _PerService:
    def __init__(
        self,
        ensure: Ensure,
        delete: Delete,
        *,
        update_hosts: Ensure,
        group: Callable[[LoadBalancerRef], Hashable],
        host_policy: Callable[[Service], HostPolicy],
        list_owned: ListOwned,
        fingerprint: Callable[[LoadBalancer], str],
        preview: Preview,
        concurrency: int,
    ) -> None:
        self._ensure = ensure
        self._delete = delete
        self._update_hosts = update_hosts
        self._group = group
        self._host_policy = host_policy
        self._list_owned = list_owned
        self._fingerprint = fingerprint
        self._preview = preview
        self._concurrency = concurrency

    def group(self, lb: LoadBalancerRef) -> Hashable:
        return self._group(lb)

    def host_policy(self, service: Service) -> HostPolicy:
        return self._host_policy(service)

    async def ensure(self, desired: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        return await each(desired, lambda lb: lb.ref.uid, self._ensure, self._concurrency)

    async def update_hosts(self, desired: Sequence[LoadBalancer]) -> Mapping[str, EnsureAnswer]:
        return await each(desired, lambda lb: lb.ref.uid, self._update_hosts, self._concurrency)

    async def delete(self, refs: Sequence[LoadBalancerRef]) -> Mapping[str, DeleteAnswer]:
        return await each(refs, lambda lb: lb.uid, self._delete, self._concurrency)

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        return await self._list_owned(cluster)

    def fingerprint(self, desired: LoadBalancer) -> str:
        try:
            return self._fingerprint(desired)
        except CloudError:
            return ""  # `ensure` says what is wrong

    async def preview(
        self, desired: Sequence[LoadBalancer]
    ) -> Mapping[str, Sequence[PartChange] | CloudError]:
        return await each(desired, lambda lb: lb.ref.uid, self._preview, self._concurrency)


class _PerRoute:
    def __init__(
        self,
        list_routes: Callable[[ClusterIdentity], Awaitable[Sequence[Route]]],
        create: ChangeRoute,
        delete: ChangeRoute,
        concurrency: int,
    ) -> None:
        self._list = list_routes
        self._create = create
        self._delete = delete
        self._concurrency = concurrency

    async def list(self, cluster: ClusterIdentity, nodes: Sequence[Node]) -> Sequence[Route]:
        del nodes  # whose addresses do not matter
        return await self._list(cluster)

    async def apply(
        self,
        cluster: ClusterIdentity,
        nodes: Sequence[Node],
        create: Sequence[Route],
        delete: Sequence[Route],
    ) -> Mapping[Route, Done | Pending | CloudError]:
        del nodes

        async def changed(change: ChangeRoute, route: Route) -> Done:
            await change(cluster, route)
            return Done()

        answers: dict[Route, Done | Pending | CloudError] = {}
        for change, routes in ((self._delete, delete), (self._create, create)):
            answers |= await each(
                routes, lambda route: route, functools.partial(changed, change), self._concurrency
            )
        return answers


async def _cannot_list(cluster: ClusterIdentity) -> Sequence[OwnedObject]:
    raise NotSupported(f"this cloud cannot list what belongs to the cluster {cluster.name}")


async def _cannot_preview(desired: LoadBalancer) -> Sequence[PartChange]:
    raise NotSupported(
        f"the provider has no preview: what it would change for {desired.ref.key} is unknown"
    )
