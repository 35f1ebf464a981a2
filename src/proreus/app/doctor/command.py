"""Run the command `proreus doctor`."""

from collections.abc import Sequence
from typing import Final

from proreus.app import command_line, ending, flags
from proreus.app.clouds import config as clouds
from proreus.app.doctor import report
from proreus.app.doctor.diagnosis import diagnose
from proreus.app.doctor.options import DoctorOptions
from proreus.app.doctor.reading import observe
from proreus.controllers.table import select
from proreus.kube import config as kubeconfig
from proreus.kube.clientconfig import ClientConfig
from proreus.kube.errors import ConfigError, KubeError
from proreus.runtime import klog

PROGRAM: Final = "proreus doctor"
DESCRIPTION: Final = """\
Says why nodes stay tainted and Services stay pending, and what to do. It only reads. With
--cloud-provider and --cloud-config it asks the cloud too. It takes the manager's flags.

Exit code: 0 nothing is wrong, 1 something is, 2 something could not be read."""

COULD_NOT_LOOK: Final = 2


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    try:
        options = command_line.parse(DoctorOptions, argv, PROGRAM, DESCRIPTION).options
        wrong = (*clouds.problems(options), *select(options.controllers)[1])
        if wrong:
            raise flags.FlagError(wrong)
        config = kubeconfig.load(options.kubeconfig, options.master)
    except (flags.FlagError, ConfigError) as exc:
        return ending.refused(PROGRAM, exc.problems, COULD_NOT_LOOK)
    klog.setup(options.v, vmodule=options.vmodule)
    return ending.run(_examine(options, config))


async def _examine(options: DoctorOptions, config: ClientConfig) -> int:
    try:
        observed = await observe(options, config)
    except KubeError as exc:
        return ending.could_not_ask(PROGRAM, exc, COULD_NOT_LOOK)
    diagnosis = diagnose(observed, node=options.node, service=options.service)
    print(report.as_json(diagnosis) if options.json else report.as_text(diagnosis))
    return diagnosis.exit_code
