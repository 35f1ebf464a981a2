"""A site to try the manager on: a real API server, a cloud and managers, each a process."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from proreus.kube import config
from proreus.kube.client import Client
from proreus.kube.errors import NotFound
from proreus.kube.objects import (
    TAINT_UNINITIALIZED,
    Condition,
    Node,
    Service,
    condition,
    has_taint,
)
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import (
    CERTIFICATE_SIGNING_REQUESTS,
    EVENTS,
    LEASES,
    NODES,
    SERVICES,
    Request,
)
from proreus.testing.controlplane import ControlPlane
from proreus.testing.kubelet import KubeletPlayer, node_body
from proreus.testing.manager import ManagerProcess, cloud_config
from proreus.testing.nodemonitor import unknown
from proreus.testing.objects import service_body
from proreus.testing.simulated import Call, Instance, Settings, SimulatedCloudProcess
from proreus.testing.waiting import until

from .rights import APART, MANAGERS, count, grant, refused

T = TypeVar("T")

PATIENCE: Final = 60.0
"""Seconds to wait for what must come; long, since the machine may be slow. It only ends hangs."""
POLL: Final = 0.05
TOKENS: Final = {"first": "token-1", "second": "token-2"}
CONDITION: Final = "CloudInitialized"
WRITES: Final = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class ObjectRef(msgspec.Struct, frozen=True, rename="camel"):
    """What a request was about."""

    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _Response(msgspec.Struct, frozen=True):
    code: int = 0


class Audited(msgspec.Struct, frozen=True, rename="camel"):
    """A line of the audit log."""

    verb: str
    stage: str
    user: _User
    object_ref: ObjectRef = ObjectRef()
    response_status: _Response = _Response()
    request_received_timestamp: datetime = datetime.fromtimestamp(0, UTC)

    @property
    def is_write(self) -> bool:
        """Whether it was to change something; leases count too."""
        return self.verb in WRITES


class SeenEvent(msgspec.Struct, frozen=True, rename="camel"):
    """An Event object."""

    type: str
    reason: str
    message: str
    involved_object: dict[str, str]
    count: int = 1


_AUDITED = msgspec.json.Decoder(Audited)


class Site:
    """Everything but the managers runs; `manager` makes those."""

    def __init__(
        self, plane: ControlPlane, cloud: SimulatedCloudProcess, client: Client, directory: Path
    ) -> None:
        self.plane = plane
        self.cloud = cloud
        self.client = client
        self._directory = directory
        self._audit_start = plane.audit_log.stat().st_size
        self._audited: dict[str, tuple[list[Audited], int]] = {}
        self.may_be_refused = False
        """Whether the test is about requests of managers that are forbidden; else they fail it."""

    # Managers

    def manager(
        self,
        *flags: str,
        user: str = "manager",
        token: str = "",
        batch_size: int = 0,
        api_server: str = "",
    ) -> ManagerProcess:
        """A manager that is `user` for the API server and has its own token for the cloud.

        It has the rights of the generated roles.
        """
        apart = "--use-service-account-credentials" in flags
        file = self._directory / f"{user}-cloud.conf"
        file.write_text(cloud_config(self.cloud, token=token, batch_size=batch_size))
        return ManagerProcess(
            "--cloud-provider=simulated",
            f"--cloud-config={file}",
            f"--kubeconfig={self.plane.kubeconfig_for(user, [APART if apart else MANAGERS])}",
            *([f"--master={api_server}"] if api_server else []),
            "--secure-port=0",
            "-v=2",
            *flags,
            log=self._directory / f"{user}.log",
        )

    def lone_manager(self, *flags: str, **more: Any) -> ManagerProcess:
        """A manager without replicas: it needs no lease."""
        return self.manager("--leader-elect=false", *flags, **more)

    # The cloud

    def kubelets(self, **more: Any) -> KubeletPlayer:
        """The kubelets of all running machines."""
        return KubeletPlayer(self.client, self.cloud.admin.instances, **more)

    async def machines(self, *names: str, **fields: Any) -> tuple[Instance, ...]:
        """Start machines, alike but for their names."""
        fields = {"zone": "sim-1a", "type": "sim.large", **fields}
        return await self.cloud.admin.create([Instance(name=name, **fields) for name in names])

    async def join(self, *names: str, **fields: Any) -> tuple[Instance, ...]:
        """Start machines whose kubelets register their nodes and are ready."""
        machines = await self.machines(*names, **fields)
        await self.register(machines)
        return machines

    async def register(self, machines: Iterable[Instance], **more: Any) -> None:
        """Let the kubelets of these machines register their nodes and report them ready."""

        async def these() -> Iterable[Instance]:
            return machines

        kubelets = KubeletPlayer(self.client, these, **more)
        await kubelets.beat()
        await kubelets.beat()
        assert not kubelets.failures

    async def calls(self, operation: str = "instances.batch_get") -> list[Call]:
        """The cloud's log of one operation."""
        return [call for call in await self.cloud.admin.calls() if call.operation == operation]

    async def further_calls(self, count: int) -> None:
        """Wait until the manager has asked about machines that many times more."""
        before = len(await self.calls())

        async def enough() -> bool:
            return len(await self.calls()) >= before + count

        await until(f"{count} more questions to the cloud", enough)

    # The API server

    async def node(self, name: str) -> Node | None:
        """A node, if it exists."""
        try:
            return await self.client.get(NODES, name)
        except NotFound:
            return None

    async def existing(self, name: str) -> Node:
        """A node that exists."""
        return await self.client.get(NODES, name)

    async def nodes(self) -> dict[str, Node]:
        """All nodes by name."""
        return {node.metadata.name: node for node in (await self.client.list(NODES)).items}

    async def service(self, name: str) -> Service:
        """A Service that exists, in the namespace default."""
        return await self.client.get(SERVICES, name, "default")

    async def create_service(self, name: str) -> None:
        """Create a Service of type LoadBalancer."""
        await self.client.create(SERVICES, service_body(name), "default")

    async def register_node(self, machine: Instance, *, ready: bool = False, **spec: Any) -> None:
        """Create the Node of a machine as its kubelet would, with more in its spec.

        If `ready` at once, the lifecycle controller never has a reason to ask about it.
        """
        body = node_body(machine, now=datetime.now(UTC))
        body["spec"].update(spec)
        if ready:
            body["status"]["conditions"][-1].update(type="Ready", status="True")
        await self.client.create(NODES, body)

    async def silence(self, *names: str) -> None:
        """Write what the node monitor writes when the kubelets of nodes are silent."""
        for name in names:
            node = await self.existing(name)
            body = unknown(node.status.conditions, datetime.now(UTC))
            await self.client.patch(
                NODES, name, Patch(PatchType.STRATEGIC, body), subresource="status"
            )

    async def initialised(self, *names: str) -> dict[str, Node]:
        """Wait until these nodes are initialised, or all if none is named."""

        async def ready() -> dict[str, Node] | None:
            nodes = await self.nodes()
            asked = names or tuple(nodes)
            is_done = nodes and all(name in nodes and is_initialised(nodes[name]) for name in asked)
            return nodes if is_done else None

        return await until("the nodes are initialised", ready)

    async def gone(self, *names: str) -> None:
        """Wait until these nodes are deleted."""

        async def are_gone() -> bool:
            return not set(names) & (await self.nodes()).keys()

        await until(f"the nodes {', '.join(names)} are gone", are_gone)

    async def cloud_condition(self, name: str, reason: str) -> Condition:
        """Wait until the node's condition has this reason."""

        async def has_reason() -> Condition | None:
            state = condition((await self.existing(name)).status.conditions, CONDITION)
            return state if state is not None and state.reason == reason else None

        return await until(f"{name} says {reason}", has_reason)

    async def events(self, reason: str = "", about: str = "") -> list[SeenEvent]:
        """The Events of a reason, or about an object of this name."""
        found = (await self.client.list(EVENTS, "default")).items
        events = [msgspec.convert(item, SeenEvent) for item in found]
        return [
            event
            for event in events
            if (not reason or event.reason == reason)
            and (not about or event.involved_object["name"] == about)
        ]

    async def event(self, reason: str, about: str) -> SeenEvent:
        """Wait for the one Event of that reason about an object."""

        async def there() -> list[SeenEvent]:
            return await self.events(reason, about)

        (event,) = await until(f"event {reason} about {about}", there)
        return event

    def audit(self, user: str = "manager") -> list[Audited]:
        """What a user asked of the API server since the site was set up."""
        found, start = self._audited.get(user, ([], self._audit_start))
        mark = f'"username":"{user}"'.encode()
        with self.plane.audit_log.open("rb") as log:
            log.seek(start)
            for line in log:
                if not line.endswith(b"\n"):
                    break  # it is being written
                start += len(line)
                if mark in line and (one := _AUDITED.decode(line)).stage == "ResponseComplete":
                    found.append(one)
        self._audited[user] = found, start
        return list(found)

    def writes(self, resource: str = "nodes", user: str = "manager") -> list[Audited]:
        """A user's writes to a resource, those refused too."""
        audited = self.audit(user)
        return [one for one in audited if one.is_write and one.object_ref.resource == resource]

    def patches(self, user: str = "manager") -> dict[str, Counter[str]]:
        """A user's PATCHes of nodes: by node, how many for each subresource.

        Those that met another version are left out: they changed nothing, and how many there are
        depends on when a node's kubelet writes.
        """
        counts: dict[str, Counter[str]] = {}
        for one in self.writes(user=user):
            if one.verb == "patch" and one.response_status.code != HTTPStatus.CONFLICT:
                ref = one.object_ref
                counts.setdefault(ref.name, Counter())[ref.subresource] += 1
        return counts

    def refused(self) -> list[str]:
        """What managers asked of the API server and were forbidden."""
        return refused(self.plane.audit_log, self._audit_start)

    async def quiet(self, count: Callable[[], int], *, seconds: float = 1.0) -> int:
        """Wait until a count has not changed for so long; what it is then."""
        last, since = count(), time.monotonic()
        deadline = since + PATIENCE
        while time.monotonic() - since < seconds:
            assert time.monotonic() < deadline, "it does not come to rest"
            await asyncio.sleep(POLL)
            if (now := count()) != last:
                last, since = now, time.monotonic()
        return last


def is_initialised(node: Node) -> bool:
    """Whether the taint is off."""
    return not has_taint(node, TAINT_UNINITIALIZED)


def names(prefix: str, count: int) -> Sequence[str]:
    """So many names."""
    return [f"{prefix}-{number}" for number in range(count)]


@asynccontextmanager
async def set_up(
    plane: ControlPlane, directory: Path, settings: Settings | None = None
) -> AsyncIterator[Site]:
    """A site on an API server that is empty before and after."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            Client(config.load(str(plane.kubeconfig), env={}), user_agent="test")
        )
        await _empty(client)
        stack.push_async_callback(_empty, client)
        made = await grant(plane, client)
        await until("the roles count", lambda: count(client, made))
        cloud = await stack.enter_async_context(
            SimulatedCloudProcess(settings=settings or Settings(), tokens=TOKENS)
        )
        site = Site(plane, cloud, client, directory)
        yield site
        problems = site.refused()
        assert site.may_be_refused or not problems, problems


async def _empty(client: Client) -> None:
    """Delete what tests and managers make."""
    for service in (await client.list(SERVICES, "default")).items:
        name = service.metadata.name
        if name == "kubernetes":
            continue
        freed = Patch(PatchType.MERGE, {"metadata": {"finalizers": None}})
        await client.patch(SERVICES, name, freed, "default")
        try:
            await client.delete(SERVICES, name, "default")
        except NotFound:
            continue
    for path in (
        NODES.path(),
        CERTIFICATE_SIGNING_REQUESTS.path(),
        LEASES.path("kube-node-lease"),
        LEASES.path("kube-system", "cloud-controller-manager"),
        EVENTS.path("default"),
    ):
        try:
            await client.send(Request("DELETE", path, timeout=PATIENCE), dict[str, Any])
        except NotFound:
            continue


async def all_of(work: Iterable[Awaitable[object]], at_once: int = 16) -> None:
    """Do all of this, so many at a time."""
    slots = asyncio.Semaphore(at_once)

    async def take(one: Awaitable[object]) -> None:
        async with slots:
            await one

    await asyncio.gather(*(take(one) for one in work))
