"""Two managers on one cluster: `ovirt` looks after nodes, and `local` has their load balancers."""

import re
from pathlib import Path

import pytest

from proreus.kube import config
from proreus.kube.client import Client
from proreus.kube.requests import SERVICES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.objects import service_body

from ..guides import Guide  # noqa: TID252 - pytest imports tests by path
from ..with_local import MACHINES, POOL, Life, manager, play  # noqa: TID252
from .emulator.server import served
from .emulator.world import MAC, Device, Nic

pytestmark = pytest.mark.long


def test_nodes_of_ovirt_get_the_traffic_of_load_balancers_of_local(tmp_path: Path) -> None:
    play(lambda: live(tmp_path))


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
            life = Life(client)
            await life.register(*MACHINES)
            nodes = await life.initialised(*MACHINES)
            assert all(one.spec.provider_id.startswith("ovirt:///") for one in nodes)
            await client.create(SERVICES, service_body("web"), "default")
            await life.served("web")
            await life.hops(set(MACHINES.values()))
            await client.delete(SERVICES, "web", "default")
            await life.hops(set())
            await life.initialised(*MACHINES)
