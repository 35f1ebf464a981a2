"""Measure for how long something has been so of Nodes, as seen here.

A Node's creation is a time of the API server's clock, and its age by ours is wrong where one of the
two is, as that of a machine that has just booted, or jumps. A Node surely waits for its
initialisation as long as it has been seen to on a clock that does not jump, which begins anew with
each start of the controller. The time at which an operator has annotated a Node is not written at
all.
"""

from collections.abc import Callable

from proreus.kube.objects import Node


class Ages:
    """A memory of since when nodes of one kind have been in the cache."""

    def __init__(self, clock: Callable[[], float], counts: Callable[[Node], bool]) -> None:
        """Start empty; `clock` gives seconds that only grow, `counts` tells the kind of a node."""
        self._clock = clock
        self._counts = counts
        self._since: dict[str, float] = {}

    def on_node(self, old: Node | None, new: Node | None) -> None:
        """Note a change of the node cache."""
        if new is not None and self._counts(new):
            self._since.setdefault(new.metadata.uid, self._clock())
        elif (gone := new or old) is not None:
            self._since.pop(gone.metadata.uid, None)

    def seconds(self, node: Node) -> float:
        """Return for how many seconds the node has been of this kind in our sight; 0 if not."""
        since = self._since.get(node.metadata.uid)
        return 0.0 if since is None else self._clock() - since
