"""The capability `Routes` of the provider `azure`: routes of pods in the cluster's route table.

A batch is one read and one write of the whole table, which only takes place if nobody else has
changed the table in between. Routes of Azure have no marks: those that the framework looks at lie
in a cluster CIDR, so a table must not be shared by clusters whose CIDRs overlap.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_network
from typing import Final

from proreus.cloudprovider.addresses import family_of
from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import Done, Pending
from proreus.cloudprovider.names import digest_of
from proreus.cloudprovider.refused import Reason, Refused
from proreus.cloudprovider.routes import Holders, Route
from proreus.kube.objects import Node
from proreus.providers.azure import operations
from proreus.providers.azure.absences import Absences
from proreus.providers.azure.api import Arm, Resource, Waiting
from proreus.providers.azure.machines import part, properties

MOST_TRIES: Final = 4
"""How often the table is read again when somebody else has changed it meanwhile."""
APPLIANCE: Final = "VirtualAppliance"
"""The type of routes that lead to an address."""
_STALE: Final = frozenset({Reason.CONFLICT, Reason.PRECONDITION_FAILED})
_SEPARATOR: Final = "____"

Answer = Done | Pending | CloudError


class AzureRoutes:
    """The routes of one route table."""

    def __init__(self, arm: Arm, *, confirm: float) -> None:
        """Keep the client of Azure, and how long an absence is doubted: see `Absences`."""
        self._arm = arm
        config = arm.config
        group = config.route_table_resource_group or config.resource_group
        head = f"/subscriptions/{config.network_subscription}/resourceGroups/{group}"
        self._id = f"{head}/providers/Microsoft.Network/routeTables/{config.route_table_name}"
        self._lock = asyncio.Lock()
        self._absences = Absences(confirm)

    async def list(self, cluster: ClusterIdentity, nodes: Sequence[Node]) -> Sequence[Route]:
        """List the routes that lead to addresses, by one request."""
        del cluster, nodes
        table, _ = await self._read()
        return listed(table)

    async def apply(
        self,
        cluster: ClusterIdentity,
        nodes: Sequence[Node],
        create: Sequence[Route],
        delete: Sequence[Route],
    ) -> Mapping[Route, Answer]:
        """Create and delete routes in one write of the table."""
        del cluster
        answers: dict[Route, Answer] = {}
        hops: dict[Route, tuple[str, str]] = {}
        holders = Holders(nodes)
        for route in create:
            try:
                hops[route] = hop(route, holders)
            except InvalidRequest as error:
                answers[route] = error
        rest = (*hops, *delete)
        if not rest:
            return answers
        try:
            async with self._lock:
                refused = await self._write(hops, delete)
        except Waiting as waiting:
            return answers | dict.fromkeys(rest, waiting.pending)
        return answers | dict.fromkeys(rest, Done()) | refused

    async def _read(self) -> tuple[Resource | None, float]:
        """Read the table; return how long it may be there although Azure shows none, in seconds.

        That goes for the first look of a process, too: nothing else tells that there is a table,
        and the one that is written would not have what operators have put into it.
        """
        table = await self._arm.find(operations.ROUTE_TABLE_GET, self._id)
        if table is not None:
            self._absences.shown(self._id)
            return table, 0.0
        return None, self._absences.doubt(
            self._id, asyncio.get_running_loop().time(), is_known=True
        )

    async def _write(
        self, hops: Mapping[Route, tuple[str, str]], delete: Sequence[Route]
    ) -> dict[Route, InvalidRequest]:
        """Change the table; return the routes that cannot be in it."""
        for _ in range(MOST_TRIES):
            table, doubt = await self._read()
            if doubt:
                text = "Azure does not show the route table, which was there: it is asked again"
                raise Waiting(Pending(doubt, f"{text} before another one is made"))
            refused = blocked(table, hops)
            fitting = {route: one for route, one in hops.items() if route not in refused}
            changed = changed_table(table, fitting, delete)
            if changed is None:
                return refused
            config = self._arm.config
            document = {**changed, "tags": {**(changed.get("tags") or {}), **config.shared_tags}}
            document.setdefault("location", config.location)
            etag = str((table or {}).get("etag", ""))
            try:
                await self._arm.put(operations.ROUTE_TABLE_PUT, self._id, document, etag=etag)
            except Refused as error:
                if error.reason not in _STALE:
                    raise
                reason = str(error)
            except CloudError:
                self._absences.shown(self._id)
                raise
            else:
                self._absences.shown(self._id)
                return refused
        raise Waiting(Pending(5.0, f"somebody else changes the route table: {reason}"))


def listed(table: Resource | None) -> list[Route]:
    """Return the routes of a table that lead to addresses. Pure."""
    return [
        Route(str(one["name"]), str(properties(one).get("addressPrefix")), _target(one))
        for one in part(table or {}, "routes") or ()
        if properties(one).get("nextHopType") == APPLIANCE
    ]


def hop(route: Route, holders: Holders) -> tuple[str, str]:
    """Return the name and the address that a route to a node has. Pure.

    Raises:
        InvalidRequest: The node is not known, or has no address of the family.
    """
    node = holders.of(route.target, route.destination)
    if node is None:
        raise InvalidRequest(f"no node has the provider id {route.target}")
    family = f"IPv{ip_network(route.destination).version}"
    for address in node.status.addresses:
        if address.type == "InternalIP" and family_of(address.address) == family:
            return _name(node, route.destination), address.address
    raise InvalidRequest(
        f"the node {node.metadata.name} has no InternalIP of the family of {route.destination}"
    )


def _name(node: Node, destination: str) -> str:
    """Return the official name of a route."""
    digits = destination.replace(":", "").replace(".", "").replace("/", "")
    return f"{node.metadata.name}{_SEPARATOR}{digits}"


def blocked(table: Resource | None, create: Iterable[Route]) -> dict[Route, InvalidRequest]:
    """Return the routes whose destination already has a route that somebody else made. Pure.

    Such a route, to a gateway for instance, is not ours to replace.
    """
    taken = {
        str(properties(one).get("addressPrefix")): str(one["name"])
        for one in part(table or {}, "routes") or ()
        if properties(one).get("nextHopType") != APPLIANCE
    }
    return {
        route: InvalidRequest(
            f"the route {taken[route.destination]} of the route table leads {route.destination}"
            " elsewhere: delete it, or give the node other pod CIDRs"
        )
        for route in create
        if route.destination in taken
    }


def changed_table(
    table: Resource | None, hops: Mapping[Route, tuple[str, str]], delete: Iterable[Route]
) -> Resource | None:
    """Return the table with some routes, and without others; None if nothing changes. Pure."""
    observed = list(part(table or {}, "routes") or ())
    gone = {(one.destination, one.target) for one in delete}
    wanted = {route.destination: found for route, found in hops.items()}
    kept = []
    for one in observed:
        destination, target = str(properties(one).get("addressPrefix")), _target(one)
        if destination in wanted and target == wanted[destination][1]:
            kept.append(one)
            del wanted[destination]
        elif destination in wanted or (destination, target) in gone:
            continue
        else:
            kept.append(one)
    # The official name leaves dots out, so that of another destination can be the same.
    names = {str(one["name"]).lower() for one in kept}
    made = [
        {
            "name": name if name.lower() not in names else f"{name}-{digest_of((destination,))}",
            "properties": {
                "addressPrefix": destination,
                "nextHopType": APPLIANCE,
                "nextHopIpAddress": address,
            },
        }
        for destination, (name, address) in wanted.items()
    ]
    if table is not None and not made and kept == observed:
        return None
    return {**(table or {}), "properties": {**properties(table or {}), "routes": [*kept, *made]}}


def _target(route: Resource) -> str | None:
    return properties(route).get("nextHopIpAddress")
