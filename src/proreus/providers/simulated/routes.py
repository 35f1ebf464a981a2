"""The capability `Routes` of the provider `simulated`."""

import asyncio
import ipaddress
from collections.abc import Iterable, Mapping, Sequence

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.identity import MARK_CLUSTER, MARK_CLUSTER_UID, ClusterIdentity
from proreus.cloudprovider.load_balancers import Done, Pending
from proreus.cloudprovider.routes import Route
from proreus.kube.objects import Node
from proreus.providers.simulated.api import Api, create, delete, update
from proreus.providers.simulated.ids import instance_id, provider_id
from proreus.providers.simulated.parts import RoutePart


class SimulatedRoutes:
    """The capability `Routes` of the provider `simulated`."""

    def __init__(self, api: Api, region: str) -> None:
        """Keep the client of the cloud; targets are provider ids of `region`."""
        self._api = api
        self._region = region
        self._seen: Sequence[RoutePart] = ()

    async def list(self, cluster: ClusterIdentity, nodes: Sequence[Node]) -> Sequence[Route]:
        """List the routes that carry this cluster's mark."""
        del nodes
        return [self._route(part) for part in await self._owned(cluster)]

    async def apply(
        self,
        cluster: ClusterIdentity,
        nodes: Sequence[Node],
        create: Sequence[Route],
        delete: Sequence[Route],
    ) -> Mapping[Route, Done | Pending | CloudError]:
        """Replace, then delete, then create, so that a full table has room."""
        del nodes
        answers: dict[Route, Done | Pending | CloudError] = {}
        parts = await self._parts_of(cluster, delete)
        new = {_network(route): route for route in create}
        replaced = {}
        for route, part in parts.items():
            successor = new.get(_network(route))
            if part is not None and successor is not None and successor not in replaced:
                replaced[successor] = route, part
        changed = await asyncio.gather(
            *(self._replace(part, to) for to, (_, part) in replaced.items())
        )
        for (to, (old, _)), answer in zip(replaced.items(), changed, strict=True):
            answers[old] = answers[to] = answer
        rest = [route for route in delete if route not in answers]
        gone = await asyncio.gather(*(self._delete(parts[route]) for route in rest))
        answers.update(zip(rest, gone, strict=True))
        missing = [route for route in create if route not in answers]
        made = await asyncio.gather(*(self._create(cluster, route) for route in missing))
        answers.update(zip(missing, made, strict=True))
        return answers

    async def _replace(self, part: RoutePart, to: Route) -> Done | CloudError:
        """Change where a route leads in one call, without a moment in which it is gone."""
        id_ = instance_id(self._region, to.target or "")
        if id_ is None:
            return _no_instance(to)
        try:
            await self._api.take(update(part, {"instance_id": id_}))
        except CloudError as error:
            return error
        return Done()

    async def _delete(self, part: RoutePart | None) -> Done | CloudError:
        try:
            if part is not None:
                await self._api.take(delete(part))
        except CloudError as error:
            return error
        return Done()

    async def _create(self, cluster: ClusterIdentity, route: Route) -> Done | CloudError:
        id_ = instance_id(self._region, route.target or "")
        if id_ is None:
            return _no_instance(route)
        body = {
            "name": route.name,
            "destination": route.destination,
            "instance_id": id_,
            "tags": {MARK_CLUSTER: cluster.name, MARK_CLUSTER_UID: cluster.uid},
            "idempotency_token": f"{cluster.uid}/{route.name}/{route.destination}/{id_}",
        }
        try:
            part = await self._api.take(create(RoutePart.collection, body))
        except CloudError as error:
            return error
        if not isinstance(part, RoutePart) or part.instance_id != id_:
            # The token found a route that was made to lead elsewhere since.
            return CloudError(f"the route to {route.destination} leads to another instance by now")
        return Done()

    async def _parts_of(
        self, cluster: ClusterIdentity, routes: Iterable[Route]
    ) -> dict[Route, RoutePart | None]:
        """Return the part of each route, from the last listing if that has them all; None: gone."""
        found = {route: self._find(route) for route in routes}
        if None in found.values():
            await self._owned(cluster)
            found = {route: self._find(route) for route in found}
        return found

    def _find(self, route: Route) -> RoutePart | None:
        desired = _network(route), instance_id(self._region, route.target or "")
        return next(
            (part for part in self._seen if (_network(part), part.instance_id) == desired), None
        )

    async def _owned(self, cluster: ClusterIdentity) -> Sequence[RoutePart]:
        tag = f"{MARK_CLUSTER_UID}={cluster.uid}"
        parts = await self._api.parts(kind="route", tag=tag)
        self._seen = [part for part in parts if isinstance(part, RoutePart)]
        return self._seen

    def _route(self, part: RoutePart) -> Route:
        return Route(
            name=part.name,
            destination=part.destination,
            target=provider_id(self._region, part.instance_id),
            blackhole=part.state == "blackhole",
        )


def _network(route: Route | RoutePart) -> object:
    return ipaddress.ip_network(route.destination, strict=False)


def _no_instance(route: Route) -> InvalidRequest:
    return InvalidRequest(f"route {route.name}: target {route.target!r} is not an instance")
