"""The cloud-config changes while load balancers are made or deleted: another provider goes on."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from proreus.app.election import Election
from proreus.app.leader import Leader
from proreus.app.options import Options
from proreus.cloudprovider import (
    CloudProvider,
    Done,
    Ensured,
    LoadBalancer,
    LoadBalancerRef,
    Pending,
)
from proreus.controllers.table import CONTROLLERS
from proreus.kube.config import ClientConfig
from proreus.kube.objects import LoadBalancerIngress
from proreus.kube.requests import SERVICES
from proreus.serving.health import Health
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer, Store

from .leading import EPOCH, Balancers, Cloud

SLOW = 100.0
"""Seconds of the first verb, which nobody can end earlier."""


class OneCloud(Balancers):
    """Load balancers of one Service, in one cloud for all providers."""

    def __init__(self, *, makes_at_once: bool = False) -> None:
        self.present: set[str] = set()
        self.deletes = False
        self._makes_at_once = makes_at_once
        self.running = 0
        self.most_at_once = 0
        self.calls = 0

    async def ensure(self, desired: Sequence[LoadBalancer]) -> Mapping[str, Any]:
        self.calls += 1
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            await self._work(SLOW if self.calls == 1 and not self._makes_at_once else 1.0)
        finally:
            self.running -= 1
        self.present |= {one.ref.uid for one in desired}
        return {one.ref.uid: Ensured((LoadBalancerIngress(ip="192.0.2.1"),)) for one in desired}

    async def delete(self, gone: Sequence[LoadBalancerRef]) -> Mapping[str, Any]:
        uids = {one.uid for one in gone}
        if not self.deletes:
            return dict.fromkeys(uids, Pending(1.0, "the cloud works on it"))
        found = {uid: uid in self.present for uid in uids}
        self.present -= uids
        return {uid: Done(found=is_found) for uid, is_found in found.items()}

    async def _work(self, seconds: float) -> None:
        """Go on for so long, as a request that is on its way does."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (left := end - loop.time()) > 0:
            try:
                await asyncio.sleep(left)
            except asyncio.CancelledError:
                continue


@asynccontextmanager
async def leading(store: Store, cloud: CloudProvider) -> AsyncIterator[Leader]:
    loop = asyncio.get_running_loop()
    async with MemoryApiServer(store) as server:
        leader = Leader(
            Options(cloud_provider="cloud", leader_elect=False),
            cloud,
            ClientConfig(server=server.url),
            Health(),
            chosen=[one for one in CONTROLLERS if one.name == "service-lb-controller"],
            election=Election(),
            now=lambda: EPOCH + timedelta(seconds=loop.time()),
        )
        stop = asyncio.Event()
        work = asyncio.create_task(leader.run(stop))
        try:
            yield leader
        finally:
            stop.set()
            await work


BODY = {
    "metadata": {"name": "web"},
    "spec": {"type": "LoadBalancer", "ipFamilies": ["IPv4"], "ports": [{"port": 80}]},
}


def store_with_a_service() -> Store:
    loop = asyncio.get_running_loop()
    store = Store(lambda: EPOCH + timedelta(seconds=loop.time()))
    store.create(SERVICES, "shop", BODY)
    return store


@virtual_time
async def test_its_verbs_wait_for_those_of_the_former_one_in_their_group() -> None:
    store, balancers = store_with_a_service(), OneCloud()
    async with leading(store, Cloud(balancers)) as leader:
        await asyncio.sleep(5)
        assert balancers.running == 1
        await leader.replace_cloud(Cloud(balancers))
        await asyncio.sleep(2 * SLOW)
        assert balancers.calls > 1
    assert balancers.most_at_once == 1


@pytest.mark.parametrize("is_made_anew", [False, True], ids=["gone", "made anew"])
def test_a_deletion_goes_on_although_somebody_has_taken_the_finalizer_away(
    *, is_made_anew: bool
) -> None:
    """No Service tells of it any more, only what this process remembers."""

    @virtual_time
    async def play() -> None:
        store, balancers = store_with_a_service(), OneCloud(makes_at_once=True)
        async with leading(store, Cloud(balancers)) as leader:
            await asyncio.sleep(5)
            (first,) = balancers.present
            found = store.get(SERVICES, "shop", "web")
            metadata = {**found.body["metadata"], "finalizers": []}
            store.update(SERVICES, found, {**found.body, "metadata": metadata})
            store.delete(SERVICES, store.get(SERVICES, "shop", "web"), {})
            if is_made_anew:
                store.create(SERVICES, "shop", BODY)
            await asyncio.sleep(5)
            assert first in balancers.present
            await leader.replace_cloud(Cloud(balancers))
            balancers.deletes = True
            await asyncio.sleep(60)
            uids = {store.get(SERVICES, "shop", "web").metadata["uid"]} if is_made_anew else set()
            assert balancers.present == uids

    play()
