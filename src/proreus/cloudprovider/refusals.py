"""Distinguish a caller that the cloud always refuses from a quota that is used up.

Many clouds throttle per object, too, or answer 429 for a limit that no waiting changes. Those who
are refused again and again, while nobody else is refused anew, are slowed down by the backoff of
their keys alone; the quota that all share is not cut for them. Pure; times in seconds.
"""

from collections.abc import Hashable
from typing import Final

import msgspec

FORGET_SECONDS: Final = 1800.0
"""After so long a refusal counts as the first again."""


class _Refusal(msgspec.Struct, frozen=True):
    """The last refusal of a caller.

    Of each refusal the memory holds the time, how many callers had been refused by then, and the
    judgement.
    """

    time: float
    fresh: int
    is_alone: bool


class Refusals:
    """A memory, for one quota, of who was refused last and has not been admitted since."""

    def __init__(self) -> None:
        """Begin with nobody refused."""
        self._last: dict[Hashable, _Refusal] = {}
        self._fresh = 0

    def admitted(self, who: Hashable) -> None:
        """Note that a call of `who` was let through."""
        self._last.pop(who, None)

    def refused(self, who: Hashable, *, sent: float, now: float) -> bool:
        """Note that a call of `who` was refused; tell whether `who` alone is refused, not others.

        A caller is alone if it was refused before this call was sent, too, and since then only
        callers were refused that had been refused before. None stands for unknown callers, which
        are never alone.
        """
        self._forget(now)
        before = self._last.get(who) if who is not None else None
        if before is None:
            self._fresh += 1
        is_alone = before is not None and before.time <= sent and before.fresh == self._fresh
        if who is not None:
            self._last[who] = _Refusal(now, self._fresh, is_alone)
        return is_alone

    def is_alone(self, who: Hashable) -> bool:
        """Tell what `refused` said of `who` last; False once they are admitted again."""
        last = self._last.get(who)
        return last is not None and last.is_alone

    def _forget(self, now: float) -> None:
        self._last = {
            who: last for who, last in self._last.items() if now - last.time < FORGET_SECONDS
        }
