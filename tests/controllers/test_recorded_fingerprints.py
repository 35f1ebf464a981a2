"""Load balancers whose cloud shows only what was recorded: each is ensured once a day all the same."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from proreus.cloudprovider import (
    CloudProvider,
    ClusterIdentity,
    Context,
    Ensured,
    HostPolicy,
    LoadBalancer,
    LoadBalancerRef,
    OwnedObject,
)
from proreus.kube.objects import LoadBalancerIngress, Service
from proreus.kube.requests import SERVICES
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer, Store

from .leading import EPOCH, leading

SERVICES_THERE = 48
INGRESS = LoadBalancerIngress(ip="192.0.2.1", ip_mode="VIP")


class Recorded:
    """A cloud that shows what the last `ensure` has recorded, and counts them."""

    def __init__(self) -> None:
        self.records: dict[str, str] = {}
        self.ensured: Counter[str] = Counter()

    def group(self, lb: LoadBalancerRef) -> Hashable:
        return lb.uid

    def host_policy(self, service: Service) -> HostPolicy:
        return HostPolicy()

    def fingerprint(self, wanted: LoadBalancer) -> str:
        return f"of {wanted.ref.key}"

    async def ensure(self, wanted: Sequence[LoadBalancer]) -> Mapping[str, Any]:
        for one in wanted:
            self.ensured[one.ref.uid] += 1
            self.records[one.ref.uid] = self.fingerprint(one)
        return {one.ref.uid: Ensured((INGRESS,)) for one in wanted}

    update_hosts = ensure

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        return [
            OwnedObject("lb", uid, service_uid=uid, fingerprint=one, recorded=True)
            for uid, one in self.records.items()
        ]


class Cloud(CloudProvider):
    name = "cloud"
    balancers = Recorded()

    async def start(self, context: Context) -> None:
        self.load_balancers: Any = self.balancers


@asynccontextmanager
async def manager(store: Store, cloud: Cloud) -> AsyncIterator[None]:
    async with (
        MemoryApiServer(store) as server,
        leading(server.url, cloud, "service-lb-controller"),
    ):
        yield


@virtual_time
async def test_each_is_ensured_once_a_day_and_a_restart_begins_no_day_anew() -> None:
    loop = asyncio.get_running_loop()
    # Whose turn is when depends on the UIDs: always the same ones, spread as they mostly are.
    chance = random.Random(1)  # noqa: S311 - repeatable, and no secret
    store = Store(lambda: EPOCH + timedelta(seconds=loop.time()), chance=chance)
    for number in range(SERVICES_THERE):
        meta = {"name": f"web-{number}"}
        spec = {"type": "LoadBalancer", "ipFamilies": ["IPv4"], "ports": [{"port": 80}]}
        store.create(SERVICES, "shop", {"metadata": meta, "spec": spec})
    cloud = Cloud(None)
    cloud.balancers = Recorded()
    ensured = cloud.balancers.ensured
    async with manager(store, cloud):
        await asyncio.sleep(60)
        assert len(ensured) == SERVICES_THERE
        ensured.clear()
        await asyncio.sleep(12 * 3600)
    assert 0 < ensured.total() < SERVICES_THERE
    assert set(ensured.values()) == {1}
    async with manager(store, cloud):
        await asyncio.sleep(13 * 3600)
    assert len(ensured) == SERVICES_THERE
    assert ensured.total() <= SERVICES_THERE * 4 // 3
