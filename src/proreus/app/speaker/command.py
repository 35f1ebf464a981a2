"""Run the command `proreus bgp-speaker`."""

import asyncio
import os
from collections.abc import Sequence
from typing import Final

import msgspec
import yaml

from proreus import __version__
from proreus.app import ending, flags
from proreus.app.rights import manifests
from proreus.app.speaker.options import SpeakerOptions
from proreus.app.speaker.rights import ROLE
from proreus.app.speaker.settings import SettingsFile
from proreus.app.speaker.show import show
from proreus.app.speaker.speaker import Speaker
from proreus.cloudprovider import ConfigError
from proreus.kube import config as kubeconfig
from proreus.kube.client import Client
from proreus.kube.clientconfig import ClientConfig
from proreus.kube.errors import ConfigError as KubeConfigError
from proreus.providers.local.bgp.engine import Engine
from proreus.runtime import klog
from proreus.serving.endpoints import open_application
from proreus.serving.health import Health
from proreus.serving.servers import CannotListen, serve

log = klog.logger(__name__)

PROGRAM: Final = "proreus bgp-speaker"
DESCRIPTION: Final = """\
Announces by BGP the addresses of Services that this node serves, through an FRR beside it. Run it
on every node, with the cloud-config of the provider local; it writes nothing to the API server."""
USER_AGENT: Final = f"proreus-bgp-speaker/{__version__}"


def main(argv: Sequence[str]) -> int:
    """Run the command; return 0 after a signal, 1 if it cannot serve, 2 for wrong flags."""
    wrong: list[str] = []
    settings: SettingsFile | None = None
    cluster: ClientConfig | None = None
    try:
        options, _ = flags.parse(SpeakerOptions, argv, PROGRAM, DESCRIPTION)
    except flags.FlagError as exc:
        return ending.refused(PROGRAM, exc.problems, 2)
    if options.roles:
        print(yaml.safe_dump_all(manifests([ROLE]), sort_keys=False), end="")
        return 0
    node = options.node_name or os.environ.get("NODE_NAME", "")
    if not node:
        wrong.append("--node-name: give it, or the environment variable NODE_NAME")
    if not options.cloud_config:
        wrong.append("--cloud-config: give the file with the section bgp")
    try:
        settings = SettingsFile(options.cloud_config) if options.cloud_config else None
    except ConfigError as exc:
        wrong.extend(exc.problems)
    try:
        cluster = kubeconfig.load(options.kubeconfig, options.master)
    except KubeConfigError as exc:
        wrong.extend(exc.problems)
    if wrong or settings is None or cluster is None:
        return ending.refused(PROGRAM, wrong, 2)
    klog.setup(options.v)
    named = msgspec.structs.replace(options, node_name=node)
    work = show(named, settings, cluster) if options.show else _run(named, settings, cluster)
    return ending.run(work)


async def _run(options: SpeakerOptions, settings: SettingsFile, cluster: ClientConfig) -> int:
    stop = asyncio.Event()
    ending.stop_at_signals(stop)
    health = Health()
    health.add("shutdown", lambda: "the process is ending" if stop.is_set() else None)
    klog.info(log, "Starting", version=__version__, node=options.node_name)
    async with Client(cluster, user_agent=USER_AGENT) as client:
        engine = Engine(options.frr_sockets)
        speaker = Speaker(client, options.node_name, settings, engine, health)
        return await _served(options, speaker, health, stop)


async def _served(
    options: SpeakerOptions, speaker: Speaker, health: Health, stop: asyncio.Event
) -> int:
    """Run the speaker, with health and metrics served if asked for."""
    if options.metrics_bind_address == "0":
        await speaker.run(stop, options.period)
        return 0
    host, _, port = options.metrics_bind_address.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    try:
        async with serve(open_application(health), host, int(port), flag="--metrics-bind-address"):
            await speaker.run(stop, options.period)
    except CannotListen as exc:
        klog.error(log, "Cannot serve", problem=str(exc))
        return 1
    return 0
