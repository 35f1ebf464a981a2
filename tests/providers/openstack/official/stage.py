"""A real API server, a project of a real OpenStack, and a cluster of some servers in it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from labs.openstack.proxy import Proxy
from labs.openstack.settings import url
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.simulated import Instance
from proreus.testing.waiting import until

from ....apiserver.site import PATIENCE, Site, is_initialised, set_up  # noqa: TID252 - pytest imports tests by path
from ...changes import Change, happen  # noqa: TID252
from ..real import Real  # noqa: TID252

CLUSTER_CIDR: Final = "10.244.0.0/16"
PREFIX: Final = "loadbalancer.openstack.org/"
BALANCERS: Final = "[LoadBalancer]\nlb-provider = proreus\n"
"""Octavia's only provider there; the official manager warns that it does not know it."""


def is_write(request: str) -> bool:
    """Whether a request was to change something; a login changes nothing."""
    service, method, _ = request.split(" ", 2)
    return method != "GET" and service != "keystone"


class Stage:
    """Everything but the managers."""

    def __init__(self, site: Site, real: Real, proxy: Proxy, directory: Path) -> None:
        """There is nothing yet but a network."""
        self.site = site
        self.real = real
        self.proxy = proxy
        self.directory = directory
        self.ids: dict[str, str] = {}
        """The servers' ids by the nodes' names."""

    def cloud_config(self) -> Path:
        """The one file for both managers; it leads through the proxy."""
        file = self.directory / "cloud.conf"
        text = (self.real.config + BALANCERS).replace(url("keystone"), f"{self.proxy.url}/keystone")
        file.write_text(text)
        return file

    async def join(self, count: int, *, routed: bool) -> None:
        """Start servers; their kubelets register ready nodes, with pod CIDRs if `routed`."""
        await self.real.servers("node", count)
        servers = sorted(
            await asyncio.to_thread(self.real.found, "^node"), key=lambda one: str(one.name)
        )
        for number, server in enumerate(servers):
            self.ids[server.name] = server.id
            spec = _cidrs(number) if routed else {}
            await self.site.register_node(
                Instance(name=server.name, id=server.id), ready=True, **spec
            )

    async def give_cidrs(self) -> None:
        """Let the nodes have pod CIDRs, which need routes."""
        for number, name in enumerate(self.ids):
            body = Patch(PatchType.MERGE, {"spec": _cidrs(number)})
            await self.site.client.patch(NODES, name, body)

    async def have_addresses(self) -> bool:
        """Whether all nodes are initialised."""
        return all(
            is_initialised(one) and any(at.type == "InternalIP" for at in one.status.addresses)
            for one in (await self.site.nodes()).values()
        )

    async def have_routes(self) -> bool:
        """Whether there is a route to each node."""
        return len(await asyncio.to_thread(self.real.routes)) == len(self.ids)

    async def initialised(self) -> None:
        """Wait until the nodes are, have addresses, and routes."""
        await until("the nodes have addresses", self.have_addresses, 2 * PATIENCE)
        await until("the nodes have routes", self.have_routes, 2 * PATIENCE)

    async def change(self, name: str, change: Change) -> None:
        """Let this happen to a Service."""
        await happen(self.site, name, change)


@asynccontextmanager
async def staged(
    plane: ControlPlane, real: Real, directory: Path, nodes: int, *, routed: bool = True
) -> AsyncIterator[Stage]:
    """A stage whose servers have joined, in a project that is empty before and after."""
    await asyncio.to_thread(real.clean)
    try:
        async with set_up(plane, directory) as site, Proxy() as proxy:
            stage = Stage(site, real, proxy, directory)
            await stage.join(nodes, routed=routed)
            yield stage
    finally:
        await asyncio.to_thread(real.clean)


def _cidrs(number: int) -> dict[str, Any]:
    cidr = f"10.244.{number}.0/24"
    return {"podCIDR": cidr, "podCIDRs": [cidr]}


def port(number: int, node_port: int, protocol: str = "TCP") -> dict[str, Any]:
    """A port of a Service, with a node port that is the same in each run."""
    name = f"{protocol.lower()}-{number}"
    return {"name": name, "port": number, "nodePort": node_port, "protocol": protocol}


def service(*ports: dict[str, Any], spec: Mapping[str, Any] | None = None, **asked: str) -> Change:
    """A Service; `_` stands for `-` in annotations."""
    annotations = {PREFIX + name.replace("_", "-"): value for name, value in asked.items()}
    return Change(ports, annotations, spec or {})
