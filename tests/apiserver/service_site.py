"""A site for the service controller: real API server, cloud and manager in their own processes."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import aiohttp

from proreus.cloudprovider.identity import MARK_SERVICE_UID
from proreus.kube.errors import NotFound
from proreus.kube.objects import FINALIZER_LOAD_BALANCER, Service, condition
from proreus.kube.patch import Op, Patch, PatchType, json_patch
from proreus.kube.requests import EVENTS, NODES, SERVICES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.demo.narrator import running
from proreus.testing.demo.node_ports import NodePorts, address_of
from proreus.testing.demo.stage import machines
from proreus.testing.manager import ManagerProcess, cloud_config
from proreus.testing.objects import service_body
from proreus.testing.simulated import Instance, Settings
from proreus.testing.waiting import until

from .site import Audited, Site, set_up

CONTROLLER: Final = "service-controller"
CONDITION: Final = "LoadBalancerReady"
FINALIZER: Final = FINALIZER_LOAD_BALANCER
NAMESPACE: Final = "default"
LOG_TAIL: Final = 5000
ANSWER_TIME: Final = 4
"""Seconds that the manager gives the cloud for an answer."""


class ServiceSite:
    """A cluster, a cloud and a manager. What the tests do, and what they look at."""

    def __init__(self, base: Site, manager: ManagerProcess) -> None:
        self.base = base
        self.cloud = base.cloud
        self.client = base.client
        self.manager = manager
        self.machines: dict[str, Instance] = {}
        self._marked = 0.0

    # Nodes

    async def add_machines(self, count: int) -> Sequence[Instance]:
        """Start machines without nodes."""
        have = len(self.machines)
        made = await self.cloud.admin.create(machines(self.cloud.endpoint, have + count)[have:])
        self.machines.update({one.name: one for one in made})
        return made

    async def add_node(self, machine: Instance, *, with_id: bool = True) -> None:
        """Register a machine's Node as it is once it is initialised; `with_id`: with its id."""
        spec = {"providerID": provider_id(machine)} if with_id else {}
        body = {
            "metadata": {"name": machine.name},
            "spec": spec,
            "status": {"addresses": [{"type": "InternalIP", "address": address_of(machine)}]},
        }
        await self.client.create(NODES, body)

    async def initialise(self, machine: Instance) -> None:
        """Give the Node of a machine its provider id."""
        await self.patch_node(machine.name, {"spec": {"providerID": provider_id(machine)}})

    async def delete_node(self, name: str) -> None:
        """Delete a Node."""
        await self.client.delete(NODES, name)

    async def patch_node(self, name: str, body: object, *, subresource: str = "") -> None:
        """Change a Node by strategic merge."""
        patch = Patch(PatchType.STRATEGIC, body)
        await self.client.patch(NODES, name, patch, subresource=subresource)

    # Services

    async def create(
        self, name: str = "", *, metadata: dict[str, Any] | None = None, **spec: Any
    ) -> str:
        """Create a Service of type LoadBalancer on port 80; answers its name."""
        name = name or f"web-{uuid4().hex[:6]}"
        body = service_body(name, metadata=metadata, **{"ports": [port(80)], **spec})
        await self.client.create(SERVICES, body, NAMESPACE)
        return name

    async def edit(self, name: str, **parts: Any) -> None:
        """Change a Service by merge patch: `spec=...`, `metadata=...`."""
        await self.client.patch(SERVICES, name, Patch(PatchType.MERGE, parts), NAMESPACE)

    async def wipe(self, name: str, *paths: str) -> None:
        """Remove fields of a Service, also of its status."""
        uid = (await self.get(name)).metadata.uid
        change = json_patch(uid, [Op("remove", path) for path in paths])
        await self.client.patch(SERVICES, name, change, NAMESPACE, subresource="status")

    async def delete(self, name: str) -> None:
        """Delete a Service; it goes when its finalizer does."""
        await self.client.delete(SERVICES, name, NAMESPACE)

    async def delete_by_force(self, name: str) -> None:
        """Delete a Service at once: its finalizer is taken away by hand, too."""
        await self.delete(name)
        with contextlib.suppress(NotFound):
            await self.edit(name, metadata={"finalizers": None})
        await self.gone(name)

    async def get(self, name: str) -> Service:
        """The Service."""
        return await self.client.get(SERVICES, name, NAMESPACE)

    async def find(self, name: str) -> Service | None:
        """The Service, if there is one."""
        try:
            return await self.get(name)
        except NotFound:
            return None

    async def gone(self, name: str) -> None:
        """Wait until the Service is gone."""

        async def is_gone() -> bool:
            return await self.find(name) is None

        await until(f"{name} is gone", is_gone)

    async def when(self, name: str, says: Callable[[Service], object], what: str = "") -> Service:
        """Wait until something is true of the Service; answers it as it then is."""

        async def holds() -> Service | None:
            found = await self.find(name)
            return found if found is not None and says(found) else None

        return await until(f"{name} {what}", holds)

    async def when_said(self, name: str, reason: str, part: str = "") -> Service:
        """Wait until the condition has the reason, and `part` in its message."""
        return await self.when(
            name, lambda one: said(one)[1] == reason and part in said(one)[2], f"says {reason}"
        )

    async def ready(self, name: str) -> str:
        """Wait until the Service is ready; answers its address."""
        found = await self.when_said(name, "Ensured")
        return found.status.load_balancer.ingress[0].ip

    # What came of it

    async def parts(self, service: Service | str) -> Sequence[dict[str, Any]]:
        """The cloud's parts that carry the Service's mark, never stale."""
        uid = service if isinstance(service, str) else service.metadata.uid
        parts = await self.cloud.admin.parts()
        return [one for one in parts if one["tags"].get(MARK_SERVICE_UID) == uid]

    async def part(self, service: Service, kind: str) -> dict[str, Any]:
        """The one part of a kind."""
        (found,) = [one for one in await self.parts(service) if one["kind"] == kind]
        return found

    async def hosts(self, service: Service) -> set[str]:
        """The names of the machines that are targets of the Service's load balancer."""
        balancer = await self.part(service, "load_balancer")
        names = {machine.id: name for name, machine in self.machines.items()}
        return {names[target["instance_id"]] for target in balancer["targets"]}

    async def when_hosts(self, name: str, wanted: Iterable[str]) -> None:
        """Wait until the load balancer has exactly these hosts."""
        service = await self.get(name)
        names = set(wanted)

        async def same() -> bool:
            return await self.hosts(service) == names

        await until(f"{name} has the hosts {sorted(names)}", same)

    async def when_all_have(self, wanted: set[str]) -> None:
        """Wait until every load balancer in the cloud has exactly these hosts."""
        ids = {self.machines[name].id for name in wanted}

        async def same() -> bool:
            balancers = await self.cloud.admin.parts("load_balancer")
            return all({one["instance_id"] for one in lb["targets"]} == ids for lb in balancers)

        await until(f"all have the hosts {sorted(wanted)}", same)

    async def events(self, service: Service, *, settle: str = "") -> list[tuple[str, str]]:
        """Type and reason of its events in order, each as often as it was recorded.

        Events are the least urgent writes: `settle` names the reason of the one to wait for.
        """

        async def read() -> Sequence[dict[str, Any]] | None:
            selector = f"involvedObject.uid={service.metadata.uid}"
            found = (await self.client.list(EVENTS, NAMESPACE, field_selector=selector)).items
            # The API server itself records events about Services, too.
            found = tuple(one for one in found if one["source"].get("component") == CONTROLLER)
            return found if not settle or settle in {one["reason"] for one in found} else None

        found = await until(f"the event {settle}", read) if settle else await read()
        ordered = sorted(found or (), key=_number)
        return [(one["type"], one["reason"]) for one in ordered for _ in range(one["count"])]

    def writes(self, name: str = "") -> list[Audited]:
        """The manager's writes to Services since `mark`, or to one of them."""
        return [
            one
            for one in self.base.writes("services")
            if name in ("", one.object_ref.name) and written_at(one) >= self._marked
        ]

    async def when_written(self, name: str, count: int) -> list[Audited]:
        """Wait until there are so many writes of a Service since `mark`; answers all of them.

        The audit log is a little late.
        """

        async def enough() -> bool:
            return len(self.writes(name)) >= count

        await until(f"{name} is written {count} times", enough)
        return self.writes(name)

    async def mark(self) -> None:
        """Forget the calls and writes until now."""
        await self.cloud.admin.clear_calls()
        self._marked = time.time()

    async def calls(self) -> Counter[str]:
        """The calls to the cloud since `mark`, by operation."""
        return await self.cloud.admin.counts()

    async def is_empty(self) -> bool:
        """Whether nothing at all is left in the cloud."""
        return not await self.cloud.admin.parts()

    async def restart(self, *flags: str) -> None:
        """End the manager in order and start it again, with more flags."""
        await self.manager.stop()
        self.manager.flags = (*self.manager.flags, *flags)
        await self.manager.start()

    async def warm_up(self) -> None:
        """Wait until the manager works: Services made from now on are new to it."""
        name = await self.create()
        await self.when(name, lambda one: one.status.load_balancer.ingress, "has an address")
        await self.delete(name)
        await self.gone(name)
        await self.mark()

    async def tidy(self) -> None:
        """Let the manager take all load balancers away, and the cloud be well again."""
        await self.cloud.admin.clear_faults()
        await self.cloud.admin.configure(provision_delay=0, latency=0, health_interval=0)
        names = [one.metadata.name for one in (await self.client.list(SERVICES, NAMESPACE)).items]
        for name in set(names) - {"kubernetes"}:
            with contextlib.suppress(NotFound):
                await self.delete(name)
            await self.gone(name)
        await until("nothing is left in the cloud", self.is_empty)


def written_at(write: Audited) -> float:
    """When the API server received it: seconds since 1970, as the cloud counts them."""
    return write.request_received_timestamp.timestamp()


def kind(write: Audited) -> tuple[str, str, int]:
    """Verb, subresource and status code of a write."""
    return write.verb, write.object_ref.subresource, write.response_status.code


def port(number: int, **more: Any) -> dict[str, Any]:
    """A port of a Service."""
    return {"name": f"p{number}", "port": number, "protocol": "TCP", **more}


def provider_id(machine: Instance) -> str:
    """The provider id of a machine, as the provider `simulated` writes it."""
    return f"simulated://{machine.region}/{machine.id}"


def said(service: Service) -> tuple[str, str, str]:
    """Status, reason and message of the condition; empty without one."""
    found = condition(service.status.conditions, CONDITION)
    return (found.status, found.reason, found.message) if found else ("", "", "")


async def ask(address: str, number: int = 80, *, source: str = "") -> str:
    """Ask an address by HTTP and answer the name of the node that served it, or ""."""
    local = (source, 0) if source else None
    connector = aiohttp.TCPConnector(local_addr=local, force_close=True)
    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
        async with (
            asyncio.timeout(5),
            aiohttp.ClientSession(connector=connector) as session,
            session.get(f"http://{address}:{number}/") as response,
        ):
            return str((await response.json())["node"])
    return ""


async def answers(address: str, number: int = 80, *, source: str = "") -> str:
    """Wait until the address answers; the name of the node that served it."""
    return await until(
        f"{address}:{number} answers {source}", lambda: ask(address, number, source=source)
    )


async def refuses(address: str, number: int = 80, *, source: str = "") -> None:
    """Wait until the address does not answer."""

    async def silent() -> bool:
        return not await ask(address, number, source=source)

    await until(f"{address}:{number} refuses {source}", silent)


def _number(event: dict[str, Any]) -> int:
    """Events are numbered in the order in which they were recorded."""
    return int(event["metadata"]["name"].rpartition(".")[2], base=16)


@asynccontextmanager
async def service_site(
    plane: ControlPlane, directory: Path, *, nodes: int = 2
) -> AsyncIterator[ServiceSite]:
    """A site with so many nodes, whose manager runs.

    It runs the service controller only, so that every call to the cloud is one for a load
    balancer.
    """
    async with set_up(plane, directory, Settings(health_interval=0)) as base:
        settings = directory / "answer-time.conf"
        settings.write_text(f"{cloud_config(base.cloud)}timeout = {ANSWER_TIME}\n")
        manager = base.lone_manager("--controllers=service", f"--cloud-config={settings}")
        site = ServiceSite(base, manager)
        for machine in await site.add_machines(nodes):
            await site.add_node(machine)
        ports = NodePorts(base.client, base.cloud.admin.instances)
        async with running(asyncio.create_task(ports.run())), manager:
            try:
                await site.warm_up()
                yield site
            finally:
                print(manager.output()[-LOG_TAIL:])
