"""Run the command `proreus status`."""

import asyncio
import shutil
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec

from proreus.app import ending, flags, printed, readonly
from proreus.app.flag_values import above, boolean, duration
from proreus.app.flags import Flag
from proreus.app.status import source, speakers, text
from proreus.app.status.summary import Summary, summarise
from proreus.cloudprovider import ConfigError as CloudConfigError
from proreus.cloudprovider import config_text
from proreus.cloudprovider.config import read as read_config
from proreus.kube import config as kubeconfig
from proreus.kube.client import Client
from proreus.kube.clientconfig import ClientConfig
from proreus.kube.errors import ConfigError, KubeError
from proreus.kube.requests import NODES, SERVICES, Request
from proreus.providers.local.addresses import Pool
from proreus.providers.local.config import LocalConfig
from proreus.runtime.informer import Informer

PROGRAM: Final = "proreus status"
DESCRIPTION: Final = """\
Shows the state of nodes, Services and routes, again and again in a terminal. With --url it asks a
manager that runs with --status-page, which also knows of deletions, cloud calls and leaks."""
CLEAR: Final = "\x1b[H\x1b[2J"
USER_AGENT: Final = "proreus-status"
ENDED: Final = 130
"""The exit code after Ctrl-C, as in shells."""

Observe = Callable[[], Awaitable[Summary]]


class StatusOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The flags of `proreus status`."""

    kubeconfig: Annotated[
        str, Flag("status", "Kubeconfig file for the API server; without it, in-cluster.")
    ] = ""
    master: Annotated[
        str, Flag("status", "URL of the API server, instead of the kubeconfig's.")
    ] = ""
    url: Annotated[
        str,
        Flag(
            "status",
            "URL of a manager, such as https://10.0.0.5:10258; it gets your credentials.",
        ),
    ] = ""
    insecure_skip_tls_verify: Annotated[
        bool, Flag("status", "Do not check the manager's certificate.", boolean)
    ] = False
    lease_namespace: Annotated[str, Flag("status", "Namespace of the manager's leases.")] = (
        "kube-system"
    )
    lease_name: Annotated[str, Flag("status", "Prefix of the names of the manager's leases.")] = (
        "cloud-controller-manager"
    )
    cloud_config: Annotated[
        str,
        Flag(
            "status",
            "The cloud-config of the provider local: only addresses of its pools are announced.",
        ),
    ] = ""
    interval: Annotated[
        float, Flag("status", "Time between two refreshes.", duration, above(0))
    ] = 2.0
    once: Annotated[bool, Flag("status", "Show the state once.", boolean)] = False
    all: Annotated[bool, Flag("status", "Show also nodes and Services that are well.", boolean)] = (
        False
    )
    json: Annotated[bool, Flag("status", "Show the state once, as JSON.", boolean)] = False


def main(argv: Sequence[str]) -> int:
    """Run the command; return 0, 1 if nothing could be read, or 2 for wrong flags."""
    try:
        options, _ = flags.parse(StatusOptions, argv, PROGRAM, DESCRIPTION)
        config = kubeconfig.load(options.kubeconfig, options.url or options.master)
        pools = _pools(options.cloud_config)
    except (flags.FlagError, ConfigError, CloudConfigError) as exc:
        return ending.refused(PROGRAM, exc.problems, 2)
    if options.url and options.insecure_skip_tls_verify:
        config = msgspec.structs.replace(config, insecure_skip_tls_verify=True, ca=None)
    try:
        return ending.run(_show(options, config, pools))
    except KeyboardInterrupt:
        return ENDED


def _pools(path: str) -> Sequence[Pool] | None:
    """Return the pools of a cloud-config of `local`; None without one.

    Raises:
        CloudConfigError: The cloud-config is missing or wrong.
    """
    if not path:
        return None
    return read_config(config_text(path), LocalConfig, source=path).address_pools


async def _show(options: StatusOptions, config: ClientConfig, pools: Sequence[Pool] | None) -> int:
    once = options.once or options.json or not sys.stdout.isatty()
    async with AsyncExitStack() as stack:
        try:
            observe = await _observer(options, config, pools, stack, once=once)
            while True:
                _print(await observe(), options, once=once)
                if once:
                    return 0
                await asyncio.sleep(options.interval)
        except KubeError as exc:
            problem = f"the request to {config.server} failed: {exc}"
            return ending.refused(PROGRAM, (problem,), 1)


async def _observer(
    options: StatusOptions,
    config: ClientConfig,
    pools: Sequence[Pool] | None,
    stack: AsyncExitStack,
    *,
    once: bool,
) -> Observe:
    client = await stack.enter_async_context(readonly.client(config, USER_AGENT))
    if options.url:
        return lambda: client.send(Request("GET", "/status.json"), Summary)
    if once:
        return lambda: _listed(client, options, pools)
    nodes, services = Informer(client, NODES), Informer(client, SERVICES)
    for informer in (nodes, services):
        task = asyncio.create_task(informer.run())
        stack.callback(task.cancel)
    await nodes.wait_synced()
    await services.wait_synced()

    async def observe() -> Summary:
        leases, gateways = await source.replicas(
            client, options.lease_namespace, options.lease_name
        )
        return summarise(
            nodes.all(),
            services.all(),
            datetime.now(UTC),
            cluster=config.server,
            leases=leases,
            gateways=gateways,
            speakers=await speakers.read(client, nodes.all(), services.all(), pools),
        )

    return observe


async def _listed(client: Client, options: StatusOptions, pools: Sequence[Pool] | None) -> Summary:
    nodes = (await client.list(NODES)).items
    services = (await client.list(SERVICES)).items
    leases, gateways = await source.replicas(client, options.lease_namespace, options.lease_name)
    return summarise(
        nodes,
        services,
        datetime.now(UTC),
        leases=leases,
        gateways=gateways,
        speakers=await speakers.read(client, nodes, services, pools),
    )


def _print(summary: Summary, options: StatusOptions, *, once: bool) -> None:
    if options.json:
        print(printed.json(summary))
        return
    size = shutil.get_terminal_size((160, 40))
    rows = sys.maxsize if once else max(5, size.lines // 3)
    shown = text.render(
        summary,
        width=sys.maxsize if once else size.columns,
        rows=min(rows, 50),
        everything=options.all,
    )
    print(shown if once else CLEAR + shown, end="", flush=True)
