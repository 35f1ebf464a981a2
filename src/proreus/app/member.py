"""Do the work for one cloud: start its provider, run its controllers, exchange it for another.

Where there are several clouds, each has such a member, so that none waits for another.
"""

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from typing import Any, Final

import msgspec

from proreus.app.caches import Caches, config_maps, needed
from proreus.app.clients import Clients
from proreus.app.cloud import Cloud
from proreus.app.clouds.config import origin_of_member
from proreus.app.clouds.registry import Registry, alone
from proreus.app.clouds.several import flags_of, names_of
from proreus.app.election import Election
from proreus.app.options import Options
from proreus.app.reload import Reloader, origin_of
from proreus.cloudprovider import (
    CloudError,
    CloudProvider,
    ClusterIdentity,
    ConfigError,
    Context,
    Lister,
    Ownership,
)
from proreus.cloudprovider.board import Board
from proreus.containment.failed_calls import FailedCalls
from proreus.containment.faults import Faults, Kind
from proreus.containment.inventory import Inventory
from proreus.controllers.environment import Environment, Runnable
from proreus.controllers.last_ready import LastReady
from proreus.controllers.service.intake import UNDECIDED
from proreus.controllers.settings import Settings
from proreus.controllers.table import Descriptor, Sees
from proreus.kube.errors import KubeError
from proreus.kube.objects import KubeObject, Node, Service
from proreus.kube.watch import Check
from proreus.runtime import klog, metrics
from proreus.runtime.backoff import Backoff
from proreus.runtime.events import EventRecorder
from proreus.runtime.informer import Informer
from proreus.runtime.tasks import supervise

log = klog.logger(__name__)

DRAIN_SECONDS: Final = 20.0
RESTART: Final = Backoff(first=1.0, cap=30.0)
NAME: Final = "cloud-controller-manager"
WRONG_CONFIG_SECONDS: Final = 60.0
"""Seconds until a cloud whose config is wrong is started again, where there are others."""

LOOK_SECONDS: Final = 30.0
"""Seconds for which a cloud waits for its config to be read anew, before it is first started."""

Flag = Callable[[Exception | None], None]


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """The parts that all clouds of a process share; `flag` makes a readiness check by its name.

    `catch_up` waits until the caches hold what former holders of our leases have written; `check`
    raises if another cluster's API server answers.
    """

    options: Options
    settings: Settings
    clients: Clients
    nodes: Informer[Node]
    last_ready: LastReady
    services: Informer[Service]
    caches: Caches
    events: EventRecorder
    election: Election
    flag: Callable[[str], Flag]
    now: Callable[[], datetime]
    catch_up: Callable[[], Awaitable[None]]
    check: Check
    board: Board | None = None
    shared: dict[str, Any] = msgspec.field(default_factory=dict)


class Member:
    """The work for one cloud.

    Attributes:
        name: The cloud's name; "" for the only one.
        running: Its controllers that run, by name.
    """

    def __init__(
        self,
        name: str,
        provider: CloudProvider,
        process: Process,
        *,
        chosen: Sequence[Descriptor],
        registry: Registry | None = None,
    ) -> None:
        """Begin without a started cloud.

        Args:
            name: The cloud's name; "" for the only one.
            provider: The provider to begin with.
            process: The parts that all clouds share.
            chosen: The controllers to run.
            registry: The registry that tells the clouds apart, where there are several.
        """
        self.name = name
        self.running: dict[str, Runnable] = {}
        self._provider = provider
        self._process = process
        self._chosen = chosen
        self._registry = registry
        self._faults = Faults(name or provider.name, process.events.source(NAME))
        self._controllers: list[asyncio.Task[None]] = []
        self._started: set[str] = set()
        self._changing = asyncio.Lock()
        self._environments: Mapping[Sees, Environment] = {}
        self._context: Context | None = None
        self._reloader: Reloader | None = None
        self._cloud = Cloud(
            provider,
            self._faults,
            allow_untagged=process.options.allow_untagged_cloud,
            on_crash=process.flag(self._named("cloud-provider")),
        )

    @property
    def is_started(self) -> bool:
        """Whether the cloud has been started."""
        return bool(self._environments)

    def logged(self) -> AbstractContextManager[None]:
        """Add the cloud's name to lines logged in the body, if there are several clouds."""
        return klog.bound(cloud=self.name) if self.name else nullcontext()

    async def begin(self, cluster: ClusterIdentity) -> None:
        """Start the cloud, then the controllers that may run here.

        Raises:
            ConfigError: The only cloud's config is wrong.
        """
        with self.logged():
            await self._look()
            while True:
                try:
                    context = self._context = await self._new_context(cluster)
                    async with self._changing:
                        cloud = await self._cloud.start(context)
                        self._environments = self._made(cloud, context, {})
                    break
                except ConfigError as exc:
                    if not self.name:
                        raise
                    self._process.flag(self._named("cloud-provider"))(exc)
                    for problem in exc.problems:
                        klog.error(log, "The configuration is wrong", problem=problem)
                    await asyncio.sleep(WRONG_CONFIG_SECONDS)
            await self.start_controllers()

    async def start_controllers(self) -> None:
        """Start the controllers that may run here and do not yet, if the cloud has started."""
        if not self._environments:  # its start is not to be waited for: it may take for ever
            return
        async with self._changing:
            await self._start_controllers()

    async def replace(self, provider: CloudProvider) -> None:
        """Start another provider beside the one in use, and switch the controllers to it.

        Raises:
            CloudError: The other provider does not start; all stays as it was.
            ConfigError: The provider declares to need what the framework does not have.
        """
        if self._context is not None:  # which outlives a provider, with what is known of quotas
            listers = await self._listers(provider)
            self._context.listers = {**self._context.listers, **listers}
        await self._cloud.replace(provider, self._process.nodes.all(), self._change_over)

    def reloader(self) -> Reloader | None:
        """Return the reloader of the cloud-config; None if there is nothing to follow."""
        process = self._process
        options, events = process.options, process.events
        whole, about = origin_of(options, self._provider, process.clients.main, process.check)
        origin = origin_of_member(options, self.name, whole)
        if origin is None:
            return None

        def record(type_: str, reason: str, message: str) -> None:
            text = f"{self.name}: {message}" if self.name else message
            events.source(NAME).event(about, type_, reason, text)

        args = origin, self._provider, self.replace, record
        self._reloader = Reloader(*args, cloud=self.name)
        return self._reloader

    async def _look(self) -> None:
        """Let the config be read anew: it may have changed since this replica has begun to wait."""
        if self._reloader is None:
            return
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._reloader.looked.wait()
        except TimeoutError:
            klog.warning(log, "The cloud-config cannot be read anew; it is used as read last")

    def stop(self) -> None:
        """Let the controllers begin no more work."""
        for controller in self.running.values():
            controller.stop()

    async def drain(self) -> None:
        """Begin no more work, and give running work some time to end."""
        self.stop()
        if self._controllers:
            await asyncio.wait(self._controllers, timeout=DRAIN_SECONDS)

    async def end(self) -> None:
        """Cancel the controllers, and close the cloud."""
        await self._cancel()
        # What is queued there will not be written any more: events need not wait for it.
        self.running.clear()
        await self._cloud.close()

    async def _change_over(self, cloud: CloudProvider) -> None:
        """Let controllers finish running work, and restart them on another cloud."""
        async with self._changing:
            if not self._environments:
                raise RuntimeError("a cloud cannot be replaced before it has been started")
            klog.info(log, "Switching to a new provider", seconds=DRAIN_SECONDS)
            await self.drain()
            await self._cancel()
            for name in self.running:
                metrics.MANAGED_CONTROLLERS.labels(name, NAME).set(0)
            self._controllers.clear()
            self._started.clear()
            self.running.clear()
            former = self._environments[Sees.ALL]
            self._environments = self._made(cloud, former.context, former.heritage)
            await self._start_controllers()

    async def _new_context(self, cluster: ClusterIdentity) -> Context:
        return Context(
            cluster,
            now=self._process.now,
            events=self._process.events.source(NAME),
            listers=await self._listers(self._cloud.provider),
            flags=flags_of(self._provider, self._process.options.provider_flags),
            gate=self._process.election.check,
            cloud=self.name,
            board=self._process.board,
        )

    def _made(
        self, cloud: CloudProvider, context: Context, heritage: dict[str, Any]
    ) -> Mapping[Sees, Environment]:
        """Return the environments of controllers, by the nodes that they are to see."""
        process, registry = self._process, self._registry
        if registry is not None and self.name != UNDECIDED:
            registry.start(self.name, cloud)
        whole = Environment(
            client=process.clients.main,
            provider=cloud if registry is not None else alone(cloud, names_of(self._provider)),
            context=context,
            cluster=context.cluster,
            nodes=process.nodes,
            services=process.services,
            all_services=process.services,
            endpoint_slices=process.caches.slices,
            inventory=None,
            events=process.events,
            now=process.now,
            settings=process.settings,
            last_ready=process.last_ready,
            heritage=heritage,
            shared=process.shared,
            cloud=self.name,
            check=process.check,
        )
        inventory: Inventory | None = None
        found: dict[Sees, Environment] = {}
        for sees in Sees:
            env = whole
            if registry is not None:
                unsure = Ownership.NO if sees is Sees.ALL else Ownership.UNKNOWN
                env = msgspec.structs.replace(
                    whole,
                    provider=cloud
                    if self.name == UNDECIDED
                    else registry.of_member(self.name, cloud, undecided=unsure),
                    nodes=registry.nodes_of(self.name) if sees is Sees.OWN else process.nodes,
                    services=registry.services_of(self.name),
                )
            inventory = inventory or _inventory(env.provider, self._faults)
            found[sees] = msgspec.structs.replace(env, inventory=inventory)
        return found

    async def _start_controllers(self) -> None:
        interval = self._process.options.controller_start_interval
        for descriptor in self._chosen:
            name = descriptor.name
            if name in self._started or not self._process.election.runs(name):
                continue
            await self._process.catch_up()
            if interval and self._started:
                await asyncio.sleep(interval * (1 + random.random()))  # noqa: S311 - Go's jitter
            self._started.add(name)
            self._start_controller(descriptor, self._environments[descriptor.sees])

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

        env = msgspec.structs.replace(env, client=self._process.clients.of(descriptor))

        async def run() -> None:
            informers = [it for it in (env.nodes, env.services, env.endpoint_slices) if it]
            before = [it.handlers for it in informers]
            try:
                try:
                    controller = self.running[descriptor.name] = descriptor.create(env)
                finally:  # one that is half made has handlers, too
                    after = [it.handlers for it in informers]
                await controller.run()
            finally:  # else the caches would go on calling it, and keep it
                for it, old, new in zip(informers, before, after, strict=True):
                    it.unsubscribe(handler for handler in new if handler not in old)

        name = self._named(descriptor.name)
        task = asyncio.create_task(
            supervise(name, run, backoff=RESTART, on_crash=self._process.flag(name)), name=name
        )
        self._controllers.append(task)
        metrics.MANAGED_CONTROLLERS.labels(descriptor.name, NAME).set(1)
        klog.info(log, "Started", controller=descriptor.name)

    async def _listers(self, provider: CloudProvider) -> Mapping[str, Lister[KubeObject]]:
        """Return the caches that a provider declares to need.

        Raises:
            ConfigError: The provider declares to need what the framework does not have.
        """
        process, needs = self._process, provider.needs
        process.caches.need(needs)
        offered: dict[str, Lister[KubeObject] | None] = {
            "nodes": process.nodes,
            "services": process.services,
            **process.caches.offered(),
        }
        for failures in itertools.count():
            try:
                async with process.clients.main.apart() as one:
                    read = await config_maps(one, needs)
                    await process.check(one)
                break
            except KubeError as exc:
                klog.warning(log, "A ConfigMap cannot be read yet", err=exc)
                await asyncio.sleep(RESTART.delay(failures))
        await process.caches.read(needs)
        return needed(provider.name, needs, {**offered, **read})

    def _named(self, what: str) -> str:
        """Return a name that no other cloud's part has."""
        return f"{what}-{self.name}" if self.name else what

    async def _cancel(self) -> None:
        await cancel(self._controllers)


async def cancel(tasks: Collection[asyncio.Task[None]]) -> None:
    """Cancel the tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _inventory(cloud: CloudProvider, faults: Faults) -> Inventory | None:
    def on_error(error: CloudError, kind: Kind) -> None:
        faults.report("describe", kind, str(error))

    if cloud.instances is None:
        return None
    return Inventory(cloud.instances, on_error=on_error, failed_calls=FailedCalls())
