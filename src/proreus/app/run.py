"""Run the command `cloud-controller-manager FLAGS`, and its twin `proreus run FLAGS`."""

from collections.abc import Sequence

from proreus import __version__
from proreus.app import command_line, ending, flags, migration, servers, standby, version, webhooks
from proreus.app.clouds import config as clouds
from proreus.app.command_line import CommandLine
from proreus.app.manager import run
from proreus.app.options import Options, problems
from proreus.app.servers import ServersError
from proreus.cloudprovider import CloudProvider, ConfigError, config_text
from proreus.controllers.table import select
from proreus.kube import config as kubeconfig
from proreus.kube.config import ClientConfig
from proreus.kube.errors import ConfigError as KubeConfigError
from proreus.runtime import klog
from proreus.runtime.collector import for_good

log = klog.logger(__name__)

DESCRIPTION = """\
The Kubernetes cloud-controller-manager: initialises nodes, removes nodes whose machine is gone
and makes load balancers for Services, on the cloud that --cloud-provider names."""


def main(argv: Sequence[str], *, program: str = "proreus run") -> int:
    """Run the manager; return the exit code.

    2 is a wrong command line or configuration, 1 a run that failed, 0 an ordered end.
    """
    try:
        given = _parsed(argv, program)
        options = given.options
        if options.version != "false":
            print(version.raw() if options.version == "raw" else f"{program} {__version__}")
            return 0
        with for_good():
            provider, cluster = _configured(options)
            servers.load(options)
    except flags.FlagError as exc:
        return ending.refused(program, exc.problems, 2)
    klog.setup(
        options.v,
        klog.JSON if options.logging_format == klog.JSON else klog.TEXT,
        vmodule=options.vmodule,
    )
    if given.removed:
        names = " ".join(f"--{name}" for name in given.removed)
        klog.warning(log, "Flags without effect: klog has removed them", flags=names)
    if given.go_runner:
        why = "Flags of go-runner without effect: all lines go to standard error"
        klog.warning(log, why, flags=" ".join(given.go_runner))
    if options.feature_gates:
        gates = " ".join(name for name, _ in options.feature_gates)
        klog.warning(log, "Feature gates have no effect: nothing is behind a gate", gates=gates)
    return ending.run(_run(options, provider, cluster))


def _parsed(args: Sequence[str], program: str) -> CommandLine[Options]:
    """Parse the options, and report problems of single flags and of all together."""
    try:
        return command_line.parse(Options, args, program, DESCRIPTION)
    except flags.FlagError as exc:
        if not isinstance(exc.readable, Options):
            raise
        try:
            _configured(exc.readable)
        except flags.FlagError as more:
            raise exc.with_more(more.problems) from None
        raise


async def _run(options: Options, provider: CloudProvider | None, cluster: ClientConfig) -> int:
    try:
        return await run(options, provider, cluster)
    except ServersError as exc:
        for problem in exc.problems:
            klog.error(log, "Cannot serve", problem=problem)
        return 1


def _configured(options: Options) -> tuple[CloudProvider | None, ClientConfig]:
    """Return the provider (None if its config is in a Secret) and the API client's config.

    Raises:
        FlagError: Flags or configurations are wrong; names every problem of all of them.
    """
    wrong = [
        *problems(options),
        *clouds.problems(options),
        *select(options.controllers)[1],
        *servers.problems(options),
    ]
    provider: CloudProvider | None = None
    cluster: ClientConfig | None = None
    if options.cloud_provider:
        try:
            if options.cloud_config_secret:
                clouds.providers(options.cloud_provider)
                config_text(options.cloud_config)
            else:
                provider = clouds.configured(options)
                wrong.extend(webhooks.enabled(options, provider)[1])
                wrong.extend(standby.problems(options, provider))
        except ConfigError as exc:
            wrong.extend(exc.problems)
    if options.enable_leader_migration:
        try:
            migration.load(options.leader_migration_config)
        except ConfigError as exc:
            wrong.extend(exc.problems)
    try:
        cluster = kubeconfig.load(options.kubeconfig, options.master)
    except KubeConfigError as exc:
        wrong.extend(exc.problems)
    if wrong or cluster is None:
        raise flags.FlagError(wrong)
    return provider, cluster
