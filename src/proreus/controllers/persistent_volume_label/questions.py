"""Ask a cloud about the volumes of admission requests, those of one moment in one call.

Requests come to every replica, also to standbys, which hold nothing of the cloud. So a provider
that can only read is started at the first question, with the cloud-config as it is then, and closed
when nothing has been asked for a while.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final

from proreus.cloudprovider import CloudError, InvalidRequest, Volumes
from proreus.controllers.persistent_volume_label.plan import Answer
from proreus.kube.errors import KubeError
from proreus.kube.objects import PersistentVolume
from proreus.runtime import klog

log = klog.logger(__name__)

LINGER: Final = 0.02
"""Seconds to wait for more questions before a call."""
MOST: Final = 100
"""The most volumes of one call."""
IDLE: Final = 60.0
"""Seconds without a question after which the provider is closed."""
PAUSE: Final = 5.0
"""Seconds until a cloud that could not be opened is tried again."""

Open = Callable[[], AbstractAsyncContextManager[Volumes | None]]
"""A function that opens the cloud; None is one without the capability."""

_Question = tuple[PersistentVolume, "asyncio.Future[Answer]"]


class VolumeQuestions:
    """The questions of one process about volumes."""

    def __init__(self, open_: Open) -> None:
        """Ask the cloud that `open_` opens; nothing is opened yet."""
        self._open = open_
        self._waiting: list[_Question] = []
        self._news = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    async def ask(self, volume: PersistentVolume) -> Answer:
        """Return what the cloud says of one volume; its name must be no other question's."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((volume, answer))
        self._news.set()
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work(), name="volume-questions")
        return await answer

    async def close(self) -> None:
        """Close the cloud, and answer nothing more."""
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)

    async def _work(self) -> None:
        """Open the cloud and answer, until nothing has been asked for a while."""
        while self._waiting:
            try:
                async with self._open() as volumes:
                    while questions := await self._next():
                        await _answer(volumes, questions)
            except (CloudError, KubeError, TimeoutError) as exc:
                klog.warning(log, "The cloud cannot be asked about volumes", err=exc)
                failed = exc if isinstance(exc, CloudError) else CloudError(str(exc))
                _tell(self._taken(), failed)
                await asyncio.sleep(PAUSE)  # what is asked meanwhile waits

    async def _next(self) -> Sequence[_Question]:
        """Return the next batch of questions; an empty one if none comes within `IDLE` seconds."""
        self._news.clear()
        if not self._waiting:
            try:
                async with asyncio.timeout(IDLE):
                    await self._news.wait()
            except TimeoutError:
                return ()
        await asyncio.sleep(LINGER)
        return self._taken(MOST)

    def _taken(self, most: int | None = None) -> Sequence[_Question]:
        taken, self._waiting = self._waiting[:most], self._waiting[most:] if most else []
        return taken


class QuestionsOfAll:
    """The questions to each of several clouds, of which one knows the volume."""

    def __init__(self, clouds: Sequence[VolumeQuestions]) -> None:
        """Ask these clouds, or the only one."""
        self._clouds = clouds

    async def ask(self, volume: PersistentVolume) -> Answer:
        """Return the first labels that a cloud has for the volume; none waits for another.

        If no cloud has labels, the error of a cloud that could not be asked, if there is one, comes
        before that of a cloud which says that it has no such volume.
        """
        asked = [asyncio.create_task(one.ask(volume)) for one in self._clouds]
        errors: list[CloudError] = []
        try:
            for done in asyncio.as_completed(asked):
                answer = await done
                if isinstance(answer, CloudError):
                    errors.append(answer)
                elif answer:
                    return answer
        finally:
            for task in asked:
                task.cancel()
        return min(errors, key=lambda one: isinstance(one, InvalidRequest), default={})

    async def close(self) -> None:
        """Close all clouds, and answer nothing more."""
        await asyncio.gather(*(one.close() for one in self._clouds))


async def _answer(volumes: Volumes | None, questions: Sequence[_Question]) -> None:
    """Answer some questions by one call."""
    if volumes is None:
        _tell(questions, {})
        return
    try:
        answers = await volumes.labels([volume for volume, _ in questions])
    except CloudError as exc:
        _tell(questions, exc)
        return
    for volume, future in questions:
        _tell([(volume, future)], answers[volume.metadata.name])


def _tell(questions: Sequence[_Question], answer: Answer) -> None:
    for _, future in questions:
        if not future.done():  # else the API server has given up
            future.set_result(answer)
