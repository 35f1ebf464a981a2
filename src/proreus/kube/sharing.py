"""Keep equal texts of many objects once: this halves the memory that nodes take.

Every decoded object has strings of its own, though the labels, conditions and kinds of addresses
of thousands of nodes are the same few texts. Most of a changed node is as it was before: those
parts are taken from the former object, which is also quicker than to look up each text, and lets
who compares the two see at once that they are alike.
"""

from collections.abc import Mapping
from itertools import chain, repeat
from typing import Any, Final, TypeVar, cast

from msgspec.structs import replace

from proreus.kube.objects import LABEL_HOSTNAME, Condition, Node, NodeStatus, ObjectMeta

LIMIT = 4096
"""How many texts a pool keeps before it begins anew; texts that are rare must not pile up."""

T = TypeVar("T")

_NONE: Final = Node()
_NOTHING: Final = repeat(None)


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

    def shared(self, obj: T, before: T | None = None) -> T:
        """Return an equal object whose texts come from the pool; only Nodes are worth it.

        Parts that equal those of the object `before` are taken from it.
        """
        if not isinstance(obj, Node):
            return obj
        same: Any = self._node(obj, before if isinstance(before, Node) else _NONE)
        return cast("T", same)

    def _node(self, node: Node, before: Node) -> Node:
        # Never the spec: equal taints may differ in what is known of them (`WholeTaints`).
        return Node(
            metadata=self._meta(node.metadata, before.metadata),
            spec=node.spec,
            status=self._status(node.status, before.status),
        )

    def _meta(self, meta: ObjectMeta, before: ObjectMeta) -> ObjectMeta:
        return replace(
            meta,
            labels=self._labels(meta.labels, before.labels),
            annotations=self._annotations(meta.annotations, before.annotations),
        )

    def _labels(self, labels: Mapping[str, str], before: Mapping[str, str]) -> Mapping[str, str]:
        if labels == before:
            return before
        shared = self.shared_text
        # The host name is a node's own, and so are the values of annotations.
        return {
            shared(key): value if key == LABEL_HOSTNAME else shared(value)
            for key, value in labels.items()
        }

    def _annotations(
        self, annotations: Mapping[str, str], before: Mapping[str, str]
    ) -> Mapping[str, str]:
        if annotations == before:
            return before
        return {self.shared_text(key): value for key, value in annotations.items()}

    def _status(self, status: NodeStatus, before: NodeStatus) -> NodeStatus:
        shared = self.shared_text
        addresses = (
            before.addresses
            if status.addresses == before.addresses
            else tuple(replace(has, type=shared(has.type)) for has in status.addresses)
        )
        conditions = (
            before.conditions
            if status.conditions == before.conditions
            else tuple(map(self._condition, status.conditions, chain(before.conditions, _NOTHING)))
        )
        return NodeStatus(addresses, conditions, status.node_info)

    def _condition(self, has: Condition, before: Condition | None) -> Condition:
        if has == before:
            return before
        shared = self.shared_text
        return Condition(
            type=shared(has.type),
            status=shared(has.status),
            reason=shared(has.reason),
            message=shared(has.message),
            last_transition_time=has.last_transition_time,
        )
