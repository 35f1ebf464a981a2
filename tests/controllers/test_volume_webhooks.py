"""The handlers of the webhooks about volumes, for requests that the API server need not send."""

from typing import Any

import msgspec
import pytest

from proreus.cloudprovider import AdmissionRequest
from proreus.controllers.persistent_volume_claim_resize import webhook as resize
from proreus.controllers.persistent_volume_label import webhook as label
from proreus.controllers.persistent_volume_label.plan import Answer
from proreus.kube.errors import Forbidden, NotFound
from proreus.kube.objects import LABEL_ZONE, PersistentVolume, StorageClass
from proreus.kube.requests import Resource

VOLUME = {"metadata": {"name": "pv"}, "spec": {"cinder": {"volumeID": "1"}}}
GROUPS = {
    "persistentvolumes": "PersistentVolume",
    "persistentvolumeclaims": "PersistentVolumeClaim",
}


def request(resource: str, operation: str, **more: Any) -> AdmissionRequest:
    plain = {
        "uid": "request-1",
        "kind": {"version": "v1", "kind": GROUPS.get(resource, "")},
        "resource": {"version": "v1", "resource": resource},
        "operation": operation,
        **more,
    }
    return msgspec.convert(plain, AdmissionRequest)


def claim(size: str, class_: str = "gold") -> dict[str, Any]:
    return {
        "spec": {"storageClassName": class_, "resources": {"requests": {"storage": size}}},
        "status": {"phase": "Bound"},
    }


class Cloud:
    """A cloud that answers the same of each volume."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def ask(self, volume: PersistentVolume) -> Answer:
        self.asked.append(volume.metadata.name)
        return self.answer


class Classes:
    """An API server that knows one class, or fails."""

    def __init__(self, problem: Exception | None = None) -> None:
        self.problem = problem
        self.asked = 0

    async def get(self, resource: Resource[Any], name: str) -> StorageClass:
        del resource
        self.asked += 1
        if self.problem is not None:
            raise self.problem
        if name != "gold":
            raise NotFound(404, "there is none")
        return StorageClass(allow_volume_expansion=True)


async def test_a_new_volume_is_asked_about_by_the_request_since_it_may_have_no_name() -> None:
    cloud = Cloud({LABEL_ZONE: "z"})
    answer = await label.admission(cloud.ask)(request("persistentvolumes", "CREATE", object=VOLUME))
    assert cloud.asked == ["request-1"]
    assert answer.allowed
    assert [op["path"] for op in answer.patch] == ["/metadata/labels", "/spec/nodeAffinity"]


@pytest.mark.parametrize(
    ("resource", "operation", "more"),
    [
        ("persistentvolumes", "UPDATE", {"object": VOLUME, "oldObject": VOLUME}),
        ("persistentvolumes", "DELETE", {"oldObject": VOLUME}),
        ("persistentvolumes", "CREATE", {"object": VOLUME, "subResource": "status"}),
        ("persistentvolumes", "CREATE", {}),
        ("configmaps", "CREATE", {"object": VOLUME}),
    ],
)
async def test_what_makes_no_volume_is_admitted_as_it_is(
    resource: str, operation: str, more: dict[str, Any]
) -> None:
    cloud = Cloud({LABEL_ZONE: "z"})
    answer = await label.admission(cloud.ask)(request(resource, operation, **more))
    assert (answer.allowed, answer.patch, cloud.asked) == (True, (), [])


async def test_labels_that_name_no_zone_refuse_the_volume() -> None:
    cloud = Cloud({LABEL_ZONE: "a__"})
    answer = await label.admission(cloud.ask)(request("persistentvolumes", "CREATE", object=VOLUME))
    assert not answer.allowed
    assert "names an empty zone" in answer.message


@pytest.mark.parametrize(
    ("operation", "old", "new", "more"),
    [
        ("UPDATE", claim("2Gi"), claim("1Gi"), {}),
        ("UPDATE", claim("1Gi"), claim("1Gi"), {}),
        ("UPDATE", claim("1Gi"), claim("2Gi"), {"subResource": "status"}),
        ("CREATE", None, claim("2Gi"), {}),
        ("DELETE", claim("2Gi"), None, {}),
    ],
)
async def test_what_does_not_grow_a_claim_reads_no_class(
    operation: str, old: dict[str, Any] | None, new: dict[str, Any] | None, more: dict[str, Any]
) -> None:
    classes: Any = Classes(Forbidden(403, "no"))
    asked = request("persistentvolumeclaims", operation, object=new, oldObject=old, **more)
    assert (await resize.admission(classes)(asked)).allowed
    assert classes.asked == 0


async def test_a_class_that_is_not_there_refuses_and_one_that_cannot_be_read_decides_nothing() -> (
    None
):
    def growing(class_: str) -> AdmissionRequest:
        old, new = claim("1Gi", class_), claim("2Gi", class_)
        return request("persistentvolumeclaims", "UPDATE", object=new, oldObject=old)

    there: Any = Classes()
    assert (await resize.admission(there)(growing("gold"))).allowed
    assert not (await resize.admission(there)(growing("tin"))).allowed
    hidden: Any = Classes(Forbidden(403, "no"))
    with pytest.raises(Forbidden):  # the host answers 500, and failurePolicy decides
        await resize.admission(hidden)(growing("gold"))
