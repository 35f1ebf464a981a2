"""Which events are told at all, and which are only counted: what keeps a flood of them small.

The rules and numbers of the first two are those of client-go's `EventCorrelator`. Pure: `now` is
an argument, in seconds of any clock. What is least recently used is forgotten.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import msgspec

SIMILAR: Final = 10
"""So many different texts of one reason about one object are combined in one event."""
SIMILAR_WITHIN: Final = 600.0
"""Seconds without a similar event after which they are told one by one again."""
COMBINED: Final = "(combined from similar events): "
BURST: Final = 25
"""Writes that one component may make at once about one object."""
REFILL: Final = 300.0
"""Seconds after which it may make one more."""
REPEAT: Final = 600.0
"""Seconds after which a lasting error is told again."""
REMEMBERED: Final = 4096

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A mapping that forgets what was not used for the longest time."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        """Hold at most `limit` entries."""
        self._limit = limit
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The value, which counts as used."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key]

    def put(self, key: K, value: V) -> None:
        """Set the value."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._limit:
            self._entries.popitem(last=False)


class _Group(msgspec.Struct):
    """Different texts, fewer than `SIMILAR`, and when there was a similar event last."""

    last: float
    texts: set[str]


class Aggregator:
    """Tells when events that differ in their text only become too many."""

    def __init__(self) -> None:
        """Know of no events."""
        self._groups: Recent[Hashable, _Group] = Recent()

    def is_combined(self, group: Hashable, text: str, now: float) -> bool:
        """Take note of an event; whether it goes into the combined one of its group."""
        known = self._groups.get(group)
        if known is None or now - known.last > SIMILAR_WITHIN:
            known = _Group(now, set())
            self._groups.put(group, known)
        known.last = now
        if text in known.texts:
            return False
        if len(known.texts) + 1 >= SIMILAR:
            return True
        known.texts.add(text)
        return False


class _Tokens(msgspec.Struct, frozen=True):
    left: float
    at: float


class SpamFilter:
    """A token bucket for each source: `BURST` events, then one every `REFILL` seconds."""

    def __init__(self) -> None:
        """Start with full buckets."""
        self._buckets: Recent[Hashable, _Tokens] = Recent()

    def admits(self, source: Hashable, now: float) -> bool:
        """Whether the source may have one more event; if so, it has had it."""
        known = self._buckets.get(source) or _Tokens(BURST, now)
        left = min(BURST, known.left + (now - known.at) / REFILL)
        # Sums of many small refills fall short of 1 by rounding.
        admitted = left >= 1 - 1e-9
        self._buckets.put(source, _Tokens(left - admitted, now))
        return admitted


def is_repeat(*, is_warning: bool, is_latest: bool, told: float, now: float) -> bool:
    """Whether an event says nothing new: a warning that was last `told` less than REPEAT ago.

    It must be the latest event of its source: after anything else, the same warning is news.
    """
    return is_warning and is_latest and now - told < REPEAT
