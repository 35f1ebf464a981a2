"""Lists, makes and deletes routes: the cloud's way to the pods of each Node."""

from collections.abc import Sequence

from minimal_provider.api import CloudRoute, Page, marked, things
from minimal_provider.machines import PREFIX
from proreus.cloudprovider import (
    MARK_CLUSTER_UID,
    CloudError,
    ClusterIdentity,
    RestClient,
    Route,
    Routes,
    per_route,
)


def routes(api: RestClient) -> Routes:
    """Make the capability: one route of the cloud for each pod CIDR of a Node."""
    table = things(api, "routes", CloudRoute, Page[CloudRoute])

    async def list_routes(cluster: ClusterIdentity) -> Sequence[Route]:
        return [route(listed) for listed in await marked(table, cluster)]

    async def create(cluster: ClusterIdentity, desired: Route) -> None:
        new = cloud_route(desired, cluster)
        observed = await table.find(desired.name)
        if observed is None:
            await table.create(new)
        elif observed != new:
            raise CloudError(f"another route has the name {desired.name}: delete it in the cloud")

    async def delete(cluster: ClusterIdentity, listed: Route) -> None:
        observed = await table.find(listed.name)
        if observed is not None and is_same(observed, listed, cluster):
            await table.delete(listed.name)

    return per_route(list_routes, create, delete)


def cloud_route(desired: Route, cluster: ClusterIdentity) -> CloudRoute:
    """Return the desired route of the cloud, with the cluster's mark. Pure."""
    server = (desired.target or "").removeprefix(PREFIX)
    labels = {MARK_CLUSTER_UID: cluster.uid}
    return CloudRoute(desired.name, labels, desired.destination, server)


def is_same(observed: CloudRoute, listed: Route, cluster: ClusterIdentity) -> bool:
    """Tell whether a route is this cluster's, and leads where it did when listed. Pure."""
    now = route(observed)
    is_ours = observed.labels.get(MARK_CLUSTER_UID) == cluster.uid
    return is_ours and (now.destination, now.target) == (listed.destination, listed.target)


def route(found: CloudRoute) -> Route:
    """Return a route of the cloud as Proreus has routes. Pure."""
    return Route(found.name, found.destination, PREFIX + found.server, blackhole=not found.works)
