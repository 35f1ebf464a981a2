"""Run the command line: find the command, and import only what it needs."""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from proreus import __version__
from proreus.runtime.collector import for_good

USAGE = f"""\
Proreus, the Kubernetes cloud-controller-manager in Python.

usage: proreus COMMAND [flags]

commands:
  run            run the manager; takes the flags of cloud-controller-manager
  plan           show what the manager would do now, and do none of it
  doctor         say why nodes stay tainted and Services stay pending
  status         show the state of nodes, Services and routes
  clusters       name the clusters that the cloud knows, and their control planes
  bgp-speaker    announce the addresses of Services from this node, by BGP
  roles          print the roles that the manager needs with the flags given
  demo           show the manager at work on a real API server and a simulated cloud
  new-provider   write the skeleton of a cloud provider's package
  version        print the version ({__version__})

"proreus run --help" lists the flags."""

COMMANDS: Final[Mapping[str, str]] = {
    "run": "proreus.app.run",
    "doctor": "proreus.app.doctor.command",
    "plan": "proreus.app.preview.command",
    "status": "proreus.app.status.command",
    "clusters": "proreus.app.clusters",
    "bgp-speaker": "proreus.app.speaker.command",
    "roles": "proreus.app.roles",
    "demo": "proreus.testing.demo.command",
    "new-provider": "proreus.app.new_provider",
}
"""The modules of the commands, each with a function `main`."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command `proreus`."""
    args = list(sys.argv[1:] if argv is None else argv)
    command = args[0] if args else "--help"
    if command in COMMANDS:
        return _run(command, args[1:])
    if command in {"version", "--version"}:
        print(f"proreus {__version__}")
        return 0
    if command in {"help", "-h", "--help"}:
        print(USAGE)
        return 0
    print(f"proreus: unknown command {command!r}\n\n{USAGE}", file=sys.stderr)
    return 2


def cloud_controller_manager(argv: Sequence[str] | None = None) -> int:
    """Run the command `cloud-controller-manager`."""
    args = sys.argv[1:] if argv is None else argv
    return _run("run", args, program="cloud-controller-manager")


def _run(command: str, args: Sequence[str], **more: Any) -> int:
    with for_good():
        module = import_module(COMMANDS[command])
    code: int = module.main(args, **more)
    return code
