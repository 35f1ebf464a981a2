"""Remember which Nodes have which machines by their provider ids, whether asked about or not."""

from collections.abc import Collection

from proreus.cloudprovider.errors import IdentityConflict
from proreus.cloudprovider.instances import Instance, InstanceAnswer
from proreus.kube.objects import Node


class MachineHolders:
    """The names of nodes by their provider ids; of several with one id that of the first."""

    def __init__(self) -> None:
        """Start empty."""
        self._names: dict[str, str] = {}

    def on_node(self, old: Node | None, new: Node | None) -> None:
        """Note a change of the node cache."""
        gone = old if new is None else None
        if new is not None and new.spec.provider_id:
            self._names.setdefault(new.spec.provider_id, new.metadata.name)
        elif gone and self._names.get(gone.spec.provider_id) == gone.metadata.name:
            del self._names[gone.spec.provider_id]

    def unmistaken(self, node: Node, answer: InstanceAnswer) -> InstanceAnswer:
        """Return the answer about a node, or a conflict if it shows another Node's machine.

        A node that has a provider id already gets no conflict.
        """
        if node.spec.provider_id or not isinstance(answer, Instance):
            return answer
        name = node.metadata.name
        holder = self._names.get(answer.provider_id, name)
        return answer if holder == name else shared_machine(name, [holder], answer.provider_id)


def shared_machine(name: str, others: Collection[str], provider_id: str) -> IdentityConflict:
    """Return the error that other nodes have the machine that the cloud found for a node."""
    return IdentityConflict(
        f"the cloud says that node {name} and node {', '.join(others)} are both "
        f"{provider_id}: give each machine a name of its own, or set spec.providerID"
    )
