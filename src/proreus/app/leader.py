"""Do the work of the replica that leads: clients, informers, the cloud, the controllers.

At the stop no more work is taken, and what is under way gets `DRAIN_SECONDS`.
"""

import asyncio
import itertools
import random
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from proreus.app.caches import config_maps, needed
from proreus.app.clients import Clients
from proreus.app.cloud import Cloud
from proreus.app.election import Election, Lock
from proreus.app.options import Options
from proreus.app.reload import Reloader, origin_of
from proreus.app.status.source import Source
from proreus.cloudprovider import (
    CloudError,
    CloudProvider,
    ClusterIdentity,
    ConfigError,
    Context,
    Lister,
)
from proreus.containment.failed_calls import FailedCalls
from proreus.containment.faults import Faults, Kind
from proreus.containment.inventory import Inventory
from proreus.controllers.environment import Environment, Runnable
from proreus.controllers.service.intake import SLICES_BY_SERVICE, service_keys
from proreus.controllers.settings import Settings
from proreus.controllers.table import Descriptor, select
from proreus.kube.client import Client
from proreus.kube.config import ClientConfig
from proreus.kube.errors import Forbidden, KubeError
from proreus.kube.objects import EndpointSlice, KubeObject
from proreus.kube.requests import ENDPOINT_SLICES, LEASES, NAMESPACES, NODES, SERVICES
from proreus.runtime import klog, metrics
from proreus.runtime.backoff import Backoff
from proreus.runtime.bucket import AdaptiveBucket
from proreus.runtime.events import EventRecorder, ObjectReference
from proreus.runtime.informer import Informer
from proreus.runtime.leaderelection import LeaderElector
from proreus.runtime.tasks import Exited, contain_exits, supervise, unless_stopped
from proreus.serving.health import Health

log = klog.logger(__name__)

DRAIN_SECONDS = 20.0
FLUSH_SECONDS = 2.0
RESTART = Backoff(first=1.0, cap=30.0)
NAME = "cloud-controller-manager"


class Leader:
    """The work of a replica that leads.

    All of it, or that of the controllers whose leases it holds.
    """

    def __init__(
        self,
        options: Options,
        provider: CloudProvider,
        config: ClientConfig,
        health: Health,
        *,
        chosen: Sequence[Descriptor],
        election: Election,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._options = options
        self._now = now
        self._chosen = chosen
        self._election = election
        self._provider = provider
        self._health = health
        self._clients = Clients(
            config,
            apart=options.use_service_account_credentials,
            limiter=limiter(options),
            gate=election.check,
        )
        self._client = self._clients.main
        self._nodes = Informer(self._client, NODES)
        self._services = Informer(self._client, SERVICES)
        self._slices = _slices(provider, self._client)
        self._events = EventRecorder(
            self._client, host=socket.gethostname(), busy=self._is_busy, now=now
        )
        self._faults = Faults(provider.name, self._events.source(NAME))
        self._tasks: list[asyncio.Task[None]] = []
        self._flags: dict[str, Callable[[Exception | None], None]] = {}
        self._running: dict[str, Runnable] = {}
        self._controllers: list[asyncio.Task[None]] = []
        self._started: set[str] = set()
        self._changing = asyncio.Lock()
        self._environment: Environment | None = None
        self._cloud = Cloud(
            provider,
            self._faults,
            allow_untagged=options.allow_untagged_cloud,
            on_crash=self._flag("cloud-provider"),
        )
        self._leads = False
        health.add("leader-started", self._waits)

    async def run(self, stop: asyncio.Event) -> int:
        """Run the chosen controllers until `stop` is set; returns the exit code."""
        contain_exits(asyncio.get_running_loop(), self._exited)
        self._leads = True
        async with self._clients:
            self._start("nodes", self._nodes.run)
            self._start("services", self._services.run)
            self._start("events", self._events.run)
            if self._slices is not None:
                self._start("endpointslices", self._slices.run)
            if (reloader := self._reloader()) is not None:
                self._start("cloud-config", reloader.run)
            try:
                if await unless_stopped(self._begin(), stop):
                    await stop.wait()
                klog.info(log, "Ending: no more work is taken", seconds=DRAIN_SECONDS)
                await self._drain()
            except ConfigError as exc:
                for problem in exc.problems:
                    klog.error(log, "The configuration is wrong", problem=problem)
                return 1
            finally:
                await _cancel(self._controllers)
                # What is queued there will not be written any more: events need not wait for it.
                self._running.clear()
                await self._cloud.close()
                for lock, elector in self._election.held:
                    self.record_leadership(lock, elector, "stopped leading")
                await self._events.flush(FLUSH_SECONDS)
                await _cancel(self._tasks)
        klog.info(log, "Ended in order")
        return 0

    def show(self, state: Source) -> None:
        """Let the status page show this replica's caches and controllers."""
        state.nodes, state.services = self._nodes, self._services
        state.running = self._running.values

    def _waits(self) -> str | None:
        """Check readiness: return what a leader still waits for; a standby waits for nothing."""
        if not self._leads:
            return None
        caches: tuple[Informer[Any] | None, ...] = (self._nodes, self._services, self._slices)
        missing = [it.resource.plural for it in caches if it is not None and not it.synced]
        if self._environment is None:
            missing.append("the cloud")
        return f"waits for {', '.join(missing)}" if missing else None

    def _is_busy(self) -> bool:
        """Tell whether writes are queued that come before events."""
        return any(controller.is_busy for controller in self._running.values())

    def _start(self, name: str, factory: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Run something while the manager leads, restarted after a crash."""
        task = asyncio.create_task(
            supervise(name, factory, backoff=RESTART, on_crash=self._flag(name)), name=name
        )
        self._tasks.append(task)
        return task

    def _flag(self, name: str) -> Callable[[Exception | None], None]:
        """Return the readiness check of that name, set to well; a restart keeps its check."""
        if name not in self._flags:
            self._flags[name] = self._health.flag(name)
        self._flags[name](None)
        return self._flags[name]

    async def _begin(self) -> None:
        """Read the cluster's identity, start the cloud, then the controllers."""
        cluster = await self._identify()
        context = Context(
            cluster,
            now=self._now,
            events=self._events.source(NAME),
            listers=await self._listers(),
            flags=self._options.provider_flags,
            gate=self._election.check,
        )
        async with self._changing:
            cloud = await self._cloud.start(context)
            self._environment = Environment(
                client=self._client,
                provider=cloud,
                context=context,
                cluster=cluster,
                nodes=self._nodes,
                services=self._services,
                endpoint_slices=self._slices,
                inventory=_inventory(cloud, self._faults),
                events=self._events,
                now=self._now,
                settings=settings_of(self._options),
            )
            await self._start_controllers(self._environment)
        while True:  # other leases may be won later
            await self._election.news()
            async with self._changing:
                await self._start_controllers(self._environment)

    async def _start_controllers(self, env: Environment) -> None:
        """Start the controllers that may run here and do not yet."""
        interval = self._options.controller_start_interval
        for descriptor in self._chosen:
            name = descriptor.name
            if name in self._started or not self._election.runs(name):
                continue
            if interval and self._started:
                await asyncio.sleep(interval * (1 + random.random()))  # noqa: S311 - Go's jitter
            self._started.add(name)
            self._start_controller(descriptor, env)

    async def replace_cloud(self, provider: CloudProvider) -> None:
        """Start another provider beside the one in use, and switch the controllers to it.

        Raises:
            CloudError: It does not start; all stays as it was.
        """
        await self._cloud.replace(provider, self._nodes.all(), self._change_over)

    async def _change_over(self, cloud: CloudProvider) -> None:
        """Let controllers finish running work, and restart them on another cloud."""
        async with self._changing:
            if self._environment is None:
                raise RuntimeError("the cloud was to be replaced before it was started")
            klog.info(log, "Switching to a new provider", seconds=DRAIN_SECONDS)
            await self._drain()
            await _cancel(self._controllers)
            for name in self._running:
                metrics.MANAGED_CONTROLLERS.labels(name, NAME).set(0)
            self._tasks = [task for task in self._tasks if task not in self._controllers]
            self._controllers.clear()
            self._started.clear()
            self._running.clear()
            self._environment = msgspec.structs.replace(
                self._environment, provider=cloud, inventory=_inventory(cloud, self._faults)
            )
            await self._start_controllers(self._environment)

    def _reloader(self) -> Reloader | None:
        """Return the reloader of the cloud-config; None if there is nothing to follow."""
        origin, about = origin_of(self._options, self._provider, self._client)
        if origin is None:
            return None

        def record(type_: str, reason: str, message: str) -> None:
            self._events.source(NAME).event(about, type_, reason, message)

        return Reloader(origin, self._provider, self.replace_cloud, record)

    async def _listers(self) -> Mapping[str, Lister[KubeObject]]:
        """Return the caches that the provider declares to need.

        Raises:
            ConfigError: It needs something that there is none of.
        """
        offered: dict[str, Lister[KubeObject] | None] = {
            "nodes": self._nodes,
            "services": self._services,
            "endpoint_slices": self._slices,
        }
        needs = self._provider.needs
        for failures in itertools.count():
            try:
                read = await config_maps(self._client, needs)
                break
            except KubeError as exc:
                klog.warning(log, "A ConfigMap cannot be read yet", err=exc)
                await asyncio.sleep(RESTART.delay(failures))
        return needed(self._provider.name, needs, {**offered, **read})

    async def _identify(self) -> ClusterIdentity:
        """Return the cluster's identity: its name and the UID of kube-system."""
        for failures in itertools.count():
            try:
                system = await self._client.get(NAMESPACES, "kube-system")
            except KubeError as exc:
                delay = RESTART.delay(failures)
                message = "The API server does not answer yet"
                if isinstance(exc, Forbidden):  # the official managers' roles do not give it
                    message = "The manager waits for the right to get the namespace kube-system"
                klog.warning(log, message, err=exc, retry_seconds=delay)
                await asyncio.sleep(delay)
            else:
                return ClusterIdentity(name=self._options.cluster_name, uid=system.metadata.uid)
        raise AssertionError("unreachable")

    def _exited(self, name: str, error: Exited) -> None:
        self._faults.report("task", Kind.RAISED, f"{name}: {error}", cause=error)

    def _start_controller(self, descriptor: Descriptor, env: Environment) -> None:
        is_needed = descriptor.needed(env.settings)
        if is_needed and getattr(env.provider, descriptor.capability) is None:
            klog.warning(
                log,
                "Not started: the cloud lacks what this controller needs",
                controller=descriptor.name,
                capability=descriptor.capability,
            )
            return

        env = msgspec.structs.replace(env, client=self._clients.of(descriptor))

        async def run() -> None:
            informers = [it for it in (env.nodes, env.services, env.endpoint_slices) if it]
            before = [it.handlers for it in informers]
            try:
                try:
                    controller = self._running[descriptor.name] = descriptor.create(env)
                finally:  # one that is half made has handlers, too
                    after = [it.handlers for it in informers]
                await controller.run()
            finally:  # else the caches would go on calling it, and keep it
                for it, old, new in zip(informers, before, after, strict=True):
                    it.unsubscribe(handler for handler in new if handler not in old)

        self._controllers.append(self._start(descriptor.name, run))
        metrics.MANAGED_CONTROLLERS.labels(descriptor.name, NAME).set(1)
        klog.info(log, "Started", controller=descriptor.name)

    def record_leadership(self, lock: Lock, elector: LeaderElector, what: str) -> None:
        """Record client-go's event about winning or losing the lease."""
        lease = ObjectReference(
            LEASES.api_version,
            LEASES.kind,
            lock.name,
            self._options.leader_elect_resource_namespace,
            elector.uid,
        )
        message = f"{elector.identity} {what}"
        self._events.source(NAME).event(lease, "Normal", "LeaderElection", message)

    async def _drain(self) -> None:
        """Begin no more work, and give running work some time to end."""
        for controller in self._running.values():
            controller.stop()
        if self._controllers:
            await asyncio.wait(self._controllers, timeout=DRAIN_SECONDS)


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _slices(provider: CloudProvider, client: Client) -> Informer[EndpointSlice] | None:
    """Make the informer of EndpointSlices only for a provider that needs these many objects."""
    if "endpoint_slices" not in provider.needs:
        return None
    return Informer(client, ENDPOINT_SLICES, indexes={SLICES_BY_SERVICE: service_keys})


def _inventory(provider: CloudProvider, faults: Faults) -> Inventory | None:
    def on_error(error: CloudError, kind: Kind) -> None:
        faults.report("describe", kind, str(error))

    if provider.instances is None:
        return None
    return Inventory(provider.instances, on_error=on_error, failed_calls=FailedCalls())


def limiter(options: Options) -> AdaptiveBucket | None:
    """Make the limiter of `--kube-api-qps` and `--kube-api-burst`; None is no limit."""
    if options.kube_api_qps <= 0:
        return None
    return AdaptiveBucket.fixed(options.kube_api_qps, max(options.kube_api_burst, 1))


def controllers_of(options: Options) -> tuple[Descriptor, ...]:
    """Return the controllers that the flags select; log why others are not started."""
    chosen, _ = select(options.controllers)
    found = []
    for descriptor in chosen:
        if reason := descriptor.why_not(settings_of(options)):
            klog.info(log, "Not started", controller=descriptor.name, reason=reason)
        else:
            found.append(descriptor)
    return tuple(found)


def settings_of(options: Options) -> Settings:
    """Make the controllers' settings, each from the flag of the same name."""
    return msgspec.convert(
        {name: getattr(options, name) for name in Settings.__struct_fields__}, Settings
    )
