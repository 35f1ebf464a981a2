"""Blocks of pod addresses of the simulated cloud's instances."""

from collections.abc import Mapping, Sequence

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.lookups import in_parts
from proreus.cloudprovider.refused import Refused
from proreus.kube.objects import Node
from proreus.providers.simulated.api import Api, Machine
from proreus.providers.simulated.ids import instance_id


class SimulatedPodCIDRs:
    """Implements `cloudprovider.PodCIDRs`."""

    def __init__(self, api: Api, region: str, batch_size: int) -> None:
        """Ask through `api`, `batch_size` nodes a call."""
        self._api = api
        self._region = region
        self._batch_size = batch_size

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, tuple[str, ...]]:
        """Bulk reads by provider id; a node whose instance is not found is left out."""
        ids = {node.metadata.name: self._id(node) for node in nodes}
        asked = {id_ for id_ in ids.values() if id_ is not None}
        found: dict[str, Machine] = {}
        for part in in_parts(asked, self._batch_size):
            answer = await self._api.batch_get(part, ())
            found.update((machine.id, machine) for machine in answer.instances)
        return {name: found[id_].pod_cidrs for name, id_ in ids.items() if id_ in found}

    async def assign(self, node: Node, cidrs: tuple[str, ...]) -> None:
        """One call; the same blocks once more are no error.

        Raises:
            CloudError: The cloud refuses it.
            InvalidRequest: The node is not of this cloud.
        """
        id_ = self._id(node)
        if id_ is None:
            raise InvalidRequest(f"spec.providerID {node.spec.provider_id!r} is no instance")
        await self._api.change_pod_cidrs(id_, "assign", cidrs)

    async def release(self, node: Node, cidrs: tuple[str, ...]) -> None:
        """One call; an instance that is gone has no blocks."""
        id_ = self._id(node)
        if id_ is None:
            return
        try:
            await self._api.change_pod_cidrs(id_, "release", cidrs)
        except Refused as error:
            if not error.is_absence:
                raise

    def _id(self, node: Node) -> str | None:
        return instance_id(self._region, node.spec.provider_id)
