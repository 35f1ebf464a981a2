"""The story of the demo: nodes, a Service, a lost machine, and nothing left behind."""

import asyncio
import json

import aiohttp

from proreus.kube.errors import NotFound
from proreus.kube.objects import (
    LABEL_ZONE,
    TAINT_UNINITIALIZED,
    Node,
    Service,
    condition,
    has_taint,
)
from proreus.kube.requests import NODES, SERVICES
from proreus.testing.demo.narrator import Narrator
from proreus.testing.demo.stage import MACHINES, Stage
from proreus.testing.objects import service_body

NAMESPACE = "default"
SERVICE = "echo"
PORT = 8080
DELETION_SECONDS = 180.0


class Story:
    """The player of the story, who prints each step."""

    def __init__(self, stage: Stage, narrator: Narrator) -> None:
        """Keep stage and narrator."""
        self._stage = stage
        self._narrator = narrator

    async def begin(self) -> None:
        """Register nodes, start the manager, and wait until nodes are initialised and have routes.

        Raises:
            NotInTime: An event of the story did not happen in time.
        """
        await self.register()
        await self._stage.manager.start()
        self._narrator.say(
            "the manager starts:",
            f"cloud-controller-manager {' '.join(self._stage.manager.flags)}",
            f"its log: {self._stage.manager.log}",
        )
        await self.initialise()
        await self.route()

    async def tell(self) -> None:
        """Play the rest of the story after `begin`.

        Raises:
            NotInTime: An event of the story did not happen in time.
        """
        await self.serve()
        await self.lose_a_machine()
        await self.delete_the_service()
        await self.lose_its_route()
        await self.count_calls()

    async def register(self) -> None:
        """Let the machines' kubelets register their nodes."""
        nodes = await self._narrator.until("the nodes register", self._registered)
        self._narrator.say(
            f"{len(nodes)} kubelets have registered their nodes, uninitialised:",
            *(_line(node) for node in nodes),
        )

    async def initialise(self) -> None:
        """Wait until the manager has initialised the nodes."""
        nodes = await self._narrator.until("the nodes are initialised", self._initialised)
        self._narrator.say("the nodes are initialised:", *(_line(node) for node in nodes))

    async def route(self) -> None:
        """Wait until each node has pod addresses, and the cloud's network leads to them."""
        nodes = await self._narrator.until("the nodes get their routes", self._routed)
        self._narrator.say(
            "the nodes have their pod CIDRs, and the cloud routes to them:",
            *(
                f"{node.metadata.name}  {node.spec.pod_cidr} via {node.spec.provider_id}"
                for node in nodes
            ),
        )

    async def serve(self) -> None:
        """Create a Service and wait until its address answers."""
        await self._stage.client.create(
            SERVICES,
            service_body(
                SERVICE, selector={"app": SERVICE}, ports=[{"name": "http", "port": PORT}]
            ),
            namespace=NAMESPACE,
        )
        self._narrator.say(f"a Service of type LoadBalancer is created: {NAMESPACE}/{SERVICE}")
        address = await self._narrator.until("the Service gets an address", self._address)
        self._narrator.say(f"it has the address {address}")
        answer = await self._narrator.until("the address answers", self._answer)
        self._narrator.say(f"$ curl http://{address}:{PORT}/", json.dumps(answer))

    async def lose_a_machine(self) -> None:
        """Delete a machine in the cloud, and wait until its Node is deleted, too."""
        lost = (await self._stage.cloud.admin.instances())[-1]
        await self._stage.cloud.admin.delete(lost.id)
        self._narrator.say(f"the machine of {lost.name} is deleted in the cloud")
        await self._narrator.until("the node goes Unknown", lambda: self._unknown(lost.name))
        self._narrator.say(
            f"the kubelet of {lost.name} no longer reports (Ready=Unknown)",
            "the manager asks the cloud, and asks again after 30 s with nodes known to be alive",
        )

        def countdown() -> str:
            seconds = self._stage.manager.countdown(lost.name)
            return f"{lost.name} may go in {'…' if seconds is None else seconds} s"

        await self._narrator.until(
            "the Node is deleted",
            lambda: self._gone(lost.name),
            seconds=DELETION_SECONDS,
            progress=countdown,
        )
        self._narrator.say(f"the Node {lost.name} is deleted")
        await self._narrator.until("the address still answers", self._answer)
        self._narrator.say("the Service still answers")

    async def delete_the_service(self) -> None:
        """Delete the Service, and wait until the cloud has nothing of it; routes stay."""
        await self._stage.client.delete(SERVICES, SERVICE, namespace=NAMESPACE)
        await self._narrator.until("the Service goes", self._service_gone)
        await self._narrator.until("nothing is left in the cloud", self._cloud_is_empty)
        self._narrator.say("the Service is deleted; nothing of it is left in the cloud")

    async def lose_its_route(self) -> None:
        """Wait until the lost machine's route is deleted, which takes two listings."""
        await self._narrator.until("the route of the lost machine goes", self._routed)
        self._narrator.say("the lost machine's route is gone; those of the other nodes stay")

    async def count_calls(self) -> None:
        """Print how many calls of the cloud the story has cost."""
        counts = await self._stage.cloud.admin.counts()
        self._narrator.say(
            f"the cloud was called {sum(counts.values())} times:",
            *(f"{count:4d}  {operation}" for operation, count in sorted(counts.items())),
        )

    async def _nodes(self) -> tuple[Node, ...]:
        nodes = (await self._stage.client.list(NODES)).items
        return tuple(sorted(nodes, key=lambda node: node.metadata.name))

    async def _registered(self) -> tuple[Node, ...] | None:
        nodes = await self._nodes()
        return nodes if len(nodes) == MACHINES else None

    async def _initialised(self) -> tuple[Node, ...] | None:
        nodes = await self._nodes()
        is_done = len(nodes) == MACHINES and not any(
            has_taint(node, TAINT_UNINITIALIZED) for node in nodes
        )
        return nodes if is_done else None

    async def _service(self) -> Service | None:
        try:
            return await self._stage.client.get(SERVICES, SERVICE, NAMESPACE)
        except NotFound:
            return None

    async def _address(self) -> str | None:
        service = await self._service()
        ingress = service.status.load_balancer.ingress if service is not None else ()
        return ingress[0].ip if ingress else None

    async def _answer(self) -> dict[str, object] | None:
        address = await self._address()
        try:
            async with (
                asyncio.timeout(2),
                aiohttp.ClientSession() as session,
                session.get(f"http://{address}:{PORT}/") as response,
            ):
                answer: dict[str, object] = await response.json()
                return answer
        except (aiohttp.ClientError, TimeoutError):
            return None

    async def _unknown(self, name: str) -> bool | None:
        node = await self._stage.client.get(NODES, name)
        ready = condition(node.status.conditions, "Ready")
        return True if ready is not None and ready.status == "Unknown" else None

    async def _gone(self, name: str) -> bool | None:
        try:
            await self._stage.client.get(NODES, name)
        except NotFound:
            return True
        return None

    async def _service_gone(self) -> bool | None:
        return True if await self._service() is None else None

    async def _routed(self) -> tuple[Node, ...] | None:
        """Return the nodes, once each has a pod CIDR and there is a route to every one.

        Return None also while there is any other route.
        """
        nodes = await self._nodes()
        desired = {(node.spec.pod_cidr, node.spec.provider_id.rpartition("/")[2]) for node in nodes}
        routes = await self._stage.cloud.admin.parts("route")
        found = {(route["destination"], route["instance_id"]) for route in routes}
        return nodes if found == desired else None

    async def _cloud_is_empty(self) -> bool | None:
        parts = await self._stage.cloud.admin.parts()
        return None if [part for part in parts if part["kind"] != "route"] else True


def _line(node: Node) -> str:
    taint = "tainted" if has_taint(node, TAINT_UNINITIALIZED) else "ready for pods"
    addresses = ",".join(address.address for address in node.status.addresses)
    zone = node.metadata.labels.get(LABEL_ZONE, "no zone")
    provider_id = node.spec.provider_id or "no provider id"
    return f"{node.metadata.name}  {taint:14}  {zone:8}  {provider_id}  {addresses}"
