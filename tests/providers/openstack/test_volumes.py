"""Volumes: labels of Cinder's, nothing for others."""

from collections.abc import Mapping

import pytest
from aiohttp import web

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.refused import Refused
from proreus.testing.volumes import labels_of

from .wire import Wire, said, started, uuid

ID = uuid(7)
DRIVER = "cinder.csi.openstack.org"


async def labels(wire: Wire, source: Mapping[str, object]) -> Mapping[str, str]:
    async with started(wire.config()) as provider:
        return await labels_of(provider, source)


@pytest.mark.parametrize(
    "source", [{"cinder": {"volumeID": ID}}, {"csi": {"driver": DRIVER, "volumeHandle": ID}}]
)
async def test_a_volume_has_its_zone_and_region(wire: Wire, source: Mapping[str, object]) -> None:
    wire.volumes[ID] = {"id": ID, "availability_zone": "room 1"}
    assert await labels(wire, source) == {
        "topology.kubernetes.io/zone": "room-1",
        "topology.kubernetes.io/region": "RegionOne",
    }


async def test_volumes_of_others_have_none_and_cost_nothing(wire: Wire) -> None:
    assert await labels(wire, {"csi": {"driver": "other", "volumeHandle": ID}}) == {}
    assert wire.asked["volume_get"] == 0


@pytest.mark.parametrize(("id_", "told"), [(ID, "there is no volume"), ("vol-1", "must be a UUID")])
async def test_what_is_no_volume_is_refused(wire: Wire, id_: str, told: str) -> None:
    with pytest.raises(InvalidRequest, match=told):
        await labels(wire, {"cinder": {"volumeID": id_}})


async def test_an_answer_that_cannot_be_had_is_an_error(wire: Wire) -> None:
    wire.fail("volume_get", said(500, {}))
    with pytest.raises(CloudError, match="500"):
        await labels(wire, {"cinder": {"volumeID": ID}})


async def test_a_404_of_a_proxy_is_no_absence(wire: Wire) -> None:
    wire.fail("volume_get", web.Response(status=404, text="<html>nginx</html>"))
    with pytest.raises(Refused, match="404"):
        await labels(wire, {"cinder": {"volumeID": ID}})
