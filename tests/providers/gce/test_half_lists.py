"""Lists that lack a zone for a while: load balancers outlive them unchanged."""

import asyncio

import pytest

from proreus.cloudprovider.errors import CloudError, IdentityConflict
from proreus.testing import objects

from .cloud.server import Gce
from .cloud.world import PROJECT, ZONES
from .lb_site import NAME, NODES, Balancing, lbs
from .site import config_text, node, started

__all__ = ["lbs"]


def join(site: Balancing, count: int, zone: str) -> None:
    """Let nodes join in a zone, each with its machine."""
    names = [f"node-late-{number}" for number in range(count)]
    site.gce.run(*names, zone=zone)
    site.nodes += [objects.node(one, f"gce://{PROJECT}/{zone}/{one}") for one in names]


async def test_nodes_of_a_zone_that_a_list_lacks_stay_hosts_when_others_join(
    lbs: Balancing,
) -> None:
    """Who is known is not asked about again, and the list is about those that join."""
    await lbs.make()
    lbs.gce.world.down = {NODES["node-1"]}
    join(lbs, 6, ZONES[1])
    answer = await lbs.ensured(lbs.desired(lbs.service()))
    assert not answer.rejected
    pool = lbs.gce.one("targetPools", NAME)
    hosts = {link.rpartition("/")[2] for link in pool["instances"]}
    assert hosts == {one.metadata.name for one in lbs.nodes}


@pytest.mark.parametrize("count", [1, 3, 10])
async def test_a_node_takes_no_namesake_while_a_list_lacks_the_zone_of_its_own_instance(
    gce: Gce, count: int
) -> None:
    """Such as one of another cluster in the project."""
    names = [f"worker-{number}" for number in range(count)]
    for zone in ZONES[:2]:
        gce.run(*names, zone=zone)
    nodes = [node(name) for name in names]
    async with started(config_text(gce)) as provider:
        assert provider.instances is not None
        for down in (set(), {ZONES[1]}):
            gce.world.down = down
            found = await provider.instances.describe(nodes)
            assert all(isinstance(one, IdentityConflict) for one in found.values()), found


@pytest.mark.parametrize("count", [1, 3, 10, 30])
async def test_a_node_takes_no_namesake_while_a_list_does_not_show_its_own_instance_yet(
    gce: Gce, count: int
) -> None:
    """Nor would it let go of it: the Node went with the other cluster's machine."""
    names = [f"worker-{number}" for number in range(count)]
    gce.run(*names, zone=ZONES[0])
    async with started(config_text(gce)) as provider:
        assert provider.instances is not None
        gce.world.lag = 0.5
        await asyncio.sleep(gce.world.lag)
        gce.run(*names, zone=ZONES[1])
        found = await provider.instances.describe([node(name) for name in names])
        assert all(isinstance(one, CloudError) for one in found.values()), found
        assert any(isinstance(one, IdentityConflict) for one in found.values())
