"""Questions about volumes in admission requests, where there are several clouds."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest

from proreus.cloudprovider import CloudError, InvalidRequest
from proreus.cloudprovider import Volumes as Capability
from proreus.controllers.persistent_volume_label.plan import Answer
from proreus.controllers.persistent_volume_label.questions import QuestionsOfAll, VolumeQuestions
from proreus.kube.objects import ObjectMeta, PersistentVolume
from proreus.testing.clock import virtual_time

VOLUME = PersistentVolume(metadata=ObjectMeta(name="one"))
ZONE = {"zone": "a"}


class Volumes:
    """Those of one cloud, which answers after so many seconds."""

    def __init__(self, answer: Answer, seconds: float = 0.0) -> None:
        self._answer = answer
        self._seconds = seconds

    async def labels(
        self, volumes: Sequence[PersistentVolume]
    ) -> Mapping[str, Mapping[str, str] | CloudError]:
        await asyncio.sleep(self._seconds)
        return {one.metadata.name: self._answer for one in volumes}


def questions(cloud: Capability | CloudError | None) -> VolumeQuestions:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Capability | None]:
        if isinstance(cloud, CloudError):
            raise cloud
        yield cloud

    return VolumeQuestions(opened)


ERROR = CloudError("away")
NONE = InvalidRequest("there is no such volume")


@pytest.mark.parametrize(
    ("clouds", "expected"),
    [
        ((Volumes(ZONE),), ZONE),
        ((Volumes({}), Volumes(ZONE)), ZONE),
        ((Volumes(ERROR), Volumes(ZONE)), ZONE),
        ((ERROR, Volumes(ZONE)), ZONE),  # it does not start
        ((None, Volumes(ZONE)), ZONE),  # it has no such capability
        ((Volumes({}, 3600.0), Volumes(ZONE)), ZONE),  # nobody waits for it
        ((Volumes({}), Volumes(ERROR)), ERROR),
        ((Volumes({}), Volumes({})), {}),
        ((Volumes({}), Volumes(NONE)), NONE),
        ((Volumes(NONE), Volumes(ERROR, 1.0)), ERROR),  # it may have the volume
    ],
)
def test_a_volume_gets_the_labels_of_the_cloud_that_knows_it(
    clouds: Sequence[Capability | CloudError | None], expected: Answer
) -> None:
    @virtual_time
    async def play() -> None:
        asked = QuestionsOfAll([questions(one) for one in clouds])
        async with asyncio.timeout(5):
            assert await asked.ask(VOLUME) == expected
        await asked.close()

    play()
