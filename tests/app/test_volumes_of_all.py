"""Labels of volumes, where several clouds are asked."""

from collections.abc import Mapping, Sequence

from proreus.app.webhooks import VolumesOfAll
from proreus.cloudprovider import CloudError
from proreus.kube.objects import ObjectMeta, PersistentVolume


class Volumes:
    """Those of one cloud; an error is the answer to all questions."""

    def __init__(self, known: Mapping[str, Mapping[str, str]] | CloudError) -> None:
        self._known = known

    async def labels(
        self, volumes: Sequence[PersistentVolume]
    ) -> Mapping[str, Mapping[str, str] | CloudError]:
        if isinstance(self._known, CloudError):
            raise self._known
        return {one.metadata.name: self._known.get(one.metadata.name, {}) for one in volumes}


async def test_each_volume_gets_those_of_its_cloud_while_another_one_fails() -> None:
    error, zone = CloudError("away"), {"zone": "a"}
    volumes = [PersistentVolume(metadata=ObjectMeta(name=name)) for name in ("one", "two")]
    found = await VolumesOfAll([Volumes(error), Volumes({"one": zone})]).labels(volumes)
    assert found == {"one": zone, "two": error}
