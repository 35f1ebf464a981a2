"""The capability `Instances` of the provider `azure`: machines alone, in sets of both kinds.

A batch costs a page of machines, one of their statuses and one of network interfaces for each
resource group, and the same for each scale set of the mode Uniform. A Node with a provider id is
looked up by it and by nothing else; its machine is absent only if Azure says so of that very one.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from proreus.cloudprovider.errors import CloudError, IdentityConflict, InvalidRequest
from proreus.cloudprovider.instances import (
    Instance,
    InstanceAnswer,
    InstanceState,
    NotFound,
    Ownership,
)
from proreus.cloudprovider.lookups import attempt
from proreus.kube.objects import Node
from proreus.providers.azure import names
from proreus.providers.azure.api import Arm, Resource
from proreus.providers.azure.graph.rows import Graph
from proreus.providers.azure.machines import instance
from proreus.providers.azure.names import Target
from proreus.providers.azure.reading import Questions

BATCH: Final = 1000
"""Nodes in a `describe`; Azure's pages of machines have up to 1,000."""


class AzureInstances:
    """The machines of one subscription, in any of its resource groups."""

    def __init__(self, arm: Arm) -> None:
        """Keep the client of Azure."""
        self._arm = arm
        self._subscription = arm.config.subscription_id
        self._group = arm.config.resource_group
        self._domains: dict[str, int] = {}
        self._graph = Graph(arm) if arm.config.resource_graph else None

    @property
    def batch_size(self) -> int:
        """The number of nodes that one `describe` takes."""
        return BATCH

    def owns(self, node: Node) -> Ownership:
        """Tell whether a node is of this subscription, by its provider id."""
        return names.ownership(node, self._subscription)

    def scope(self, node: Node) -> str:
        """Return the resource group, in which the same rights show all machines."""
        return names.scope(node, self._group)

    async def confirmed(self, nodes: Sequence[Node]) -> Collection[str]:
        """Return the nodes that Azure Resource Graph confirms; none if it is not configured."""
        if self._graph is None:
            return ()
        targets = [(node, names.target(node, self._subscription, self._group)) for node in nodes]
        return await self._graph.confirmed([(node, one.id) for node, one in targets if one.id])

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Look nodes up, all lists once."""
        targets = [names.target(node, self._subscription, self._group) for node in nodes]
        wanted = [one.id for one in targets if one.id is not None]
        async with Questions(self._arm, wanted, self._domains) as questions:
            answers = await asyncio.gather(
                *(attempt(self._look_up, questions, one) for one in targets)
            )
        failed = [one for one in answers if isinstance(one, CloudError)]
        if failed and all(
            isinstance(one, CloudError) and not isinstance(one, InvalidRequest | IdentityConflict)
            for one in answers
        ):
            raise failed[0]
        return {node.metadata.name: answer for node, answer in zip(nodes, answers, strict=True)}

    async def _look_up(self, questions: Questions, target: Target) -> Instance | NotFound:
        if target.problem:
            raise InvalidRequest(target.problem)
        machine = await self._machine(questions, target)
        if machine is None:
            await self._check_moved(questions, target)
            return NotFound()
        view, interface = await asyncio.gather(
            questions.view(machine), questions.interface(machine)
        )
        if interface is None:
            raise CloudError(f"the machine {machine['id']} has no network interface yet")
        found = instance(machine, view, interface, await questions.public(interface))
        if found.state is InstanceState.STOPPED:
            names.check_kubelet(machine, target)
        return found

    async def _check_moved(self, questions: Questions, target: Target) -> None:
        """Refuse to take a machine for gone that Azure shows elsewhere, such as since it was moved.

        A machine that is moved to another resource group works on and keeps its `vmId`:
        https://learn.microsoft.com/azure/azure-resource-manager/management/move-resource-group-and-subscription

        Raises:
            IdentityConflict: Azure shows the machine elsewhere; names its id.
        """
        moved = await questions.moved(target.id, target.uuids) if target.uuids else ""
        if not moved:
            return
        if target.id is None:
            raise IdentityConflict(
                f"no machine in the resource group {target.group} has the name {target.name}, but"
                f" the Node's kubelet reports the UUID of {moved}: start it with --provider-id, or"
                f" label the Node {names.LABEL_GROUP} with that one's resource group"
            )
        raise IdentityConflict(
            f"the machine {target.id.resource} has been moved and is {moved} by now: delete the"
            " Node object and restart the kubelet, which makes it anew with that id"
        )

    async def _machine(self, questions: Questions, target: Target) -> Resource | None:
        if target.id is not None:
            return await questions.machine(target.id)
        found = names.of_kubelet(await questions.named(target.name, target.group), target)
        if len(found) > 1:
            ids = ", ".join(sorted(str(one["id"]) for one in found))
            raise IdentityConflict(
                f"{len(found)} machines are called {target.name}: {ids}; start the kubelet"
                " with --provider-id, or delete all but one"
            )
        return found[0] if found else None
