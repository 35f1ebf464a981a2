"""One manager of a cloud and of bare metal: machines of `local` beside those of the cloud."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import yaml

from proreus.kube.objects import Node
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES
from proreus.testing.manager import ManagerProcess
from proreus.testing.simulated import Instance

from ..apiserver.site import Site  # noqa: TID252 - pytest imports tests by path

LOCAL = """
zone: rack-1
instances: {{inventory: {inventory}}}
routes: {{enabled: false}}
"""
FLAGS = (
    "--node-monitor-period=0.5s",
    "--node-deletion-interval=1s",
    "--node-startup-grace=0s",
    "--node-status-update-frequency=2s",
)
SOON = 20.0
"""Seconds in which bare metal is served whatever the cloud does: it does not wait for that."""


class Cloud(msgspec.Struct):
    """The cloud beside the bare metal.

    Attributes:
        name: Its name.
        config: Its cloud-config.
        nodes: The ids of its machines by the names of their nodes.
        scheme: How their provider ids begin.
        leave: Ends a machine, by its name.
        fail: Keeps the cloud from answering.
        recover: Lets it answer again.
    """

    name: str
    config: str
    nodes: Mapping[str, str]
    scheme: str
    leave: Callable[[str], object]
    fail: Callable[[], object]
    recover: Callable[[], object]


class Rack:
    """The machines of the inventory."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "machines.yaml"
        self._names: list[str] = []

    def change(self, *, new: tuple[str, ...] = (), gone: tuple[str, ...] = ()) -> None:
        self._names = [name for name in (*self._names, *new) if name not in gone]
        entries = [{"name": name, "addresses": [f"10.7.0.{n + 1}"]}
                   for n, name in enumerate(self._names)]  # fmt: skip
        self.file.write_text(yaml.safe_dump({"machines": entries}))


def manager(site: Site, cloud: Cloud, rack: Rack, directory: Path) -> ManagerProcess:
    files = {name: directory / f"{name}.conf" for name in (cloud.name, "local")}
    files[cloud.name].write_text(cloud.config)
    files["local"].write_text(LOCAL.format(inventory=rack.file))
    return site.lone_manager(
        f"--cloud-provider={cloud.name},local",
        "--cloud-config=" + ",".join(f"{name}={file}" for name, file in files.items()),
        *FLAGS,
    )


async def lives_beside_bare_metal(site: Site, cloud: Cloud, directory: Path) -> None:
    """Nodes of both come and leave; while the cloud fails, those of the rack go on."""
    rack = Rack(directory)
    rack.change(new=("b1", "b2", "b3"))
    machines = {**cloud.nodes, **dict.fromkeys(("b1", "b2", "b3"), "")}
    for name, id_ in machines.items():
        await site.register_node(Instance(name=name, id=id_), ready=True)
    async with manager(site, cloud, rack, directory) as running:
        try:
            _are_of_both(await site.initialised(*machines), cloud)
            await _rack_goes_on(site, cloud, rack)
            cloud.recover()
            leaving, *others = cloud.nodes
            cloud.leave(leaving)
            await site.silence(leaving)
            await site.gone(leaving)
            assert (await site.nodes()).keys() == {*others, "b2", "b3", "b4"}
        finally:
            print(running.output()[-6000:])


def _are_of_both(nodes: Mapping[str, Node], cloud: Cloud) -> None:
    for name, node in nodes.items():
        is_of_cloud = name in cloud.nodes
        scheme = cloud.scheme if is_of_cloud else "local://"
        assert node.spec.provider_id.startswith(scheme)
        label = cloud.name if is_of_cloud else "local"
        assert node.metadata.labels["proreus.io/cloud"] == label


async def _rack_goes_on(site: Site, cloud: Cloud, rack: Rack) -> None:
    """While the cloud fails, machines of the rack come and leave; the cloud's nodes stay."""
    cloud.fail()
    await site.silence(*cloud.nodes)
    rack.change(new=("b4",), gone=("b1",))
    await site.register_node(Instance(name="b4", id=""), ready=True, providerID="local://b4")
    await asyncio.wait_for(site.initialised("b4"), SOON)
    await site.silence("b1")
    await asyncio.wait_for(site.gone("b1"), SOON)
    assert cloud.nodes.keys() <= (await site.nodes()).keys()
    await _ready(site, *cloud.nodes)


async def _ready(site: Site, *names: str) -> None:
    """Let the kubelets of these nodes report again."""
    body = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    for name in names:
        patch = Patch(PatchType.STRATEGIC, body)
        await site.client.patch(NODES, name, patch, subresource="status")
