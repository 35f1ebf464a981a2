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
        before = old.spec.provider_id if old is not None else ""
        after = new.spec.provider_id if new is not None else ""
        if old is not None and before != after and self._names.get(before) == old.metadata.name:
            del self._names[before]
        if new is not None and after:
            self._names.setdefault(after, new.metadata.name)

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
