"""Measure for how long nodes that wait for their initialisation have been known here.

A Node's creation is a time of the API server's clock, and its age by ours is wrong where one of the
two is, as that of a machine that has just booted, or jumps. A Node is surely as old as it has been
seen on a clock that does not jump, which begins anew with each start of the controller.
"""

from collections.abc import Callable

from proreus.controllers.cloud_node_lifecycle.questions import needs_age
from proreus.kube.objects import Node


class Ages:
    """A memory of since when nodes that are not initialised have been in the cache."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start empty; `clock` gives seconds that only grow."""
        self._clock = clock
        self._since: dict[str, float] = {}

    def on_node(self, old: Node | None, new: Node | None) -> None:
        """Note a change of the node cache."""
        if new is not None and needs_age(new):
            self._since.setdefault(new.metadata.uid, self._clock())
        elif (gone := new or old) is not None:
            self._since.pop(gone.metadata.uid, None)

    def known_for(self, node: Node) -> float:
        """Return for how many seconds the node has waited in our sight; 0 if it has not."""
        since = self._since.get(node.metadata.uid)
        return 0.0 if since is None else self._clock() - since
