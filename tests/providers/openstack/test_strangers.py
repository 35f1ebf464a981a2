"""What a Service's load balancer has nothing to do with any more, or never had, stays."""

import copy
from collections.abc import AsyncIterator

import pytest

from proreus.cloudprovider import CloudError, Done, Ensured

from .balancing import INTERNAL, SUBNET, Balancing, balancing, by_id, known
from .wire import Json, started

NAME = "kube_service_test_shop_web"
VIP = "10.0.0.200"


@pytest.fixture
async def site() -> AsyncIterator[Balancing]:
    async with balancing() as made:
        yield made


def namesakes(site: Balancing) -> list[Json]:
    """What official managers have made for two clusters of one name, in networks of one CIDR."""
    part = {"name": f"listener_0_{NAME}", "tags": [NAME], "protocol": "TCP", "protocol_port": 80}
    for _ in range(2):
        given = {"name": NAME, "tags": [NAME], "vip_subnet_id": SUBNET, "listeners": [dict(part)]}
        site.octavia._make_balancer(given)
    made = list(site.octavia.of["loadbalancers"].values())
    for one in made:
        one |= {"vip_address": VIP, "provisioning_status": "ACTIVE"}
    return made


@pytest.mark.parametrize("verb", ["ensure", "delete"])
async def test_of_two_official_ones_with_its_name_and_address_neither_is_touched(
    site: Balancing, verb: str
) -> None:
    made = namesakes(site)
    before = copy.deepcopy(site.octavia.of)
    service = known(site.service({INTERNAL: "true"}), VIP)
    async with started(site.wire.config()) as provider:
        answer = await getattr(site, verb)(provider, service)
    assert site.octavia.of == before
    assert isinstance(answer, CloudError)
    assert all(one["id"] in str(answer) for one in made)


@pytest.mark.parametrize("verb", ["ensure", "delete"])
async def test_of_two_official_ones_the_annotation_tells_which_is_the_services(
    site: Balancing, verb: str
) -> None:
    theirs, own = namesakes(site)
    before = copy.deepcopy(theirs)
    service = known(site.service({INTERNAL: "true", **by_id(own["id"])}), VIP)
    async with started(site.wire.config()) as provider:
        answer = await getattr(site, verb)(provider, service)
    assert isinstance(answer, Ensured | Done)
    assert site.octavia.of["loadbalancers"][theirs["id"]] == before
    assert (own["id"] in site.octavia.of["loadbalancers"]) is (verb == "ensure")
