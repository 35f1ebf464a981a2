"""Describe servers of Nova with their addresses, which Neutron knows."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.instances import Instance, InstanceAnswer, NotFound, Ownership
from proreus.cloudprovider.lookups import attempt
from proreus.kube.objects import Node
from proreus.providers.nova.machines import Described, flavor_of, id_of, type_of
from proreus.providers.nova.servers import BATCH, match
from proreus.providers.openstack.config import Networking
from proreus.providers.openstack.machines import Wires, instance
from proreus.providers.openstack.names import ownership, target
from proreus.providers.openstack.reading import Reader


class OpenStackInstances:
    """The capability `Instances` of the provider `openstack`."""

    def __init__(
        self, reader: Reader, networking: Networking, *, region: str, regional: bool
    ) -> None:
        """Keep the readers of servers, ports and flavors of one region.

        Args:
            reader: The reader of servers, ports and flavors.
            networking: The settings that say which addresses are wanted.
            region: The region, or "" where the cloud has one only.
            regional: Whether new provider ids name the region.
        """
        self._reader = reader
        self._networking = networking
        self._region = region
        self._regional = regional

    @property
    def batch_size(self) -> int:
        """The most nodes that one `describe` takes."""
        return BATCH

    def owns(self, node: Node) -> Ownership:
        """Tell whether a node is of this region: by its provider id, or else by its label."""
        return ownership(node, self._region)

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Look nodes up: a page for each 1,000 servers, a list of ports for each 100."""
        targets = {node.metadata.name: target(node, self._region) for node in nodes}
        found = await self._reader.find(targets.values())
        matched = {name: match(wanted, found) for name, wanted in targets.items()}
        servers = {
            id_of(one): one
            for one in matched.values()
            if not isinstance(one, NotFound | CloudError)
        }
        wires, types = await asyncio.gather(
            attempt(self._reader.wires, servers), self._types(servers.values())
        )
        answers: dict[str, InstanceAnswer] = {}
        for node in nodes:
            server = matched[node.metadata.name]
            if isinstance(server, NotFound | CloudError):
                answers[node.metadata.name] = server
            else:
                answers[node.metadata.name] = self._answer(node, server, wires, types)
        return answers

    async def _types(self, servers: Collection[Described]) -> dict[str, str | CloudError]:
        """Return instance types by the servers' ids."""
        flavors = {id_of(server): flavor_of(server) for server in servers}
        unnamed = {id_ for name, id_ in flavors.values() if id_ and not name}
        names = await self._reader.flavors(unnamed)
        types: dict[str, str | CloudError] = {}
        for server, (name, id_) in flavors.items():
            known = name or names.get(id_, "")
            types[server] = known if isinstance(known, CloudError) else type_of(known, id_)
        return types

    def _answer(
        self,
        node: Node,
        server: Described,
        wires: Mapping[str, Wires] | CloudError,
        types: Mapping[str, str | CloudError],
    ) -> Instance | CloudError:
        if isinstance(wires, CloudError):
            return wires
        type_ = types[id_of(server)]
        if isinstance(type_, CloudError):
            return type_
        return instance(
            server,
            wires[id_of(server)],
            self._networking,
            region=self._region,
            type_=type_,
            known_as=node.spec.provider_id,
            regional=self._regional,
        )
