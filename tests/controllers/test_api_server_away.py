"""While the API server answers nobody, no kubelet can report: nodes are not silent for that."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from proreus.controllers.node_lifecycle.evictions import REASON, TARGET
from proreus.kube.requests import LEASES, NODES, PODS
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer, Store

from .leading import EPOCH, Balancers, Cloud, join, leading

BEAT = 10.0
NAMES = tuple(f"n{number}" for number in range(10))


class Site:
    """Nodes whose kubelets renew their leases, as far as the API server answers."""

    def __init__(self) -> None:
        self.store = Store(lambda: EPOCH)
        self.server = MemoryApiServer(self.store)
        self.is_up = True
        self.dead: set[str] = set()
        for name in NAMES:
            join(self.store, name)
            found = self.store.get(NODES, "", name)
            ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2030-01-01T00:00:00Z"}
            status = {"conditions": [ready]}
            self.store.update(NODES, found, {**found.body, "status": status}, status=True)
            lease = {"metadata": {"name": name}, "spec": {"holderIdentity": name}}
            self.store.create(LEASES, "kube-node-lease", lease)

    async def live(self) -> None:
        """Let each kubelet renew its lease every ten seconds, one after another."""
        while True:
            for name in NAMES:
                await asyncio.sleep(BEAT / len(NAMES))
                if self.is_up and name not in self.dead:
                    found = self.store.get(LEASES, "kube-node-lease", name)
                    at = EPOCH + timedelta(seconds=asyncio.get_running_loop().time())
                    spec = {"renewTime": at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
                    self.store.update(LEASES, found, {**found.body, "spec": spec})

    async def away(self, seconds: float) -> None:
        """Let the API server answer nobody for a while."""
        self.is_up = False
        await self.server.stop()
        await asyncio.sleep(seconds)
        await self.server.start()
        self.is_up = True

    def report(self, name: str) -> None:
        """Let a kubelet say that it is well."""
        found = self.store.get(NODES, "", name)
        at = (EPOCH + timedelta(seconds=asyncio.get_running_loop().time())).isoformat()
        ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": at}
        status = {"conditions": [ready]}
        self.store.update(NODES, found, {**found.body, "status": status}, status=True)

    def run_pod(self, name: str, seconds: int) -> None:
        """Run a pod on a node that tolerates for a while that this is silent."""
        toleration = {"operator": "Exists", "tolerationSeconds": seconds}
        pod = {
            "metadata": {"name": "pod"},
            "spec": {"nodeName": name, "tolerations": [toleration]},
            "status": {"conditions": [{"type": TARGET, "status": "True", "reason": REASON}]},
        }
        self.store.create(PODS, "default", pod)

    @property
    def pods(self) -> int:
        """The number of pods."""
        return self.store.count(PODS)

    @property
    def unknown(self) -> set[str]:
        """The nodes that count as silent."""
        bodies = {name: self.store.get(NODES, "", name).body for name in NAMES}
        return {
            name
            for name, body in bodies.items()
            if any(one["status"] == "Unknown" for one in body["status"]["conditions"])
        }


@asynccontextmanager
async def followed() -> AsyncIterator[Site]:
    site = Site()
    async with (
        site.server,
        leading(site.server.url, Cloud(Balancers()), "node-lifecycle-controller"),
    ):
        living = asyncio.create_task(site.live())
        await asyncio.sleep(120)
        assert site.unknown == set()
        yield site
        living.cancel()


@pytest.mark.parametrize("seconds", [50, 55, 60, 65, 90, 118, 125, 180, 1800])
def test_no_node_is_silent_for_what_it_could_not_say_while_the_api_server_was_away(
    seconds: float,
) -> None:
    @virtual_time
    async def play() -> None:
        async with followed() as site:
            await site.away(seconds)
            await asyncio.sleep(300)
            assert site.unknown == set()

    play()


@virtual_time
async def test_a_node_that_has_died_while_the_api_server_was_away_is_silent_after_the_grace() -> (
    None
):
    async with followed() as site:
        site.dead = {"n3"}
        await site.away(180)
        await asyncio.sleep(50)
        assert site.unknown == set()
        await asyncio.sleep(40)
        assert site.unknown == {"n3"}


@virtual_time
async def test_pods_stay_on_a_node_that_came_back_while_the_api_server_was_away() -> None:
    async with followed() as site:
        site.run_pod("n3", seconds=300)
        site.dead = {"n3"}
        await asyncio.sleep(100)
        assert site.unknown == {"n3"}
        site.dead = set()
        await site.away(600)
        await asyncio.sleep(5)  # kubelets report every ten seconds
        site.report("n3")
        await asyncio.sleep(600)
        assert (site.pods, site.unknown) == (1, set())


@virtual_time
async def test_pods_leave_a_node_that_is_silent_after_the_api_server_was_away_too() -> None:
    async with followed() as site:
        site.run_pod("n3", seconds=300)
        site.dead = {"n3"}
        await asyncio.sleep(100)
        await site.away(600)
        await asyncio.sleep(270)
        assert site.pods == 1
        await asyncio.sleep(60)
        assert site.pods == 0
