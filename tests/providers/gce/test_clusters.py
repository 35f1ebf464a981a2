"""The clusters of Kubernetes Engine in the region, as `proreus clusters` prints them."""

import pytest

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.provider import Clusters

from .cloud.server import Gce
from .cloud.world import REGION, ZONES
from .site import config_text, started

FOUND = (
    {"name": "regional", "location": REGION, "endpoint": "203.0.113.1"},
    {"name": "zonal", "location": ZONES[0], "endpoint": "203.0.113.2"},
    {"name": "new", "location": ZONES[1]},
    {"name": "twice", "location": ZONES[0], "endpoint": "203.0.113.3"},
    {"name": "twice", "location": ZONES[1], "endpoint": "203.0.113.4"},
    {"name": "far", "location": "europe-west1", "endpoint": "203.0.113.5"},
    {"name": "near", "location": f"{REGION}0-a", "endpoint": "203.0.113.6"},
)


def extra(gce: Gce) -> str:
    return f"container-api-endpoint = {gce.endpoint}/"


async def test_those_of_the_region_and_its_zones_are_named(gce: Gce) -> None:
    gce.clusters = {"clusters": list(FOUND), "missingZones": ["europe-west1-b"]}
    async with started(config_text(gce, extra(gce))) as provider:
        clusters: Clusters | None = provider.clusters
        assert clusters is not None
        assert await clusters.list() == ["new", "regional", "twice", "twice", "zonal"]
        assert await clusters.master("regional") == "203.0.113.1"
        assert await clusters.master("zonal") == "203.0.113.2"
        for name, problem in (("far", "but none"), ("twice", f"{ZONES[0]}, {ZONES[1]}")):
            with pytest.raises(InvalidRequest, match=problem):
                await clusters.master(name)
        with pytest.raises(CloudError, match="no address yet"):
            await clusters.master("new")


async def test_without_any_there_are_none_and_a_zone_that_is_down_is_told(gce: Gce) -> None:
    async with started(config_text(gce, extra(gce))) as provider:
        assert provider.clusters is not None
        assert await provider.clusters.list() == []
        gce.clusters = {"missingZones": [ZONES[2]]}
        with pytest.raises(CloudError, match=ZONES[2]):
            await provider.clusters.list()
