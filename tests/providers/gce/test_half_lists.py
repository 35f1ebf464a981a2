"""Lists that lack a zone for a while: load balancers outlive them unchanged."""

from proreus.testing import objects

from .cloud.world import PROJECT, ZONES
from .lb_site import NAME, NODES, Balancing, lbs

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
