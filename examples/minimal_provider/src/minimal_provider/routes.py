"""Routes: the cloud's way to the pods of each Node."""

from collections.abc import Mapping, Sequence

from minimal_provider.api import CloudRoute, Page, Things
from minimal_provider.machines import PREFIX
from proreus.cloudprovider import (
    MARK_CLUSTER_UID,
    CloudError,
    ClusterIdentity,
    Done,
    RestClient,
    Route,
)
from proreus.kube.objects import Node


class RouteTable:
    """Implements `Routes`: one of the cloud's for each pod CIDR of a Node."""

    def __init__(self, api: RestClient) -> None:
        """Speak through `api`."""
        self._things = Things(api, "routes", CloudRoute, Page[CloudRoute])

    async def list(self, cluster: ClusterIdentity, nodes: Sequence[Node]) -> Sequence[Route]:
        """All routes with the cluster's mark."""
        del nodes  # this cloud names its servers, not addresses
        return [route(one) for one in await self._things.marked(cluster)]

    async def apply(
        self,
        cluster: ClusterIdentity,
        nodes: Sequence[Node],
        create: Sequence[Route],
        delete: Sequence[Route],
    ) -> Mapping[Route, Done | CloudError]:
        """Delete, then create; a failure costs only itself."""
        del nodes
        answers: dict[Route, Done | CloudError] = {}
        for change, routes in ((self._delete, delete), (self._create, create)):
            for one in routes:
                try:
                    await change(cluster, one)
                    answers[one] = Done()
                except CloudError as error:
                    answers[one] = error
        return answers

    async def _create(self, cluster: ClusterIdentity, wanted: Route) -> None:
        server = (wanted.target or "").removeprefix(PREFIX)
        labels = {MARK_CLUSTER_UID: cluster.uid}
        desired = CloudRoute(wanted.name, labels, wanted.destination, server)
        observed = await self._things.find(wanted.name)
        if observed is None:
            await self._things.create(desired)
        elif observed != desired:
            raise CloudError(f"the cloud has another route of the name {wanted.name}")

    async def _delete(self, cluster: ClusterIdentity, listed: Route) -> None:
        observed = await self._things.find(listed.name)
        if observed is not None and observed.labels.get(MARK_CLUSTER_UID) == cluster.uid:
            found = route(observed)
            if (found.destination, found.target) == (listed.destination, listed.target):
                await self._things.delete(listed.name)


def route(found: CloudRoute) -> Route:
    """The route as Proreus knows routes. Pure."""
    return Route(found.name, found.destination, PREFIX + found.server, blackhole=not found.works)
