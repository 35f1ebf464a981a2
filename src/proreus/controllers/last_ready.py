"""Remember when nodes were Ready here, and since when another machine reports for them.

A pass sees its nodes when it begins to ask and when it decides. A node that was Ready only in
between, while a call of the cloud took long, had a machine that ran: no answer from before, nor one
that was under way, says that the machine is gone or has no power. The same holds where no watch has
shown it, since another one had to begin.

The kubelet of a machine that has got the name of a former one goes on with the Node that there is,
and with its provider id. What tells is the UUID of its machine. The controller begins anew with
each cloud-config, and late where the cloud does not start. So a process has one memory, which sees
all that its cache of the Nodes does.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from typing import Final

from proreus.cloudprovider.lookups import system_uuids
from proreus.kube.objects import Node, condition, is_ready
from proreus.runtime.informer import Cache

_MOST_PERIODS: Final = 100
"""How many periods in which a node was Ready are remembered, the last ones."""


class LastReady:
    """A memory of when nodes were seen to be Ready, and of which machine."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start empty; `clock` gives seconds that only grow."""
        self._clock = clock
        self._uuids: dict[str, tuple[str, ...]] = {}
        self._until: dict[str, float] = {}
        self._periods: dict[str, deque[tuple[float, float]]] = {}
        self._taken_over: dict[str, tuple[str, float]] = {}

    def on_node(self, old: Node | None, new: Node | None) -> None:
        """Note a change of the node cache."""
        if new is None:
            if old is not None:
                for one in (self._until, self._periods, self._taken_over, self._uuids):
                    one.pop(old.metadata.uid, None)
            return
        uid, before = new.metadata.uid, old is not None and is_ready(old)
        if before and not is_ready(new):
            self._until[uid] = self._clock()
            if periods := self._periods.get(uid):
                periods.append((periods.pop()[0], self._clock()))
        elif is_ready(new) and not before:
            self._periods.setdefault(uid, deque(maxlen=_MOST_PERIODS)).append((self._clock(), inf))
        elif old is not None and not is_ready(new) and _may_have_been_ready(old, new):
            self._until[uid] = self._clock()
        for node in (new,) if old is None else (old, new):
            self._note_machine(node)

    def _note_machine(self, node: Node) -> None:
        """Note whether a Node's kubelet reports another UUID than before, in either byte order."""
        uid, reported = node.metadata.uid, system_uuids(node)
        if not reported:  # which says nothing
            return
        if set(self._uuids.get(uid, reported)).isdisjoint(reported):
            self._taken_over[uid] = node.metadata.name, self._clock()
        self._uuids[uid] = reported

    def ready_until(self, node: Node) -> float:
        """Return the time at which the node ceased to be Ready; -inf if it was never seen so."""
        return self._until.get(node.metadata.uid, -inf)

    def ready_for(self, node: Node, since: float) -> float:
        """Return for how many seconds, in all, the node was Ready after the time `since`."""
        now, periods = self._clock(), self._periods.get(node.metadata.uid, ())
        return sum(max(0.0, min(end, now) - max(start, since)) for start, end in periods)

    def taken_over(self, node: Node) -> float:
        """Return since when another machine than before reports for the node; inf if never."""
        _, since = self._taken_over.get(node.metadata.uid, ("", inf))
        return since

    def settle(self, node: Node) -> None:
        """Forget that another machine reports for the node: its instance has run since."""
        self._taken_over.pop(node.metadata.uid, None)

    @property
    def others(self) -> Iterable[str]:
        """The names of the nodes for which another machine than before reports."""
        return [name for name, _ in self._taken_over.values()]


def following(nodes: Cache[Node]) -> LastReady:
    """Return a memory of what a cache shows from now on, by the event loop's clock."""
    memory = LastReady(lambda: asyncio.get_running_loop().time())
    nodes.subscribe(memory.on_node)
    return memory


def _may_have_been_ready(old: Node, new: Node) -> bool:
    """Tell whether a Node may have been Ready between two states in which it was not.

    Where a watch could not go on, a list shows the last state only, and since when it lasts. That
    may be of another kind than the one before: a kubelet that was not well may have been so in
    between, before it fell silent; so may one that had not reported yet. A watch that shows such a
    change looks the same, and costs one more interval.
    """
    before, after = (condition(one.status.conditions, "Ready") for one in (old, new))
    if before is None or after is None:
        return after is not None
    return before.last_transition_time != after.last_transition_time
