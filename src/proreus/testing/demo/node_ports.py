"""Play kube-proxy and pods: an echo server behind every node port of every machine."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack

from proreus.kube.client import Client
from proreus.kube.requests import SERVICES
from proreus.testing.echo import EchoServer
from proreus.testing.simulated import Instance

KUBE_PROXY_HEALTH_PORT = 10256
PERIOD = 0.3


class NodePorts:
    """The servers behind node ports, on each running machine's own loopback address."""

    def __init__(
        self, client: Client, machines: Callable[[], Awaitable[Iterable[Instance]]]
    ) -> None:
        """Keep `machines`, the function that lists the running machines."""
        self._client = client
        self._machines = machines
        self._servers: dict[tuple[str, int], AsyncExitStack] = {}

    async def run(self) -> None:
        """Follow Services and machines until cancelled."""
        try:
            while True:
                await self._follow()
                await asyncio.sleep(PERIOD)
        finally:
            for server in self._servers.values():
                await server.aclose()

    async def _follow(self) -> None:
        services = (await self._client.list(SERVICES)).items
        ports = {
            port.node_port for service in services for port in service.spec.ports if port.node_port
        }
        ports |= {service.spec.health_check_node_port for service in services} - {0}
        running = {
            address_of(machine): machine.name
            for machine in await self._machines()
            if machine.state == "running"
        }
        desired = {
            (address, port): name
            for address, name in running.items()
            for port in (*ports, KUBE_PROXY_HEALTH_PORT)
        }
        for gone in self._servers.keys() - desired.keys():
            await self._servers.pop(gone).aclose()
        for place in desired.keys() - self._servers.keys():
            server = AsyncExitStack()
            await server.enter_async_context(EchoServer(*place, node=desired[place]))
            self._servers[place] = server


def address_of(machine: Instance) -> str:
    """Return the machine's own loopback address."""
    return next(address.address for address in machine.addresses if address.type == "InternalIP")
