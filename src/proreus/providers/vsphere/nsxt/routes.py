"""The capability `Routes` of NSX-T: static routes on a tier-1 gateway, each to a node's address."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import Done, Pending
from proreus.cloudprovider.lookups import each
from proreus.cloudprovider.operations import finished
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.routes import Holders, Route, network_of
from proreus.kube.objects import Node
from proreus.providers.vsphere.nsxt.api import Api
from proreus.providers.vsphere.nsxt.balancing.described import realization_error
from proreus.providers.vsphere.nsxt.errors import is_busy
from proreus.providers.vsphere.nsxt.operations import ROUTES, Place
from proreus.providers.vsphere.nsxt.static_routes import (
    StaticRoute,
    as_route,
    is_adoptable,
    is_ours,
    leads_to,
    read_route,
    route_document,
    route_id,
)

PATIENCE: Final = 3.0
"""Seconds for which the realization of a route is waited for."""
_AT_ONCE: Final = 8
_AGAIN: Final = 5.0

Answer = Done | Pending | CloudError


class NsxtRoutes:
    """The capability `Routes` of NSX-T."""

    def __init__(self, api: Api, router_path: str) -> None:
        """Keep the client, and the path of the tier-1 gateway."""
        self._api = api
        self._place = Place(ROUTES, router_path.rpartition("/")[2])

    async def apply(
        self,
        cluster: ClusterIdentity,
        nodes: Sequence[Node],
        create: Sequence[Route],
        delete: Sequence[Route],
    ) -> Mapping[Route, Answer]:
        """Change routes in place where the destination stays, and delete what is not needed.

        A route that the official manager has made is not listed. So it is asked for, and what is
        there then gets our mark.
        """
        there = [read_route(one) for one in await self._api.listed(self._place)]
        ours = [one for one in there if is_ours(one, cluster)]
        holders = Holders(nodes)

        async def created(route: Route) -> Answer:
            node = holders.of(route.target, route.destination)
            return await self._create(route, cluster, nodes, there, node)

        made = await each(create, _itself, created, _AT_ONCE)
        replaced = {network_of(one.destination): made[one] for one in create if one in made}

        async def deleted(route: Route) -> Answer:
            if answer := replaced.get(network_of(route.destination)):
                return answer
            for one in ours:
                if leads_to(one, route):
                    await self._api.delete(self._place, one.id)
            return Done()

        return {**await each(delete, _itself, deleted, _AT_ONCE), **made}

    async def _create(
        self,
        route: Route,
        cluster: ClusterIdentity,
        nodes: Sequence[Node],
        there: Collection[StaticRoute],
        node: Node | None,
    ) -> Answer:
        if node is None:
            raise InvalidRequest(f"there is no Node with the provider id {route.target}")
        network = network_of(route.destination)
        same = [one for one in there if network_of(one.network) == network]
        foreign = [
            one for one in same if not (is_ours(one, cluster) or is_adoptable(one, cluster, nodes))
        ]
        if foreign:
            hops = ", ".join(foreign[0].hops) or "nowhere"
            raise InvalidRequest(
                f"the static route {foreign[0].id} leads {route.destination} to {hops} already, and"
                " is not ours: delete it, or give the node another pod CIDR"
            )
        found = min(same, key=lambda one: one.id, default=None)
        id_ = route_id(node, route.destination) if found is None else found.id
        document = route_document(cluster, node, route.destination, found)
        if found is None or document != found.document:
            try:
                await self._api.put(self._place, id_, document)
            except Refused as error:
                if is_busy(error):
                    return Pending(_AGAIN, f"NSX-T is busy: {error}")
                raise
        return await finished(lambda: self._realized(id_), patience=PATIENCE)

    async def _realized(self, id_: str) -> Done | Pending:
        """Tell whether a route is in the network.

        Raises:
            CloudError: The route cannot be realized.
        """
        path = f"{self._place.path}/{id_}"
        for one in await self._api.realized(path):
            if path not in (one.get("intent_paths") or ()):
                continue
            if one.get("state") == "REALIZED":
                return Done()
            if one.get("state") == "ERROR":
                raise CloudError(f"the static route {id_} is refused: {realization_error(one)}")
        return Pending(0.0, f"NSX-T realizes the static route {id_}")

    async def list(self, cluster: ClusterIdentity, nodes: Sequence[Node]) -> Sequence[Route]:
        """List the routes with the cluster's mark."""
        del nodes
        routes = map(read_route, await self._api.listed(self._place))
        return [as_route(one) for one in routes if is_ours(one, cluster)]


def _itself(route: Route) -> Route:
    return route
