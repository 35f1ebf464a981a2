"""Answers of the API server that hold for a while, each asked for once at a time."""

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
"""How many answers are kept; the oldest goes first."""

TRIES: Final = 3
"""How often a review is asked for. It changes nothing, so it may be asked for again."""

RETRY: Final = Backoff(first=0.1, cap=1.0)
"""Between two tries; somebody waits for the answer."""


class Answer(msgspec.Struct, Generic[V], frozen=True):
    """A value, and the monotonic time until which it holds."""

    value: V
    until: float


def holds(answer: Answer[V], now: float) -> bool:
    """Whether an answer may still be given at `now`."""
    return now < answer.until


class Answers(Generic[K, V]):
    """A bounded cache. Whoever asks while the same question is under way shares its answer.

    Failures are not kept: they go to all who wait, and the next one asks again.
    """

    def __init__(
        self,
        lifetime: Callable[[V], float],
        *,
        limit: int = LIMIT,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`lifetime` says for how many seconds a value holds, 0 for not at all."""
        self._lifetime = lifetime
        self._limit = limit
        self._now = now
        self._kept: dict[K, Answer[V]] = {}
        self._asked: dict[K, asyncio.Task[V]] = {}

    def __len__(self) -> int:
        """How many answers are kept, those that hold no more included."""
        return len(self._kept)

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """The answer that holds, else a new one of `ask`; raises what that raises."""
        kept = self._kept.get(key)
        if kept is not None and holds(kept, self._now()):
            return kept.value
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.create_task(self._ask(key, ask))
            task.add_done_callback(_retrieve)
        # One who goes away does not take the answer from the others.
        return await asyncio.shield(task)

    async def close(self) -> None:
        """End the questions that are under way."""
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
        if holds(answer, self._now()):
            self._kept[key] = answer
            while len(self._kept) > self._limit:
                del self._kept[next(iter(self._kept))]
        return value


async def tried(ask: Callable[[], Awaitable[V]]) -> V:
    """The answer of `ask`, asked again when the API server cannot be reached or fails.

    Raises:
        KubeError: There is no answer.
    """
    for failures in range(TRIES - 1):
        try:
            return await ask()
        except (Unreachable, ServerError):
            await asyncio.sleep(RETRY.delay(failures))
    return await ask()


def _retrieve(task: "asyncio.Task[V]") -> None:
    """Let no failure be called forgotten when all who waited for it have gone."""
    if not task.cancelled():
        task.exception()
