"""Cache answers of the API server for a while, and ask for each only once at a time.

How many there may be to ask for is bounded, since anybody who reaches our servers can make us ask.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

import msgspec

from proreus.kube.errors import ServerError, Unreachable
from proreus.runtime.backoff import Backoff

K = TypeVar("K")
V = TypeVar("V")

LIMIT: Final = 4096
"""How many answers the cache keeps; the oldest goes first."""

TRIES: Final = 3
"""How often a review is tried; it changes nothing, so it may be repeated."""

RETRY: Final = Backoff(first=0.1, cap=1.0)
"""The pause between two tries; somebody waits for the answer."""


AT_ONCE: Final = 20
"""How many new questions of a budget may be under way at a time."""

PER_SECOND: Final = 20.0
"""How many new questions a second a budget grants in the long run."""

BURST: Final = 100.0
"""How many new questions a budget grants at once after a pause."""


class Busy(Exception):
    """The error that the budget for new questions is used up; try again after `after` seconds."""

    def __init__(self, after: float) -> None:
        """Keep the seconds to wait."""
        super().__init__(f"too many reviews wait for the API server; try again in {after:g} s")
        self.after = after


class Budget:
    """A limit on new questions to the API server, at a time and a second."""

    def __init__(
        self,
        *,
        at_once: int = AT_ONCE,
        per_second: float = PER_SECOND,
        burst: float = BURST,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start with a whole burst."""
        self._at_once = at_once
        self._per_second = per_second
        self._burst = self._left = burst
        self._now = now
        self._filled_at = now()
        self._under_way = 0

    def take(self) -> None:
        """Reserve a place for a review by the API server; `give_back` frees it.

        Raises:
            Busy: Too many reviews are under way.
        """
        now = self._now()
        self._left = min(self._burst, self._left + (now - self._filled_at) * self._per_second)
        self._filled_at = now
        if self._left < 1:
            raise Busy((1 - self._left) / self._per_second)
        if self._under_way >= self._at_once:
            raise Busy(1.0)
        self._left -= 1
        self._under_way += 1

    def give_back(self) -> None:
        """End a question begun with `take`."""
        self._under_way -= 1


class Answer(msgspec.Struct, Generic[V], frozen=True):
    """A value, and the monotonic time until which it is valid."""

    value: V
    until: float


def holds(answer: Answer[V], now: float) -> bool:
    """Tell whether an answer is still valid at `now`."""
    return now < answer.until


class Answers(Generic[K, V]):
    """A cache of a limited number of answers; callers with the same question share one request.

    Failures are not kept: they go to all who wait, and the next one asks again.
    """

    def __init__(
        self,
        lifetime: Callable[[V], float],
        *,
        limit: int = LIMIT,
        renews: Callable[[V], bool] = lambda _: False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep up to `limit` answers.

        Args:
            lifetime: Seconds for which a value is valid, 0 for not at all.
            limit: How many answers are kept.
            renews: Whether an expired value is renewed without a budget: a crowd of strangers must
                not keep out those who were let in.
            now: The clock, in monotonic seconds.
        """
        self._lifetime = lifetime
        self._renews = renews
        self._limit = limit
        self._now = now
        self._kept: dict[K, Answer[V]] = {}
        self._asked: dict[K, asyncio.Task[V]] = {}

    def __len__(self) -> int:
        """Return how many answers are kept, expired ones included."""
        return len(self._kept)

    async def get(self, key: K, ask: Callable[[], Awaitable[V]], budget: Budget | None = None) -> V:
        """Return a valid answer, or a new one from `ask`; raise what `ask` raises.

        Raises:
            Busy: The `budget` of new questions is used up.
        """
        kept = self._kept.get(key)
        if kept is not None and holds(kept, self._now()):
            return kept.value
        task = self._asked.get(key)
        if task is None:
            is_new = kept is None or not self._renews(kept.value)
            charged = budget if is_new else None
            if charged is not None:
                charged.take()
            task = self._asked[key] = asyncio.create_task(self._ask(key, ask))
            task.add_done_callback(_retrieve)
            if charged is not None:
                task.add_done_callback(lambda _: charged.give_back())
        # One who goes away does not take the answer from the others.
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel the requests that have no answer yet."""
        tasks = tuple(self._asked.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        began = self._now()
        try:
            value = await ask()
        finally:
            del self._asked[key]
        # It is as old as the question: a right may have been taken away while it was answered.
        answer = Answer(value, began + self._lifetime(value))
        self._kept.pop(key, None)
        if self._renews(value) or holds(answer, self._now()):
            self._kept[key] = answer
            while len(self._kept) > self._limit:
                del self._kept[next(iter(self._kept))]
        return value


async def tried(ask: Callable[[], Awaitable[V]]) -> V:
    """Return the answer of `ask`; try again when the API server fails or cannot be reached.

    Raises:
        KubeError: The API server gave no answer.
    """
    for failures in range(TRIES - 1):
        try:
            return await ask()
        except (Unreachable, ServerError):
            await asyncio.sleep(RETRY.delay(failures))
    return await ask()


def _retrieve(task: "asyncio.Task[V]") -> None:
    """Mark the task's exception as seen, if all who waited for it have gone."""
    if not task.cancelled():
        task.exception()
