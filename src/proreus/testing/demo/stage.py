"""Set up the demo: control plane, cloud with machines, kubelets, node ports and the manager."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from proreus.kube import config as kubeconfig
from proreus.kube.client import Client
from proreus.testing.controlplane import ControlPlane, kubernetes_version
from proreus.testing.demo.narrator import Narrator, running
from proreus.testing.demo.node_ports import NodePorts
from proreus.testing.kubelet import KubeletPlayer
from proreus.testing.manager import ManagerProcess, cloud_config
from proreus.testing.nodemonitor import NodeMonitor
from proreus.testing.simulated import Address, Instance, Settings, SimulatedCloudProcess

ZONES = ("sim-1a", "sim-1b", "sim-1c")
MACHINES = 5
CLUSTER_CIDR = "10.244.0.0/16"
MONITOR_GRACE = 5.0
_COUNTDOWN = re.compile(r'"The node looks gone" node="([^"]+)" may_go_in_seconds=(\d+)')


class Manager(ManagerProcess):
    """The manager of the demo; `config` is its cloud-config."""

    def __init__(
        self, kubeconfig_file: Path, cloud: SimulatedCloudProcess, directory: Path
    ) -> None:
        """Write no file yet; the cloud-config and the log go to `directory`."""
        self.config = directory / "cloud.conf"
        self.config.write_text(cloud_config(cloud))
        super().__init__(
            "--cloud-provider=simulated",
            f"--cloud-config={self.config}",
            f"--kubeconfig={kubeconfig_file}",
            "--secure-port=0",
            "--allocate-node-cidrs",
            f"--cluster-cidr={CLUSTER_CIDR}",
            "--node-cidr-mask-size=24",
            "-v=2",
            log=directory / "cloud-controller-manager.log",
        )

    def countdown(self, node: str) -> int | None:
        """Return the seconds until the manager may delete that node, as its log said last."""
        for name, seconds in reversed(_COUNTDOWN.findall(self.output())):
            if name == node:
                return int(seconds)
        return None


class Stage:
    """The parts of the demo on which the story plays."""

    def __init__(self, plane: ControlPlane, cloud: SimulatedCloudProcess, client: Client) -> None:
        """Keep the parts; `manager` is not started yet."""
        self.plane = plane
        self.cloud = cloud
        self.client = client
        self.manager = Manager(plane.kubeconfig, cloud, plane.directory)


@asynccontextmanager
async def stage(narrator: Narrator, *, latency: float = 0.02) -> AsyncIterator[Stage]:
    """Run everything but the manager within the block."""
    narrator.say(f"starting etcd and kube-apiserver {kubernetes_version()}")
    async with ControlPlane() as plane:
        narrator.say("they are ready; for kubectl:", f"export KUBECONFIG={plane.kubeconfig}")
        async with SimulatedCloudProcess(settings=Settings(latency=latency)) as cloud:
            await cloud.admin.create(machines(cloud.endpoint))
            zones = ", ".join(ZONES)
            narrator.say(f"a simulated cloud at {cloud.endpoint}: {MACHINES} machines in {zones}")
            async with Client(kubeconfig.load(str(plane.kubeconfig))) as client:
                # Often, so that a node that a slow machine has made Unknown is soon ready again.
                kubelets = KubeletPlayer(
                    client, cloud.admin.instances, lease_period=1.0, status_period=10.0
                )
                monitor = NodeMonitor(client, grace=MONITOR_GRACE, period=1.0)
                ports = NodePorts(client, cloud.admin.instances)
                async with running(
                    asyncio.create_task(kubelets.run()),
                    asyncio.create_task(monitor.run()),
                    asyncio.create_task(ports.run()),
                ):
                    yield Stage(plane, cloud, client)


def machines(endpoint: str, count: int = MACHINES) -> list[Instance]:
    """Make machines in turn over the zones, each with a loopback address of its own.

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
