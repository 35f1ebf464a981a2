"""Two managers on one cluster: `ovirt` looks after nodes, and `local` has their load balancers."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from benchmarks.contestants import Process
from proreus.kube import config
from proreus.kube.client import Client
from proreus.kube.requests import NODES, SERVICES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.kubelet import node_body
from proreus.testing.objects import service_body
from proreus.testing.simulated import Instance
from proreus.testing.waiting import until

from ...apiserver.site import is_initialised  # noqa: TID252 - pytest imports tests by path
from ..guides import Guide  # noqa: TID252
from ..local_namespace import own_namespace  # noqa: TID252
from ..traffic import forwarding  # noqa: TID252 - skips all of this without nft and ip
from .emulator.server import served
from .emulator.world import MAC, Device, Nic

pytestmark = pytest.mark.long

PATIENCE = 120.0
MACHINES = {"node-1": "10.9.0.11", "node-2": "10.9.0.12"}
POOL = "10.9.8.0/28"


def test_nodes_of_ovirt_get_the_traffic_of_load_balancers_of_local(tmp_path: Path) -> None:
    with own_namespace(), asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        forwarding()
        runner.run(live(tmp_path))


def manager(plane: ControlPlane, log: Path, *flags: str) -> Process:
    """A manager in this network."""
    program = str(Path(sys.executable).with_name("cloud-controller-manager"))
    common = (f"--kubeconfig={plane.kubeconfig}", "--leader-elect=false", "--secure-port=0")
    return Process([program, *common, *flags], log)


async def live(directory: Path) -> None:
    guide = Guide("ovirt").text
    (local,) = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    (controllers,) = re.findall(r"--controllers=\S+", guide)
    files = {name: directory / name for name in ("ovirt.conf", "local.yaml")}
    files["local.yaml"].write_text(local.replace("192.0.2.64/27", POOL))
    async with ControlPlane() as plane, served() as engine:
        files["ovirt.conf"].write_text(engine.config())
        for at, (name, ip) in enumerate(MACHINES.items()):
            mac = f"{MAC}:99:{at:02x}"
            nics, devices = [Nic(f"nic-{at}", "nic1", mac)], [Device("eth0", mac, [ip])]
            engine.world.add_vms([name], nics=nics, devices=devices)
        admin = config.load(str(plane.kubeconfig), env={})
        ovirt = manager(
            plane, directory / "ovirt.log",
            "--cloud-provider=ovirt", f"--cloud-config={files['ovirt.conf']}",
        )  # fmt: skip
        beside = manager(
            plane, directory / "local.log",
            "--cloud-provider=local", f"--cloud-config={files['local.yaml']}", controllers,
        )  # fmt: skip
        async with Client(admin, user_agent="test") as client, ovirt, beside:
            for name in MACHINES:
                body = node_body(Instance(name=name, id=""), now=datetime.now(UTC))
                body["status"]["conditions"][-1].update(type="Ready", status="True")
                await client.create(NODES, body)

            async def are_initialised() -> bool:
                nodes = (await client.list(NODES)).items
                assert not any(one.spec.provider_id.startswith("local") for one in nodes)
                return all(
                    is_initialised(one) and one.spec.provider_id.startswith("ovirt:///")
                    for one in nodes
                )

            await until("the nodes are initialised", are_initialised, PATIENCE)
            await client.create(SERVICES, service_body("web"), "default")

            async def is_served() -> bool:
                found = await client.get(SERVICES, "web", "default")
                return bool(found.status.load_balancer.ingress)

            await until("the Service has an address", is_served, PATIENCE)
            await until("both nodes get its traffic", are_hops, PATIENCE)
            assert (
                (await client.get(SERVICES, "web", "default"))
                .status.load_balancer.ingress[0]
                .ip.startswith("10.9.8.")
            )
            await client.delete(SERVICES, "web", "default")
            await until("nothing is left", is_empty, PATIENCE)
            nodes = (await client.list(NODES)).items
            assert {one.metadata.name for one in nodes} == set(MACHINES)


async def are_hops() -> bool:
    """Whether the kernel sends connections of load balancers to both nodes."""
    return {line.split()[2] for line in await routes() if " via " in line} == set(MACHINES.values())


async def is_empty() -> bool:
    return not [line for line in await routes() if " via " in line]


async def routes() -> Sequence[str]:
    """All routes of this network."""
    done = await asyncio.to_thread(
        subprocess.run, ["ip", "-4", "route", "show", "table", "all"],
        capture_output=True, text=True, check=True, env=os.environ,
    )  # fmt: skip
    return done.stdout.splitlines()
