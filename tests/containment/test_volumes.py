"""What a provider may say of volumes, and what becomes of anything else."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from proreus.cloudprovider import CloudError, InvalidRequest, Throttled
from proreus.containment.faults import Fault, Faults
from proreus.containment.guard import Guard
from proreus.containment.volumes import GuardedVolumes
from proreus.kube.objects import PersistentVolume
from proreus.testing.volumes import persistent_volume

NAMES = ("a", "b", "c")


class Said:
    """Volumes about which something is said."""

    def __init__(self, said: Any) -> None:
        self.said = said

    async def labels(
        self, volumes: Sequence[PersistentVolume]
    ) -> Mapping[str, Mapping[str, str] | CloudError]:
        assert [volume.metadata.name for volume in volumes] == list(NAMES)
        if isinstance(self.said, BaseException):
            raise self.said
        answer: Mapping[str, Mapping[str, str] | CloudError] = self.said
        return answer


class Sink:
    """An event sink that drops all."""

    def event(self, *_: object) -> None:
        pass


async def labels(said: Any) -> Mapping[str, Mapping[str, str] | CloudError]:
    guarded = GuardedVolumes(Said(said), Guard(Faults("test", Sink())))
    return await guarded.labels([persistent_volume(name=name) for name in NAMES])


async def test_labels_and_errors_pass() -> None:
    said = {"a": {"zone": "z"}, "b": {}, "c": InvalidRequest("there is none")}
    assert await labels(said) == said


@pytest.mark.parametrize(
    "wrong", [None, "zone", ["zone"], {"zone": 1}, {1: "z"}, {"zone": None}, Throttled("x", after=-1.0)]
)  # fmt: skip
async def test_what_are_no_labels_is_a_fault_of_that_volume_alone(wrong: object) -> None:
    found = await labels({"a": {"zone": "z"}, "b": wrong, "c": {}})
    assert (found["a"], found["c"]) == ({"zone": "z"}, {})
    assert isinstance(found["b"], Fault)


async def test_a_volume_that_is_left_out_is_unknown() -> None:
    found = await labels({"a": {}, "c": {}, "stray": {}})
    assert list(found) == list(NAMES)
    assert isinstance(found["b"], CloudError)


@pytest.mark.parametrize("said", [None, 1, SystemExit("no"), RuntimeError("secret")])
async def test_an_answer_that_is_none_fails_as_a_whole(said: object) -> None:
    with pytest.raises(CloudError) as caught:
        await labels(said)
    assert "secret" not in str(caught.value)
