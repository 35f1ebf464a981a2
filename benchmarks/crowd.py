"""Many nodes on an API server and a cloud, and a manager that says by its metrics how far it is."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.contestants import Process
from benchmarks.measure import cloud_calls
from benchmarks.stage import node_of
from proreus.kube import config
from proreus.kube.client import Client
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES, SERVICES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.kubelet import timestamp
from proreus.testing.manager import cloud_config
from proreus.testing.objects import service_body
from proreus.testing.ports import free_port
from proreus.testing.simulated import Instance, Settings, SimulatedCloudProcess

PATIENCE = 3600.0
_BATCH = 500
_CONCURRENCY = 32
_HISTORY = 20_000


class Crowd:
    """An API server, a cloud and who writes to them.

    Attributes:
        client: The administrator's client.
        cloud: The simulated cloud.
        kubeconfig: Of the API server.
        server_pid: Of the API server.
    """

    def __init__(
        self, client: Client, cloud: SimulatedCloudProcess, kubeconfig: Path, server_pid: int
    ) -> None:
        """Take over what runs."""
        self.client = client
        self.cloud = cloud
        self.kubeconfig = kubeconfig
        self.server_pid = server_pid
        self._slots = asyncio.Semaphore(_CONCURRENCY)

    async def add_nodes(self, first: int, end: int, *, initialised: bool = False) -> Sequence[str]:
        """Start machines of these numbers and register their nodes, ready; answers the names."""
        names: list[str] = []
        for start in range(first, end, _BATCH):
            machine_bodies = [_machine(number) for number in range(start, min(end, start + _BATCH))]
            machines = await self.cloud.admin.create(machine_bodies)
            await self._each(
                self.client.create(NODES, node_of(one, initialised=initialised)) for one in machines
            )
            names += [one.name for one in machines]
        return names

    async def add_services(self, count: int, *, balanced: int = 0) -> None:
        """Create so many Services, the first of them with load balancers."""
        for start in range(0, count, _BATCH):
            numbers = range(start, min(count, start + _BATCH))
            await self._each(
                self.client.create(SERVICES, _service(one, balanced=one < balanced), "default")
                for one in numbers
            )

    async def heartbeats(self, names: Sequence[str], rate: float) -> None:
        """Write so many heartbeats a second, the nodes in turn, until cancelled."""
        loop = asyncio.get_running_loop()
        began, sent = loop.time(), 0
        async with asyncio.TaskGroup() as group:
            while True:
                due = int((loop.time() - began) * rate)
                for number in range(sent, due):
                    group.create_task(self._slotted(self._beat(names[number % len(names)])))
                sent = max(sent, due)
                await asyncio.sleep(0.1)

    async def calls(self) -> tuple[int, int]:
        """Calls of the cloud so far, and how many of them it refused."""
        calls, throttled = cloud_calls(await self.cloud.admin.counters())
        return sum(calls.values()), throttled

    async def _beat(self, name: str) -> None:
        beat = {"type": "Ready", "lastHeartbeatTime": timestamp(datetime.now(UTC))}
        patch = Patch(PatchType.STRATEGIC, {"status": {"conditions": [beat]}})
        await self.client.patch(NODES, name, patch, subresource="status")

    async def _each(self, works: Iterable[Awaitable[Any]]) -> None:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(self._slotted(work))

    async def _slotted(self, work: Awaitable[Any]) -> None:
        async with self._slots:
            await work


class Manager:
    """A manager that runs.

    Attributes:
        process: Its process.
        began: When it was started, by `time.monotonic`.
    """

    def __init__(self, process: Process, port: int) -> None:
        """Take over what runs, with its metrics on this port."""
        self.process = process
        self.began = time.monotonic()
        self._url = f"http://127.0.0.1:{port}/metrics"

    async def metrics(self) -> Mapping[str, float]:
        """Read the manager's metrics without labels, and `NAME/VALUE` for those with one.

        Raises:
            RuntimeError: It has ended.
        """
        self.process.check()
        try:
            async with aiohttp.ClientSession() as session, session.get(self._url) as answer:
                text = await answer.text()
        except aiohttp.ClientError:
            return {}
        return {
            "/".join((sample.name, *sample.labels.values())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    async def until(
        self, what: str, done: Callable[[Mapping[str, float]], bool], *, every: float = 1.0
    ) -> float:
        """Wait until its metrics are so; the seconds since its start.

        Raises:
            TimeoutError: They are not after an hour.
        """
        deadline = time.monotonic() + PATIENCE
        while not done(await self.metrics()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not after {PATIENCE:g} s: {what}")
            await asyncio.sleep(every)
        return time.monotonic() - self.began


@asynccontextmanager
async def gathered(
    directory: Path, *, real: bool = False, settings: Mapping[str, Any] = {}
) -> AsyncIterator[Crowd]:
    """Start an API server, in memory unless `real`, and a cloud."""
    calm = {"latency": 0.02, "health_interval": 0.0, "pool": "127.96.0.0/16"}
    async with AsyncExitStack() as stack:
        cloud = await stack.enter_async_context(
            SimulatedCloudProcess(settings=Settings(**{**calm, **settings}))
        )
        kubeconfig, pid = await stack.enter_async_context(
            _real_server() if real else _memory_server(directory)
        )
        loaded = config.load(str(kubeconfig), env={})
        client = await stack.enter_async_context(Client(loaded, user_agent="benchmark"))
        yield Crowd(client, cloud, kubeconfig, pid)


@asynccontextmanager
async def managed(
    crowd: Crowd, directory: Path, *flags: str, batch_size: int = 0
) -> AsyncIterator[Manager]:
    """Run a manager of the crowd; its log is `manager.log`."""
    cloud = directory / "cloud.conf"
    cloud.write_text(cloud_config(crowd.cloud, batch_size=batch_size))
    port = free_port()
    command = [
        *(sys.executable, "-m", "proreus", "run", "--cloud-provider=simulated"),
        f"--cloud-config={cloud}",
        f"--kubeconfig={crowd.kubeconfig}",
        "--leader-elect=false",
        "--configure-cloud-routes=false",
        "--secure-port=0",
        f"--metrics-bind-address=127.0.0.1:{port}",
        *flags,
    ]
    async with Process(command, directory / "manager.log") as process:
        yield Manager(process, port)


@asynccontextmanager
async def _memory_server(directory: Path) -> AsyncIterator[tuple[Path, int]]:
    kubeconfig = directory / "memory.kubeconfig"
    command = [
        *(sys.executable, "-m", "proreus.testing.memory"),
        f"--kubeconfig={kubeconfig}",
        f"--history={_HISTORY}",
    ]
    async with Process(command, directory / "memory.log") as process:
        while not kubeconfig.exists():
            process.check()
            await asyncio.sleep(0.05)
        yield kubeconfig, process.pid


@asynccontextmanager
async def _real_server() -> AsyncIterator[tuple[Path, int]]:
    async with ControlPlane() as plane:
        yield plane.kubeconfig, plane.apiserver_pid


def _machine(number: int) -> Instance:
    return Instance(name=f"node-{number:06}", zone=f"sim-1{'abc'[number % 3]}", type="sim.large")


def _service(number: int, *, balanced: bool) -> dict[str, Any]:
    type_ = "LoadBalancer" if balanced else "ClusterIP"
    return service_body(f"service-{number:05}", type=type_)
