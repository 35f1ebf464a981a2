"""One manager of two clouds of OpenStack: an address in one of them proves nothing in the other."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from proreus.app.clouds.several import Several
from proreus.kube.requests import NAMESPACES, SERVICES
from proreus.testing.memory import MemoryApiServer, Store
from proreus.testing.memory.store import ApiError
from proreus.testing.waiting import until

from ...controllers.leading import leading  # noqa: TID252 - pytest imports tests by path
from .balancing import INTERNAL, SUBNET, Balancing, P, all_there, balancing, of_a_namesake
from .wire import cloud

ADDRESS = "10.0.0.99"
IN_USE = "proreus.io/cloud-in-use"
TO_WEST = {IN_USE: "west", "proreus.io/cloud": "west", f"{P}load-balancer-id": None}
PATIENCE = 30.0


class Site:
    """Two clouds and a cluster, of which a tenant has the Service."""

    def __init__(self, east: Balancing, west: Balancing) -> None:
        self.east, self.west = east, west
        self.store = Store()
        self.store.create(NAMESPACES, "", {"metadata": {"name": "shop"}})

    @asynccontextmanager
    async def managed(self) -> AsyncIterator[None]:
        members = {}
        for name, site in (("east", self.east), ("west", self.west)):
            site.wire.good_tokens.add(f"token-{len(site.wire.logins) + 1}")
            members[name] = cloud(site.wire.config())
            members[name].confirm = 0.1
        async with (
            MemoryApiServer(self.store) as server,
            leading(
                server.url,
                Several(members),
                "service-lb-controller",
                now=lambda: datetime.now(UTC),
                cloud_provider="east=openstack,west=openstack",
                cluster_name="test",
            ),
        ):
            yield

    def make(self) -> None:
        """A Service at an address that the tenant has chosen."""
        spec = {
            "type": "LoadBalancer", "ipFamilies": ["IPv4"], "ports": [{"port": 80}],
            "loadBalancerIP": ADDRESS,
        }  # fmt: skip
        annotations = {INTERNAL: "true", f"{P}subnet-id": SUBNET}
        meta = {"name": "web", "annotations": annotations}
        self.store.create(SERVICES, "shop", {"metadata": meta, "spec": spec})

    def edit(self, annotations: Mapping[str, str | None], **changed: Any) -> None:
        found = self.store.get(SERVICES, "shop", "web")
        merged = {**found.metadata["annotations"], **annotations}
        left = {name: value for name, value in merged.items() if value is not None}
        meta = {**found.metadata, "annotations": left, **changed}
        self.store.update(SERVICES, found, {**found.body, "metadata": meta})

    def delete(self) -> None:
        self.store.delete(SERVICES, self.store.get(SERVICES, "shop", "web"), {})

    async def is_gone(self) -> bool:
        try:
            self.store.get(SERVICES, "shop", "web")
        except ApiError:
            return True
        return False

    async def is_served(self) -> bool:
        """Whether it has an address, and the annotation that is written after that."""
        found = self.store.get(SERVICES, "shop", "web")
        ingress = found.body.get("status", {}).get("loadBalancer", {}).get("ingress")
        return bool(ingress) and f"{P}load-balancer-id" in found.metadata["annotations"]

    async def is_in_west(self) -> bool:
        of = self.west.octavia.of["loadbalancers"]
        made = [one for one in of.values() if any("made-for" in tag for tag in one["tags"])]
        return bool(made) and await self.is_served()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with balancing() as east, balancing() as west:
        yield Site(east, west)


async def test_a_changed_note_deletes_nothing_of_another_cluster_in_the_cloud_that_it_names(
    site: Site,
) -> None:
    """It has the official name for such a Service, and the address in that one's status."""
    of_a_namesake(site.west)
    before = all_there(site.west)
    site.make()
    async with site.managed():
        await until("the Service is served", site.is_served, PATIENCE)
    site.edit(TO_WEST)
    site.delete()
    async with site.managed():
        await until("the Service is gone", site.is_gone, PATIENCE)
    assert all_there(site.west) == before
    assert not site.east.octavia.of["loadbalancers"]


async def test_a_service_without_finalizer_takes_nothing_of_another_cluster_in_the_next_cloud(
    site: Site,
) -> None:
    """Its owner takes the finalizer away and names another cloud, while the manager runs."""
    theirs = of_a_namesake(site.west)
    before = dict(theirs)
    site.make()
    async with site.managed():
        await until("the Service is served", site.is_served, PATIENCE)
        site.edit(TO_WEST, finalizers=[])
        await until("the Service is in the other cloud", site.is_in_west, PATIENCE)
        await asyncio.sleep(1)
    assert theirs == before
