"""Share connections out among nodes, the same on every gateway. Pure."""

import hashlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

SLOTS: Final = (251, 4093)
"""How many parts the connections are cut into: prime, and many more than there are nodes."""

_MANY_NODES: Final = 25


@lru_cache(maxsize=1024)
def slots(nodes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the node for each slot of the hash table of connections.

    The same on every gateway, evenly, and with little change when a node comes or goes: each
    node has an order of its own in which it takes slots, turn by turn (Maglev's hashing).
    """
    size = SLOTS[len(nodes) > _MANY_NODES]
    orders = [_order(node, size) for node in nodes]
    taken: list[str | None] = [None] * size
    left = size if nodes else 0
    while left:
        for node, order in zip(nodes[:left], orders[:left], strict=True):
            taken[next(one for one in order if taken[one] is None)] = node
            left -= 1
    return tuple(one for one in taken if one is not None)


def _order(node: str, size: int) -> Iterator[int]:
    number = int.from_bytes(hashlib.sha256(node.encode()).digest()[:8], "big")
    first, step = number % size, number // size % (size - 1) + 1
    return ((first + turn * step) % size for turn in range(size))
