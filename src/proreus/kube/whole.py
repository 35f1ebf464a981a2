"""Tell which taints were read whole, so that a node's list of them may be written back. Pure.

`spec.taints` can be set as a list only. Fields of an entry that `Taint` does not know, as a newer
API server may have them, are skipped while decoding and would be lost. So the list is read once
more off the body, by a decoder that refuses what it does not know: where that gives the same
entries, nothing was left out. Whatever keeps it from that (another layout of the JSON, a list that
is not where it is expected) leaves the taints unmarked, and they are changed one by one.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec.structs import astuple, replace

from proreus.kube.objects import Node, Taint, WholeTaints

_OPENING: Final = b'"taints":['
"""How a list of taints begins. No text can hold these bytes, since its quotes are escaped."""


class _KnownTaint(Taint, frozen=True, gc=False, forbid_unknown_fields=True):
    """A taint without any field that `Taint` lacks; decoding fails otherwise."""


_KNOWN: Final = msgspec.json.Decoder(tuple[_KnownTaint, ...])


def with_whole_taints(body: bytes, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
    """Return the nodes that were decoded from `body`, in its order, with whole taints as such."""
    tainted = sum(1 for node in nodes if node.spec.taints)
    if not tainted:
        return nodes
    found = tuple(_lists(body))
    if len(found) != tainted:
        return nodes
    lists = iter(found)
    return tuple(_marked(node, next(lists)) if node.spec.taints else node for node in nodes)


def _marked(node: Node, known: tuple[Taint, ...] | None) -> Node:
    taints = node.spec.taints
    if known is None or [*map(astuple, known)] != [*map(astuple, taints)]:
        return node
    return replace(node, spec=replace(node.spec, taints=WholeTaints(taints)))


def _lists(body: bytes) -> Iterator[tuple[Taint, ...] | None]:
    """Return each list of taints in the body; None for one that has something unknown."""
    start = body.find(_OPENING)
    while start >= 0:
        start += len(_OPENING)
        yield _known(body[start - 1 : body.find(b"]", start) + 1])
        start = body.find(_OPENING, start)


def _known(encoded: bytes) -> tuple[Taint, ...] | None:
    """Decode a list; what is unknown may have a bracket of its own, and then the list is cut."""
    try:
        return _KNOWN.decode(encoded)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
