"""A site for the route controller: in this process, on a real API server and cloud."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from ipaddress import IPv6Network
from typing import Any

import aiohttp

from proreus.cloudprovider import ClusterIdentity, Context
from proreus.cloudprovider.identity import MARK_CLUSTER_UID
from proreus.cloudprovider.routes import Routes
from proreus.controllers.environment import Environment
from proreus.controllers.last_ready import following
from proreus.controllers.route.controller import RouteController
from proreus.controllers.route.policy import Policy
from proreus.controllers.settings import Settings
from proreus.kube import config
from proreus.kube.client import Client
from proreus.kube.objects import Condition, condition
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NAMESPACES, NODES, SERVICES
from proreus.providers.simulated import SimulatedCloud
from proreus.providers.simulated.config import Global, SimulatedConfig
from proreus.runtime.events import EventRecorder
from proreus.runtime.informer import Informer
from proreus.testing.simulated import Instance
from proreus.testing.waiting import until

from .rights import MANAGERS
from .site import TOKENS, Site

CLUSTERS = ("10.0.0.0/16", "fd00::/48")
USER = "routes"
QUICK = Policy(confirm=0.5, settle=0.5, retry_first=0.25, retry_cap=1.0)


def v4(number: int) -> str:
    """The IPv4 block of a number."""
    return f"10.0.{number}.0/24"


def v6(number: int) -> str:
    """The IPv6 block of a number."""
    return str(IPv6Network(f"fd00:0:0:{number:x}::/64"))


def provider_id(machine: Instance) -> str:
    """The provider id of a machine."""
    return f"simulated://sim-1/{machine.id}"


class RouteSite:
    """What the tests do to nodes and routes, and what they look at."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.cloud = site.cloud
        self.client = site.client
        self.uid = ""

    async def start(self) -> None:
        """Learn which cluster this is."""
        self.uid = (await self.client.get(NAMESPACES, "kube-system")).metadata.uid

    @asynccontextmanager
    async def controller(
        self,
        policy: Policy = QUICK,
        *,
        clusters: Sequence[str] = CLUSTERS,
        period: float = 300.0,
        routes: Callable[[Routes], Routes] = lambda real: real,
    ) -> AsyncIterator[RouteController]:
        """Run the controller; `routes` may stand between it and the provider."""
        async with AsyncExitStack() as stack:
            file = self.site.plane.kubeconfig_for(USER, [MANAGERS])
            client = await stack.enter_async_context(Client(config.load(str(file), env={})))
            nodes = Informer(client, NODES)
            events = EventRecorder(client, host="test")
            cluster = ClusterIdentity("test", self.uid)
            context = Context(
                cluster, now=lambda: datetime.now(UTC), events=events.source("test"), listers={}
            )
            settings = Global(endpoint=self.cloud.endpoint, region="sim-1", token=TOKENS["first"])
            provider = SimulatedCloud(SimulatedConfig(settings))
            await provider.start(context)
            stack.push_async_callback(provider.close)
            assert provider.routes is not None
            provider.routes = routes(provider.routes)
            controller = RouteController(
                Environment(
                    client=client,
                    provider=provider,
                    context=context,
                    cluster=cluster,
                    nodes=nodes,
                    services=Informer(client, SERVICES),
                    all_services=Informer(client, SERVICES),
                    endpoint_slices=None,
                    inventory=None,
                    events=events,
                    now=lambda: datetime.now(UTC),
                    settings=Settings(
                        cluster_cidr=tuple(clusters), route_reconciliation_period=period
                    ),
                    last_ready=following(nodes),
                ),
                policy,
            )
            tasks = [
                asyncio.create_task(work) for work in (nodes.run(), events.run(), controller.run())
            ]
            try:
                yield controller
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    # Nodes

    async def machines(self, *names: str) -> tuple[Instance, ...]:
        """Start machines."""
        return await self.site.machines(*names)

    async def add_node(self, machine: Instance, *cidrs: str, **metadata: Any) -> None:
        """Create the Node of a machine, with provider id and pod CIDRs, and with no taint."""
        body: dict[str, Any] = {
            "metadata": {"name": machine.name, **metadata},
            "spec": {"providerID": provider_id(machine)},
        }
        if cidrs:
            body["spec"].update({"podCIDR": cidrs[0], "podCIDRs": list(cidrs)})
        await self.client.create(NODES, body)

    async def join(self, *names: str, first: int = 1, dual: bool = False) -> tuple[Instance, ...]:
        """Start machines with nodes that have blocks from number `first` on."""
        machines = await self.machines(*names)
        for number, machine in enumerate(machines, first):
            await self.add_node(machine, *((v4(number), v6(number)) if dual else (v4(number),)))
        return machines

    async def remove(self, *names: str) -> None:
        """Delete nodes."""
        await asyncio.gather(*(self.client.delete(NODES, name) for name in names))

    async def patch(self, name: str, body: object, subresource: str = "") -> None:
        """Change a node by strategic merge."""
        patch = Patch(PatchType.STRATEGIC, body)
        await self.client.patch(NODES, name, patch, subresource=subresource)

    async def network(self, name: str) -> Condition | None:
        """The node's condition."""
        return condition((await self.site.existing(name)).status.conditions, "NetworkUnavailable")

    async def says(self, reason: str, *names: str) -> None:
        """Wait until the nodes' conditions have this reason."""

        async def all_say() -> bool:
            nodes = await self.site.nodes()
            found = [condition(nodes[n].status.conditions, "NetworkUnavailable") for n in names]
            return all(one is not None and one.reason == reason for one in found)

        await until(f"{', '.join(names[:5])} say {reason}", all_say)

    # Routes

    async def routes(self) -> dict[str, str]:
        """Every route in the cloud's table, whoever made it: the instance by destination."""
        return {
            part["destination"]: part["instance_id"]
            for part in await self.cloud.admin.parts("route")
        }

    async def table_is(self, wanted: Callable[[dict[str, str]], bool]) -> dict[str, str]:
        """Wait until the table is as wanted."""
        seen: dict[str, str] = {}

        async def is_so() -> bool:
            nonlocal seen
            seen = await self.routes()
            return wanted(seen)

        await until("the route table is as wanted", is_so)
        return seen

    async def has_routes(self, wanted: dict[str, Instance]) -> None:
        """Wait until these are the routes of the table."""
        ids = {destination: machine.id for destination, machine in wanted.items()}
        await self.table_is(lambda seen: seen == ids)

    async def add_route(self, destination: str, machine: Instance, *, ours: bool = True) -> None:
        """Make a route behind the controller's back, with this cluster's mark or without."""
        tags = {MARK_CLUSTER_UID: self.uid} if ours else {"owner": "somebody"}
        body = {
            "name": f"by-hand-{destination}",
            "destination": destination,
            "instance_id": machine.id,
            "tags": tags,
        }
        await post(f"{self.cloud.endpoint}/v1/routes", TOKENS["second"], body)

    async def remove_route(self, destination: str) -> None:
        """Delete a route behind the controller's back."""
        for part in await self.cloud.admin.parts("route"):
            if part["destination"] == destination:
                await self.cloud.admin.remove(part["id"])

    async def calls(self, operation: str) -> int:
        """How many calls of an operation the controller made."""
        return len([c for c in await self.site.calls(operation) if c.caller == "first"])

    async def further(self, operation: str, count: int) -> None:
        """Wait for so many more calls of an operation."""
        before = await self.calls(operation)

        async def enough() -> bool:
            return await self.calls(operation) >= before + count

        await until(f"{count} more {operation}", enough)

    def writes(self) -> int:
        """How many writes of nodes the controller made."""
        return len(self.site.writes(user=USER))

    async def when_written(self, count: int) -> int:
        """Wait until there are so many writes of nodes, since the audit log is late; count them."""

        async def enough() -> bool:
            return self.writes() >= count

        await until(f"nodes are written {count} times", enough)
        return self.writes()


async def post(url: str, token: str, body: object) -> None:
    """POST as somebody else does."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.post(url, json=body) as response,
    ):
        assert response.status == 201, await response.text()
