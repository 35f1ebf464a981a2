"""The work queue against a model: client-go's guarantees, whatever happens in whatever order."""

import asyncio
import math
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from proreus.runtime.backoff import Backoff
from proreus.runtime.priority import Priority
from proreus.runtime.workqueue import WorkQueue
from proreus.testing.clock import VirtualTimeLoop

T = TypeVar("T")

AGEING = 30.0
KEYS = st.sampled_from("abcdef")
PRIORITIES = st.sampled_from(Priority)
# Whole and half seconds, so that sums are exact and the model may compare times.
TIMES = st.integers(0, 200).map(lambda halves: halves / 2)


class Wish:
    """What the model knows of a key that waits."""

    def __init__(self, priority: Priority, due: float) -> None:
        self.priority = priority
        self.due = due

    def join(self, priority: Priority, due: float) -> None:
        self.priority = max(self.priority, priority)
        self.due = min(self.due, due)


class QueueMachine(RuleBasedStateMachine):
    """Runs the queue and a plain model side by side, in virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.queue: WorkQueue[str] = WorkQueue(
            "model", backoff=Backoff(first=1, cap=64), ageing=AGEING, chance=lambda: 0.0
        )
        self.wishes: dict[str, Wish] = {}
        self.in_flight: set[str] = set()
        self.failures: dict[str, int] = {}

    def teardown(self) -> None:
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def ready(self) -> list[str]:
        """Keys that the queue owes, in order: by waiting time plus a bonus for priority."""
        now = self.loop.time()
        owed = [
            (key, wish)
            for key, wish in self.wishes.items()
            if key not in self.in_flight and wish.due <= now
        ]
        return [key for key, _ in sorted(owed, key=lambda kw: kw[1].due - kw[1].priority * AGEING)]

    def wish(self, key: str, priority: Priority, delay: float) -> None:
        due = self.loop.time() + delay
        self.wishes.setdefault(key, Wish(priority, due)).join(priority, due)

    @rule(key=KEYS, priority=PRIORITIES, after=TIMES)
    def add(self, key: str, priority: Priority, after: float) -> None:
        async def work() -> None:
            self.queue.add(key, priority, after=after)

        self.run(work())
        self.wish(key, priority, after)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.in_flight)))

        async def work() -> None:
            self.queue.done(key)

        self.run(work())
        self.in_flight.discard(key)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), after=st.none() | TIMES)
    def retry(self, data: st.DataObject, after: float | None) -> None:
        key = data.draw(st.sampled_from(sorted(self.in_flight)))

        async def work() -> float:
            return self.queue.retry(key, priority=Priority.CHECK, after=after)

        delay = self.run(work())
        failures = self.failures.get(key, 0)
        assert delay == (min(2.0**failures, 64.0) if after is None else after)
        self.failures[key] = failures + 1
        self.wish(key, Priority.CHECK, delay)

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        self.queue.forget(key)
        self.failures.pop(key, None)

    @rule(key=KEYS)
    def withdraw(self, key: str) -> None:
        self.queue.withdraw(key)
        self.wishes.pop(key, None)
        self.failures.pop(key, None)

    @rule(seconds=TIMES)
    def wait(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    @rule(limit=st.integers(1, 8))
    def take_what_is_ready(self, limit: int) -> None:
        async def work() -> list[str]:
            try:
                async with asyncio.timeout(0.125):
                    return await self.queue.take(limit)
            except TimeoutError:
                return []

        owed = self.ready()
        before = self.loop.time()
        taken = self.run(work())
        if owed:
            assert self.loop.time() == before
            self.check_taken(taken, owed, limit)
        else:
            assert not taken

    @rule(limit=st.integers(1, 8), linger=TIMES)
    def take_lingering(self, limit: int, linger: float) -> None:
        waiting = [w.due for key, w in self.wishes.items() if key not in self.in_flight]
        if not waiting:
            return
        start = max(min(waiting), self.loop.time())
        taken = self.run(self.queue.take(limit, linger))
        ended = self.loop.time()
        dues = sorted(max(due, start) for due in waiting)
        full_at = dues[limit - 1] if len(dues) >= limit else math.inf
        assert ended == min(start + linger, full_at)
        self.check_taken(taken, self.ready(), limit)

    def check_taken(self, taken: list[str], owed: list[str], limit: int) -> None:
        def rank(key: str) -> float:
            return self.wishes[key].due - self.wishes[key].priority * AGEING

        assert len(taken) == min(limit, len(owed))
        assert len(set(taken)) == len(taken)
        # Equal ranks may come in any order.
        assert [rank(key) for key in taken] == [rank(key) for key in owed[:limit]]
        assert set(taken) <= set(owed)
        for key in taken:
            assert self.queue.priority(key) == self.wishes.pop(key).priority
            self.in_flight.add(key)

    @invariant()
    def same_state(self) -> None:
        assert set(self.queue.in_flight) == self.in_flight
        assert len(self.queue) == len(self.ready())
        for key in "abcdef":
            assert self.queue.failures(key) == self.failures.get(key, 0)


TestQueue = QueueMachine.TestCase


def test_nothing_starves_under_a_flood_of_urgent_keys() -> None:
    async def main() -> float:
        queue: WorkQueue[int] = WorkQueue(
            "flood", backoff=Backoff(first=1, cap=1), ageing=AGEING, chance=lambda: 0.0
        )
        queue.add(-1, Priority.RESYNC)
        for number in range(10_000):
            queue.add(number)
            (key,) = await queue.take(1)
            if key == -1:
                return asyncio.get_running_loop().time()
            queue.done(key)
            await asyncio.sleep(1)
        return math.inf

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        assert runner.run(main()) <= Priority.USER * AGEING + 1
