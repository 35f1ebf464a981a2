"""Keeps apart who needs an external service and who removes it.

Load balancers of a cluster share the external services of nodes, and are worked on side by side. A
verb says which nodes it needs before it looks at what is there; what is to be removed is compared
with that right before the request is sent, and while that is under way nobody begins to need it. It
is kept in memory: only the leader makes or removes any.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from proreus.cloudprovider.waits import Working


class Sharing:
    """Who needs the external services of which nodes."""

    def __init__(self) -> None:
        """Begin with nobody."""
        self._needs: dict[str, frozenset[str]] = {}
        self._going: set[str] = set()

    def need(self, uid: str, nodes: Collection[str]) -> None:
        """Note that a Service needs these nodes from now on, and others no more.

        Raises:
            Working: The external service of one is being removed.
        """
        if going := self._going & set(nodes):
            raise Working(f"Rancher removes the external service of {min(going)}")
        self._needs[uid] = frozenset(nodes)

    def release(self, uid: str) -> None:
        """Note that a Service needs none any more."""
        self._needs.pop(uid, None)

    def needed(self) -> frozenset[str]:
        """Return the nodes that any Service needs."""
        return frozenset[str]().union(*self._needs.values())

    @contextmanager
    def going(self, node: str) -> Iterator[bool]:
        """Keep others from needing a node meanwhile; give False if somebody does already."""
        if node in self.needed() or node in self._going:
            yield False
            return
        self._going.add(node)
        try:
            yield True
        finally:
            self._going.discard(node)
