"""The capability `Routes` of the provider `cloudstack`: static routes of pods in a VPC.

A static route that leads to a machine exists since CloudStack 4.21. It takes no mark with the
request that makes it, so routes have none: those that the framework looks at lie in a cluster CIDR,
and a VPC must not be shared by clusters whose CIDRs overlap.
"""

import ipaddress
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final

from proreus.cloudprovider.addresses import family_of
from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import Done, Pending
from proreus.cloudprovider.lookups import each
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.routes import Holders, Route
from proreus.cloudprovider.waits import Working
from proreus.kube.objects import Node
from proreus.providers.cloudstack.api import Api, Described
from proreus.providers.cloudstack.balancing.parts import REVOKED
from proreus.providers.cloudstack.errors import is_removed
from proreus.providers.cloudstack.works import Works

ROUTES_SINCE: Final = (4, 21)
"""The version since which a static route can lead to an address within a VPC."""
_AT_ONCE: Final = 8

Answer = Done | Pending | CloudError


class CloudStackRoutes:
    """The capability `Routes` of the provider `cloudstack`."""

    def __init__(self, api: Api, vpc: str) -> None:
        """Keep the client of CloudStack, and the id of the VPC."""
        self._api = api
        self._vpc = vpc
        self._works = Works(api)

    async def list(self, cluster: ClusterIdentity, nodes: Sequence[Node]) -> Sequence[Route]:
        """List the VPC's static routes that lead to an address."""
        del cluster, nodes
        return [
            Route(str(one["id"]), str(one["cidr"]), str(one["nexthop"]))
            for one in await self._read()
            if one.get("nexthop") and one.get("state") != REVOKED
        ]

    async def apply(
        self,
        cluster: ClusterIdentity,
        nodes: Sequence[Node],
        create: Sequence[Route],
        delete: Sequence[Route],
    ) -> Mapping[Route, Answer]:
        """Delete before creating: a VPC has one route to a destination."""
        del cluster
        there = await self._read()
        holders = Holders(nodes)

        async def deleted(route: Route) -> Answer:
            return await self._answered(route.destination, self._delete(route, there, holders))

        gone = await each(delete, _itself, deleted, _AT_ONCE)
        dropped = {route.destination for route, answer in gone.items() if isinstance(answer, Done)}
        left = [one for one in there if str(one["cidr"]) not in dropped]

        async def created(route: Route) -> Answer:
            return await self._answered(route.destination, self._create(route, left, holders))

        return gone | await each(create, _itself, created, _AT_ONCE)

    async def _answered(self, destination: str, work: Awaitable[None]) -> Answer:
        try:
            await work
        except Working as working:
            return self._works.waits.answer(destination, working)
        except CloudError as error:
            return error
        self._works.waits.done(destination)
        return Done()

    async def _create(self, route: Route, there: Sequence[Described], holders: Holders) -> None:
        await self._works.settle(route.destination)
        hop = next_hop(route.destination, _addresses(route, holders))
        if not hop:
            raise InvalidRequest(
                f"the node of {route.target} has no address of the family of {route.destination}"
            )
        at = [one for one in there if str(one["cidr"]) == route.destination]
        if any(one.get("nexthop") == hop for one in at):
            return
        parameters = {"vpcid": self._vpc, "cidr": route.destination, "nexthop": hop}
        await self._works.run(route.destination, "createStaticRoute", parameters)

    async def _delete(self, route: Route, there: Sequence[Described], holders: Holders) -> None:
        await self._works.settle(route.destination)
        hops = {route.target, *_addresses(route, holders)}
        for one in there:
            if str(one["cidr"]) == route.destination and one.get("nexthop") in hops:
                try:
                    parameters = {"id": str(one["id"])}
                    await self._works.run(route.destination, "deleteStaticRoute", parameters)
                except Refused as error:
                    if not is_removed(error):
                        raise

    async def _read(self) -> Sequence[Described]:
        return await self._api.listed("listStaticRoutes", "staticroute", {"vpcid": self._vpc})


def _addresses(route: Route, holders: Holders) -> Sequence[str]:
    """Return the addresses of the node to which a route leads; none without a node."""
    node = holders.of(route.target, route.destination)
    return [] if node is None else [one.address for one in node.status.addresses]


def _itself(route: Route) -> Route:
    return route


def next_hop(destination: str, addresses: Sequence[str]) -> str:
    """Return the first address of the family of a destination, or "". Pure."""
    family = f"IPv{ipaddress.ip_network(destination, strict=False).version}"
    return next((one for one in addresses if family_of(one) == family), "")
