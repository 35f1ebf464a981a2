"""Keep the nodes by which a pass could decide anything, so that it need not look at all of them.

Most nodes are Ready, were shown by the cloud when it was asked last, and carry no mark and no taint
of ours. While nothing is in question a pass decides the same whether it is given these or not
(`is_quiet`), so it is given the others only. As soon as a node is in question all of them count: as
witnesses, and for the breaker.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from typing import Final

from proreus.cloudprovider.instances import Ownership
from proreus.controllers.cloud_node_lifecycle.declared import ANNOTATION_GONE
from proreus.controllers.cloud_node_lifecycle.memory import Memory
from proreus.controllers.cloud_node_lifecycle.outlasting import ANNOTATION_OUTLASTING
from proreus.controllers.cloud_node_lifecycle.outlived import ANNOTATION_OUTLIVED
from proreus.controllers.cloud_node_lifecycle.policy import Policy
from proreus.controllers.cloud_node_lifecycle.questions import Known, candidates
from proreus.controllers.cloud_node_lifecycle.scopes import (
    ANNOTATION_UNKNOWN,
    is_marked,
)
from proreus.controllers.cloud_node_lifecycle.taints import ANNOTATION_OUT_OF_SERVICE
from proreus.kube.objects import TAINT_SHUTDOWN, Node, has_taint, is_ready

_MARKS: Final = frozenset(
    {
        ANNOTATION_GONE,
        ANNOTATION_UNKNOWN,
        ANNOTATION_OUTLIVED,
        ANNOTATION_OUTLASTING,
        ANNOTATION_OUT_OF_SERVICE,
    }
)


def stands_out(node: Node) -> bool:
    """Tell whether a node stands out: something of the node itself could matter to a pass."""
    return (
        not is_ready(node)
        or has_taint(node, TAINT_SHUTDOWN)
        or not _MARKS.isdisjoint(node.metadata.annotations)
    )


def is_quiet(
    outstanding: Sequence[Node], now: datetime, known: Known, policy: Policy, memory: Memory
) -> bool:
    """Tell whether a pass over these nodes decides the same as one over all.

    Args:
        outstanding: The nodes that stand out, and the nodes whose machine is not shown any more, or
            is shown as powered off.
        now: The time of the pass; all further arguments are as for the pass.
        known: The facts about each node that are known without asking the cloud.
        policy: The settings: shares, counts and durations.
        memory: The memory that the pass before handed over.
    """
    return (
        memory == Memory()
        and not any(known.sighting(node).is_lost for node in outstanding)
        and not any(is_marked(node) and _may_be_ours(node, known) for node in outstanding)
        and not candidates(outstanding, now, known.owns, policy, known.known_for)
    )


def _may_be_ours(node: Node, known: Known) -> bool:
    return known.owns(node) is not Ownership.NO


class Outstanding:
    """A memory of the nodes in the cache that stand out."""

    def __init__(self) -> None:
        """Start empty."""
        self._nodes: dict[str, Node] = {}

    def on_node(self, old: Node | None, new: Node | None) -> None:
        """Note a change of the node cache."""
        if new is not None and stands_out(new):
            self._nodes[new.metadata.name] = new
        elif (gone := new or old) is not None:
            self._nodes.pop(gone.metadata.name, None)

    @property
    def nodes(self) -> Collection[Node]:
        """The nodes of the cache of which something could matter to a pass."""
        return self._nodes.values()

    def with_others(
        self, names: Iterable[str], get: Callable[[str], Node | None]
    ) -> tuple[Node, ...]:
        """Return the nodes that stand out, and others that `get` finds by these names."""
        others = (get(name) for name in dict.fromkeys(names) if name not in self._nodes)
        return (*self._nodes.values(), *(node for node in others if node is not None))
