"""Questions about volumes: asked together, of a cloud that is open only meanwhile."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from proreus.cloudprovider import CloudError, Volumes
from proreus.controllers.persistent_volume_label.plan import Answer
from proreus.controllers.persistent_volume_label.questions import (
    IDLE,
    LINGER,
    MOST,
    PAUSE,
    VolumeQuestions,
)
from proreus.kube.errors import Unreachable
from proreus.kube.objects import PersistentVolume
from proreus.testing.clock import virtual_time
from proreus.testing.volumes import persistent_volume


class Cloud:
    """A cloud that counts how often it is opened, and what one call asks."""

    def __init__(self) -> None:
        self.opened = self.closed = 0
        self.calls: list[int] = []
        self.problems: list[Exception] = []
        self.failing: CloudError | None = None
        self.has_volumes = True
        self.seconds = 0.0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Volumes | None]:
        self.opened += 1
        if self.problems:
            raise self.problems.pop(0)
        try:
            yield self if self.has_volumes else None
        finally:
            self.closed += 1

    async def labels(self, volumes: Sequence[PersistentVolume]) -> Mapping[str, Answer]:
        self.calls.append(len(volumes))
        await asyncio.sleep(self.seconds)
        if self.failing is not None:
            raise self.failing
        return {one.metadata.name: {"name": one.metadata.name} for one in volumes}


async def ask(questions: VolumeQuestions, *names: str) -> list[Answer]:
    asked = (questions.ask(persistent_volume(name=name)) for name in names)
    return list(await asyncio.gather(*asked))


@virtual_time
async def test_what_is_asked_at_once_is_one_call_and_the_cloud_is_closed_when_nothing_is() -> None:
    cloud = Cloud()
    questions = VolumeQuestions(cloud.open)
    assert cloud.opened == 0
    assert await ask(questions, "a", "b", "c") == [{"name": name} for name in "abc"]
    await asyncio.sleep(IDLE / 2)
    await ask(questions, "d")
    assert (cloud.opened, cloud.closed, cloud.calls) == (1, 0, [3, 1])
    await asyncio.sleep(IDLE + 1)
    assert (cloud.opened, cloud.closed) == (1, 1)
    await ask(questions, "e")
    assert cloud.opened == 2
    await questions.close()
    assert cloud.closed == 2


@virtual_time
async def test_no_call_is_about_more_volumes_than_a_cloud_takes() -> None:
    cloud = Cloud()
    questions = VolumeQuestions(cloud.open)
    answers = await ask(questions, *(f"v{number}" for number in range(MOST + 5)))
    assert answers[-1] == {"name": f"v{MOST + 4}"}
    assert cloud.calls == [MOST, 5]
    await questions.close()


@virtual_time
async def test_a_cloud_that_cannot_be_opened_is_tried_again_after_a_pause() -> None:
    cloud = Cloud()
    cloud.problems = [CloudError("wrong password"), Unreachable("down", sent=False)]
    questions = VolumeQuestions(cloud.open)
    loop = asyncio.get_running_loop()
    began = loop.time()
    for expected in ("wrong password", "down"):
        (answer,) = await ask(questions, "a")
        assert isinstance(answer, CloudError)
        assert str(answer) == expected
    assert await ask(questions, "a") == [{"name": "a"}]
    assert loop.time() - began >= 2 * PAUSE
    assert cloud.opened == 3
    await questions.close()


@virtual_time
async def test_a_call_that_fails_is_the_answer_to_its_questions_and_the_cloud_stays_open() -> None:
    cloud = Cloud()
    cloud.failing = CloudError("500")
    questions = VolumeQuestions(cloud.open)
    assert await ask(questions, "a", "b") == [cloud.failing] * 2
    cloud.failing = None
    assert await ask(questions, "a") == [{"name": "a"}]
    assert cloud.opened == 1
    await questions.close()


@virtual_time
async def test_a_cloud_without_the_capability_knows_no_volume() -> None:
    cloud = Cloud()
    cloud.has_volumes = False
    questions = VolumeQuestions(cloud.open)
    assert await ask(questions, "a") == [{}]
    await questions.close()


@virtual_time
async def test_who_gives_up_waiting_harms_nobody_else() -> None:
    cloud = Cloud()
    cloud.seconds = 20.0
    questions = VolumeQuestions(cloud.open)
    gone = asyncio.create_task(questions.ask(persistent_volume(name="gone")))
    patient = asyncio.create_task(questions.ask(persistent_volume(name="patient")))
    await asyncio.sleep(LINGER + 10)
    gone.cancel()
    assert await patient == {"name": "patient"}
    await questions.close()
