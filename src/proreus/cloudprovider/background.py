"""Run a provider's own work beside its verbs, such as a call that waits for the cloud's news.

    self.closing(Background("tiny-news", self._listen))

An error that the work raises harms nothing else: the work begins again, after a delay that grows.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from proreus.cloudprovider.errors import CloudError
from proreus.runtime import priority
from proreus.runtime.backoff import Backoff
from proreus.runtime.priority import Priority
from proreus.runtime.tasks import supervise

BACKOFF: Final = Backoff(first=1.0, cap=60.0, jitter=0.5)

GRACE: Final = 1.0
"""Seconds that cancelled work usually gets to tidy up; then it is left behind."""


class Background:
    """Work of a provider that goes on until it returns or is closed: make it in `start`."""

    def __init__(
        self, name: str, work: Callable[[], Awaitable[None]], *, grace: float = GRACE
    ) -> None:
        """Begin at once.

        Args:
            name: The name of the work in logs, and in `proreus_crashes_total`.
            work: The work to run. A CloudError from it says that the cloud fails: it is logged, and
                the work begins again after a backoff. Any other exception does the same, and is
                counted as a crash.
            grace: The seconds that cancelled work gets to tidy up; then it is left behind.
        """
        self._name = name
        self._work = work
        self._grace = grace
        self._task = asyncio.create_task(self._run(), name=name)

    async def close(self) -> None:
        """Cancel the work, and let it tidy up for its `grace`."""
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=self._grace)

    async def _run(self) -> None:
        priority.current.set(Priority.RESYNC)
        await supervise(
            self._name,
            self._contained,
            backoff=BACKOFF,
            on_crash=lambda _: None,
            expected=(CloudError,),
        )

    async def _contained(self) -> None:
        """Do the work; what would end the task becomes an exception that is dealt with."""
        try:
            await self._work()
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException as error:
            raise RuntimeError(f"{self._name} raised {type(error).__name__}") from error
