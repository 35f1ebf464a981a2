"""Remember which Nodes have which machines by their provider ids, whether asked about or not."""

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from proreus.cloudprovider.errors import IdentityConflict
from proreus.cloudprovider.instances import Instance, InstanceAnswer
from proreus.kube.objects import Node

MachineOf = Callable[[str], str | None]
"""A function that returns what is the same in all provider ids of one machine, or None."""


class MachineHolders:
    """The names of nodes by their machines, of several with one machine in the order of arrival."""

    def __init__(self, machine_of: MachineOf = str) -> None:
        """Start empty; `machine_of` is the provider's."""
        self._machine_of = machine_of
        self._names: dict[str, dict[str, None]] = {}

    def on_node(self, old: Node | None, new: Node | None) -> None:
        """Note a change of the node cache."""
        if old is not None and new is not None and old.spec.provider_id == new.spec.provider_id:
            return
        before = self._machine(old.spec.provider_id) if old is not None else ""
        after = self._machine(new.spec.provider_id) if new is not None else ""
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
        holders = self._names.get(self._machine(answer.provider_id), ())
        others = [one for one in holders if one != name]
        return shared_machine(name, others, answer.provider_id) if others else answer

    def _machine(self, provider_id: str) -> str:
        """Return the machine of a provider id; the id as it is written, if nothing tells more."""
        with suppress(Exception):  # of a provider, which must not stop the cache
            return self._machine_of(provider_id) or provider_id
        return provider_id


def of_any(functions: Iterable[MachineOf]) -> MachineOf:
    """Return the function for the provider ids of several clouds, by those of each."""
    functions = tuple(functions)

    def machine_of(provider_id: str) -> str | None:
        found = (function(provider_id) for function in functions)
        return next((one for one in found if one not in {None, provider_id}), None)

    return machine_of


def shared_machine(name: str, others: Collection[str], provider_id: str) -> IdentityConflict:
    """Return the error that other nodes have the machine that the cloud found for a node."""
    return IdentityConflict(
        f"the cloud says that node {name} and node {', '.join(others)} are both "
        f"{provider_id}: give each machine a name of its own, or set spec.providerID"
    )
