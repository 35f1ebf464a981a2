"""Keep equal texts of many objects once: this halves the memory that nodes take.

Every decoded object has strings of its own, though the labels, conditions and kinds of addresses
of thousands of nodes are the same few texts.
"""

from typing import Any, TypeVar, cast

from msgspec.structs import replace

from proreus.kube.objects import LABEL_HOSTNAME, Node, NodeStatus, ObjectMeta

LIMIT = 4096
"""How many texts a pool keeps before it begins anew; texts that are rare must not pile up."""

T = TypeVar("T")


class Texts:
    """A table by which objects share equal texts."""

    def __init__(self, limit: int = LIMIT) -> None:
        """Keep at most `limit` texts."""
        self._limit = limit
        self._known: dict[str, str] = {}

    def shared_text(self, text: str) -> str:
        """Return the first text seen that equals this one."""
        known = self._known.get(text)
        if known is not None:
            return known
        if len(self._known) >= self._limit:
            self._known.clear()
        self._known[text] = text
        return text

    def shared(self, obj: T) -> T:
        """Return an equal object whose texts come from the pool; only Nodes are worth it."""
        same: Any = self._node(obj) if isinstance(obj, Node) else obj
        return cast("T", same)

    def _node(self, node: Node) -> Node:
        return replace(node, metadata=self._meta(node.metadata), status=self._status(node.status))

    def _meta(self, meta: ObjectMeta) -> ObjectMeta:
        shared = self.shared_text
        # The host name is a node's own, and so are the values of annotations.
        labels = {
            shared(key): value if key == LABEL_HOSTNAME else shared(value)
            for key, value in meta.labels.items()
        }
        annotations = {shared(key): value for key, value in meta.annotations.items()}
        return replace(meta, labels=labels, annotations=annotations)

    def _status(self, status: NodeStatus) -> NodeStatus:
        shared = self.shared_text
        return replace(
            status,
            addresses=tuple(replace(has, type=shared(has.type)) for has in status.addresses),
            conditions=tuple(
                replace(
                    has,
                    type=shared(has.type),
                    status=shared(has.status),
                    reason=shared(has.reason),
                    message=shared(has.message),
                )
                for has in status.conditions
            ),
        )
