"""Do the work of the replica that leads: clients, informers, the cloud, the controllers.

When the process is told to stop, no more work is taken, and running work gets `DRAIN_SECONDS`.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from proreus.app.board import LeaseBoard
from proreus.app.caches import Caches
from proreus.app.clients import Clients
from proreus.app.clouds.config import rules_of
from proreus.app.clouds.registry import Registry
from proreus.app.clouds.several import members_of
from proreus.app.clouds.undecided import UndecidedCloud
from proreus.app.cluster_identity import SameCluster, wait_for_identity
from proreus.app.election import Election, Lock
from proreus.app.member import DRAIN_SECONDS, NAME, RESTART, Flag, Member, Process, cancel
from proreus.app.options import Options
from proreus.app.status.source import Source
from proreus.cloudprovider import CloudProvider, ConfigError
from proreus.containment.faults import Faults, Kind
from proreus.containment.holders import of_any
from proreus.controllers.last_ready import following
from proreus.controllers.service.contested import BY_ADDRESS, addresses
from proreus.controllers.service.intake import UNDECIDED
from proreus.controllers.settings import Settings
from proreus.controllers.table import Descriptor, select
from proreus.kube.client import Client
from proreus.kube.config import ClientConfig
from proreus.kube.errors import KubeError
from proreus.kube.requests import LEASES, NODES, SERVICES
from proreus.runtime import klog
from proreus.runtime.bucket import AdaptiveBucket
from proreus.runtime.events import EventRecorder, ObjectReference
from proreus.runtime.informer import Informer
from proreus.runtime.leaderelection import LeaderElector
from proreus.runtime.tasks import Exited, contain_exits, supervise, unless_stopped
from proreus.serving.health import Health

log = klog.logger(__name__)

FLUSH_SECONDS = 2.0


class Leader:
    """The work of a replica that leads.

    It works for all controllers, or for those whose leases it holds.
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
        board: LeaseBoard | None = None,
        electing: Client | None = None,
    ) -> None:
        """Prepare the work; `electing` is the client by which leases are held, if any are."""
        self._options = options
        self._election = election
        self._health = health
        self._clients = Clients(
            config,
            apart=options.use_service_account_credentials,
            limiter=limiter(options),
            gate=election.check,
        )
        self._client = self._clients.main
        # By its connection: while a name is moved, others may lead to another cluster.
        self._electing = electing or self._client
        self._same = SameCluster(self._client)
        self._board = board
        check = self._same.check
        self._nodes = Informer(self._client, NODES, check=check)
        by_address = {BY_ADDRESS: addresses}
        self._services = Informer(self._client, SERVICES, indexes=by_address, check=check)
        self._caches = Caches(self._client, check)
        self._caches.need(provider.needs)
        self._events = EventRecorder(
            self._client, host=socket.gethostname(), busy=self._is_busy, now=now
        )
        self._faults = Faults(provider.name, self._events.source(NAME))
        self._tasks: list[asyncio.Task[None]] = []
        self._flags: dict[str, Flag] = {}
        self._provider = provider
        self._chosen = chosen
        self._process = Process(
            options=options, settings=settings_of(options), clients=self._clients,
            nodes=self._nodes, last_ready=following(self._nodes), services=self._services,
            caches=self._caches, events=self._events, election=election, flag=self._flag,
            now=now, catch_up=self._catch_up, check=check, board=board,
        )  # fmt: skip
        self._members: tuple[Member, ...] = ()
        self._leads = False
        self._leases_known = 0
        self._catching_up = asyncio.Lock()
        health.add("leader-started", self._waits)

    def succeed(self, provider: CloudProvider) -> None:
        """Let `run` begin with this provider: a cloud-config may have changed before it leads."""
        self._provider = provider

    async def run(self, stop: asyncio.Event) -> int:
        """Run the chosen controllers until `stop` is set; return the exit code."""
        contain_exits(asyncio.get_running_loop(), self._exited)
        self._members = _members(self._provider, self._process, self._chosen)
        self._leads = True
        self._leases_known = len(self._election.held)
        async with self._clients:
            self._start("nodes", self._nodes.run)
            self._start("services", self._services.run)
            self._start("events", self._events.run)
            self._caches.start(self._start)
            for member in self._members:
                if (reloader := member.reloader()) is not None:
                    name = f"cloud-config-{member.name}" if member.name else "cloud-config"
                    with member.logged():
                        self._start(name, reloader.run)
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
                await asyncio.gather(*(member.end() for member in self._members))
                for lock, elector in self._election.held:
                    self.record_leadership(lock, elector, "stopped leading")
                await self._events.flush(FLUSH_SECONDS)
                await cancel(self._tasks)
        klog.info(log, "Ended in order")
        return 0

    def show(self, state: Source) -> None:
        """Let the status page show this replica's caches and controllers."""
        state.nodes, state.services = self._nodes, self._services
        state.running = lambda: [
            controller for member in self._members for controller in member.running.values()
        ]

    def _waits(self) -> str | None:
        """Check readiness: return what a leader still waits for; a standby waits for nothing."""
        if not self._leads:
            return None
        caches: tuple[Informer[Any], ...] = (self._nodes, self._services, *self._caches.informers)
        missing = [it.resource.plural for it in caches if not it.synced]
        missing += [
            f"the cloud {member.name}" if member.name else "the cloud"
            for member in self._members
            if not member.is_started
        ]
        return f"waits for {', '.join(missing)}" if missing else None

    def _is_busy(self) -> bool:
        """Tell whether writes are queued that come before events."""
        return any(
            controller.is_busy for member in self._members for controller in member.running.values()
        )

    def _start(self, name: str, factory: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Run something while the manager leads, restarted after a crash."""
        task = asyncio.create_task(
            supervise(name, factory, backoff=RESTART, on_crash=self._flag(name)), name=name
        )
        self._tasks.append(task)
        return task

    def _flag(self, name: str) -> Flag:
        """Return the readiness check of that name, set to well; a restart keeps its check."""
        if name not in self._flags:
            self._flags[name] = self._health.flag(name)
        self._flags[name](None)
        return self._flags[name]

    async def _begin(self) -> None:
        """Read the cluster's identity, start each cloud and its controllers."""
        cluster = await wait_for_identity(self._electing, self._options.cluster_name, RESTART)
        self._same.begin(cluster.uid)
        if self._board is not None:
            self._board.same.begin(cluster.uid)
        starting = asyncio.gather(*(member.begin(cluster) for member in self._members))
        winning = asyncio.create_task(self._follow_leases())
        try:
            await starting
            await winning
        finally:
            winning.cancel()

    async def _follow_leases(self) -> None:
        """Start the controllers whose leases are won later."""
        while True:
            await self._election.news()
            await asyncio.gather(*(member.start_controllers() for member in self._members))

    async def _catch_up(self) -> None:
        """Wait until the caches hold what was written before our last lease was won.

        What they list at first holds that of the leases that were won before. Later ones may have
        been released a moment ago, by who has just written what a watch is still to show.
        """
        failures = 0
        async with self._catching_up:
            while self._leases_known < (won := len(self._election.held)):
                try:
                    await asyncio.gather(self._nodes.catch_up(), self._services.catch_up())
                except KubeError as exc:
                    klog.warning(log, "The caches cannot be compared with what there is", err=exc)
                    await asyncio.sleep(RESTART.delay(failures))
                    failures += 1
                else:
                    self._leases_known = won

    async def replace_cloud(self, provider: CloudProvider, name: str = "") -> None:
        """Start another provider beside the one in use, and switch the cloud's controllers to it.

        Raises:
            CloudError: The other provider does not start; all stays as it was.
        """
        (member,) = (one for one in self._members if one.name == name)
        await member.replace(provider)

    def _exited(self, name: str, error: Exited) -> None:
        self._faults.report("task", Kind.RAISED, f"{name}: {error}", cause=error)

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
        await asyncio.gather(*(member.drain() for member in self._members))


def _members(
    provider: CloudProvider, process: Process, chosen: Sequence[Descriptor]
) -> tuple[Member, ...]:
    """Return the work for each cloud; of several, also what no single one is responsible for."""
    providers = members_of(provider)
    if "" in providers:
        return (Member("", provider, process, chosen=chosen),)
    rules = rules_of(process.options)
    registry = Registry(
        tuple(providers),
        rules,
        process.nodes,
        process.services,
        of_any(one.machine_of for one in providers.values()),
    )
    shared = [one for one in chosen if one.shared(process.settings)]
    undecided = [one for one in chosen if one.undecided]
    own = [one for one in chosen if one not in shared]
    return (
        *(
            Member(name, one, process, chosen=own, registry=registry)
            for name, one in providers.items()
        ),
        Member(
            UNDECIDED,
            UndecidedCloud(registry),
            process,
            chosen=[*undecided, *shared],
            registry=registry,
        ),
    )


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
    values = {name: getattr(options, name) for name in Settings.__struct_fields__}
    values["load_balancer_classes"] = tuple(rules_of(options).classes)
    return msgspec.convert(values, Settings)
