"""The capability `Routes`: how a cloud's network leads to a node's pods."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network
from typing import Protocol

import msgspec
from msgspec.structs import replace

from proreus.cloudprovider.addresses import parsed_network
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import Done, Pending
from proreus.kube.objects import KubeObject, Node, by_age


class Route(msgspec.Struct, frozen=True):
    """A route to pods: `destination` is a CIDR, `target` a provider id or an address, or None.

    `blackhole` is True for a route whose target no longer exists. A target of None means that
    the cloud does not say where the route leads; such a route is left alone, unless it is a
    blackhole. `name` is a proposal: it is unique, has 41 characters and may start with a digit; a
    listed route may have any name, and which route it is, destination and target tell.
    """

    name: str
    destination: str
    target: str | None = None
    blackhole: bool = False


class Holders:
    """The Nodes to which routes lead, by their provider ids and pod CIDRs. Pure.

    Any kubelet can write another node's provider id on its own new Node, with an address or an
    annotation of its own. So of several Nodes with a provider id a route leads to the one that has
    its destination as pod CIDR, or else to the oldest.
    """

    def __init__(self, nodes: Iterable[Node], id_of: Callable[[str], str | None] = str) -> None:
        """Sort the nodes by provider id, the oldest first.

        Args:
            nodes: All nodes of the cluster.
            id_of: Returns what is the same in two provider ids of one machine.
        """
        self._id_of = id_of
        self._of: dict[str | None, list[Node]] = {}
        for node in sorted(nodes, key=by_age):
            self._of.setdefault(id_of(node.spec.provider_id), []).append(node)

    def of(self, target: str | None, destination: str) -> Node | None:
        """Return the node to which a route leads; None if none has the id `target`."""
        same = self._of.get(target, ()) if target else ()
        network = network_of(destination)
        having = (
            node
            for node in same
            if network in map(network_of, node.spec.pod_cidrs or (node.spec.pod_cidr,))
        )
        return next(having, next(iter(same), None))

    def as_written(self, route: Route) -> Route:
        """Return a listed route with its target as the node writes it to which the route leads.

        One machine's provider id can be written in several ways, and whoever compares texts would
        replace the route each time. Without such a node the route is as it was.
        """
        node = self.of(self._id_of(route.target), route.destination) if route.target else None
        return route if node is None else replace(route, target=node.spec.provider_id)


def network_of(text: str) -> Hashable:
    """Return a network in a form in which two texts of one network are equal. Pure."""
    found = parsed_network(text)
    return text if found is None else found


def pods_by_cidr(nodes: Iterable[KubeObject]) -> dict[str, str]:
    """Return the names of nodes by their pod CIDRs, as kubelets may have written them."""
    return {
        cidr: node.metadata.name
        for node in nodes
        if isinstance(node, Node)
        for cidr in node.spec.pod_cidrs or (node.spec.pod_cidr,)
    }


def node_of_pods(within: IPv4Network | IPv6Network, pods: Mapping[str, str]) -> str:
    """Return the name of a node whose pods have addresses of a network; "" without any. Pure.

    Args:
        within: The network.
        pods: The names of nodes by their pod CIDRs.
    """
    for text, node in pods.items():
        cidr = parsed_network(text)
        if cidr is not None and cidr.overlaps(within):
            return node
    return ""


class Routes(Protocol):
    """The capability of a cloud to route pod CIDRs to nodes."""

    async def list(self, cluster: ClusterIdentity, nodes: Sequence[Node]) -> Sequence[Route]:
        """List every route that belongs to this cluster, of whatever destination.

        A target that is a node's machine is that node's provider id as the node writes it.

        Args:
            cluster: The cluster whose routes they are.
            nodes: All nodes of the cluster.

        Raises:
            CloudError: A part of the routes could not be listed. A part of a list must not be
                returned.
        """

    async def apply(
        self,
        cluster: ClusterIdentity,
        nodes: Sequence[Node],
        create: Sequence[Route],
        delete: Sequence[Route],
    ) -> Mapping[Route, Done | Pending | CloudError]:
        """Create and delete routes; a route left out of the answer is unknown.

        A destination in both lists is to be replaced: where the cloud can, so that there is a
        route all the time. Both are idempotent: what is there is created, what is gone deleted.
        One that fails must not keep the others from being done.

        Args:
            cluster: The cluster whose routes they are.
            nodes: All nodes of the cluster, for clouds that route to addresses.
            create: The routes to create; their targets are provider ids.
            delete: The routes to delete, as they were listed.

        Raises:
            CloudError: The outcome of all routes is unknown; they are tried again in smaller
                batches.
        """
