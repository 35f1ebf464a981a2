"""Run the command `proreus clusters`: print what a provider's capability `clusters` answers."""

from collections.abc import Sequence
from typing import Final

import msgspec

from proreus.app import command_line, ending, flags, printed, readonly
from proreus.app.clouds.config import problems as wrong_clouds
from proreus.app.clouds.several import flags_of, members_of
from proreus.app.cluster_identity import read_identity
from proreus.app.options import Options, problems
from proreus.cloudprovider import CloudError, InvalidRequest
from proreus.cloudprovider import ConfigError as CloudConfigError
from proreus.kube import config as kubeconfig
from proreus.kube.clientconfig import ClientConfig
from proreus.kube.errors import ConfigError, KubeError
from proreus.runtime import klog

PROGRAM: Final = "proreus clusters"
USAGE: Final = f"{PROGRAM} list|master NAME"
DESCRIPTION: Final = """\
Names the clusters that the cloud knows, a line for each (list), or the address of a cluster's
control plane (master NAME). It only reads, and takes the manager's flags.

Exit code: 0 the cloud has answered, 1 cloud or cluster could not be read, 2 flags
or cloud-config are wrong, or the provider lacks Clusters."""
USER_AGENT: Final = "proreus-clusters"

FAILED: Final = 1
REFUSED: Final = 2
_HELP: Final = frozenset({"-h", "--help"})


class Question(msgspec.Struct, frozen=True):
    """What to print: the control plane of the cluster `master`, or the names of all if None."""

    master: str | None


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    try:
        question, rest = _question(argv)
        options = command_line.parse(Options, rest, USAGE, DESCRIPTION).options
        wrong = (*problems(options), *wrong_clouds(options))
        if wrong:
            raise flags.FlagError(wrong)
        config = kubeconfig.load(options.kubeconfig, options.master)
    except (flags.FlagError, ConfigError) as exc:
        return ending.refused(PROGRAM, exc.problems, REFUSED)
    klog.setup(options.v, vmodule=options.vmodule)
    return ending.run(_print(question, options, config))


def _question(argv: Sequence[str]) -> tuple[Question, Sequence[str]]:
    """Return the question and the flags.

    Raises:
        FlagError: The arguments are neither of the two questions.
    """
    match argv:
        case [flag, *_] if flag in _HELP:
            return Question(None), argv
        case ["list", *rest]:
            return Question(None), rest
        case ["master", flag, *_] if flag in _HELP:
            return Question(None), argv[1:]
        case ["master", name, *rest] if name and not name.startswith("-"):
            return Question(name), rest
        case ["master", *_]:
            raise flags.FlagError((f"the cluster's NAME is missing after master: {USAGE} [flags]",))
        case _:
            raise flags.FlagError((f"must begin with list, or with master NAME: {USAGE} [flags]",))


async def _print(question: Question, options: Options, config: ClientConfig) -> int:
    try:
        lines = await _answers(question, options, config)
    except CloudConfigError as exc:
        return ending.refused(PROGRAM, exc.problems, REFUSED)
    except (CloudError, KubeError) as exc:
        return ending.could_not_ask(PROGRAM, exc, FAILED)
    for line in lines:
        print(printed.line(line))
    return 0


async def _answers(question: Question, options: Options, config: ClientConfig) -> Sequence[str]:
    async with readonly.client(config, USER_AGENT) as client:
        provider = await readonly.configured(options, client)
        cluster = await read_identity(client, options.cluster_name)
        listers = await readonly.listed(client, provider.needs)
        found: list[str] = []
        lacking: list[str] = []
        unknown: InvalidRequest | None = None
        clouds = members_of(provider).values()
        for one in clouds:
            given = flags_of(one, options.provider_flags)
            async with readonly.started(one, cluster, listers, flags=given) as cloud:
                if cloud.clusters is None:
                    lacking.append(one.name)
                elif question.master is None:
                    found += await cloud.clusters.list()
                else:
                    try:
                        return [await cloud.clusters.master(question.master)]
                    except InvalidRequest as exc:  # another cloud may know it
                        unknown = exc
        if len(lacking) == len(clouds):
            problem = f"--cloud-provider: {' and '.join(lacking)} lacks the capability Clusters"
            raise CloudConfigError((problem,))
        if unknown is not None:
            raise unknown
        return found
