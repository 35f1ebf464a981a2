"""Two managers in one cluster and one cloud, which own Services of different classes."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from proreus.cloudprovider import (
    ClusterIdentity,
    Done,
    Ensured,
    LoadBalancer,
    LoadBalancerRef,
    OwnedObject,
)
from proreus.kube.objects import LoadBalancerIngress
from proreus.kube.requests import SERVICES
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer, Store

from .leading import EPOCH, Balancers, Cloud, leading

INGRESS = LoadBalancerIngress(ip="192.0.2.1", ip_mode="VIP")
THEIRS = "example.com/theirs"
OF_THEIR_CLASS = {"load_balancer_classes": (THEIRS,), "classless_load_balancers": False}
LOOKED_AGAIN = 60
"""Seconds after which whatever was to be deleted is deleted."""


class Present(Balancers):
    """What is in the cloud, by the UID of the Service, and what was deleted."""

    def __init__(self) -> None:
        self.present: set[str] = set()
        self.deleted: list[str] = []

    def fingerprint(self, desired: LoadBalancer) -> str:
        return desired.ref.key

    async def ensure(self, desired: Sequence[LoadBalancer]) -> Mapping[str, Any]:
        self.present |= {one.ref.uid for one in desired}
        return {one.ref.uid: Ensured((INGRESS,)) for one in desired}

    async def delete(self, gone: Sequence[LoadBalancerRef]) -> Mapping[str, Any]:
        found = {one.uid: one.uid in self.present for one in gone}
        self.deleted += [uid for uid, is_found in found.items() if is_found]
        self.present -= found.keys()
        return {uid: Done(found=is_found) for uid, is_found in found.items()}

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        return [OwnedObject("lb", uid, service_uid=uid) for uid in self.present]


@asynccontextmanager
async def manager(server: MemoryApiServer, balancers: Present, **flags: Any) -> AsyncIterator[None]:
    async with leading(server.url, Cloud(balancers), "service-lb-controller", **flags):
        yield


class Stage:
    """A Service, and one cloud for both managers."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.store = Store(lambda: EPOCH + timedelta(seconds=loop.time()))
        self.balancers = Present()
        self.spec = {"type": "LoadBalancer", "ipFamilies": ["IPv4"], "ports": [{"port": 80}]}
        body = {"metadata": {"name": "web"}, "spec": self.spec}
        self.store.create(SERVICES, "shop", body)

    def service(self) -> Any:
        return self.store.get(SERVICES, "shop", "web")

    async def turn_to(self, type_: str, **more: str) -> None:
        found = self.service()
        spec = {**self.spec, "type": type_, **more}
        self.store.update(SERVICES, found, {**found.body, "spec": spec})
        await asyncio.sleep(3)


@virtual_time
async def test_a_deletion_that_looks_again_spares_what_the_other_has_made_meanwhile() -> None:
    stage = Stage()
    balancers = stage.balancers
    async with (
        MemoryApiServer(stage.store) as server,
        manager(server, balancers),
        manager(server, balancers, **OF_THEIR_CLASS),
    ):
        await asyncio.sleep(10)
        (uid,) = balancers.present
        await stage.turn_to("ClusterIP")
        assert balancers.deleted == [uid]
        await stage.turn_to("LoadBalancer")
        assert balancers.present == {uid}
        await asyncio.sleep(LOOKED_AGAIN)

    assert balancers.deleted == [uid]
    assert stage.service().metadata["finalizers"]


@virtual_time
async def test_who_had_made_it_spares_it_too_once_the_cloud_shows_it_gone() -> None:
    stage = Stage()
    balancers = stage.balancers
    async with (
        MemoryApiServer(stage.store) as server,
        manager(server, balancers, **OF_THEIR_CLASS),
        manager(server, balancers),
    ):
        await asyncio.sleep(10)
        (uid,) = balancers.present
        await stage.turn_to("ClusterIP")
        assert balancers.deleted == [uid]
        await stage.turn_to("LoadBalancer", loadBalancerClass=THEIRS)
        assert balancers.present == {uid}
        await asyncio.sleep(LOOKED_AGAIN)

    assert balancers.deleted == [uid]
    assert stage.service().metadata["finalizers"]
