"""Labels of volumes of Cloud Block Storage."""

import pytest

from proreus.cloudprovider.errors import InvalidRequest
from proreus.testing.volumes import labels_of

from .emulator.server import REGION, Emulator
from .site import started

ID, OTHER = "2e8c1f0a-1111-4000-8000-000000000000", "2e8c1f0b-2222-4000-8000-000000000000"
LABELS = {"topology.kubernetes.io/region": REGION}


def volume(id_: str, name: str) -> dict[str, str]:
    return {"id": id_, "display_name": name, "availability_zone": "nova", "status": "available"}


@pytest.mark.parametrize(
    ("source", "expected", "calls"),
    [
        ({"cinder": {"volumeID": ID}}, LABELS, {"GET volume": 1}),
        ({"csi": {"driver": "cinder.csi.openstack.org", "volumeHandle": ID}}, LABELS,
         {"GET volume": 1}),
        ({"cinder": {"volumeID": "data"}}, LABELS, {"GET volumes": 1}),
        ({"cinder": {"volumeID": "1111"}}, LABELS, {"GET volumes": 1}),
        ({"csi": {"driver": "another.example.org", "volumeHandle": ID}}, {}, {}),
        ({"hostPath": {"path": "/data"}}, {}, {}),
    ],
)  # fmt: skip
async def test_a_volume_has_the_region_and_no_zone(
    emulator: Emulator,
    source: dict[str, object],
    expected: dict[str, str],
    calls: dict[str, int],
) -> None:
    emulator.volumes = {ID: volume(ID, "data"), OTHER: volume(OTHER, "more")}
    async with started(emulator) as provider:
        assert await labels_of(provider, source) == expected
    assert emulator.calls == calls


@pytest.mark.parametrize("handle", ["2e8c1f0a-9999-4000-8000-000000000000", "none", "2e8c1f0"])
async def test_a_volume_that_is_not_there_or_not_clear_is_refused(
    emulator: Emulator, handle: str
) -> None:
    emulator.volumes = {ID: volume(ID, "data"), OTHER: volume(OTHER, "more")}
    async with started(emulator) as provider:
        with pytest.raises(InvalidRequest, match=handle):
            await labels_of(provider, {"cinder": {"volumeID": handle}})
