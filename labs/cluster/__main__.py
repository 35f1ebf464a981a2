"""`python -m labs.cluster`: make a cluster, look into it, remove it."""

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path

from labs.cluster import Cluster, ClusterError, Settings, directory_of, find, remove
from labs.cluster.cluster import AGNHOST_IMAGE, NODE, runs
from labs.cluster.demo import Demo
from labs.cluster.machines import GATEWAY
from labs.cluster.manager import start_manager
from labs.cluster.node import load_image
from labs.cluster.programs import (
    CLUSTER_PROGRAMS,
    SPEC_PROGRAMS,
    Programs,
    ensure_programs,
)
from proreus.testing.controlplane import ControlPlaneError

_DONE = """\
The cluster is ready. Run commands on its machines with `{command} exec`, such as:
    {command} exec kubectl get nodes,pods -A -o wide
A server, and a client outside the cluster that asks it:
    {command} exec kubectl create deployment web --image={image} --replicas=2 -- /agnhost netexec
    {command} exec kubectl expose deployment web --type=LoadBalancer --port=80 --target-port=8080
    {command} exec kubectl get service web
    {command} exec --on=client curl http://ADDRESS/hostname
`make cluster-down` removes everything. Files and logs: {directory}"""


def main() -> int:
    """Read the command line and do what it says; answers the exit status."""
    options = _parser().parse_args()
    try:
        status: int = options.do(options)
    except ControlPlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m labs.cluster",
        description="A real Kubernetes cluster in namespaces of this machine; needs root.",
    )
    parser.add_argument("--name", default="default", help="which cluster (default: default)")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    up = verbs.add_parser("up", help="make a cluster and wait until its nodes are ready")
    up.add_argument("--nodes", type=int, default=2, help="how many (default: 2)")
    up.add_argument("--dual-stack", action="store_true", help="IPv6 beside IPv4")
    up.add_argument(
        "--no-manager", action="store_true", help="start no manager: nodes keep their taint"
    )
    up.add_argument("--if-absent", action="store_true", help="do nothing if it runs")
    up.set_defaults(do=_up)
    show = verbs.add_parser(
        "demo", help="make a cluster if there is none, and ask a load balancer of it"
    )
    show.set_defaults(do=_demo)
    verbs.add_parser("down", help="remove the cluster, whatever its state").set_defaults(do=_down)
    status = verbs.add_parser("status", help="tell which programs run; fails if one has ended")
    status.set_defaults(do=_status)
    run = verbs.add_parser("exec", help="run a command on a machine of the cluster")
    run.add_argument("--on", default=GATEWAY, metavar="MACHINE", help="gateway, client, node-1, …")
    run.add_argument("command", nargs=argparse.REMAINDER)
    run.set_defaults(do=_exec)
    load = verbs.add_parser("load", help="give all nodes an archive of images")
    load.add_argument("archive", help="what docker, buildah or podman wrote")
    load.set_defaults(do=_load)
    build = verbs.add_parser("build", help="only build the programs")
    build.add_argument(
        "--specs", action="store_true", help="those that run Kubernetes' own specs, too"
    )
    build.set_defaults(do=_build)
    return parser


def _report(line: str) -> None:
    print(f"cluster: {line}", file=sys.stderr, flush=True)


def _programs() -> Programs:
    return asyncio.run(ensure_programs(report=_report))


def _up(options: argparse.Namespace) -> int:
    settings = Settings(
        name=options.name,
        nodes=options.nodes,
        dual_stack=options.dual_stack,
    )
    programs = _programs()
    if options.if_absent and runs(options.name, programs):
        return 0
    begun = time.monotonic()
    cluster = Cluster(settings, programs, _report)
    cluster.start(None if options.no_manager else start_manager)
    _report(f"ready after {time.monotonic() - begun:.0f} s")
    name = "" if options.name == "default" else f" --name={options.name}"
    print(
        _DONE.format(
            command=f"{sys.executable} -m labs.cluster{name}",
            image=AGNHOST_IMAGE,
            directory=cluster.directory,
        )
    )
    return 0


def _demo(options: argparse.Namespace) -> int:
    programs = _programs()
    if not runs(options.name, programs):
        Cluster(Settings(name=options.name), programs, _report).start(start_manager)
    Demo(options.name, find(options.name, programs), programs).play()
    _report("the cluster stays: make cluster-down removes it")
    return 0


def _down(options: argparse.Namespace) -> int:
    remove(options.name)
    _report("removed")
    return 0


def _status(options: argparse.Namespace) -> int:
    machines = find(options.name, _programs())
    ended = False
    for name, machine in machines.items():
        for program, running in machine.programs().items():
            print(f"{name:10} {program:25} {'runs' if running else 'has ended'}")
            ended = ended or not running
    return int(ended)


def _load(options: argparse.Namespace) -> int:
    for name, machine in find(options.name, _programs()).items():
        if name.startswith(NODE):
            load_image(machine, Path(options.archive).resolve())
    return 0


def _build(options: argparse.Namespace) -> int:
    selected = [*CLUSTER_PROGRAMS, *(SPEC_PROGRAMS if options.specs else ())]
    print(asyncio.run(ensure_programs(selected, report=_report)).built)
    return 0


def _exec(options: argparse.Namespace) -> int:
    programs = _programs()
    machines = find(options.name, programs)
    if options.on not in machines:
        raise ClusterError(f"no machine {options.on}: there are {', '.join(machines)}")
    environ = {
        **os.environ,
        "PATH": f"{programs.built}:{os.environ.get('PATH', os.defpath)}",
        "KUBECONFIG": str(directory_of(options.name) / GATEWAY / "admin.kubeconfig"),
    }
    command = machines[options.on].command(*(options.command or ["sh"]))
    os.execvpe(command[0], command, environ)  # noqa: S606 - the user's own command


if __name__ == "__main__":
    sys.exit(main())
