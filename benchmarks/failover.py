"""Measures how long a cluster is without a leader, until the next one's first write.

    python benchmarks/failover.py --runs 20

Two managers, each a process, with the default times of the lease, on a real API server and the
simulated cloud. In each run the leader gets SIGTERM or SIGKILL, a node registers, and the time is
taken until the API server receives the first patch of that node by the standby: all by the clock
of this machine, the write's from the audit log. A run in which the old leader was still faster
with the node is done again.
"""

import argparse
import asyncio
import math
import random
import signal
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from proreus.kube import config
from proreus.kube.client import Client
from proreus.kube.requests import LEASES, NODES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.kubelet import node_body
from proreus.testing.manager import ManagerProcess, cloud_config
from proreus.testing.simulated import Instance, SimulatedCloudProcess
from proreus.testing.waiting import until

POLL = 0.02
PATIENCE = 120.0
RETRY_PERIOD = 2.0
PERCENTILE = 0.9


class _Audited(msgspec.Struct, rename="camel"):
    verb: str
    user: dict[str, object]
    request_received_timestamp: datetime
    object_ref: dict[str, str] = {}


class Cluster:
    """An API server, a cloud, and two managers that take turns."""

    def __init__(
        self, plane: ControlPlane, cloud: SimulatedCloudProcess, client: Client, directory: Path
    ) -> None:
        self.client = client
        self._plane = plane
        self._cloud = cloud
        self._directory = directory
        self._started = 0
        self._joined = 0

    async def manager(self) -> tuple[str, ManagerProcess]:
        """Start a manager; each is another user for the API server."""
        self._started += 1
        user = f"replica-{self._started}"
        file = self._directory / f"{user}.conf"
        file.write_text(cloud_config(self._cloud))
        process = ManagerProcess(
            "--cloud-provider=simulated",
            f"--cloud-config={file}",
            f"--kubeconfig={self._plane.kubeconfig_for(user, ['system:masters'])}",
            "--secure-port=0",
            "-v=2",
            log=self._directory / f"{user}.log",
        )
        await process.start()
        return user, process

    async def join(self) -> str:
        """Register a node whose machine runs."""
        self._joined += 1
        (machine,) = await self._cloud.admin.create(
            [Instance(name=f"node-{self._joined}", zone="sim-1a", type="sim.large")]
        )
        await self.client.create(NODES, node_body(machine, now=datetime.now(UTC)))
        return machine.name

    def patched(self, node: str) -> tuple[str, float] | None:
        """Return who patched the node first, and when in seconds of the wall clock."""
        for line in self._plane.audit_log.read_bytes().splitlines():
            if b'"verb":"patch"' in line and node.encode() in line and line.endswith(b"}"):
                one = msgspec.json.decode(line, type=_Audited)
                if one.object_ref.get("name") == node:
                    return str(one.user["username"]), one.request_received_timestamp.timestamp()
        return None

    def works(self, process: ManagerProcess) -> bool:
        """Tell whether the manager has started controllers."""
        return '"Started"' in process.output()

    def waits(self, user: str) -> bool:
        """Tell whether the manager has looked at the lease."""
        mark = f'"username":"{user}"'.encode()
        lines = self._plane.audit_log.read_bytes().splitlines()
        return any(mark in line and LEASES.plural.encode() in line for line in lines)


async def fail_over(
    cluster: Cluster, leader: ManagerProcess, number: signal.Signals
) -> tuple[ManagerProcess, float | None]:
    """End the leader.

    Returns:
        The next one, and the seconds until its first write; None if the old one was faster.
    """
    user, standby = await cluster.manager()
    await until("the standby waits for the lease", lambda: cluster.waits(user), PATIENCE)
    # Anywhere between two renewals.
    await asyncio.sleep(RETRY_PERIOD * (1 + random.random()))  # noqa: S311 - no secret
    ended = time.time()
    end = leader.stop() if number == signal.SIGTERM else leader.kill()
    ending = asyncio.create_task(end)
    await asyncio.sleep(0)
    node = await cluster.join()
    await until("the node is patched", lambda: cluster.patched(node), PATIENCE, pause=POLL)
    await ending
    who, when = cluster.patched(node) or ("", 0.0)
    await until("the standby leads", lambda: cluster.works(standby), PATIENCE)
    await cluster.client.delete(NODES, node)
    return standby, when - ended if who == user else None


async def measure(cluster: Cluster, number: signal.Signals, runs: int) -> list[float]:
    """Return the seconds of each run."""
    _, leader = await cluster.manager()
    await until("the manager leads", lambda: cluster.works(leader), PATIENCE)
    seconds: list[float] = []
    try:
        while len(seconds) < runs:
            leader, took = await fail_over(cluster, leader, number)
            if took is not None:
                seconds.append(took)
    finally:
        await leader.stop()
    return seconds


async def main(runs: int) -> None:
    """Measure both ends, and print the figures."""
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        plane = await stack.enter_async_context(ControlPlane(log_dir=directory))
        cloud = await stack.enter_async_context(SimulatedCloudProcess())
        client = await stack.enter_async_context(
            Client(config.load(str(plane.kubeconfig), env={}), user_agent="failover")
        )
        cluster = Cluster(plane, cloud, client, directory)
        print(f"{'end of the leader':<18}{'runs':>5}{'min':>8}{'median':>8}{'p90':>8}{'max':>8}")
        for number in (signal.SIGTERM, signal.SIGKILL):
            seconds = sorted(await measure(cluster, number, runs))
            figures = (
                seconds[0],
                statistics.median(seconds),
                seconds[math.ceil(PERCENTILE * len(seconds)) - 1],
                seconds[-1],
            )
            columns = "".join(f"{figure:>6.2f} s" for figure in figures)
            print(f"{number.name:<18}{runs:>5}{columns}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--runs", type=int, default=20, help="for each end of the leader")
    asyncio.run(main(parser.parse_args().runs))
