"""The capability `PodCIDRs` of the provider `simulated`."""

from collections.abc import Mapping, Sequence

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.lookups import in_parts
from proreus.cloudprovider.refused import Refused
from proreus.kube.objects import Node
from proreus.providers.simulated.api import Api, Machine
from proreus.providers.simulated.ids import instance_id


class SimulatedPodCIDRs:
    """The capability `PodCIDRs` of the provider `simulated`."""

    def __init__(self, api: Api, region: str, batch_size: int) -> None:
        """Keep the client of the cloud, `batch_size` nodes a call."""
        self._api = api
        self._region = region
        self._batch_size = batch_size

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, tuple[str, ...]]:
        """Read blocks in bulk by provider id; leave out a node without an instance."""
        ids = {node.metadata.name: self._id(node) for node in nodes}
        needed = {id_ for id_ in ids.values() if id_ is not None}
        found: dict[str, Machine] = {}
        for part in in_parts(needed, self._batch_size):
            answer = await self._api.batch_get(part, ())
            found.update((machine.id, machine) for machine in answer.instances)
        return {name: found[id_].pod_cidrs for name, id_ in ids.items() if id_ in found}

    async def assign(self, node: Node, cidrs: tuple[str, ...]) -> None:
        """Assign blocks by one call; the same blocks once more are no error.

        Raises:
            CloudError: The cloud refuses it.
            InvalidRequest: The node is not of this cloud.
        """
        id_ = self._id(node)
        if id_ is None:
            raise InvalidRequest(
                f"spec.providerID {node.spec.provider_id!r} is not an instance of this cloud"
            )
        await self._api.change_pod_cidrs(id_, "assign", cidrs)

    async def release(self, node: Node, cidrs: tuple[str, ...]) -> None:
        """Release blocks by one call; an instance that is gone has none."""
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
