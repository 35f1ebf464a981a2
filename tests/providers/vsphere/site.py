"""Simulated vCenters behind gateways, and providers and Nodes to try on them."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from labs.vsphere import Gateway, Simulator
from labs.vsphere.simulator import PASSWORD, USER
from proreus.cloudprovider.config import read
from proreus.cloudprovider.context import Context
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.instances import Instance
from proreus.kube.objects import Node, NodeStatus, NodeSystemInfo, Service
from proreus.providers.vsphere import VSphereCloud
from proreus.providers.vsphere.config import VSphereConfig
from proreus.testing import objects
from proreus.testing.controlplane.certificates import Authority

from ..surroundings import Objects  # noqa: TID252 - pytest imports tests by path

CLUSTER = ClusterIdentity("test", "cluster-uid")


class Events:
    def event(self, obj: Any, type_: str, reason: str, message: str, /) -> None: ...


class Site:
    """A vCenter: the simulator with what is in it, the gateway, and how to reach that."""

    def __init__(self, simulator: Simulator, gateway: Gateway, directory: Path) -> None:
        self.simulator = simulator
        self.gateway = gateway
        self.ca_file = directory / f"ca-{gateway.port}.pem"
        self.ca_file.write_bytes(gateway.authority.certificate)

    def config(self, more: str = "", port: int = 0, **of_global: Any) -> str:
        """The official file, in INI."""
        keys = {
            "server": "127.0.0.1",
            "port": port or self.gateway.port,
            "user": USER,
            "password": PASSWORD,
            "ca-file": self.ca_file,
        } | {key.replace("_", "-"): value for key, value in of_global.items()}
        lines = [f'{key} = "{value}"' for key, value in keys.items() if value != ""]
        return "\n".join(("[Global]", *lines, more)) + "\n"

    def id(self, name: str) -> str:
        """The provider id of a machine."""
        return f"vsphere://{self.simulator.uuids[name]}"


@asynccontextmanager
async def site(
    directory: Path, authority: Authority | None = None, **sizes: int
) -> AsyncIterator[Site]:
    async with (
        Simulator(**sizes) as simulator,
        Gateway(simulator.url, authority) as gateway,
    ):
        yield Site(simulator, gateway, directory)


def context(gate: Callable[[], None] = lambda: None, services: Iterable[Service] = ()) -> Context:
    listers = {"services": Objects(services)}
    return Context(
        CLUSTER, now=lambda: datetime.now(UTC), events=Events(), listers=listers, gate=gate
    )


def cloud(text: str, source: str = "vsphere.conf") -> VSphereCloud:
    return VSphereCloud(read(text, VSphereConfig, source=source))


@asynccontextmanager
async def started(text: str, with_: Context | None = None) -> AsyncIterator[VSphereCloud]:
    provider = cloud(text)
    try:
        await provider.start(with_ or context())
        yield provider
    finally:
        await provider.close()


def node(name: str, provider_id: str = "", *, uuid: str = "", **labels: str) -> Node:
    made = objects.node(
        name, provider_id, labels={key.replace("__", "/"): value for key, value in labels.items()}
    )
    info = NodeSystemInfo(system_uuid=uuid)
    status = NodeStatus(conditions=made.status.conditions, node_info=info)
    return msgspec.structs.replace(made, status=status)


async def describe(provider: VSphereCloud, *nodes: Node) -> Mapping[str, Any]:
    assert provider.instances is not None
    return await provider.instances.describe(nodes)


async def one(provider: VSphereCloud, of: Node) -> Any:
    return (await describe(provider, of))[of.metadata.name]


def shown(machine: Instance) -> list[tuple[str, str]]:
    return [(it.type, it.address) for it in machine.addresses]


def two(first: Site, second: Site, west: str = "") -> str:
    """The official file with two vCenters, in YAML; `west` is what the second one has besides."""
    return f"""
global:
  user: k8s@vsphere.local
  password: planted-secret
  insecureFlag: true
vcenter:
  east: {{server: 127.0.0.1, port: {first.gateway.port}}}
  west: {{server: 127.0.0.1, port: {second.gateway.port}{west}}}
"""
