"""The hosts of all Services, computed once per set of nodes and policy. Pure but for its memory.

A thousand Services that want the same nodes share one tuple, which also makes comparing it with
the one of before a matter of identity.
"""

from collections.abc import Callable, Iterable, Iterator

from proreus.cloudprovider.instances import Ownership
from proreus.cloudprovider.load_balancers import Host, HostPolicy
from proreus.cloudprovider.wanted import hosts
from proreus.kube.objects import Node

_Key = tuple[tuple[tuple[str, str | None], ...], tuple[str, ...]]


def candidates(nodes: Iterable[Node], owns: Callable[[Node], Ownership]) -> Iterator[Node]:
    """The nodes that may be hosts, if nothing else speaks against it.

    Nodes of another cloud are none: ours would reject them each time. Where it is not known whose
    a node is, only the cloud can tell.
    """
    return (node for node in nodes if owns(node) is not Ownership.NO)


class HostSets:
    """Remembers `wanted.hosts` until the nodes change."""

    def __init__(self) -> None:
        """Remember nothing yet."""
        self._present: dict[_Key, tuple[Host, ...]] = {}
        self._former: dict[_Key, tuple[Host, ...]] = {}

    def changed(self) -> None:
        """A node has changed so that hosts may differ."""
        if self._present:
            self._former, self._present = self._present, {}

    def select(
        self, nodes: Iterable[Node], policy: HostPolicy, families: tuple[str, ...]
    ) -> tuple[Host, ...]:
        """`wanted.hosts` of the nodes, which are read only after a change.

        Equal hosts stay the same object.
        """
        key = (tuple(sorted(policy.selector.items())), families)
        found = self._present.get(key)
        if found is None:
            found = hosts(nodes, policy, families)
            if found == self._former.get(key):
                found = self._former[key]
            self._present[key] = found
        return found
