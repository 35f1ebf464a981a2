"""Which subnetworks of the network a Service may name, by [Tenants] of the cloud-config."""

import pytest

from proreus.cloudprovider.errors import InvalidRequest
from proreus.providers.gce.balancing.annotations import SUBNET, TYPE

from .cloud.server import Gce
from .cloud.world import PROJECT, REGION
from .lb_site import NAME, Balancing, balancing
from .site import PATIENT

INTERNAL = {TYPE: "Internal"}
THEIRS = {**INTERNAL, SUBNET: "theirs"}
LISTED = f"{PATIENT}\n[Tenants]\nnamed-objects = listed\n"


def found(site: Balancing, name: str = "theirs") -> None:
    """Make a subnetwork of the cluster's network, for something else."""
    path = f"projects/{PROJECT}/regions/{REGION}/subnetworks/{name}"
    network = site.gce.world.link(f"projects/{PROJECT}/global/networks/default")
    with site.gce.world.lock:
        site.gce.world.put(path, {"name": name, "ipCidrRange": "10.9.0.0/20", "network": network})


def subnetwork_of(site: Balancing) -> str:
    link: str = site.gce.one("forwardingRules", NAME)["subnetwork"]
    return link.rpartition("/")[2]


async def test_a_subnetwork_that_is_not_listed_is_refused_and_nothing_is_made(gce: Gce) -> None:
    async with balancing(gce, "", LISTED) as site:
        found(site)
        answer = await site.answer(site.desired(site.service(annotations=THEIRS)))
        assert isinstance(answer, InvalidRequest)
        assert f"{SUBNET}: theirs: the cloud-config does not list it" in str(answer)
        assert site.left() == {}


@pytest.mark.parametrize("before", [{}, INTERNAL])
async def test_a_refusal_takes_nothing_away(gce: Gce, before: dict[str, str]) -> None:
    async with balancing(gce, "", LISTED) as site:
        found(site)
        address = await site.make(annotations=before)
        answer = await site.answer(site.desired(site.service(annotations=THEIRS)))
        assert isinstance(answer, InvalidRequest)
        assert site.gce.one("forwardingRules", NAME)["IPAddress"] == address


@pytest.mark.parametrize("sections", [PATIENT, f"{LISTED}allow = shop=theirs\n"])
async def test_one_may_be_named_that_is_listed_or_where_that_is_not_asked_for(
    gce: Gce, sections: str
) -> None:
    async with balancing(gce, "", sections) as site:
        found(site)
        await site.make(annotations=THEIRS)
        assert subnetwork_of(site) == "theirs"


async def test_one_that_a_service_uses_already_it_goes_on_using(gce: Gce) -> None:
    async with balancing(gce) as site:
        found(site)
        before = await site.make(annotations=THEIRS)
    async with balancing(gce, "", LISTED) as site:
        assert await site.make((81, "TCP"), annotations=THEIRS) == before


async def test_the_clusters_own_needs_no_entry(gce: Gce) -> None:
    async with balancing(gce, "", LISTED) as site:
        await site.make(annotations={**INTERNAL, SUBNET: "default"})
        assert subnetwork_of(site) == "default"
