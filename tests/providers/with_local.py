"""One manager of two clouds: one without load balancers of its own, and `local`, which has some."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.contestants import Process
from proreus.kube import config
from proreus.kube.client import Client
from proreus.kube.objects import Node, Service
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES, SERVICES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.kubelet import node_body
from proreus.testing.nodemonitor import unknown
from proreus.testing.objects import service_body
from proreus.testing.simulated import Instance
from proreus.testing.waiting import until

from ..apiserver.site import is_initialised  # noqa: TID252 - pytest imports tests by path
from .local_namespace import own_namespace
from .traffic import forwarding  # which skips all of this without nft and ip

PATIENCE = 120.0
MACHINES = {"node-1": "10.9.0.11", "node-2": "10.9.0.12"}
POOL = "10.9.8.0/28"
LOCAL = f"""
instances: {{enabled: false}}
routes: {{enabled: false}}
pools: {{default: {{addresses: [{POOL}]}}}}
health-checks: {{interval: 1h}}
draining: 0s
"""
FLAGS = (
    "--load-balancer-cloud=local",
    "--node-monitor-period=0.5s",
    "--node-deletion-interval=1s",
    "--node-startup-grace=0s",
)


class Cloud(msgspec.Struct):
    """The cloud with the nodes: its name, and what a test does to it.

    `leave` ends a machine, and `fail` keeps the cloud from answering.
    """

    name: str
    config: str
    leave: Callable[[str], object]
    fail: Callable[[], object]


def play(live: Callable[[], Awaitable[None]]) -> None:
    """Run a test in a network of its own, where the kernel forwards."""
    with own_namespace(), asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        forwarding()
        runner.run(_of(live))


def manager(plane: ControlPlane, log: Path, *flags: str) -> Process:
    """A manager in this network."""
    program = str(Path(sys.executable).with_name("cloud-controller-manager"))
    common = (f"--kubeconfig={plane.kubeconfig}", "--leader-elect=false", "--secure-port=0")
    return Process([program, *common, *flags], log)


async def _of(live: Callable[[], Awaitable[None]]) -> None:
    await live()


async def nodes_of_a_cloud_behind_load_balancers_of_local(cloud: Cloud, directory: Path) -> None:
    """Nodes come and leave, Services too, also while the cloud with the nodes does not answer."""
    files = {name: directory / f"{name}.conf" for name in (cloud.name, "local")}
    files[cloud.name].write_text(cloud.config)
    files["local"].write_text(LOCAL)
    async with ControlPlane() as plane:
        log = directory / "manager.log"
        process: Process = manager(
            plane, log,
            f"--cloud-provider={cloud.name},local",
            "--cloud-config=" + ",".join(f"{name}={file}" for name, file in files.items()),
            *FLAGS,
        )  # fmt: skip
        admin = config.load(str(plane.kubeconfig), env={})
        try:
            async with Client(admin, user_agent="test") as client, process:
                await _live(Life(client), cloud)
        finally:
            print(log.read_text()[-6000:])


async def _live(life: "Life", cloud: Cloud) -> None:
    await life.register(*MACHINES)
    nodes = await life.initialised(*MACHINES)
    for node in nodes:
        assert node.spec.provider_id.startswith(f"{cloud.name}:")
        assert node.metadata.labels["proreus.io/cloud"] == cloud.name
    await life.client.create(SERVICES, service_body("web"), "default")
    first = await life.served("web")
    assert first.metadata.annotations["proreus.io/cloud-in-use"] == "local"
    await life.hops(set(MACHINES.values()))

    cloud.leave("node-1")
    await life.silence("node-1")
    await life.initialised("node-2")
    await life.hops({MACHINES["node-2"]})

    cloud.fail()
    await life.client.create(SERVICES, service_body("more"), "default")
    await asyncio.wait_for(life.served("more"), 20)
    for name in ("web", "more"):
        await life.client.delete(SERVICES, name, "default")
    await life.hops(set())
    await life.initialised("node-2")


class Life:
    """What the tests do, and what they look at."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def register(self, *names: str) -> None:
        for name in names:
            body = node_body(Instance(name=name, id=""), now=datetime.now(UTC))
            body["status"]["conditions"][-1].update(type="Ready", status="True")
            await self.client.create(NODES, body)

    async def silence(self, name: str) -> None:
        node = await self.client.get(NODES, name)
        body = unknown(node.status.conditions, datetime.now(UTC))
        patch = Patch(PatchType.STRATEGIC, body)
        await self.client.patch(NODES, name, patch, subresource="status")

    async def initialised(self, *names: str) -> tuple[Node, ...]:
        """Wait until exactly these nodes are there, with all that their cloud says."""

        async def are_there() -> tuple[Node, ...] | None:
            nodes = (await self.client.list(NODES)).items
            is_done = {one.metadata.name for one in nodes} == set(names)
            return nodes if is_done and all(map(is_initialised, nodes)) else None

        return await until("the nodes are initialised", are_there, PATIENCE)

    async def served(self, name: str) -> Service:
        """Wait until a Service has an address of the pool."""

        async def has_address() -> Service | None:
            found = await self.client.get(SERVICES, name, "default")
            points = found.status.load_balancer.ingress
            return found if points and points[0].ip.startswith("10.9.8.") else None

        return await until("the Service has an address", has_address, PATIENCE)

    async def hops(self, expected: set[str]) -> None:
        """Wait until the kernel sends connections of load balancers to exactly these machines."""

        async def are() -> bool:
            command = ["ip", "-json", "route", "show", "table", "all"]
            done = await asyncio.to_thread(
                subprocess.run, command, capture_output=True, text=True, check=True
            )
            routes: list[dict[str, Any]] = json.loads(done.stdout)
            return {one["gateway"] for one in routes if "gateway" in one} == expected

        await until(f"traffic goes to {expected}", are, PATIENCE)
