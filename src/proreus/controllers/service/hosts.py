"""Compute the hosts of all Services once per set of nodes and policy. Pure but for its memory.

A thousand Services that want the same nodes share one tuple, which also makes comparing it with
the one of before a matter of identity.
"""

from collections.abc import Callable, Iterable, Iterator

from proreus.cloudprovider.desired import hosts
from proreus.cloudprovider.instances import Ownership
from proreus.cloudprovider.load_balancers import Host, HostPolicy
from proreus.kube.objects import Node

_Key = tuple[tuple[tuple[str, str | None], ...], tuple[str, ...]]


def candidates(nodes: Iterable[Node], owns: Callable[[Node], Ownership]) -> Iterator[Node]:
    """Return the nodes that may be hosts: those that are not another cloud's.

    Nodes of another cloud are left out: ours would reject them each time. A node whose cloud is not
    known stays, since only a cloud can tell.
    """
    return (node for node in nodes if owns(node) is not Ownership.NO)


class HostSets:
    """A cache of the hosts of each policy, until the nodes change."""

    def __init__(self) -> None:
        """Start without remembered hosts."""
        self._present: dict[_Key, tuple[Host, ...]] = {}
        self._former: dict[_Key, tuple[Host, ...]] = {}

    def changed(self) -> None:
        """Note that a node has changed so that hosts may differ."""
        if self._present:
            self._former, self._present = self._present, {}

    def select(
        self, nodes: Iterable[Node], policy: HostPolicy, families: tuple[str, ...]
    ) -> tuple[Host, ...]:
        """Return the hosts for a policy; the nodes are read only after a change.

        Equal hosts are returned as the same object.
        """
        key = (tuple(sorted(policy.selector.items())), families)
        selected = self._present.get(key)
        if selected is None:
            selected = hosts(nodes, policy, families)
            if selected == self._former.get(key):
                selected = self._former[key]
            self._present[key] = selected
        return selected
