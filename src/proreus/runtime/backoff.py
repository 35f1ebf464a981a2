"""Compute how long to wait after failures: exponential, capped, spread by chance."""

import math

import msgspec


class Backoff(msgspec.Struct, frozen=True):
    """An exponential backoff; times in seconds.

    `first` is the delay after the first failure, each further one is `factor` times longer, and
    none is longer than `cap`. `jitter` (0 to 1) is the share of the delay that chance may take
    away, so that many clients that failed together do not come back together.
    """

    first: float
    cap: float
    factor: float = 2.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        """Refuse numbers that make no backoff.

        Raises:
            ValueError: A field is out of its range.
        """
        if not 0 < self.first <= self.cap:
            raise ValueError(f"first ({self.first}) must be above 0 and at most cap ({self.cap})")
        if self.factor < 1:
            raise ValueError(f"factor ({self.factor}) must be at least 1")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter ({self.jitter}) must be from 0 to 1")

    def delay(self, failures: int, chance: float = 0.0) -> float:
        """Return the delay after `failures` earlier failures; `chance` is in [0, 1)."""
        # Compared as logarithms: factor ** failures overflows after a night of failures.
        if failures * math.log(self.factor) >= math.log(self.cap / self.first):
            delay = self.cap
        else:
            delay = self.first * self.factor**failures
        return delay * (1 - self.jitter * chance)
