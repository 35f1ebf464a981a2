"""Routes of the simulated cloud."""

import asyncio
from collections.abc import Mapping, Sequence

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.identity import MARK_CLUSTER, MARK_CLUSTER_UID, ClusterIdentity
from proreus.cloudprovider.load_balancers import Done, Pending
from proreus.cloudprovider.routes import Route
from proreus.kube.objects import Node
from proreus.providers.simulated.api import Api
from proreus.providers.simulated.ids import instance_id, provider_id
from proreus.providers.simulated.parts import RoutePart


class SimulatedRoutes:
    """Implements `cloudprovider.Routes`."""

    def __init__(self, api: Api, region: str) -> None:
        """Speak through `api`; targets are provider ids of `region`."""
        self._api = api
        self._region = region

    async def list(self, cluster: ClusterIdentity, nodes: Sequence[Node]) -> Sequence[Route]:
        """The routes that carry this cluster's mark."""
        del nodes
        return [self._route(part) for part in await self._owned(cluster)]

    async def apply(
        self,
        cluster: ClusterIdentity,
        nodes: Sequence[Node],
        create: Sequence[Route],
        delete: Sequence[Route],
    ) -> Mapping[Route, Done | Pending | CloudError]:
        """Delete first, so that a full table has room for what is created."""
        del nodes
        owned = await self._owned(cluster) if delete else []
        answers: dict[Route, Done | Pending | CloudError] = {}
        for wanted, verb in ((delete, self._delete), (create, self._create)):
            results = await asyncio.gather(*(verb(cluster, route, owned) for route in wanted))
            answers.update(zip(wanted, results, strict=True))
        return answers

    async def _delete(
        self, cluster: ClusterIdentity, route: Route, owned: Sequence[RoutePart]
    ) -> Done | CloudError:
        del cluster
        try:
            for part in owned:
                if (part.name, part.destination) == (route.name, route.destination):
                    await self._api.delete(part)
        except CloudError as error:
            return error
        return Done()

    async def _create(
        self, cluster: ClusterIdentity, route: Route, owned: Sequence[RoutePart]
    ) -> Done | CloudError:
        del owned
        id_ = instance_id(self._region, route.target or "")
        if id_ is None:
            return InvalidRequest(f"route {route.name}: target {route.target!r} is no instance")
        body = {
            "name": route.name,
            "destination": route.destination,
            "instance_id": id_,
            "tags": {MARK_CLUSTER: cluster.name, MARK_CLUSTER_UID: cluster.uid},
            "idempotency_token": f"{cluster.uid}/{route.name}/{route.destination}/{id_}",
        }
        try:
            await self._api.create(RoutePart.collection, body)
        except CloudError as error:
            return error
        return Done()

    async def _owned(self, cluster: ClusterIdentity) -> Sequence[RoutePart]:
        tag = f"{MARK_CLUSTER_UID}={cluster.uid}"
        parts = await self._api.parts(kind="route", tag=tag)
        return [part for part in parts if isinstance(part, RoutePart)]

    def _route(self, part: RoutePart) -> Route:
        return Route(
            name=part.name,
            destination=part.destination,
            target=provider_id(self._region, part.instance_id),
            blackhole=part.state == "blackhole",
        )
