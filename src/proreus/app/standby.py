"""Let providers work on this machine while another replica leads: those with a `standby`.

A standby reads Nodes and Services, and tells the provider which load balancers there are. It
writes nothing to the API server; its client would refuse.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from proreus.app.board import LeaseBoard, lease_name
from proreus.app.caches import Caches
from proreus.app.clients import USER_AGENT
from proreus.app.clouds.config import origin_of_member
from proreus.app.clouds.several import Several, flags_of, members_of
from proreus.app.cluster_identity import SameCluster, wait_for_identity
from proreus.app.leader import settings_of
from proreus.app.member import cancel
from proreus.app.options import Options
from proreus.app.reload import Reloader, origin_of
from proreus.cloudprovider import (
    CloudError,
    CloudProvider,
    ClusterIdentity,
    ConfigError,
    Context,
    InvalidRequest,
    LoadBalancer,
    LoadBalancerRef,
)
from proreus.cloudprovider.desired import desired_load_balancer, load_balancer_ref
from proreus.cloudprovider.standby import Standby
from proreus.controllers.service.hosts import HostSets, candidates
from proreus.controllers.service.intake import (
    classes_of,
    is_to_have,
    nodes_changed,
    noted_cloud,
)
from proreus.kube.client import Client
from proreus.kube.clientconfig import ClientConfig
from proreus.kube.errors import RefusedByGate
from proreus.kube.objects import KubeObject, Node, Service
from proreus.kube.requests import NODES, SERVICES
from proreus.kube.watch import Check
from proreus.runtime import klog
from proreus.runtime.backoff import Backoff
from proreus.runtime.informer import Informer
from proreus.runtime.tasks import supervise

log = klog.logger(__name__)

RETRY: Final = Backoff(first=0.5, cap=10.0)
PATIENCE: Final = 30.0
"""Seconds for which a replica does not compete for the lease before it is ready."""
QUIET_SECONDS: Final = 0.1
"""Seconds without a look at changes, so that those that come together are one."""


def standbys(provider: CloudProvider) -> Mapping[str, CloudProvider]:
    """Return the providers that work while another replica leads, by the names of their clouds."""
    return {name: one for name, one in members_of(provider).items() if one.standby is not None}


class _View(NamedTuple):
    """What a standby sees of the cluster."""

    cluster: ClusterIdentity
    nodes: Informer[Node]
    services: Informer[Service]
    caches: Caches
    check: Check


class _Asked(NamedTuple):
    """What the Services of one cloud ask for: what can be, and whose wishes cannot be met."""

    desired: list[LoadBalancer]
    refused: list[LoadBalancerRef]


class _Cloud:
    """One cloud's provider at work in this replica, until another takes its place."""

    def __init__(self, name: str, provider: CloudProvider) -> None:
        self.name = name
        self.provider = provider
        self._has_begun = False
        self._turn = asyncio.Lock()

    async def mirror(
        self,
        context: Callable[["_Cloud"], Awaitable[Context]],
        asked: Callable[[str, Standby], "_Asked"],
    ) -> None:
        """Begin if need be, and make the machine ready for the desired load balancers.

        Raises:
            CloudError: A part of the work is left to do.
            ConfigError: The config is wrong.
        """
        async with self._turn:
            standby = self.provider.standby
            if standby is None:  # the cloud-config has been changed so
                return
            if not self._has_begun:
                await standby.begin(await context(self))
                self._has_begun = True
            await standby.mirror(*asked(self.name, standby))

    async def replace(self, provider: CloudProvider, context: Context) -> None:
        """Let another provider begin, then end the one in use.

        Raises:
            CloudError: The other provider cannot begin; all stays as it was.
            ConfigError: The other provider's config is wrong; all stays as it was.
        """
        async with self._turn:
            try:
                if provider.standby is not None:
                    await provider.standby.begin(context)
            except BaseException:
                await provider.close()
                raise
            old, was_at_work = self.provider, self._has_begun
            self.provider, self._has_begun = provider, True
            try:
                if was_at_work and old.standby is not None:
                    await old.standby.end()
            finally:
                await old.close()

    async def end(self) -> None:
        """End the work, if it has begun."""
        if self._has_begun and self.provider.standby is not None:
            await self.provider.standby.end()
        self._has_begun = False


def problems(options: Options, provider: CloudProvider) -> tuple[str, ...]:
    """Return which flags do not go with providers of which one replica has to lead."""
    found = [one for one in members_of(provider).values() if one.one_leads or one.standby]
    if options.leader_elect_per_controller and found:
        problem = (
            f"--leader-elect-per-controller: the cloud-config of {found[0].name} has replicas work"
            " on their own machines (gateway), for which one has to lead: leave one of the two out"
        )
        return (problem,)
    return ()


class _Silent:
    """A receiver of events that drops them: the leader tells what happens to objects."""

    def event(self, obj: KubeObject, type_: str, reason: str, message: str, /) -> None:
        """Drop an event."""


class StandbyWork:
    """The work of a replica while it does not lead, for the providers that have any.

    Use it in `async with`, which ends the work but keeps the board while this replica leads.

    Attributes:
        board: The board of all replicas; None if no provider has work for a standby.
    """

    def __init__(
        self,
        options: Options,
        provider: CloudProvider,
        config: ClientConfig,
        electing: Client,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Prepare; nothing is read yet.

        Args:
            options: The flags.
            provider: The provider, which is not started.
            config: The way to the API server.
            electing: The client of the leader election, which may write leases at any time.
            now: The wall-clock time in UTC.
        """
        self.board: LeaseBoard | None = None
        self._options = options
        self._provider = provider
        self._clouds = [_Cloud(name, one) for name, one in standbys(provider).items()]
        self._electing = electing
        self._config = config
        self._now = now
        self._hosts = HostSets()
        self._news = asyncio.Event()
        self._ready = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        if self._clouds:
            place = options.leader_elect_resource_namespace
            name = lease_name(options.leader_elect_resource_name)
            self.board = LeaseBoard(electing, place, name)

    async def __aenter__(self) -> Self:
        """Begin to follow the board, and to work."""
        if self.board is not None:
            self._start("board", self.board.run)
            self._start("standby", self._run)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End, and let the providers take leave of other replicas."""
        has_led = "standby" not in self._tasks  # then it has closed them
        await self.end()
        await cancel(self._tasks.values())
        for one in () if has_led else self._clouds:
            await one.provider.close()

    @property
    def provider(self) -> CloudProvider:
        """The provider to lead with: of each cloud the one at work here, by its newest config."""
        current = {one.name: one.provider for one in self._clouds}
        members = members_of(self._provider)
        if all(members[name] is one for name, one in current.items()):
            return self._provider
        if isinstance(self._provider, Several):
            return Several({**members, **current})
        return current[""]

    async def prepared(self) -> None:
        """Wait until the providers are ready to take over, but not for long: somebody must lead."""
        if self._clouds:
            with suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await self._ready.wait()

    async def end(self) -> None:
        """End the work, for this replica leads from now on; the board stays."""
        if (task := self._tasks.pop("standby", None)) is not None:
            await cancel([task])

    def _start(self, name: str, factory: Callable[[], Awaitable[None]]) -> None:
        self._tasks[name] = _supervised(name, factory)

    async def _run(self) -> None:
        """Follow nodes and Services, and mirror them, until cancelled."""
        agent = f"{USER_AGENT}/standby"
        async with Client(self._config, user_agent=agent, gate=_refuse) as client:
            check = (same := SameCluster(client)).check
            nodes = Informer(client, NODES, check=check)
            services = Informer(client, SERVICES, check=check)
            caches = Caches(client, check)
            nodes.subscribe(self._node_changed)
            services.subscribe(self._service_changed)
            beside = [
                _supervised("standby-nodes", nodes.run),
                _supervised("standby-services", services.run),
            ]
            caches.start(lambda name, run: beside.append(_supervised(f"standby-{name}", run)))
            try:
                name = self._options.cluster_name
                cluster = await wait_for_identity(self._electing, name, RETRY)
                same.begin(cluster.uid)
                if self.board is not None:
                    self.board.same.begin(cluster.uid)
                await nodes.wait_synced()
                await services.wait_synced()
                view = _View(cluster, nodes, services, caches, check)
                reloaders = [self._reloader(one, view, client) for one in self._clouds]
                beside.extend(
                    _supervised("standby-cloud-config", one.run) for one in reloaders if one
                )
                await self._follow(view)
            finally:
                await cancel(beside)
                for cloud in self._clouds:
                    await cloud.end()

    async def _follow(self, view: _View) -> None:
        failures = 0
        while True:
            self._news.clear()
            try:
                for cloud in self._clouds:
                    await cloud.mirror(
                        lambda one: self._context(view, one.name, one.provider),
                        lambda name, standby: self._asked(view, name, standby),
                    )
            except (CloudError, ConfigError) as error:
                delay = RETRY.delay(failures)
                failures += 1
                klog.warning(
                    log, "This machine is not ready to take over", err=error, retry_seconds=delay
                )
                await asyncio.sleep(delay)
                continue
            failures = 0
            self._ready.set()
            await self._news.wait()
            await asyncio.sleep(QUIET_SECONDS)

    def _reloader(self, cloud: _Cloud, view: _View, client: Client) -> Reloader | None:
        """Return the reloader of the cloud-config, as the leader has; None if there is none."""
        whole, _ = origin_of(self._options, self._provider, client, view.check)
        origin = origin_of_member(self._options, cloud.name, whole)
        if origin is None:
            return None

        async def replace(provider: CloudProvider) -> None:
            await cloud.replace(provider, await self._context(view, cloud.name, provider))
            self._news.set()

        return Reloader(origin, cloud.provider, replace, _record_nothing, cloud=cloud.name)

    async def _context(self, view: _View, name: str, provider: CloudProvider) -> Context:
        view.caches.need(provider.needs)
        await view.caches.read(provider.needs)
        offered: Mapping[str, Any] = {
            "nodes": view.nodes,
            "services": view.services,
            **view.caches.offered(),
        }
        return Context(
            view.cluster,
            now=self._now,
            events=_Silent(),
            listers={one: offered[one] for one in provider.needs & offered.keys()},
            flags=flags_of(provider, self._options.provider_flags),
            board=self.board,
            cloud=name,
        )

    def _asked(self, view: _View, name: str, standby: Standby) -> _Asked:
        """Return the load balancers that have an address, of the Services that are ours."""
        found = _Asked([], [])
        for service in self._served(view, name):
            try:
                lb = desired_load_balancer(
                    service,
                    candidates(view.nodes.all(), standby.owns),
                    standby.host_policy(service),
                    view.cluster,
                    select=self._hosts.select,
                )
            except InvalidRequest as error:
                klog.v(log, 2, "A Service asks for the impossible", err=error)
                found.refused.append(load_balancer_ref(service, view.cluster))
            else:
                found.desired.append(lb)
        return found

    def _served(self, view: _View, name: str) -> Iterator[Service]:
        """Yield the Services of a cloud that have an address."""
        classes = classes_of(settings_of(self._options), cloud=name)
        for service in view.services.all():
            if (
                is_to_have(service, classes)
                and service.status.load_balancer.ingress
                and noted_cloud(service) in {name, ""}
            ):
                yield service

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        if nodes_changed(old, new):
            self._hosts.changed()
            self._news.set()

    def _service_changed(self, old: Service | None, new: Service | None) -> None:
        if old is None or new is None or _read_of(old) != _read_of(new):
            self._news.set()


def _read_of(service: Service) -> tuple[object, ...]:
    """Return the fields of a Service that its desired load balancer is made from."""
    meta = service.metadata
    addresses = service.status.load_balancer.ingress
    return service.spec, meta.annotations, meta.deletion_timestamp, addresses


def _supervised(name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
    return asyncio.create_task(supervise(name, work, backoff=RETRY, on_crash=_ignore), name=name)


def _record_nothing(type_: str, reason: str, message: str) -> None:
    """Record no event: the leader tells of the same cloud-config, and this is in the log."""


def _ignore(error: Exception | None) -> None:
    """Ignore a crash: it is logged and counted, and a standby is no less ready to lead."""


def _refuse() -> None:
    raise RefusedByGate("a standby writes nothing")
