"""Run the command `proreus plan`."""

from collections.abc import Sequence
from typing import Annotated, Final

from proreus.app import command_line, ending, flags
from proreus.app.clouds import config as clouds
from proreus.app.flag_values import boolean
from proreus.app.flags import Flag
from proreus.app.options import Options, problems
from proreus.app.preview import report
from proreus.app.preview.reading import observe
from proreus.cloudprovider import CloudError
from proreus.controllers.table import select
from proreus.kube import config as kubeconfig
from proreus.kube.clientconfig import ClientConfig
from proreus.kube.errors import ConfigError, KubeError
from proreus.runtime import klog

PROGRAM: Final = "proreus plan"
DESCRIPTION: Final = """\
Shows what the manager would do now to nodes, routes and load balancers, and does none of it. It
takes the manager's flags; the credentials for the API server and the cloud need only read.

Exit code: 0 there is nothing to do, 2 there are changes, 1 something could not be read."""

FAILED: Final = 1


class PlanOptions(Options, frozen=True, kw_only=True):
    """The manager's flags, and how to print."""

    json: Annotated[bool, Flag("plan", "Print JSON.", boolean)] = False


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    try:
        options = command_line.parse(PlanOptions, argv, PROGRAM, DESCRIPTION).options
        wrong = (
            *problems(options),
            *clouds.problems(options),
            *select(options.controllers)[1],
        )
        if wrong:
            raise flags.FlagError(wrong)
        config = kubeconfig.load(options.kubeconfig, options.master)
    except (flags.FlagError, ConfigError) as exc:
        return ending.refused(PROGRAM, exc.problems, FAILED)
    klog.setup(options.v, vmodule=options.vmodule)
    return ending.run(_plan(options, config))


async def _plan(options: PlanOptions, config: ClientConfig) -> int:
    try:
        preview = await observe(options, config)
    except (CloudError, KubeError) as exc:
        return ending.could_not_ask(PROGRAM, exc, FAILED)
    print(report.as_json(preview) if options.json else report.as_text(preview))
    return preview.exit_code
