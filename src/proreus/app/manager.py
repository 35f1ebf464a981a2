"""Run the manager: serve health, win the lease, lead, end in order.

A standby serves health and waits for the lease; it neither needs the cloud nor holds anything of
it, but for providers that have work for standbys (`standby`). Health is served before all else: a
cloud-config that is still to come, in a Secret, is no reason to be restarted. SIGTERM and SIGINT
let the leader drain, release the lease and end with 0; a second one ends the process at once with
1, as in Go. A lost lease does the same: another replica works.
"""

import asyncio
import logging
import os
import signal
import socket
import uuid
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final

import msgspec

from proreus import __version__
from proreus.app import ending
from proreus.app.clients import USER_AGENT
from proreus.app.clouds import config as clouds
from proreus.app.election import SHARED_IDENTITY, WATCH_BACKOFF, Election, Lock, locks
from proreus.app.leader import Leader, controllers_of
from proreus.app.merging import source_of, with_file
from proreus.app.migration import load
from proreus.app.options import Options
from proreus.app.reload import provider_from_secret
from proreus.app.servers import admission, servers
from proreus.app.standby import StandbyWork
from proreus.app.status.source import Source
from proreus.cloudprovider import CloudProvider
from proreus.controllers.table import Descriptor
from proreus.kube.client import Client
from proreus.kube.config import ClientConfig
from proreus.kube.objects import ObjectMeta
from proreus.kube.requests import LEASES, Resource
from proreus.kube.watch import watch
from proreus.runtime import klog, watchdog
from proreus.runtime.leaderelection import LeaderElector, LeadershipLost
from proreus.runtime.tasks import unless_stopped
from proreus.serving.health import Health

log = klog.logger(__name__)


class _Changed(msgspec.Struct, frozen=True):
    """A Lease of which only the metadata is decoded."""

    metadata: ObjectMeta = ObjectMeta()


LEASE_CHANGES: Final = Resource(
    LEASES.group, LEASES.version, LEASES.plural, LEASES.kind, namespaced=True, type=_Changed
)


async def run(options: Options, given: CloudProvider | None, config: ClientConfig) -> int:
    """Run the manager until it is told to end; return the exit code.

    Args:
        options: The flags.
        given: The provider, or None if its config is to be read from `--cloud-config-secret`.
        config: The way to the API server.

    Raises:
        ServersError: An address, a certificate or a webhook that the flags ask for cannot be
            served.
    """
    stop = asyncio.Event()
    ending.stop_at_signals(stop)
    health = Health()
    health.add("shutdown", lambda: "the process is ending" if stop.is_set() else None)
    klog.info(log, "Starting", version=__version__, cloud_provider=options.cloud_provider)
    state = Source(options.cluster_name)
    async with watchdog.watched(), servers(options, health, config, state):
        provider = given or await _from_secret(options, config, health, stop)
        if provider is None:
            return 0
        async with admission(options, provider, config):
            return await _lead(options, provider, config, (health, state), stop)


async def _from_secret(
    options: Options, config: ClientConfig, health: Health, stop: asyncio.Event
) -> CloudProvider | None:
    """Return the provider once its config in a Secret is valid; None if stopped before."""
    found: list[CloudProvider] = []
    place = options.cloud_config_secret
    problem = f"waits for the cloud-config in {place}"
    health.add("cloud-config-secret", lambda: None if found else problem)

    def make(text: str) -> CloudProvider:
        return clouds.from_text(options, with_file(options, text), source=source_of(options))

    async def read() -> None:
        found.append(await provider_from_secret(make, place, config))

    return found[0] if await unless_stopped(read(), stop) else None


async def _lead(
    options: Options,
    provider: CloudProvider,
    config: ClientConfig,
    shown: tuple[Health, Source],
    stop: asyncio.Event,
) -> int:
    """Lead until `stop` is set, with replicas only once a lease is won; return the exit code."""
    health, state = shown
    chosen = controllers_of(options)
    if not options.leader_elect:
        election = Election()
        leader = Leader(options, provider, config, health, chosen=chosen, election=election)
        leader.show(state)
        return await leader.run(stop)
    async with Client(config, user_agent=f"{USER_AGENT}/leader-election") as client:
        election = _election(options, client, chosen)
        health.add("leaderElection", election.health, live=True)
        async with StandbyWork(options, provider, config, client) as standby:
            leader = Leader(
                options, provider, config, health,
                chosen=chosen, election=election, board=standby.board, electing=client,
            )  # fmt: skip
            return await _elected(leader, election, standby, state, stop)


async def _elected(
    leader: Leader,
    election: Election,
    standby: StandbyWork,
    state: Source,
    stop: asyncio.Event,
) -> int:
    """Work while holding leases, and before that as a standby."""

    def won(lock: Lock, elector: LeaderElector) -> None:
        if not lock.shared:
            leader.record_leadership(lock, elector, "became leader")

    def thawed(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler's
        if problem := election.overdue():
            _end(LeadershipLost(problem))

    # Python runs this before anything else that was under way when the process was frozen.
    signal.signal(signal.SIGCONT, thawed)

    async def campaign_when_prepared() -> None:
        await standby.prepared()
        await election.run(stop, won=won, lost=_end)

    campaign = asyncio.create_task(campaign_when_prepared())
    try:
        if not await unless_stopped(election.entered(), stop):
            return 0
        await standby.end()
        leader.succeed(standby.provider)
        leader.show(state)
        return await leader.run(stop)
    finally:
        signal.signal(signal.SIGCONT, signal.SIG_DFL)  # from here on leases are given back
        campaign.cancel()
        await asyncio.gather(campaign, return_exceptions=True)


def _end(reason: Exception) -> None:
    """End the process at once, since the lease is lost and another replica may lead already."""
    try:
        klog.error(log, "The lease is lost; ending at once", err=reason)
        logging.shutdown()
    finally:  # a signal may have come in the middle of another line, which no stream bears
        os._exit(1)


def _election(options: Options, client: Client, chosen: Sequence[Descriptor]) -> Election:
    identity = f"{socket.gethostname()}_{uuid.uuid4()}"
    namespace = options.leader_elect_resource_namespace
    migration = None
    if options.enable_leader_migration:
        migration = load(options.leader_migration_config)
        for one in chosen:
            if component := migration.elsewhere(one.name):
                reason = f"leader migration gives it to {component}"
                klog.info(log, "Not started", controller=one.name, reason=reason)

    def elector(lock: Lock, deference: Callable[[], float]) -> LeaderElector:
        return LeaderElector(
            client,
            namespace=namespace,
            name=lock.name,
            identity=SHARED_IDENTITY if lock.shared else identity,
            lease_duration=options.leader_elect_lease_duration,
            renew_deadline=options.leader_elect_renew_deadline,
            retry_period=options.leader_elect_retry_period,
            exclusive=not lock.shared,
            deference=deference,
        )

    async def follow(lock: Lock, observe: Callable[[], None]) -> None:
        """Tell the elector that a lease has changed; it reads the lease itself."""

        def failed(error: Exception) -> None:
            klog.warning(log, "The lease cannot be watched", err=error, lease=lock.name)

        async for _ in watch(
            client,
            LEASE_CHANGES,
            namespace,
            field_selector=f"metadata.name={lock.name}",
            backoff=WATCH_BACKOFF.delay,
            on_error=failed,
        ):
            observe()

    return Election(
        locks(
            options.leader_elect_resource_name,
            chosen,
            migration,
            per_controller=options.leader_elect_per_controller,
        ),
        elector=elector,
        follow=follow,
        retry_period=options.leader_elect_retry_period,
    )
