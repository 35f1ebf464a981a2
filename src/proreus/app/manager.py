"""The process: serve health, win the lease, lead, end in order.

A standby serves health and waits for the lease; it neither needs the cloud nor holds anything
of it. SIGTERM and SIGINT let the leader drain, release the lease and end with 0. A lost lease
ends the process at once with 1: another replica works.
"""

import asyncio
import logging
import os
import signal
import socket
import uuid

from proreus import __version__
from proreus.app.leader import USER_AGENT, Leader, unless_stopped
from proreus.app.options import Options
from proreus.cloudprovider import CloudProvider
from proreus.kube.client import Client
from proreus.kube.config import ClientConfig
from proreus.runtime import klog, serving, watchdog
from proreus.runtime.health import Health
from proreus.runtime.leaderelection import LeaderElector

log = klog.logger(__name__)


async def run(options: Options, provider: CloudProvider, config: ClientConfig) -> int:
    """Run the manager until it is told to end; returns the exit code."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    health = Health()
    host, _, port = options.metrics_bind_address.rpartition(":")
    klog.info(log, "Starting", version=__version__, cloud_provider=provider.name)
    served = serving.serve(serving.app(health), host or "127.0.0.1", int(port))
    async with watchdog.watched(), served:
        if not options.leader_elect:
            return await Leader(options, provider, config, health).run(stop)
        async with Client(config, user_agent=f"{USER_AGENT}/leader-election") as client:
            elector = _elector(options, client)
            health.add("leaderElection", elector.health, live=True)
            leader = Leader(options, provider, config, health, gate=elector.check)
            return await _elected(leader, elector, stop)


async def _elected(leader: Leader, elector: LeaderElector, stop: asyncio.Event) -> int:
    """Work while holding the lease."""
    if not await unless_stopped(elector.acquire(), stop):
        return 0
    hold = asyncio.create_task(elector.hold())
    work = asyncio.create_task(leader.run(stop))
    await asyncio.wait({hold, work}, return_when=asyncio.FIRST_COMPLETED)
    if hold.done():
        klog.error(log, "The lease is lost; ending at once", err=hold.exception())
        logging.shutdown()
        os._exit(1)
    hold.cancel()
    await asyncio.gather(hold, return_exceptions=True)
    return await work


def _elector(options: Options, client: Client) -> LeaderElector:
    return LeaderElector(
        client,
        namespace=options.leader_elect_resource_namespace,
        name=options.leader_elect_resource_name,
        identity=f"{socket.gethostname()}_{uuid.uuid4()}",
        lease_duration=options.leader_elect_lease_duration,
        renew_deadline=options.leader_elect_renew_deadline,
        retry_period=options.leader_elect_retry_period,
    )
