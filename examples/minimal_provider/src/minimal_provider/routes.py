"""Routes: the cloud's way to the pods of each Node."""

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
    """The route table: one route of the cloud for each pod CIDR of a Node."""
    table = things(api, "routes", CloudRoute, Page[CloudRoute])

    async def list_routes(cluster: ClusterIdentity) -> Sequence[Route]:
        return [route(one) for one in await marked(table, cluster)]

    async def create(cluster: ClusterIdentity, wanted: Route) -> None:
        desired = cloud_route(wanted, cluster)
        observed = await table.find(wanted.name)
        if observed is None:
            await table.create(desired)
        elif observed != desired:
            raise CloudError(f"the cloud has another route of the name {wanted.name}")

    async def delete(cluster: ClusterIdentity, listed: Route) -> None:
        observed = await table.find(listed.name)
        if observed is not None and is_same(observed, listed, cluster):
            await table.delete(listed.name)

    return per_route(list_routes, create, delete)


def cloud_route(wanted: Route, cluster: ClusterIdentity) -> CloudRoute:
    """The route that is desired, with the cluster's mark. Pure."""
    server = (wanted.target or "").removeprefix(PREFIX)
    return CloudRoute(wanted.name, {MARK_CLUSTER_UID: cluster.uid}, wanted.destination, server)


def is_same(observed: CloudRoute, listed: Route, cluster: ClusterIdentity) -> bool:
    """Whether a route is this cluster's, and leads where it did when it was listed. Pure."""
    now = route(observed)
    is_ours = observed.labels.get(MARK_CLUSTER_UID) == cluster.uid
    return is_ours and (now.destination, now.target) == (listed.destination, listed.target)


def route(found: CloudRoute) -> Route:
    """The route as Proreus knows routes. Pure."""
    return Route(found.name, found.destination, PREFIX + found.server, blackhole=not found.works)
