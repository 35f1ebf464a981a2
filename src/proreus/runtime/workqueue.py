"""Queue the keys of objects: client-go's semantics, with batches and priorities.

* A key is in the queue at most once, and never handed out while it is in flight. Adding it then
  marks it dirty: it comes back when it is done.
* `take` hands out every ready key up to a limit, most urgent first. Waiting counts: after each
  `ageing` seconds a key has caught up with one step of priority, so nothing starves.
* Failures are counted per key; `retry` adds a key back after a delay that grows with them.

    add ─► delayed ─(due)─► ready ─(take)─► in flight ─(done)─► gone, or back if dirty
"""

import asyncio
import heapq
import itertools
import random
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

from proreus.runtime import metrics
from proreus.runtime.backoff import Backoff
from proreus.runtime.priority import Priority

K = TypeVar("K")


class ShutDown(Exception):
    """The signal that the queue has been shut down; no more keys come."""


class _Entry:
    """A waiting key; it is ready from the loop's time `due` on."""

    __slots__ = ("due", "priority")

    def __init__(self, priority: Priority, due: float) -> None:
        self.priority = priority
        self.due = due

    def rank(self, ageing: float) -> float:
        """Return the order among ready keys, smallest first; it does not change over time."""
        return self.due - self.priority * ageing


class WorkQueue(Generic[K]):
    """A queue of keys for one event loop; times are the loop's, in seconds."""

    def __init__(
        self,
        name: str,
        *,
        backoff: Backoff,
        ageing: float = 30.0,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Name the queue in metrics; `chance` returns numbers in [0, 1) for the jitter."""
        self.name = name
        self._backoff = backoff
        self._ageing = ageing
        self._chance = chance
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: dict[K, _Entry] = {}
        self._dirty: dict[K, _Entry] = {}
        self._in_flight: dict[K, tuple[Priority, float]] = {}
        self._failures: dict[K, int] = {}
        # Heaps of (order, number, key, entry). An item counts only while `_waiting` holds its
        # entry: replaced ones stay in the heap until they come up.
        self._delayed: list[tuple[float, int, K, _Entry]] = []
        self._ready: list[tuple[float, int, K, _Entry]] = []
        self._ready_keys: set[K] = set()
        self._numbers = itertools.count()
        self._takers: set[asyncio.Future[None]] = set()
        self._shut_down = False
        self._adds = metrics.WORKQUEUE_ADDS.labels(name)
        self._retries = metrics.WORKQUEUE_RETRIES.labels(name)
        self._queue_duration = metrics.WORKQUEUE_QUEUE_DURATION.labels(name)
        self._work_duration = metrics.WORKQUEUE_WORK_DURATION.labels(name)
        metrics.WORKQUEUE_DEPTH.labels(name).set_function(lambda: len(self))
        metrics.WORKQUEUE_UNFINISHED.labels(name).set_function(lambda: sum(self._running()))
        metrics.WORKQUEUE_LONGEST.labels(name).set_function(lambda: max(self._running(), default=0))

    def add(self, key: K, priority: Priority = Priority.USER, *, after: float = 0.0) -> None:
        """Queue the key, ready in `after` seconds; an earlier time and a higher priority win."""
        if self._shut_down:
            return
        due = self._now() + max(after, 0.0)
        home = self._dirty if key in self._in_flight else self._waiting
        entry = home.get(key)
        if entry is None:
            self._adds.inc()
            entry = home[key] = _Entry(priority, due)
        elif priority > entry.priority or due < entry.due:
            entry = home[key] = _Entry(max(priority, entry.priority), min(due, entry.due))
        else:
            return
        if home is self._waiting:
            self._schedule(key, entry)

    async def take(self, limit: int, linger: float = 0.0) -> list[K]:
        """Wait for a ready key, then up to `linger` seconds for more; hand out at most `limit`.

        Raises:
            ShutDown: The queue has been shut down.
        """
        if limit < 1:
            raise ValueError(f"limit ({limit}) must be at least 1")
        lingering_until: float | None = None
        while True:
            if self._shut_down:
                raise ShutDown(self.name)
            ready, now = len(self), self._now()
            if not ready:
                lingering_until = None
            elif lingering_until is None:
                lingering_until = now + linger
            if ready and (ready >= limit or lingering_until is None or now >= lingering_until):
                return self._hand_out(limit)
            await self._change(lingering_until)

    def done(self, key: K) -> None:
        """End the work on a key; queue it again if it was added meanwhile.

        Raises:
            ValueError: The key is not in flight.
        """
        if key not in self._in_flight:
            raise ValueError(f"{key!r} is not in flight in queue {self.name}")
        _, started = self._in_flight.pop(key)
        self._work_duration.observe(self._now() - started)
        entry = self._dirty.pop(key, None)
        if entry is not None:
            self._waiting[key] = entry
            self._schedule(key, entry)

    def retry(self, key: K, *, priority: Priority, after: float | None = None) -> float:
        """Count a failure and queue the key again; return the delay in seconds.

        The delay is `after`, or else the backoff for the failures so far. Call it before `done`.
        """
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        delay = self._backoff.delay(failures, self._chance()) if after is None else after
        self._retries.inc()
        self.add(key, priority, after=delay)
        return delay

    def withdraw(self, key: K) -> None:
        """Take the key back with its failures, since there is nothing to do; work on it goes on."""
        self._dirty.pop(key, None)
        self._waiting.pop(key, None)
        self._ready_keys.discard(key)
        self.forget(key)

    def forget(self, key: K) -> None:
        """Forget the key's failures."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """Return how often the key failed in a row."""
        return self._failures.get(key, 0)

    def priority(self, key: K) -> Priority:
        """Return the priority with which a key in flight was handed out.

        Raises:
            KeyError: The key is not in flight.
        """
        return self._in_flight[key][0]

    @property
    def in_flight(self) -> Collection[K]:
        """The keys that were handed out and are not done."""
        return self._in_flight.keys()

    def __len__(self) -> int:
        """Return the number of ready keys."""
        self._promote()
        return len(self._ready_keys)

    def shut_down(self) -> None:
        """Make every `take` raise ShutDown, now and from now on; keys added later are ignored."""
        self._shut_down = True
        self._wake()

    def _now(self) -> float:
        # Metrics are read outside the loop too, so it is remembered.
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop.time()

    def _running(self) -> list[float]:
        """Return, for each key in flight, the seconds since it was handed out."""
        now = self._now() if self._in_flight else 0.0
        return [now - started for _, started in self._in_flight.values()]

    def _schedule(self, key: K, entry: _Entry) -> None:
        """Put a new entry of `_waiting` into the heap of delayed keys."""
        heapq.heappush(self._delayed, (entry.due, next(self._numbers), key, entry))
        self._wake()

    def _promote(self) -> None:
        """Move delayed keys that are due to the ready ones; drop replaced entries."""
        while self._delayed:
            due, number, key, entry = self._delayed[0]
            current = self._waiting.get(key) is entry
            if current and due > self._now():
                return
            heapq.heappop(self._delayed)
            if current:
                heapq.heappush(self._ready, (entry.rank(self._ageing), number, key, entry))
                self._ready_keys.add(key)

    def _hand_out(self, limit: int) -> list[K]:
        keys: list[K] = []
        now = self._now()
        while self._ready and len(keys) < limit:
            _, _, key, entry = heapq.heappop(self._ready)
            if self._waiting.get(key) is not entry:
                continue
            del self._waiting[key]
            self._ready_keys.discard(key)
            self._in_flight[key] = (entry.priority, now)
            self._queue_duration.observe(now - entry.due)
            keys.append(key)
        return keys

    async def _change(self, until: float | None) -> None:
        """Wait for an add, a shutdown, a key that falls due, or until `until`."""
        loop = asyncio.get_running_loop()
        changed = loop.create_future()
        times = [until] if until is not None else []
        if self._delayed:
            times.append(self._delayed[0][0])
        timer = loop.call_at(min(times), _resolve, changed) if times else None
        self._takers.add(changed)
        try:
            await changed
        finally:
            self._takers.discard(changed)
            if timer is not None:
                timer.cancel()

    def _wake(self) -> None:
        for taker in self._takers:
            _resolve(taker)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
