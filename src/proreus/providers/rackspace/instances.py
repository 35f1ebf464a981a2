"""Describe servers of Rackspace."""

from collections.abc import Collection, Mapping, Sequence

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.instances import InstanceAnswer, NotFound, Ownership
from proreus.kube.objects import Node
from proreus.providers.nova.machines import Described
from proreus.providers.nova.names import Target
from proreus.providers.nova.servers import BATCH, Found, Servers, match
from proreus.providers.rackspace.machines import by_address, instance, running_first
from proreus.providers.rackspace.names import address_of, ownership, target


class RackspaceServers(Servers):
    """A reader of servers, which finds those too whose Nodes are called by an address."""

    async def by_name(self, names: Collection[str]) -> dict[str, list[Described]]:
        """Read servers by name in lower case, or by the address that a Node is called by.

        Of several servers of a name those count that may run. To look up an address, the whole list
        is read.

        Raises:
            CloudError: Nova gives no usable answer.
        """
        numbers = {name: address_of(name) for name in names if address_of(name)}
        found = await super().by_name([name for name in names if name not in numbers])
        if numbers:
            known = by_address(await self.all())
            found |= {name: known.get(text, []) for name, text in numbers.items()}
        return {name: running_first(alike) for name, alike in found.items()}

    async def _hidden(self) -> None:
        """Return nothing: this Nova has no microversions, and tells of no cell."""


class RackspaceInstances:
    """The capability `Instances` of the provider `rackspace`."""

    def __init__(self, servers: Servers, *, region: str) -> None:
        """Keep the reader of servers of one region."""
        self._servers = servers
        self._region = region

    @property
    def batch_size(self) -> int:
        """The most nodes that one `describe` takes."""
        return BATCH

    def owns(self, node: Node) -> Ownership:
        """Tell whether a node is of this cloud and region: by its provider id, and its label."""
        return ownership(node, self._region)

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Look nodes up: a page for each 1,000 servers, a request for each 20 names."""
        targets = {node.metadata.name: target(node) for node in nodes}
        found = await self._servers.find(targets.values())
        return {
            node.metadata.name: self._answer(node, targets[node.metadata.name], found)
            for node in nodes
        }

    def _answer(self, node: Node, wanted: Target, found: Found) -> InstanceAnswer:
        server = match(wanted, found)
        if isinstance(server, NotFound | CloudError):
            return server
        return instance(server, region=self._region, known_as=node.spec.provider_id)
