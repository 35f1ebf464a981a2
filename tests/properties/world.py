"""A cluster and its cloud in one process and on one virtual clock, with the real manager in it.

Users, kubelets and the machines' owner act by `deeds`: each is a method that takes two numbers
and makes of them something that is possible now. So a history is plain data, any part of it is a
history too, and hypothesis can make it shorter.
"""

import asyncio
import copy
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from unittest import mock

import msgspec
from aiohttp import web

from proreus.app.election import Election
from proreus.app.leader import Leader, controllers_of
from proreus.app.options import Options
from proreus.cloudprovider.identity import MARK_CLUSTER_UID
from proreus.controllers.cloud_node_lifecycle.declared import ANNOTATION_GONE
from proreus.controllers.cloud_node_lifecycle.scopes import ANNOTATION_UNKNOWN
from proreus.kube.config import ClientConfig
from proreus.kube.objects import TAINT_AUTOSCALER
from proreus.kube.requests import NODES, SERVICES, Resource
from proreus.providers.simulated import SimulatedCloud
from proreus.providers.simulated.config import Global, SimulatedConfig
from proreus.serving.health import Health
from proreus.testing.kubelet import node_body
from proreus.testing.memory import Fault as ApiFault
from proreus.testing.memory import FaultMode as ApiFaultMode
from proreus.testing.memory import MemoryApiServer, Store
from proreus.testing.memory.rules import RESOURCES
from proreus.testing.simulated import Admin, Fault, FaultMode, Instance, Settings
from proreus.testing.simulated.cloud import Cloud
from proreus.testing.simulated.model import AddressPart, Firewall, Listener, LoadBalancer, Route
from proreus.testing.simulated.server import Server

from .promises import Promises, Unkept

EPOCH: Final = datetime(2030, 1, 1, tzinfo=UTC)
REGION: Final = "sim-1"
MACHINES: Final = 6
"""Machines at the same time."""
SERVICES_AT_ONCE: Final = 4
SLICE: Final = 5.0
"""Virtual seconds between two looks at the cloud."""
HEARTBEAT: Final = 30.0
"""A pause of so many seconds lets the kubelets report."""
PAUSES: Final = (0.0, 0.02, 0.3, 2.0, 12.0, 45.0, 400.0, 4000.0)
OPTIONS: Final = Options(
    cloud_provider="simulated",
    leader_elect=False,
    cluster_cidr=("10.244.0.0/19",),
    allocate_node_cidrs=True,
)
SPECS: Final[Sequence[Mapping[str, Any]]] = (
    {"ports": [{"name": "web", "port": 8080}]},
    {
        "ports": [
            {"name": "web", "port": 8443},
            {"name": "dns", "port": 5353, "protocol": "UDP"},
        ]
    },
    {"ports": [{"name": "web", "port": 8080}], "externalTrafficPolicy": "Local"},
    {
        "ports": [{"name": "web", "port": 8080}],
        "loadBalancerSourceRanges": ["192.0.2.0/24", "198.51.100.0/24"],
    },
    {"ports": [{"name": "web", "port": 9000}], "sessionAffinity": "ClientIP"},
    {"ports": [{"name": "web", "port": 8080}], "loadBalancerSourceRanges": ["not a network"]},
)
CLOUD_FAULTS: Final = (
    FaultMode.ERROR,
    FaultMode.CUT_BEFORE,
    FaultMode.CUT_AFTER,
    FaultMode.THROTTLE,
    FaultMode.GARBAGE,
    FaultMode.HANG,
    FaultMode.DROP,
)
OPERATIONS: Final = (
    "*",
    "*.create",
    "*.delete",
    "instances.batch_get",
    "resources.list",
    "load_balancers.*",
    "listeners.*",
    "routes.*",
)
API_FAULTS: Final = (
    ApiFaultMode.ERROR,
    ApiFaultMode.THROTTLE,
    ApiFaultMode.CONFLICT,
    ApiFaultMode.FORBIDDEN,
    ApiFaultMode.LOST,
)
WEATHERS: Final[Sequence[Mapping[str, Any]]] = (
    {},
    {"latency": 0.4},
    {"provision_delay": 40.0},
    {"list_lag": 8.0},
    {"read_rate": 2.0, "read_burst": 4.0, "write_rate": 1.0, "write_burst": 3.0},
    {"tombstone": 120.0},
)


class Step(msgspec.Struct, frozen=True, array_like=True):
    """One deed, what it is about, and which of `PAUSES` follows."""

    deed: str
    a: int = 0
    b: int = 0
    pause: int = 0


class World:
    """Everything; `broken` are the promises that were broken so far."""

    def __init__(self, server: MemoryApiServer, cloud: Cloud, admin: Admin, endpoint: str) -> None:
        self.api = server
        self.store = server.store
        self.cloud = cloud
        self.promises = Promises(self.store, cloud)
        self._admin = admin
        self._endpoint = endpoint
        self._number = 0
        self._muted: set[str] = set()
        self._lied = -1e9
        self._stop = asyncio.Event()
        self._manager: asyncio.Task[int] | None = None
        self._plant()

    # What runs it

    async def play(self, history: Sequence[Step]) -> None:
        """Let all happen, in order, up to the first broken promise."""
        for step in history:
            with self.promises.by_others():
                await getattr(self, step.deed)(step.a, step.b)
            await self.pass_time(PAUSES[step.pause % len(PAUSES)])
            if self.promises.broken:
                return

    async def pass_time(self, seconds: float) -> None:
        """Let virtual time pass, and look at the cloud on the way."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            self.promises.check()
            left = end - loop.time()
            if left <= 0:
                break
            await asyncio.sleep(min(left, SLICE))
        if seconds >= HEARTBEAT:
            with self.promises.by_others():
                await self.report()

    async def come_to_rest(self, patience: float) -> list[Unkept]:
        """End all faults and wait, at most so many seconds; what is still not as it should be."""
        with self.promises.by_others():
            await self.mend()
            self._muted.clear()
            for machine in self.cloud.machines.all():
                if machine.state == "stopped":
                    self.cloud.machines.change(machine.id, {"state": "running"})
            if not self._alive():  # a cluster without any witness keeps its Nodes
                await self.boot(0, 1)
        loop = asyncio.get_running_loop()
        end = loop.time() + patience
        while (found := self.promises.unkept()) and loop.time() < end:
            with self.promises.by_others():
                self.vouch()
            await self.pass_time(HEARTBEAT)
            if self.promises.broken:
                break
        return found

    def vouch(self) -> None:
        """An operator says that machines are gone, of the Nodes that are never deleted otherwise.

        Those are the ones that the cloud did not know while they were Ready.
        """
        alive = {machine.name for machine in self._alive()}
        for _, name in self._keys(NODES):
            body = copy.deepcopy(self.store.get(NODES, "", name).body)
            annotations = body["metadata"].get("annotations", {})
            is_marked = ANNOTATION_UNKNOWN in annotations and ANNOTATION_GONE not in annotations
            if is_marked and name not in alive:
                annotations[ANNOTATION_GONE] = "true"
                self._write(NODES, body)

    async def trail(self) -> list[str]:
        """Every request and call so far, then what there is: one line each."""
        found: list[object] = [*self.api.requests, *await self._admin.calls()]
        for resource in RESOURCES.values():
            found += [stored.body for stored in self.store.first_page(resource, "", None, 0).items]
        found += [*self.cloud.machines.all(), *self.cloud.parts.all()]
        return [msgspec.json.encode(one).decode() for one in found]

    def start_manager(self) -> None:
        """Start the manager's work as the process does, on this clock."""
        section = Global(endpoint=self._endpoint, region=REGION, token="token")
        leader = Leader(
            OPTIONS,
            SimulatedCloud(SimulatedConfig(section)),
            ClientConfig(server=self.api.url),
            Health(),
            chosen=controllers_of(OPTIONS),
            election=Election(),
            now=now,
        )
        self._stop = asyncio.Event()
        self._manager = asyncio.create_task(leader.run(self._stop))

    async def end_manager(self, *, orderly: bool) -> None:
        """End it with time to drain, or wherever it is."""
        if self._manager is None:
            return
        await asyncio.sleep(0)  # what it has opened is closed by its work, which must have begun
        if orderly:
            self._stop.set()
        else:
            self._manager.cancel()
        with suppress(asyncio.CancelledError):
            await self._manager
        self._manager = None

    # Users

    async def create_service(self, a: int, b: int) -> None:
        """A new Service: ours, now and then of another class or no load balancer."""
        spec = {**copy.deepcopy(SPECS[b % len(SPECS)]), "type": "LoadBalancer"}
        if b % 11 == 7:
            spec["loadBalancerClass"] = "example.com/other"
        elif b % 11 == 8:
            spec["type"] = "ClusterIP"
            spec.pop("externalTrafficPolicy", None)
        name = f"s{a % SERVICES_AT_ONCE}"
        if ("default", name) not in self._keys(SERVICES):
            self.store.create(SERVICES, "default", {"metadata": {"name": name}, "spec": spec})

    async def edit_service(self, a: int, b: int) -> None:
        """Another spec; now and then another type."""
        body = self._pick(SERVICES, a)
        if body is None or "loadBalancerClass" in body["spec"]:
            return
        kept = {key: body["spec"][key] for key in ("clusterIP", "ipFamilies")}
        spec = {**copy.deepcopy(SPECS[b % len(SPECS)]), "type": "LoadBalancer", **kept}
        if b % 7 == 6:
            spec["type"] = "ClusterIP"
            spec.pop("externalTrafficPolicy", None)
        self._write(SERVICES, {**body, "spec": spec})

    async def delete_service(self, a: int, b: int) -> None:
        """Delete one; its finalizer may keep it for a while."""
        if (body := self._pick(SERVICES, a)) is not None:
            self.store.delete(SERVICES, self._stored(SERVICES, body), {})

    async def wipe_status(self, a: int, b: int) -> None:
        """Somebody takes a Service's addresses away."""
        if (body := self._pick(SERVICES, a)) is not None:
            self._write(SERVICES, {**body, "status": {"loadBalancer": {}}}, status=True)

    async def annotate(self, a: int, b: int) -> None:
        """Somebody writes an annotation, a label and a finalizer of his own."""
        resource: Resource[Any] = (NODES, SERVICES)[b % 2]
        if (body := self._pick(resource, a)) is None:
            return
        meta = body["metadata"]
        if "deletionTimestamp" not in meta and resource is SERVICES:
            mine = "example.com/mine"
            others = [one for one in meta.get("finalizers", ()) if one != mine]
            meta["finalizers"] = [*others, *([mine] if b % 4 < 2 else [])]
        for field in ("annotations", "labels"):
            meta[field] = {**meta.get(field, {}), "example.com/mine": str(b)}
        self._write(resource, body)

    async def let_go(self, a: int, b: int) -> None:
        """The others' finalizers go from a Service."""
        if (body := self._pick(SERVICES, a)) is not None:
            self._free(body)

    async def mark_node(self, a: int, b: int) -> None:
        """A taint or the exclude label comes or goes, and so do hosts of load balancers."""
        if (body := self._pick(NODES, a)) is None:
            return
        key = ("example.com/spot", TAINT_AUTOSCALER)[b % 2]
        taints = body["spec"].get("taints", [])
        rest = [one for one in taints if one["key"] != key]
        if len(rest) == len(taints):
            rest.insert(b % (len(rest) + 1), {"key": key, "effect": "NoSchedule"})
        body["spec"]["taints"] = rest
        if b % 3 == 0:
            label = "node.kubernetes.io/exclude-from-external-load-balancers"
            labels = body["metadata"].setdefault("labels", {})
            if labels.pop(label, None) is None:
                labels[label] = "true"
        self._write(NODES, body)

    async def delete_node(self, a: int, b: int) -> None:
        """Somebody deletes a Node; its kubelet will register it again."""
        if (body := self._pick(NODES, a)) is not None:
            self.store.delete(NODES, self._stored(NODES, body), {})

    # Machines and kubelets

    async def boot(self, a: int, b: int) -> None:
        """Up to three new machines; the kubelets register at once or with their next report."""
        for _ in range(a % 3 + 1):
            if len(self._alive()) < MACHINES:
                self._number += 1
                machine = Instance(
                    name=f"n{self._number}", zone=f"{REGION}{'ab'[b % 2]}", type="sim.large"
                )
                self.cloud.machines.create([machine])
        if b % 3:
            await self.report()

    async def end_machine(self, a: int, b: int) -> None:
        """A machine is gone; its kubelet is noticed to be silent at once or later."""
        if alive := self._alive():
            self.cloud.machines.terminate(alive[a % len(alive)].id)
        if b % 2:
            await self.report()

    async def switch_machine(self, a: int, b: int) -> None:
        """A machine is stopped, or started again."""
        if alive := self._alive():
            one = alive[a % len(alive)]
            new = "stopped" if one.state == "running" else "running"
            self.cloud.machines.change(one.id, {"state": new})

    async def mute(self, a: int, b: int) -> None:
        """A kubelet dies although its machine lives, or comes back."""
        if alive := self._alive():
            self._muted ^= {alive[a % len(alive)].id}
        if b % 2:
            await self.report()

    async def report(self, a: int = 0, b: int = 0) -> None:
        """Every kubelet registers or reports; the silent ones are noticed."""
        speaking = {
            one.name: one
            for one in self._alive()
            if one.state == "running" and one.id not in self._muted
        }
        known = {name for _, name in self._keys(NODES)}
        for name, machine in speaking.items():
            if name not in known:
                self.store.create(NODES, "", node_body(machine, now=now()))
        for _, name in self._keys(NODES):
            body = copy.deepcopy(self.store.get(NODES, "", name).body)
            ready = "True" if name in speaking else "Unknown"
            (old,) = (one for one in body["status"]["conditions"] if one["type"] == "Ready")
            if old["status"] != ready:
                old.update(status=ready, lastTransitionTime=f"{now():%Y-%m-%dT%H:%M:%SZ}")
                self._write(NODES, body, status=True)

    # Clouds and faults

    async def steal_part(self, a: int, b: int) -> None:
        """Somebody deletes a part that we made."""
        parts = [one for one in self.cloud.parts.all() if self.promises.is_ours(one)]
        if parts:
            await self._admin.remove(parts[a % len(parts)].id)

    async def spoil_cloud(self, a: int, b: int) -> None:
        """Calls to the cloud fail, some times or until all is mended."""
        mode = CLOUD_FAULTS[a % len(CLOUD_FAULTS)]
        operation = OPERATIONS[b % len(OPERATIONS)]
        await self._admin.inject(
            Fault(mode, operation, skip=a % 4, count=(1, 2, 5, 0)[(a + b) % 4], share=0.5)
        )

    async def lie(self, a: int, b: int) -> None:
        """One answer says that machines are gone which are not.

        Not twice within the time in which two such answers count as one's confirmation.
        """
        time = asyncio.get_running_loop().time()
        if time - self._lied > 3600:
            self._lied = time
            share = (a % 4 + 1) / 4
            await self._admin.inject(Fault(FaultMode.MISSING, "instances.batch_get", share=share))

    async def change_weather(self, a: int, b: int) -> None:
        """The cloud becomes slow, late or sparing."""
        calm = msgspec.structs.asdict(Settings(health_interval=0.0, pool=_pool(self._endpoint)))
        await self._admin.configure(**{**calm, **WEATHERS[a % len(WEATHERS)]})

    async def spoil_api(self, a: int, b: int) -> None:
        """Requests to the API server fail, some times or until all is mended."""
        resource = ("*", "nodes", "services", "events")[b % 4]
        verb = ("*", "patch", "list", "delete")[b // 4 % 4]
        count = (1, 2, 6, 0)[a // 5 % 4]
        self.api.inject(ApiFault(API_FAULTS[a % len(API_FAULTS)], verb, resource, count))

    async def break_watch(self, a: int, b: int) -> None:
        """Watches break off, or the history that they need is forgotten."""
        if a % 3 == 0:
            self.promises.forget()
        mode = (ApiFaultMode.CUT, ApiFaultMode.GONE, ApiFaultMode.LOST)[b % 3]
        self.api.inject(ApiFault(mode, "watch", "*", a % 3 + 1))

    async def mend(self, a: int = 0, b: int = 0) -> None:
        """All faults end, and the weather is fine."""
        self.api.clear_faults()
        await self._admin.clear_faults()
        await self.change_weather(0, 0)

    async def restart(self, a: int, b: int) -> None:
        """The manager ends, in order or not, and starts anew."""
        await self.end_manager(orderly=bool(a % 2))
        self.start_manager()

    # Within

    def _plant(self) -> None:
        """What is not ours: nodes of another cloud and of none, parts of another cluster."""
        for name, provider_id in (("elsewhere", "aws:///zone/i-1"), ("nowhere", "")):
            body = node_body(Instance(name=name), now=now())
            if provider_id:
                body["spec"]["providerID"] = provider_id
            self.store.create(NODES, "", body)
        tags = {MARK_CLUSTER_UID: "another cluster"}
        (machine,) = self.cloud.machines.create([Instance(name="theirs")])
        make = self.cloud.parts.create
        address, _ = make(AddressPart, {"name": "theirs", "tags": tags})
        balancer, _ = make(LoadBalancer, {"name": "theirs", "tags": tags, "address_id": address.id})
        on = {"name": "theirs", "tags": tags, "load_balancer_id": balancer.id}
        make(Listener, {**on, "protocol": "TCP", "port": 7000, "target_port": 30000})
        make(Firewall, {**on, "source_ranges": ["0.0.0.0/0"]})
        route = {"destination": "10.99.0.0/24", "instance_id": machine.id}
        make(Route, {"name": "theirs", "tags": tags, **route})
        self.promises.begin()

    def _alive(self) -> list[Instance]:
        """Our machines, the oldest first."""
        found = [
            one
            for one in self.cloud.machines.all()
            if one.state != "terminated" and one.name != "theirs"
        ]
        return sorted(found, key=lambda one: int(one.name[1:]))

    def _keys(self, resource: Resource[Any]) -> list[tuple[str, str]]:
        page = self.store.first_page(resource, "", lambda _: True, 0)
        meta = [stored.body["metadata"] for stored in page.items]
        return [(one.get("namespace", ""), one["name"]) for one in meta]

    def _pick(self, resource: Resource[Any], a: int) -> dict[str, Any] | None:
        keys = self._keys(resource)
        if not keys:
            return None
        body: dict[str, Any] = copy.deepcopy(self.store.get(resource, *keys[a % len(keys)]).body)
        return body

    def _stored(self, resource: Resource[Any], body: Mapping[str, Any]) -> Any:
        meta = body["metadata"]
        return self.store.get(resource, meta.get("namespace", ""), meta["name"])

    def _write(
        self, resource: Resource[Any], body: dict[str, Any], *, status: bool = False
    ) -> None:
        self.store.update(resource, self._stored(resource, body), body, status=status)

    def _free(self, body: dict[str, Any]) -> None:
        meta = body["metadata"]
        kept = [one for one in meta.get("finalizers", ()) if not one.startswith("example.com/")]
        self._write(SERVICES, {**body, "metadata": {**meta, "finalizers": kept}})


def now() -> datetime:
    """The virtual wall clock."""
    return EPOCH + timedelta(seconds=asyncio.get_running_loop().time())


def _pool(endpoint: str) -> str:
    port = int(endpoint.rpartition(":")[2])
    return f"127.{port >> 8}.{port & 255}.0/24"


@asynccontextmanager
async def _idle_in_virtual_time() -> AsyncIterator[None]:
    """aiohttp asks the real clock, and offers no other, how long a connection was idle."""
    with mock.patch("aiohttp.connector.monotonic", asyncio.get_running_loop().time):
        yield


@asynccontextmanager
async def world(state: Path) -> AsyncIterator[World]:
    """A world whose manager runs; `state` is where the cloud keeps its state."""
    chance = random.Random(0)  # noqa: S311 - repeatable, and no secret
    cloud = Cloud(state, Settings(), lambda: now().timestamp(), chance)
    runner = web.AppRunner(
        Server(cloud, {"token": "manager"}, "admin").app(), access_log=None, shutdown_timeout=0.1
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}"
        cloud.configure({"health_interval": 0.0, "pool": _pool(endpoint)})
        async with (
            _idle_in_virtual_time(),
            cloud.dataplane.running(),
            MemoryApiServer(Store(now, chance=chance)) as server,
            Admin(endpoint) as admin,
        ):
            made = World(server, cloud, admin, endpoint)
            made.start_manager()
            try:
                yield made
            finally:
                await made.end_manager(orderly=False)
    finally:
        await runner.cleanup()
        cloud.close()
