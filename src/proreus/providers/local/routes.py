"""The capability `Routes` of the provider `local`: routes to pod CIDRs in this machine's kernel.

The kernel knows neither clusters nor nodes: the metric of a route is made of the cluster's uid,
and its next hop is an address of the node. A node that is this very machine needs no route.
"""

import hashlib
import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from proreus.cloudprovider.addresses import family_of, is_address, plain_address
from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import Done, Pending
from proreus.cloudprovider.routes import Route, network_of
from proreus.kube.objects import Node, by_age
from proreus.providers.local.addresses import IP_TYPES
from proreus.providers.local.config import RoutesConfig
from proreus.providers.local.netlink import KernelRoute, RouteTable, own_addresses

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

_FIRST_METRIC: Final = 1 << 24


class LocalRoutes:
    """The capability `Routes` of the provider `local`."""

    def __init__(self, context: "Context", settings: RoutesConfig) -> None:
        """Keep the context and the settings; read nothing yet."""
        self._context = context
        self._settings = settings

    async def list(self, cluster: ClusterIdentity, nodes: Sequence[Node]) -> Sequence[Route]:
        """List the routes that carry our protocol number and the cluster's metric."""
        table = self._table(cluster)
        found = await self._context.call(
            "netlink", "list_routes", table.list, read=True, blocking=True
        )
        return seen(found, nodes, await own_of_machine(self._context))

    async def apply(
        self,
        cluster: ClusterIdentity,
        nodes: Sequence[Node],
        create: Sequence[Route],
        delete: Sequence[Route],
    ) -> Mapping[Route, Done | Pending | CloudError]:
        """Replace or create routes, then delete some: one call of the kernel each."""
        table = self._table(cluster)
        answers: dict[Route, Done | Pending | CloudError] = {}
        put, problems = ways(create, nodes, await own_of_machine(self._context))
        answers.update(problems)
        kept = {_canonical(route.destination) for route in create}
        remove = {_canonical(route.destination) for route in delete} - kept
        results = await self._context.call(
            "netlink",
            "change_routes",
            lambda: table.change(put.values(), sorted(remove)),
            read=False,
            blocking=True,
        )
        for route in (*create, *delete):
            problem = results.get(_canonical(route.destination))
            answers.setdefault(route, Done() if problem is None else problem)
        return answers

    def _table(self, cluster: ClusterIdentity) -> RouteTable:
        return RouteTable(
            table=self._settings.table,
            protocol=self._settings.protocol,
            metric=metric_of(cluster),
        )


async def own_of_machine(context: "Context") -> frozenset[str]:
    """Return the addresses of the machine on which the manager runs.

    Raises:
        CloudError: The kernel refuses.
    """
    return await context.call("netlink", "list_addresses", own_addresses, read=True, blocking=True)


def metric_of(cluster: ClusterIdentity) -> int:
    """Return the metric that marks a cluster's routes."""
    digest = hashlib.sha256(cluster.uid.encode()).digest()
    return _FIRST_METRIC + int.from_bytes(digest[:3])


def seen(found: Iterable[KernelRoute], nodes: Sequence[Node], own: frozenset[str]) -> list[Route]:
    """Convert the kernel's routes to the framework's. Pure.

    A next hop that is no node's address, or that of two nodes, stays an address. The pod CIDRs of
    a node that is this machine are there without a route.
    """
    holders = _holders(nodes)
    owners: dict[str, set[str]] = {}
    for node in nodes:
        for address in _addresses(node):
            owners.setdefault(address, set()).add(node.spec.provider_id)
    routes = []
    for one in found:
        ids = owners.get(one.via, set()) - {""}
        target = next(iter(ids)) if len(ids) == 1 else one.via
        routes.append(Route(one.destination, one.destination, target))
    known = {route.destination for route in routes}
    routes += [
        Route(destination, destination, node.spec.provider_id)
        for node in nodes
        if _is_here(node, own) and node.spec.provider_id
        for cidr in (node.spec.pod_cidrs or (node.spec.pod_cidr,))
        if cidr
        and (destination := _canonical(cidr)) not in known
        and holders[node.spec.provider_id, destination] is node
    ]
    return routes


def ways(
    create: Iterable[Route], nodes: Sequence[Node], own: frozenset[str]
) -> tuple[dict[Route, KernelRoute], dict[Route, CloudError]]:
    """Return the kernel routes for the routes to create, and the problems of the others. Pure."""
    holders = _holders(nodes)
    found: dict[Route, KernelRoute] = {}
    problems: dict[Route, CloudError] = {}
    for route in create:
        id_, destination = route.target or "", _canonical(route.destination)
        node = holders.get((id_, destination)) or holders.get((id_, ""))
        if node is None:
            problems[route] = InvalidRequest(f"no Node has the provider id {route.target}")
        elif not _is_here(node, own):
            family = f"IPv{ipaddress.ip_network(destination).version}"
            via = next(
                (address for address in _addresses(node) if family_of(address) == family), None
            )
            if via is None:
                problems[route] = InvalidRequest(
                    f"the Node {node.metadata.name} has the pod CIDR {destination}, but no"
                    f" {family} address to route it to"
                )
            else:
                found[route] = KernelRoute(destination, via)
    return found, problems


def _holders(nodes: Sequence[Node]) -> dict[tuple[str, str], Node]:
    """Return the node of each provider id and pod CIDR, and with "" of each provider id.

    Of two nodes with one provider id the older counts: any kubelet can write another node's id on
    its own new Node.
    """
    holders: dict[tuple[str, str], Node] = {}
    for node in sorted(nodes, key=by_age):
        if id_ := node.spec.provider_id:
            cidrs = filter(None, node.spec.pod_cidrs or (node.spec.pod_cidr,))
            for cidr in ("", *map(_canonical, cidrs)):
                holders.setdefault((id_, cidr), node)
    return holders


def _addresses(node: Node) -> list[str]:
    """Return the node's IP addresses, the internal ones first."""
    return [
        plain_address(address.address)
        for type_ in IP_TYPES
        for address in node.status.addresses
        if address.type == type_ and is_address(address.address)
    ]


def _is_here(node: Node, own: frozenset[str]) -> bool:
    return not own.isdisjoint(_addresses(node))


def _canonical(cidr: str) -> str:
    """Return a CIDR in its one form; a text that is none, as any kubelet may give, as it is."""
    return str(network_of(cidr))
