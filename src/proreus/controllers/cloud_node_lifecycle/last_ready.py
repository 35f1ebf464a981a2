"""Remember until when nodes were Ready here, and since when another machine reports for them.

A pass sees its nodes when it begins to ask and when it decides. A node that was Ready only in
between, while a call of the cloud took long, had a machine that ran: no answer from before, nor one
that was under way, says that the machine is gone or has no power.

The kubelet of a machine that has got the name of a former one goes on with the Node that there is,
and with its provider id. What tells is the UUID of its machine.
"""

from collections.abc import Callable
from math import inf

from proreus.cloudprovider.lookups import system_uuids
from proreus.controllers.cloud_node_lifecycle.questions import is_ready
from proreus.kube.objects import Node


class LastReady:
    """A memory of when nodes were seen to be Ready last, since when, and of which machine."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start empty; `clock` gives seconds that only grow."""
        self._clock = clock
        self._until: dict[str, float] = {}
        self._since: dict[str, float] = {}
        self._taken_over: dict[str, float] = {}

    def on_node(self, old: Node | None, new: Node | None) -> None:
        """Note a change of the node cache."""
        if new is None:
            if old is not None:
                for one in (self._until, self._since, self._taken_over):
                    one.pop(old.metadata.uid, None)
            return
        before = old is not None and is_ready(old)
        if before and not is_ready(new):
            self._until[new.metadata.uid] = self._clock()
        elif is_ready(new) and not before:
            self._since[new.metadata.uid] = self._clock()
        if old is not None and _is_another(old, new):
            self._taken_over[new.metadata.uid] = self._clock()

    def ready_until(self, node: Node) -> float:
        """Return the time at which the node ceased to be Ready; -inf if it was never seen so."""
        return self._until.get(node.metadata.uid, -inf)

    def ready_since(self, node: Node) -> float:
        """Return since when the node is Ready, or was before it ceased to be; inf if never."""
        return self._since.get(node.metadata.uid, inf)

    def taken_over(self, node: Node) -> float:
        """Return since when another machine than before reports for the node; inf if never."""
        return self._taken_over.get(node.metadata.uid, inf)


def _is_another(old: Node, new: Node) -> bool:
    """Tell whether a Node's kubelet reports the UUID of another machine, in either byte order."""
    before, after = system_uuids(old), system_uuids(new)
    is_same_node = old.metadata.uid == new.metadata.uid
    return is_same_node and bool(before and after) and set(before).isdisjoint(after)
