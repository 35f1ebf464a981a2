"""Remember until when nodes were Ready here, also between and during passes.

A pass sees its nodes when it begins to ask and when it decides. A node that was Ready only in
between, while a call of the cloud took long, had a machine that ran: no answer from before, nor one
that was under way, says that the machine is gone or has no power.
"""

from collections.abc import Callable
from math import inf

from proreus.controllers.cloud_node_lifecycle.questions import is_ready
from proreus.kube.objects import Node


class LastReady:
    """A memory of when nodes were seen to be Ready last, and since when."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start empty; `clock` gives seconds that only grow."""
        self._clock = clock
        self._until: dict[str, float] = {}
        self._since: dict[str, float] = {}

    def on_node(self, old: Node | None, new: Node | None) -> None:
        """Note a change of the node cache."""
        if new is None:
            if old is not None:
                self._until.pop(old.metadata.uid, None)
                self._since.pop(old.metadata.uid, None)
            return
        before = old is not None and is_ready(old)
        if before and not is_ready(new):
            self._until[new.metadata.uid] = self._clock()
        elif is_ready(new) and not before:
            self._since[new.metadata.uid] = self._clock()

    def ready_until(self, node: Node) -> float:
        """Return the time at which the node ceased to be Ready; -inf if it was never seen so."""
        return self._until.get(node.metadata.uid, -inf)

    def ready_since(self, node: Node) -> float:
        """Return since when the node is Ready, or was before it ceased to be; inf if never."""
        return self._since.get(node.metadata.uid, inf)
