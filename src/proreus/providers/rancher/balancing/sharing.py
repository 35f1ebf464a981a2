"""Keep Services that need an external service apart from those that remove it.

Load balancers of a cluster share the external services of nodes, and are worked on side by side. A
verb says which nodes it needs before it looks at what is there; what is to be removed is compared
with that right before the request is sent, and while that is under way nobody begins to need it. It
is kept in memory: only the leader makes or removes any.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from proreus.cloudprovider.waits import Working


class Sharing:
    """A record of which Services need the external services of which nodes."""

    def __init__(self) -> None:
        """Begin with no need."""
        self._needs: dict[str, frozenset[str]] = {}
        self._going: set[str] = set()

    def need(self, uid: str, nodes: Collection[str]) -> None:
        """Note that a Service needs these nodes from now on, and others no more.

        Raises:
            Working: The external service of one of the nodes is being removed.
        """
        if going := self._going & set(nodes):
            raise Working(f"Rancher removes the external service of {min(going)}")
        self._needs[uid] = frozenset(nodes)

    def release(self, uid: str) -> None:
        """Note that a Service needs no node any more."""
        self._needs.pop(uid, None)

    def needed(self) -> frozenset[str]:
        """Return the nodes that any Service needs."""
        return frozenset[str]().union(*self._needs.values())

    @contextmanager
    def going(self, node: str) -> Iterator[bool]:
        """Keep Services from needing a node while the body runs; yield False if one does now."""
        if node in self.needed() or node in self._going:
            yield False
            return
        self._going.add(node)
        try:
            yield True
        finally:
            self._going.discard(node)
