"""Sets the stage: control plane, cloud with machines, kubelets, node ports and the manager."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from proreus.kube import config as kubeconfig
from proreus.kube.client import Client
from proreus.testing.controlplane import KUBERNETES_VERSION, ControlPlane
from proreus.testing.demo.narrator import Narrator, running
from proreus.testing.demo.node_ports import NodePorts
from proreus.testing.kubelet import KubeletPlayer
from proreus.testing.nodemonitor import NodeMonitor
from proreus.testing.simulated import Address, Instance, Settings, SimulatedCloudProcess

ZONES = ("sim-1a", "sim-1b", "sim-1c")
MACHINES = 5
MONITOR_GRACE = 5.0
STOP_SECONDS = 30.0
_COUNTDOWN = re.compile(r'"The node looks gone" node="([^"]+)" may_go_in_seconds=(\d+)')


class Manager:
    """The manager in a process of its own, with its log in a file."""

    def __init__(
        self, kubeconfig_file: Path, cloud: SimulatedCloudProcess, directory: Path
    ) -> None:
        """Nothing is started yet; the cloud-config and the log go to `directory`."""
        self.log = directory / "cloud-controller-manager.log"
        self._config = directory / "cloud.conf"
        self._config.write_text(
            f'[Global]\nendpoint = "{cloud.endpoint}"\nregion = sim-1\ntoken = {cloud.token}\n'
        )
        self.flags = (
            "--cloud-provider=simulated",
            f"--cloud-config={self._config}",
            f"--kubeconfig={kubeconfig_file}",
            "--metrics-bind-address=0",
            "-v=2",
        )
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def is_running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the process; its log goes on in the same file."""
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "proreus",
                "run",
                *self.flags,
                stdout=log,
                stderr=log,
            )

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL if that does not help."""
        if self._process is None or not self.is_running:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None and self.is_running:
            self._process.kill()
            await self._process.wait()

    def countdown(self, node: str) -> int | None:
        """Seconds until the manager may delete that node, as its log said last."""
        for name, seconds in reversed(_COUNTDOWN.findall(self.log.read_text(errors="replace"))):
            if name == node:
                return int(seconds)
        return None


class Stage:
    """What the story plays on."""

    def __init__(self, plane: ControlPlane, cloud: SimulatedCloudProcess, client: Client) -> None:
        """Keep the parts; `manager` is not started yet."""
        self.plane = plane
        self.cloud = cloud
        self.client = client
        self.manager = Manager(plane.kubeconfig, cloud, plane.directory)


@asynccontextmanager
async def stage(narrator: Narrator, *, latency: float = 0.02) -> AsyncIterator[Stage]:
    """Everything but the manager runs while the body does."""
    narrator.say(f"starting etcd and kube-apiserver {KUBERNETES_VERSION}")
    async with ControlPlane() as plane:
        narrator.say("they are ready; for kubectl:", f"export KUBECONFIG={plane.kubeconfig}")
        async with SimulatedCloudProcess(settings=Settings(latency=latency)) as cloud:
            await cloud.admin.create(machines(cloud.endpoint))
            zones = ", ".join(ZONES)
            narrator.say(f"a simulated cloud at {cloud.endpoint}: {MACHINES} machines in {zones}")
            async with Client(kubeconfig.load(str(plane.kubeconfig))) as client:
                kubelets = KubeletPlayer(client, cloud.admin.instances, lease_period=1.0)
                monitor = NodeMonitor(client, grace=MONITOR_GRACE, period=1.0)
                ports = NodePorts(client, cloud.admin.instances)
                async with running(
                    asyncio.create_task(kubelets.run()),
                    asyncio.create_task(monitor.run()),
                    asyncio.create_task(ports.run()),
                ):
                    yield Stage(plane, cloud, client)


def machines(endpoint: str, count: int = MACHINES) -> list[Instance]:
    """Machines in turn over the zones, each with a loopback address of its own.

    The addresses come from the cloud's port, so that clouds side by side do not collide; they
    are not those of its load balancers.
    """
    port = int(endpoint.rpartition(":")[2])
    return [
        Instance(
            name=f"node-{number + 1}",
            zone=ZONES[number % len(ZONES)],
            type="sim.large",
            addresses=(
                Address("InternalIP", f"127.{(port >> 8) % 64 + 64}.{port & 255}.{number + 10}"),
                Address("Hostname", f"node-{number + 1}"),
            ),
        )
        for number in range(count)
    ]
