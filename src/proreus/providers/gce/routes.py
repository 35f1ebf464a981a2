"""The capability `Routes` of the provider `gce`: one route of the network for each pod CIDR.

Routes have no labels. A cluster's own are those of its network whose description is the official
one and whose name begins with the cluster's, followed by the digits of a uid: so the routes of a
cluster `a-b` are none of the cluster `a`.
"""

import asyncio
import re
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final

import msgspec

from proreus.cloudprovider.errors import CloudError, InvalidRequest, RetryAfter
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import Done, Pending
from proreus.cloudprovider.names import digest_of
from proreus.cloudprovider.routes import Holders, Route
from proreus.kube.objects import Node
from proreus.providers.gce.api import Api
from proreus.providers.gce.names import (
    SCHEME,
    instance_path,
    machine,
    parsed,
    path_in,
    plain_id,
    provider_id,
)
from proreus.providers.gce.place import Place

DESCRIPTION: Final = "k8s-node-route"
PRIORITY: Final = 1000
LONGEST_CLUSTER: Final = 26
"""Letters of the cluster's name in the names of routes."""
CONCURRENCY: Final = 10

_GONE: Final = "NEXT_HOP_INSTANCE_NOT_FOUND"
_DIGITS: Final = 32
_UID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DIGEST: Final = re.compile(rf"[0-9a-f]{{{_DIGITS}}}")
_HOP: Final = re.compile(r"projects/([^/]+)/zones/([^/]+)/instances/([^/]+)")

Answer = Done | Pending | CloudError


class Warned(msgspec.Struct, frozen=True):
    """Something that Google finds wrong with a route."""

    code: str = ""


class Described(msgspec.Struct, frozen=True, rename="camel"):
    """A route as Google describes it."""

    name: str
    network: str
    dest_range: str
    description: str = ""
    next_hop_instance: str = ""
    warnings: tuple[Warned, ...] = ()


def prefix_of(cluster: str) -> str:
    """Return the prefix of the names of a cluster's routes. Pure."""
    return f"{cluster[:LONGEST_CLUSTER]}-"


def route_name(cluster: str, destination: str, target: str) -> str:
    """Return the name of a new route, which is the same at each try. Pure."""
    return prefix_of(cluster) + digest_of((destination, "\0", target), length=_DIGITS)


def is_of_cluster(described: Described, cluster: str, network: str) -> bool:
    """Tell whether a route is a cluster's. Pure."""
    prefix = prefix_of(cluster)
    end = described.name.removeprefix(prefix)
    return (
        described.description == DESCRIPTION
        and path_in(described.network) == network
        and described.name.startswith(prefix)
        and any(form.fullmatch(end) is not None for form in (_UID, _DIGEST))
    )


def route_of(described: Described) -> Route:
    """Convert Google's description of a route. Pure."""
    hop = _HOP.fullmatch(path_in(described.next_hop_instance))
    return Route(
        name=described.name,
        destination=described.dest_range,
        target=provider_id(hop[1], machine(hop[2], hop[3])) if hop else None,
        blackhole=any(one.code == _GONE for one in described.warnings),
    )


class GCERoutes:
    """The routes of a network."""

    def __init__(self, api: Api, place: Place) -> None:
        """Keep the client of Google, and the network."""
        self._api = api
        self._place = place
        self._slots = asyncio.Semaphore(CONCURRENCY)

    async def list(self, cluster: ClusterIdentity, nodes: Sequence[Node]) -> Sequence[Route]:
        """List the cluster's routes by the pages of one list."""
        holders = Holders(nodes, plain_id)
        path = self._place.of_network("routes")
        found = await self._api.listed("routes.list", path, Described)
        network = self._place.network
        ours = (one for one in found if is_of_cluster(one, cluster.name, network))
        return [holders.as_written(route_of(one)) for one in ours]

    async def apply(
        self,
        cluster: ClusterIdentity,
        nodes: Sequence[Node],
        create: Sequence[Route],
        delete: Sequence[Route],
    ) -> Mapping[Route, Answer]:
        """Create routes, then delete others: Google allows several to one destination."""
        del nodes
        made = await asyncio.gather(*(self._settled(self._create(cluster, one)) for one in create))
        gone = await asyncio.gather(*(self._settled(self._delete(cluster, one)) for one in delete))
        return dict(zip((*create, *delete), (*made, *gone), strict=True))

    async def _settled(self, work: Awaitable[None]) -> Answer:
        try:
            async with self._slots:
                await work
        except RetryAfter as error:
            return Pending(error.after, str(error))
        except CloudError as error:
            return error
        return Done()

    async def _create(self, cluster: ClusterIdentity, route: Route) -> None:
        target = route.target or ""
        found = parsed(target)
        if found is None or found[0] != self._place.project:
            raise InvalidRequest(
                f"route to {route.destination}: its target {target!r} is not an instance of the"
                f" project {self._place.project} ({SCHEME}PROJECT/ZONE/INSTANCE)"
            )
        name = route_name(cluster.name, route.destination, target)
        path = self._place.of_network("routes", name)
        body = {
            "name": name,
            "description": DESCRIPTION,
            "destRange": route.destination,
            "network": self._place.url(self._place.network),
            "nextHopInstance": self._place.url(instance_path(self._place.project, found[1])),
            "priority": PRIORITY,
        }
        try:
            await self._api.change("routes.insert", self._place.of_network("routes"), body)
        except RetryAfter:
            # Of that name there is only this one: it was made before, or is being made.
            if await self._api.find("routes.get", path, Described) is None:
                raise

    async def _delete(self, cluster: ClusterIdentity, route: Route) -> None:
        name = route.name
        if not name.startswith(prefix_of(cluster.name)):
            # Such as one that was just made, under the name that was proposed for it.
            name = route_name(cluster.name, route.destination, route.target or "")
        await self._api.delete("routes.delete", self._place.of_network("routes", name))
