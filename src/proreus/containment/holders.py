"""Remember which Nodes have which machines by their provider ids, whether asked about or not."""

from collections.abc import Collection

from proreus.cloudprovider.errors import IdentityConflict
from proreus.cloudprovider.instances import Instance, InstanceAnswer
from proreus.kube.objects import Node


class MachineHolders:
    """The names of nodes by their provider ids, of several with one id in the order of arrival."""

    def __init__(self) -> None:
        """Start empty."""
        self._names: dict[str, dict[str, None]] = {}

    def on_node(self, old: Node | None, new: Node | None) -> None:
        """Note a change of the node cache."""
        before = old.spec.provider_id if old is not None else ""
        after = new.spec.provider_id if new is not None else ""
        if old is not None and before != after and before in self._names:
            self._names[before].pop(old.metadata.name, None)
            if not self._names[before]:
                del self._names[before]
        if new is not None and after:
            self._names.setdefault(after, {})[new.metadata.name] = None

    def unmistaken(self, node: Node, answer: InstanceAnswer) -> InstanceAnswer:
        """Return the answer about a node, or a conflict if it shows another Node's machine.

        A node that has a provider id already gets no conflict.
        """
        if node.spec.provider_id or not isinstance(answer, Instance):
            return answer
        name = node.metadata.name
        others = [one for one in self._names.get(answer.provider_id, ()) if one != name]
        return shared_machine(name, others, answer.provider_id) if others else answer


def shared_machine(name: str, others: Collection[str], provider_id: str) -> IdentityConflict:
    """Return the error that other nodes have the machine that the cloud found for a node."""
    return IdentityConflict(
        f"the cloud says that node {name} and node {', '.join(others)} are both "
        f"{provider_id}: give each machine a name of its own, or set spec.providerID"
    )
