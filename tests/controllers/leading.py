"""A leader with one controller or some, on an API server in this process, and a cloud for it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from proreus.app.election import Election
from proreus.app.leader import Leader
from proreus.app.options import Options
from proreus.cloudprovider import (
    CloudProvider,
    ClusterIdentity,
    Context,
    HostPolicy,
    LoadBalancer,
    LoadBalancerRef,
    OwnedObject,
)
from proreus.controllers.table import CONTROLLERS
from proreus.kube.config import ClientConfig
from proreus.kube.objects import Service
from proreus.kube.requests import NODES
from proreus.serving.health import Health
from proreus.testing.memory import Store

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)


class Balancers:
    """The verbs of load balancers that a test leaves as they are: each Service is by itself."""

    def group(self, lb: LoadBalancerRef) -> Hashable:
        return lb.uid

    def host_policy(self, service: Service) -> HostPolicy:
        return HostPolicy()

    def fingerprint(self, desired: LoadBalancer) -> str:
        return ""

    async def ensure(self, desired: Sequence[LoadBalancer]) -> Mapping[str, Any]:
        raise NotImplementedError

    async def update_hosts(self, desired: Sequence[LoadBalancer]) -> Mapping[str, Any]:
        return await self.ensure(desired)

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        return []


class Cloud(CloudProvider):
    """A cloud with these load balancers."""

    name = "cloud"

    def __init__(self, balancers: Balancers) -> None:
        super().__init__(None)
        self._balancers = balancers

    async def start(self, context: Context) -> None:
        self.load_balancers: Any = self._balancers


@asynccontextmanager
async def leading(
    url: str,
    cloud: CloudProvider,
    *controllers: str,
    now: Callable[[], datetime] | None = None,
    cloud_provider: str = "cloud",
    **flags: Any,
) -> AsyncIterator[Leader]:
    """Run the leader; by default its time is the event loop's."""
    loop = asyncio.get_running_loop()
    leader = Leader(
        Options(cloud_provider=cloud_provider, leader_elect=False, **flags),
        cloud,
        ClientConfig(server=url),
        Health(),
        chosen=[one for one in CONTROLLERS if one.name in controllers],
        election=Election(),
        now=now or (lambda: EPOCH + timedelta(seconds=loop.time())),
    )
    stop = asyncio.Event()
    work = asyncio.create_task(leader.run(stop))
    try:
        yield leader
    finally:
        stop.set()
        await work


async def until(is_so: Callable[[], object]) -> None:
    """Wait on the loop's clock, which may be a virtual one."""
    for _ in range(1000):
        if is_so():
            return
        await asyncio.sleep(1)
    raise AssertionError("not in 1000 seconds")


def join(store: Store, name: str) -> None:
    """Add a Node whose machine is in the cloud."""
    spec = {"providerID": f"cloud://{name}"}
    store.create(NODES, "", {"metadata": {"name": name}, "spec": spec})
