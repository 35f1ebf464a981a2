"""Decide which events are written and which only counted, so that a flood stays small.

The rules and numbers of the first two are those of client-go's `EventCorrelator`. Pure: `now` is
an argument, in seconds of any clock. What is least recently used is forgotten.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import msgspec

SIMILAR: Final = 10
"""How many different texts of one reason about one object are combined in one event."""
SIMILAR_WITHIN: Final = 600.0
"""Seconds without a similar event after which events are written singly again."""
COMBINED: Final = "(combined from similar events): "
BURST: Final = 25
"""Events that one component may write at once about one object."""
REFILL: Final = 300.0
"""Seconds after which the component may write one more."""
REPEAT: Final = 600.0
"""Seconds after which the event of a lasting error is written again."""
REMEMBERED: Final = 4096

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A mapping that drops the entries that were not used for the longest time."""

    def __init__(self, limit: int = REMEMBERED) -> None:
        """Hold at most `limit` entries."""
        self._limit = limit
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return the value, which counts as a use."""
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
    """The different texts of similar events, and the time of the last one."""

    last: float
    texts: set[str]


class Aggregator:
    """A detector of events that differ only in their text and become too many."""

    def __init__(self) -> None:
        """Start without any events."""
        self._groups: Recent[Hashable, _Group] = Recent()

    def is_combined(self, group: Hashable, text: str, now: float) -> bool:
        """Note an event; tell whether it goes into the combined event of its group."""
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
    """A limit on the events of each source: `BURST` at once, then one every `REFILL` seconds."""

    def __init__(self) -> None:
        """Start with full buckets."""
        self._buckets: Recent[Hashable, _Tokens] = Recent()

    def admits(self, source: Hashable, now: float) -> bool:
        """Tell whether the source may write one more event, and count it if so."""
        known = self._buckets.get(source) or _Tokens(BURST, now)
        left = min(BURST, known.left + (now - known.at) / REFILL)
        # Sums of many small refills fall short of 1 by rounding.
        admitted = left >= 1 - 1e-9
        self._buckets.put(source, _Tokens(left - admitted, now))
        return admitted


def is_repeat(*, is_warning: bool, is_latest: bool, last: float, now: float) -> bool:
    """Tell whether a warning repeats one that was written (`last`) less than REPEAT ago.

    The earlier warning must be the latest event of its source: after anything else, the same
    warning is news.
    """
    return is_warning and is_latest and now - last < REPEAT
