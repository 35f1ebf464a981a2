"""The work of the replica that leads: clients, informers, the cloud, the controllers.

At the stop no more work is taken, and what is under way gets `DRAIN_SECONDS`.
"""

import asyncio
import itertools
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from proreus import __version__
from proreus.app.options import Options
from proreus.cloudprovider import (
    CloudError,
    CloudProvider,
    ClusterIdentity,
    ConfigError,
    Context,
    Lister,
    scope,
)
from proreus.controllers.environment import Environment, Runnable, Settings
from proreus.controllers.faults import Faults, Kind
from proreus.controllers.guard import Guard
from proreus.controllers.guarded import guarded
from proreus.controllers.inventory import Inventory
from proreus.controllers.service.intake import SLICES_BY_SERVICE, service_keys
from proreus.controllers.table import Descriptor, select
from proreus.kube.client import Client
from proreus.kube.config import ClientConfig
from proreus.kube.errors import KubeError
from proreus.kube.objects import EndpointSlice, KubeObject
from proreus.kube.requests import ENDPOINT_SLICES, NAMESPACES, NODES, SERVICES
from proreus.runtime import klog, metrics
from proreus.runtime.backoff import Backoff
from proreus.runtime.bucket import AdaptiveBucket
from proreus.runtime.events import EventRecorder
from proreus.runtime.health import Health
from proreus.runtime.informer import Informer
from proreus.runtime.tasks import Exited, contain_exits, supervise

log = klog.logger(__name__)

DRAIN_SECONDS = 20.0
FLUSH_SECONDS = 2.0
START_SECONDS = 60.0
CLOSE_SECONDS = 5.0
RESTART = Backoff(first=1.0, cap=30.0)
NAME = "cloud-controller-manager"
USER_AGENT = f"proreus/{__version__}"


class Leader:
    """The work of the one replica that leads."""

    def __init__(
        self,
        options: Options,
        provider: CloudProvider,
        config: ClientConfig,
        health: Health,
        *,
        gate: Callable[[], None] = lambda: None,
    ) -> None:
        self._options = options
        self._provider = provider
        self._health = health
        self._gate = gate
        self._client = Client(
            config,
            limiter=_limiter(options),
            gate=gate,
            observer=metrics.observe_request,
            user_agent=USER_AGENT,
        )
        self._nodes = Informer(self._client, NODES)
        self._services = Informer(self._client, SERVICES)
        self._slices = _slices(provider, self._client)
        self._events = EventRecorder(self._client, host=socket.gethostname(), busy=self._is_busy)
        self._faults = Faults(provider.name, self._events.source(NAME))
        self._tasks: list[asyncio.Task[None]] = []
        self._running: dict[str, Runnable] = {}
        self._controllers: list[asyncio.Task[None]] = []

    async def run(self, stop: asyncio.Event) -> int:
        """Run the chosen controllers until the stop; returns the exit code."""
        contain_exits(asyncio.get_running_loop(), self._exited)
        async with self._client:
            self._start("nodes", self._nodes.run)
            self._start("services", self._services.run)
            self._start("events", self._events.run)
            if self._slices is not None:
                self._start("endpointslices", self._slices.run)
            try:
                if await unless_stopped(self._begin(), stop):
                    await stop.wait()
                await self._drain()
            except ConfigError as exc:
                for problem in exc.problems:
                    klog.error(log, "The configuration is wrong", problem=problem)
                return 1
            finally:
                await _cancel(self._controllers)
                # What is queued there will not be written any more: events need not wait for it.
                self._running.clear()
                await self._close_cloud()
                await self._events.flush(FLUSH_SECONDS)
                await _cancel(self._tasks)
        klog.info(log, "Ended in order")
        return 0

    def _is_busy(self) -> bool:
        """Whether writes are queued that go before events."""
        return any(controller.is_busy for controller in self._running.values())

    def _start(self, name: str, factory: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Run something for as long as the manager leads; a crash is a restart and no end."""
        crashed = self._health.flag(name)
        task = asyncio.create_task(
            supervise(name, factory, backoff=RESTART, on_crash=crashed), name=name
        )
        self._tasks.append(task)
        return task

    async def _begin(self) -> None:
        """Learn which cluster this is, start the cloud, then the controllers."""
        cluster = await self._identify()
        context = Context(
            cluster,
            now=_now,
            events=self._events.source(NAME),
            listers=self._listers(),
            gate=self._gate,
        )
        cloud = await self._start_cloud(context)
        if not cloud.has_cluster_id and not self._options.allow_untagged_cloud:
            raise ConfigError(
                ("the cloud has no cluster id; set one, or run with --allow-untagged-cloud",)
            )
        env = Environment(
            client=self._client,
            provider=cloud,
            context=context,
            cluster=cluster,
            nodes=self._nodes,
            services=self._services,
            endpoint_slices=self._slices,
            inventory=_inventory(cloud, self._faults),
            events=self._events,
            now=_now,
            settings=_settings(self._options),
        )
        chosen, _ = select(self._options.controllers)
        for descriptor in chosen:
            self._start_controller(descriptor, env)

    def _listers(self) -> Mapping[str, Lister[KubeObject]]:
        """The caches that the provider declares to need.

        Raises:
            ConfigError: It needs something that there is none of.
        """
        offered: dict[str, Lister[KubeObject] | None] = {
            "nodes": self._nodes,
            "services": self._services,
            "endpoint_slices": self._slices,
        }
        unknown = sorted(self._provider.needs - offered.keys())
        if unknown:
            raise ConfigError(
                (f"the provider {self._provider.name} needs {', '.join(unknown)}: not offered",)
            )
        return {
            name: lister
            for name, lister in offered.items()
            if lister is not None and name in self._provider.needs
        }

    async def _identify(self) -> ClusterIdentity:
        """The cluster's identity: its name and the UID of kube-system."""
        for failures in itertools.count():
            try:
                system = await self._client.get(NAMESPACES, "kube-system")
            except KubeError as exc:
                delay = RESTART.delay(failures)
                klog.warning(
                    log, "The API server does not answer yet", err=exc, retry_seconds=delay
                )
                await asyncio.sleep(delay)
            else:
                return ClusterIdentity(name=self._options.cluster_name, uid=system.metadata.uid)
        raise AssertionError("unreachable")

    async def _start_cloud(self, context: Context) -> CloudProvider:
        """Start the provider, again and again while the cloud refuses; bad config is the end."""
        guard = Guard(self._faults, context.outlasts)
        result: list[CloudProvider | ConfigError] = []

        async def start() -> None:
            await context.settled(scope.get())  # two starts must not run beside one another
            try:
                await guard.call(
                    "start", lambda: self._provider.start(context), seconds=START_SECONDS
                )
                result.append(guarded(self._provider, guard))
            except ConfigError as exc:
                result.append(exc)

        await supervise(
            "cloud-provider", start, backoff=RESTART, on_crash=self._health.flag("cloud-provider")
        )
        (found,) = result
        if isinstance(found, ConfigError):
            raise found
        return found

    async def _close_cloud(self) -> None:
        """Give the provider a little time to release what it has; its faults are no reason."""
        try:
            await Guard(self._faults).call("close", self._provider.close, seconds=CLOSE_SECONDS)
        except CloudError as exc:
            klog.warning(log, "The provider could not be closed", err=exc)

    def _exited(self, name: str, error: Exited) -> None:
        self._faults.tell("task", Kind.RAISED, f"{name}: {error}", cause=error)

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
        if reason := descriptor.why_not(env.settings):
            klog.info(log, "Not started", controller=descriptor.name, reason=reason)
            return

        async def run() -> None:
            controller = self._running[descriptor.name] = descriptor.create(env)
            await controller.run()

        self._controllers.append(self._start(descriptor.name, run))
        metrics.MANAGED_CONTROLLERS.labels(descriptor.name, NAME).set(1)
        klog.info(log, "Started", controller=descriptor.name)

    async def _drain(self) -> None:
        """Take no more work, and give what is under way some time."""
        klog.info(log, "Ending: no more work is taken", seconds=DRAIN_SECONDS)
        for controller in self._running.values():
            controller.stop()
        if self._controllers:
            await asyncio.wait(self._controllers, timeout=DRAIN_SECONDS)


async def unless_stopped(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Await `work` and say True, or cancel it at the stop and say False."""
    task = asyncio.create_task(work)
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
            return True
        return False
    finally:
        for each in (task, stopped):
            each.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _slices(provider: CloudProvider, client: Client) -> Informer[EndpointSlice] | None:
    """EndpointSlices are many and change often: watched only for a provider that needs them."""
    if "endpoint_slices" not in provider.needs:
        return None
    return Informer(client, ENDPOINT_SLICES, indexes={SLICES_BY_SERVICE: service_keys})


def _now() -> datetime:
    return datetime.now(UTC)


def _inventory(provider: CloudProvider, faults: Faults) -> Inventory | None:
    def told(error: CloudError, kind: Kind | None) -> None:
        if kind is None:
            klog.warning(log, "A call for machines failed", err=error)
        else:
            faults.tell("describe", kind, str(error), cause=error.__cause__)

    return Inventory(provider.instances, on_error=told) if provider.instances else None


def _limiter(options: Options) -> AdaptiveBucket | None:
    if options.kube_api_qps <= 0:
        return None
    return AdaptiveBucket.fixed(options.kube_api_qps, max(options.kube_api_burst, 1))


def _settings(options: Options) -> Settings:
    return msgspec.convert(
        {name: getattr(options, name) for name in Settings.__struct_fields__}, Settings
    )
