"""The capability `Routes`: how a cloud's network leads to a node's pods."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import Done, Pending
from proreus.kube.objects import Node


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


class Routes(Protocol):
    """The capability of a cloud to route pod CIDRs to nodes."""

    async def list(self, cluster: ClusterIdentity, nodes: Sequence[Node]) -> Sequence[Route]:
        """List every route that belongs to this cluster, of whatever destination.

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
