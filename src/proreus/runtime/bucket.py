"""Learn how fast a server may be called that does not tell its quota: a token bucket.

* *Unlimited* until the first refusal. Only the number of unanswered calls is limited, and that
  limit grows with every answer, so that a crowd that meets a small quota is refused a few times
  and not once per worker.
* *Measured*: at a refusal the server's own bucket is empty. When it is empty again, the calls it
  admitted in between, divided by the time, are exactly its rate, unless its bucket was full in
  between; then they prove only a part of it. Where the refusals are too close together to
  measure, or where a pause lies between them, a constant factor cuts instead.
* *Probing*: from just below what was measured the rate grows, slowly at first and then faster,
  but only by calls that had to wait.

What was under way when the first burst of the server ended is refused, and nothing helps that.

Calls go in the order of their priority, and in the order of arrival within one. A waiting call
counts one priority higher for every `AGEING` seconds, so that nothing starves.
"""

import asyncio
import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable

from proreus.runtime.priority import Priority, current

AGEING = 30.0
"""Seconds of waiting that count as much as one step of priority."""
MINIMUM_RATE = 0.5
"""Calls a second that are tried even if the server refuses everything."""

# Unlimited: so many unanswered calls at first, so many more per answer. A bucket of 20 tokens is
# met with about 10 calls on their way. Where answers do not come, one call goes every `_STALL`.
_FIRST_WINDOW = 5.0
_WINDOW_GROWTH = 0.25
_STALL = 0.1
# The rate after the first refusal: half of what went in the last second, but at least this.
_FIRST_RATE = 10.0
_CUT = 0.5
# Nothing measured yet: the rate doubles every second, but grows by no more than 9 % a call.
_REGROW = math.log(2)
_REGROW_STEP = 0.09
# Measured: start 3 % below, +5 % after 13 seconds, +20 % after 25, twice as fast after 48. A
# refusal takes at most 15 % back: what overflowed the server's bucket was not measured.
_BELOW_MEASURED = 0.97
_PROBE = 0.0003
_PROBE_CUT = 0.85
# So many refusals too quick to measure, one after the other, and nothing counts as measured.
_TRUST = 3
_MOST_GROWTH = 30.0
_MEASURE_SECONDS = 0.25
_MEASURE_CALLS = 5
# The first measurement that took so long is believed, however low it is.
_SURE_SECONDS = 1.0
# After so many seconds without calls up to half a second's calls go at once.
_PAUSE = 0.5
# A hold that keeps back more calls than these ends in a burst, as a pause does.
_LONG_HOLD = 2
_BURST_SECONDS = 0.5
# A burst that was cut grows by so much with every pause.
_BURST_REGROWTH = 1.1
_REMEMBERED = 4096
_ENOUGH = 1 - 1e-6


class AdaptiveBucket:
    """A limit of calls whose rate is learned from refusals; for one event loop and one quota.

    Every grant of an adaptive bucket is answered by exactly one of `succeeded`, `refused` and
    `abandoned`.
    """

    def __init__(
        self,
        *,
        initial_rate: float = math.inf,
        burst: float = math.inf,
        adaptive: bool = True,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Start without a limit, or at `initial_rate`.

        Args:
            initial_rate: The rate at the start, in calls a second.
            burst: The most calls at once after a pause. An adaptive bucket allows at most the calls
                of half a second, and fewer if the server refuses those.
            adaptive: Whether the rate follows the server's refusals; False for a rate that never
                changes.
            clock: The clock in seconds; the running loop's time by default.
        """
        self._rate = self._base = initial_rate
        self._burst = self._most_burst = burst
        self._adaptive = adaptive
        self._clock = clock or _loop_time
        self._tokens = self._capacity()
        self._filled_at = -math.inf
        self._hold_until = -math.inf
        self._waiters: list[tuple[float, int, float, asyncio.Future[int]]] = []
        self._arrivals = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._granted = 0
        self._granted_at = -math.inf
        self._unanswered = 0
        self._window = _FIRST_WINDOW
        self._cut_at = -math.inf
        self._granted_at_cut = 0
        self._admitted = 0
        self._admissions: deque[float] = deque(maxlen=_REMEMBERED)
        # At most so many calls fit into the server's bucket.
        self._server_burst = math.inf
        self._granted_at_pause = 0
        self._paused = False
        self._trust = 0 if math.isinf(initial_rate) else _TRUST
        self._probing = 0.0

    @classmethod
    def fixed(cls, qps: float, burst: int) -> "AdaptiveBucket":
        """Make a bucket of `qps` and `burst` that never adapts, as for `--kube-api-qps`."""
        return cls(initial_rate=qps, burst=burst, adaptive=False)

    @property
    def rate(self) -> float:
        """The calls a second granted now; infinite while nothing was refused."""
        return self._rate

    @property
    def waiting(self) -> int:
        """How many calls wait for their grant."""
        return sum(not grant.done() for *_, grant in self._waiters)

    @property
    def held_for(self) -> float:
        """The seconds for which the server still asks us to stay away."""
        return max(0.0, self._hold_until - self._clock())

    async def acquire(self) -> None:
        """Wait for the right to make one call whose outcome is not reported back."""
        await self.take(current.get())

    async def take(self, priority: Priority = Priority.USER) -> int:
        """Wait for the right to make one call, and report its outcome afterwards.

        Returns:
            The number of the grant, which `refused` needs.
        """
        grant: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        now = self._clock()
        if not self._waiters and now - self._granted_at > _PAUSE:
            self._paused = True
            self._granted_at_pause = self._granted
            self._burst = min(self._most_burst, self._burst * _BURST_REGROWTH)
        rank = now - AGEING * priority
        heapq.heappush(self._waiters, (rank, next(self._arrivals), now, grant))
        self._serve()
        try:
            return await grant
        except asyncio.CancelledError:
            if grant.done() and not grant.cancelled():
                self.abandoned()
            raise

    def succeeded(self) -> None:
        """Note that the server admitted a call, whatever else it answered."""
        self._admitted += 1
        self._admissions.append(self._clock())
        if math.isinf(self._rate):
            self._window += _WINDOW_GROWTH
        self._answered()

    def refused(self, grant: int, after: float | None = None) -> None:
        """Note that the server refused a call and asked us to stay away for `after` seconds."""
        now = self._clock()
        # A call that was on its way at the last cut says nothing about the rate since.
        if self._adaptive and grant > self._granted_at_cut:
            self._cut(grant, now)
        if after is not None:
            self._hold_until = max(self._hold_until, now + after)
            if not self._trust:
                # No burst at the end of the hold: nobody knows what may be in it.
                self._tokens = 0.0
                self._filled_at = max(now, self._hold_until - 1 / self._rate)
            elif after * self._rate > _LONG_HOLD:
                self._granted_at_pause = self._granted
        self._answered()

    def abandoned(self) -> None:
        """Note a call that was never sent, or whose admission nobody knows."""
        self._answered()

    def _answered(self) -> None:
        self._unanswered -= 1
        self._serve()

    def _serve(self) -> None:
        """Grant the calls that may go now, and set the timer for the next one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._clock()
        while self._waiters:
            if self._waiters[0][-1].done():
                heapq.heappop(self._waiters)
                continue
            wait = self._wait(now)
            if wait > 0:
                self._timer = asyncio.get_running_loop().call_later(wait, self._serve)
                return
            _, _, arrived, grant = heapq.heappop(self._waiters)
            self._grant(grant, now, waited=arrived < now)

    def _wait(self, now: float) -> float:
        """Return the seconds until the next call may go."""
        if now < self._hold_until:
            return self._hold_until - now
        if math.isinf(self._rate):
            stalled = self._granted_at + _STALL
            return 0.0 if self._unanswered < self._window else max(0.0, stalled - now)
        self._fill(now)
        return 0.0 if self._tokens >= _ENOUGH else (1 - self._tokens) / self._rate

    def _grant(self, grant: asyncio.Future[int], now: float, *, waited: bool) -> None:
        self._granted += 1
        self._granted_at = now
        self._unanswered += 1
        if not math.isinf(self._rate):
            self._tokens -= 1
            if self._adaptive and waited:
                self._grow()
        grant.set_result(self._granted)

    def _grow(self) -> None:
        """Raise the rate step by step; in big steps where nothing was measured."""
        if self._trust:
            self._probing += 1 / self._rate
            self._rate = self._base * math.exp(min(_MOST_GROWTH, _PROBE * self._probing**2))
        else:
            self._rate *= math.exp(min(_REGROW / self._rate, _REGROW_STEP))

    def _capacity(self) -> float:
        if not self._adaptive:
            return self._burst
        return max(1.0, min(self._burst, self._rate * _BURST_SECONDS))

    def _fill(self, now: float) -> None:
        filled = self._tokens + (now - self._filled_at) * self._rate
        self._tokens = min(self._capacity(), filled)
        self._filled_at = now

    def _cut(self, grant: int, now: float) -> None:
        """Lower the rate after a refusal, to the measured one where there is one."""
        elapsed = now - self._cut_at
        factor = _PROBE_CUT if self._trust else _CUT
        if math.isinf(self._rate):
            self._base = _CUT * sum(now - then <= 1.0 for then in self._admissions)
            self._base = max(_FIRST_RATE, self._base)
            self._server_burst = max(1, self._admitted)
            self._burst = min(self._most_burst, self._server_burst)
        elif self._capacity() > 1 and grant - self._granted_at_pause <= 2 * self._capacity():
            # Refused right after a pause: the burst was too large, a measured rate may be right.
            self._burst = self._capacity() / 2
            self._base = self._rate if self._trust else self._rate * _CUT
        elif not self._paused and elapsed >= _MEASURE_SECONDS and self._admitted >= _MEASURE_CALLS:
            self._measure(now, elapsed, self._rate * factor)
        else:
            self._base = self._rate * factor
            self._trust = max(0, self._trust - 1)
        self._rate = self._base = max(MINIMUM_RATE, self._base)
        self._probing = 0.0
        self._admitted = 0
        self._admissions.clear()
        self._cut_at = self._filled_at = now
        self._granted_at_cut = self._granted
        self._paused = False
        self._tokens = 0.0

    def _measure(self, now: float, elapsed: float, least: float) -> None:
        """Set the rate to the one measured since the last cut, but not below `least`."""
        measured = self._proven(now, elapsed)
        if not self._trust:
            if measured > self._base:
                # While we were slower, the server's bucket may have been full: its rate lies
                # between what is proven and what it has just refused.
                measured = math.sqrt(measured * self._rate)
            if elapsed >= _SURE_SECONDS:
                least = 0.0
        if measured >= least:
            self._trust = _TRUST
        self._base = max(least, min(self._rate, measured)) * _BELOW_MEASURED

    def _proven(self, now: float, elapsed: float) -> float:
        """Return the rate that the server has surely admitted since the last cut.

        Its bucket was empty then, so every call counts. At any time since it held at most one
        burst, so of the calls after that time all but a burst count.
        """
        number = len(self._admissions)
        later = (
            (number - index - self._server_burst) / (now - then)
            for index, then in enumerate(self._admissions, 1)
            if now - then >= _MEASURE_SECONDS
        )
        return max(self._admitted / elapsed, max(later, default=0.0))


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
