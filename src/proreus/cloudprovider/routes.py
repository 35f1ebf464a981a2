"""Routes: the cloud's way to a node's pods."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import Done, Pending
from proreus.kube.objects import Node


class Route(msgspec.Struct, frozen=True):
    """A route: `destination` is a CIDR, `target` a provider id or an address, or None.

    `blackhole` is True for a route whose target no longer exists.
    """

    name: str
    destination: str
    target: str | None = None
    blackhole: bool = False


class Routes(Protocol):
    """The route table of a cloud."""

    async def list(self, cluster: ClusterIdentity, nodes: Sequence[Node]) -> Sequence[Route]:
        """Every route that belongs to this cluster."""

    async def apply(
        self,
        cluster: ClusterIdentity,
        nodes: Sequence[Node],
        create: Sequence[Route],
        delete: Sequence[Route],
    ) -> Mapping[Route, Done | Pending | CloudError]:
        """Create and delete routes; a route left out of the answer is unknown."""
