"""Sets up an API server and a cloud for one contestant, and gives it work."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.contestants import Contestant, Process, command
from benchmarks.measure import AuditTail, Figures, Traffic, cloud_calls, cpu_seconds, memory
from labs.cluster import ensure_built
from proreus.kube import config
from proreus.kube.client import Client
from proreus.kube.objects import LABEL_REGION, LABEL_ZONE, TAINT_UNINITIALIZED, Node, has_taint
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES, SERVICES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.kubelet import node_body, timestamp
from proreus.testing.objects import service_body
from proreus.testing.simulated import Counters, Instance, Settings, SimulatedCloudProcess

OBJECT_SIZE = 12_000
LATENCY = 0.02
USER = "manager"
POLL = 0.1
QUIET = 1.5
PATIENCE = 1800.0
_CONCURRENCY = 32
_BATCH = 500
_PROGRESS = 30.0
# Word for word what the manager says, or it would write each node anew.
_FINE = "the labels, addresses and provider id are those of the machine in the cloud"


def say(line: str) -> None:
    """Tell people how far it is."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


class Stage:
    """Everything but the manager runs.

    Attributes:
        contestant: Who is measured.
        plane: The control plane.
        cloud: The simulated cloud.
        client: The administrator's client.
    """

    def __init__(
        self,
        contestant: Contestant,
        plane: ControlPlane,
        cloud: SimulatedCloudProcess,
        client: Client,
        goccm: Path,
    ) -> None:
        """Take over what runs."""
        self.contestant = contestant
        self.plane = plane
        self.cloud = cloud
        self.client = client
        self._goccm = goccm
        self._slots = asyncio.Semaphore(_CONCURRENCY)

    def manager(
        self, *flags: str, user: str = USER, routes: bool = False, elect: bool = False
    ) -> Process:
        """Return the contestant, not started yet."""
        kubeconfig = self.plane.kubeconfig_for(user, ["system:masters"])
        whole = command(
            self.contestant,
            goccm=self._goccm,
            kubeconfig=kubeconfig,
            cloud=self.cloud,
            directory=self.plane.directory,
            routes=routes,
            elect=elect,
        )
        return Process([*whole, *flags], self.plane.directory / f"{user}.log")

    async def node_controllers(self) -> Process:
        """Return a kube-controller-manager that looks after nodes, not started yet.

        Raises:
            ClusterError: It is not in the cache, and there is no Go to build it with.
        """
        programs = await ensure_built(["kube-controller-manager"])
        kubeconfig = self.plane.kubeconfig_for("system:kube-controller-manager", ["system:masters"])
        whole = [
            str(programs / "kube-controller-manager"),
            f"--kubeconfig={kubeconfig}",
            "--leader-elect=false",
            "--secure-port=0",
            "--cloud-provider=external",
            "--controllers=node-lifecycle-controller,node-ipam-controller,ttl-controller",
            "--allocate-node-cidrs",
            "--cluster-cidr=10.128.0.0/9",
            # It writes at once, and not a minute after the manager.
            *("--kube-api-qps=1000", "--kube-api-burst=1000"),
        ]
        return Process(whole, self.plane.directory / "kube-controller-manager.log")

    async def machines(self, count: int, prefix: str = "node") -> tuple[Instance, ...]:
        """Start so many machines."""
        made: list[Instance] = []
        for first in range(0, count, _BATCH):
            numbers = range(first, min(count, first + _BATCH))
            some = [_machine(f"{prefix}-{number:05}") for number in numbers]
            made += await self.cloud.admin.create(some)
        return tuple(made)

    async def register(
        self, machines: Sequence[Instance], *, initialised: bool = False, pod_cidrs: bool = False
    ) -> None:
        """Register the machines' nodes, ready; `initialised` ones need nothing of a manager."""

        async def one(number: int, machine: Instance) -> None:
            body = node_of(machine, initialised=initialised)
            if pod_cidrs:
                cidr = f"10.{128 + number // 256}.{number % 256}.0/24"
                body["spec"] |= {"podCIDR": cidr, "podCIDRs": [cidr]}
            await self.client.create(NODES, body)

        await self.each(one(number, machine) for number, machine in enumerate(machines))

    async def create_services(self, count: int) -> None:
        """Create so many Services of type LoadBalancer."""
        await self.each(
            self.client.create(SERVICES, service_body(_name(number)), "default")
            for number in range(count)
        )

    async def edit_services(self, count: int) -> None:
        """Let the Services have another port."""
        ports = [{"op": "replace", "path": "/spec/ports/0/port", "value": 8080}]
        patch = Patch(PatchType.JSON, ports)
        await self.each(
            self.client.patch(SERVICES, _name(number), patch, "default") for number in range(count)
        )

    async def delete_services(self, count: int) -> None:
        """Delete the Services."""
        await self.each(
            self.client.delete(SERVICES, _name(number), "default") for number in range(count)
        )

    async def each(self, works: Any) -> None:
        """Do things some at a time; the first failure ends it."""

        async def slotted(work: Awaitable[Any]) -> None:
            async with self._slots:
                await work

        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(slotted(work))

    async def heartbeats(self, machines: Sequence[Instance], period: float) -> None:
        """Write the status of all nodes in turn, each once a period, until cancelled."""
        while True:
            for machine in machines:
                beat = {"type": "Ready", "lastHeartbeatTime": timestamp(datetime.now(UTC))}
                patch = Patch(PatchType.STRATEGIC, {"status": {"conditions": [beat]}})
                await self.client.patch(NODES, machine.name, patch, subresource="status")
                await asyncio.sleep(period / len(machines))

    # What is there now

    async def nodes(self) -> list[Node]:
        """Return all nodes."""
        return list((await self.client.list(NODES)).items)

    async def all_initialised(self, count: int) -> bool:
        """Tell whether so many nodes have all that a manager gives them."""
        nodes = await self.nodes()
        return len(nodes) == count and all(map(is_initialised, nodes))

    async def addresses(self) -> int:
        """Return how many Services have an address in their status."""
        services = (await self.client.list(SERVICES, "default")).items
        return sum(bool(one.status.load_balancer.ingress) for one in services)

    async def services(self) -> int:
        """Return how many Services there are, without that of the API server."""
        return len((await self.client.list(SERVICES, "default")).items) - 1

    async def counters(self) -> Counters:
        """Return the cloud's counters."""
        return await self.cloud.admin.counters()


def is_initialised(node: Node) -> bool:
    """Tell whether a node has all that a manager gives it."""
    return (
        not has_taint(node, TAINT_UNINITIALIZED)
        and bool(node.spec.provider_id)
        and {LABEL_ZONE, LABEL_REGION} <= node.metadata.labels.keys()
        and "InternalIP" in {address.type for address in node.status.addresses}
    )


class Meter:
    """Measures one piece of work of a running process."""

    def __init__(self, stage: Stage, process: Process) -> None:
        """Measure nothing before `begin`."""
        self.audit = AuditTail(stage.plane.audit_log, USER)
        self._stage = stage
        self._process = process
        port = int(stage.plane.url.rpartition(":")[2])
        self._traffic = Traffic(port, process.pid)
        self._watching = asyncio.create_task(self._traffic.run())
        self._began = 0.0
        self._cpu: Mapping[int, float] = {}

    async def begin(self, *, since: float = 0.0) -> None:
        """Start counting; `since` is when the work began if it was before."""
        await self._stage.cloud.admin.clear_calls()
        await self._traffic.sample()
        if not since:
            self._traffic.begin()
        self.audit = AuditTail(self._stage.plane.audit_log, USER) if not since else self.audit
        self._began = since or time.time()
        # The manager's time counts from its start if the work does.
        own = () if since else (self._process.pid,)
        self._cpu = {pid: cpu_seconds(pid) for pid in (*own, *self._servers())}

    def _servers(self) -> tuple[int, int, int]:
        """Return the process ids of the API server, etcd and the cloud."""
        plane, cloud = self._stage.plane, self._stage.cloud
        return plane.apiserver_pid, plane.etcd_pid, cloud.pid

    def _spent(self, pid: int) -> float:
        """Return the CPU seconds of a process since `begin`."""
        return cpu_seconds(pid) - self._cpu.get(pid, 0.0)

    async def until(
        self, what: str, done: Callable[[], Awaitable[bool]], *, every: float = POLL
    ) -> None:
        """Wait until the work is done.

        Raises:
            TimeoutError: It is not done after half an hour.
            RuntimeError: The manager ended.
        """
        began = reported = time.monotonic()
        while True:
            looked = time.monotonic()
            self.audit.read()
            if await done():
                self.audit.read()
                return
            self._process.check()
            if looked - began > PATIENCE:
                raise TimeoutError(f"{self._stage.contestant.title}: not done: {what}")
            if looked - reported > _PROGRESS:
                reported = looked
                done_so_far = f"{sum(self.audit.requests.values()):,} API requests so far"
                say(f"    {looked - began:.0f} s, not yet: {what}; {done_so_far}")
            # Looking must not slow down what is looked for.
            await asyncio.sleep(max(every, 4 * (time.monotonic() - looked)))

    async def settled(
        self, what: str, done: Callable[[], Awaitable[bool]], *, quiet: float = QUIET
    ) -> None:
        """Wait until nothing has been called or written for a while, and the work is done."""
        last, since = 0, time.monotonic()

        async def rests() -> bool:
            nonlocal last, since
            calls = sum(cloud_calls(await self._stage.counters())[0].values())
            now = calls + sum(self.audit.requests.values())
            if now != last:
                last, since = now, time.monotonic()
                return False
            return time.monotonic() - since >= quiet and await done()

        await self.until(what, rests)

    async def last_call(self, *operations: str) -> float:
        """Return when the cloud was last called, with any of these operations if some are named."""
        last = (await self._stage.counters()).last
        return max(
            (t for name, t in last.items() if not operations or name in operations), default=0.0
        )

    async def end(self, finished: float = 0.0, *, units: float = 0.0, **more: float) -> Figures:
        """Stop counting; `finished` is when the work was done, in seconds since 1970."""
        finished = finished or time.time()
        await self._traffic.sample()
        self.audit.read()
        calls, throttled = cloud_calls(await self._stage.counters())
        sent, received = self._traffic.mib
        pid = self._process.pid
        apiserver, etcd, cloud = self._servers()
        return Figures(
            seconds=finished - self._began,
            cloud_calls=calls,
            throttled=throttled,
            api_requests=dict(self.audit.requests),
            api_failures=self.audit.failures,
            sent=sent,
            received=received,
            rss=memory(pid),
            cpu=self._spent(pid),
            apiserver_cpu=self._spent(apiserver),
            etcd_cpu=self._spent(etcd),
            cloud_cpu=self._spent(cloud),
            units=units,
            more=more,
        )

    async def close(self) -> None:
        """Stop watching sockets."""
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)


@asynccontextmanager
async def started(
    stage: Stage, *flags: str, routes: bool = False
) -> AsyncIterator[tuple[Process, Meter]]:
    """Start the contestant and measure from then on; `begin` starts anew."""
    since = time.time()
    async with stage.manager(*flags, routes=routes) as process:
        meter = Meter(stage, process)
        try:
            await meter.begin(since=since)
            yield process, meter
        finally:
            await meter.close()


@asynccontextmanager
async def staged(
    contestant: Contestant, goccm: Path, settings: Mapping[str, Any]
) -> AsyncIterator[Stage]:
    """Start a control plane and a cloud for one contestant."""
    calm = {"latency": LATENCY, "health_interval": 0.0, "pool": "127.96.0.0/16"}
    async with AsyncExitStack() as stack:
        plane = await stack.enter_async_context(ControlPlane())
        cloud = await stack.enter_async_context(
            SimulatedCloudProcess(settings=Settings(**{**calm, **settings}))
        )
        loaded = config.load(str(plane.kubeconfig), env={})
        client = await stack.enter_async_context(Client(loaded, user_agent="benchmark"))
        yield Stage(contestant, plane, cloud, client, goccm)


def _machine(name: str) -> Instance:
    return Instance(name=name, zone="sim-1a", type="sim.large")


def node_of(machine: Instance, *, initialised: bool) -> dict[str, Any]:
    """Return the node of a machine, ready; an `initialised` one needs nothing of a manager."""
    now = datetime.now(UTC)
    body = node_body(machine, now=now, object_size=OBJECT_SIZE)
    body["status"]["conditions"][-1].update(type="Ready", status="True")
    if initialised:
        body["spec"] = {"providerID": f"simulated://{machine.region}/{machine.id}"}
        body["metadata"]["labels"] |= {
            LABEL_ZONE: machine.zone,
            LABEL_REGION: machine.region,
            "node.kubernetes.io/instance-type": machine.type,
            "failure-domain.beta.kubernetes.io/zone": machine.zone,
            "failure-domain.beta.kubernetes.io/region": machine.region,
            "beta.kubernetes.io/instance-type": machine.type,
        }
        body["status"]["addresses"] = [
            {"type": one.type, "address": one.address} for one in machine.addresses
        ]
        fine = {"status": "True", "reason": "Initialized", "message": _FINE}
        body["status"]["conditions"].append(
            {"type": "CloudInitialized", **fine, "lastTransitionTime": timestamp(now)}
        )
    return body


def _name(number: int) -> str:
    return f"service-{number:04}"
