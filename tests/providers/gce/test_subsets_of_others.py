"""Load balancers with a subset of the nodes: parts that are called as another Service's."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.load_balancers import LoadBalancer
from proreus.providers.gce.balancing.subsets.names import names_of

from .cloud.server import Gce
from .cloud.world import PROJECT, ZONES
from .lb_site import SECOND, Balancing, balancing
from .test_subsets import INTERNAL, LOCAL, OWN, SECTIONS, SUBNETWORK, with_pods


@pytest.fixture
async def site(gce: Gce) -> AsyncIterator[Balancing]:
    async with balancing(gce, SUBNETWORK, SECTIONS) as found:
        yield found


def of_namespace(site: Balancing, namespace: str, **fields: Any) -> LoadBalancer:
    """The internal load balancer of a Service in another namespace, with a health check of its own.

    Its pods run on all nodes.
    """
    service = site.service(annotations=INTERNAL, **LOCAL, **fields)
    metadata = msgspec.structs.replace(service.metadata, namespace=namespace)
    lb = site.desired(msgspec.structs.replace(service, metadata=metadata))
    return with_pods(lb, *(one.metadata.name for one in site.nodes))


TAKEN = {"name": "alpha-payments-api-internal-service0x0ljz", "uid": SECOND["uid"]}
"""In the namespace team it gives the name of a firewall rule of team-alpha's Service."""


async def test_a_service_whose_name_gives_another_s_names_takes_nothing_from_it(
    site: Balancing,
) -> None:
    """Five letters of a digest are left in a long name: half a minute of tries finds the same."""
    owner = of_namespace(site, "team-alpha", name="payments-api-internal-service")
    await site.ensured(owner)
    name = names_of(owner.ref).own_check_firewall
    before, left = site.gce.one("firewalls", name), site.left()
    other = of_namespace(site, "team", **TAKEN)
    assert names_of(other.ref).own_check_firewall == name
    answer = await site.answer(other)
    assert isinstance(answer, InvalidRequest), answer
    assert f"firewall rule {name} is another Service's" in str(answer)
    assert not (await site.deleted(other.ref)).found
    assert site.gce.one("firewalls", name) == before
    assert site.left() == left
    assert (await site.deleted(owner.ref)).found
    assert site.left() == {}


async def test_what_is_described_as_another_service_s_stays_when_one_goes(site: Balancing) -> None:
    """Such as where an earlier version gave one firewall rule to both, or all names are alike."""
    lb = of_namespace(site, "shop")
    await site.ensured(lb)
    text = '{"networking.gke.io/service-name":"other/web","networking.gke.io/api-version":"ga"}'
    group = '{"cluster-uid":"any","namespace":"other","service-name":"web"}'
    with site.gce.changing(f"projects/{PROJECT}/global/firewalls/{OWN}-fw") as firewall:
        firewall["description"] = text
    zone = f"projects/{PROJECT}/zones/{ZONES[0]}/networkEndpointGroups/{OWN}"
    with site.gce.changing(zone) as endpoints:
        endpoints["description"] = group
    assert (await site.deleted(lb.ref)).found
    assert site.left() == {"firewalls": [f"{OWN}-fw"], "networkEndpointGroups": [OWN]}
