"""Kubernetes' own specs on a cluster: `python -m labs.cluster.e2e`.

The specs run on the client, which is in another network than the nodes, since some of them look
at the addresses that requests come from. They leave a JUnit file, the log and a table.
https://git.k8s.io/community/contributors/devel/sig-testing/e2e-tests.md
"""

import argparse
import asyncio
import datetime as dt
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec

from labs.cluster.chaos import TAINT, Breakage, breaking, judge, report
from labs.cluster.cluster import (
    AGNHOST_IMAGE,
    CLIENT,
    NODE,
    Cluster,
    Settings,
    directory_of,
    find,
    remove,
)
from labs.cluster.errors import ClusterError
from labs.cluster.gateways import GATEWAYS, start_gateways
from labs.cluster.machines import GATEWAY, Machine, member
from labs.cluster.programs import CLUSTER_PROGRAMS, SPEC_PROGRAMS, Programs, ensure_programs
from proreus.testing.controlplane import ControlPlaneError

LOAD_BALANCERS = 17
"""How many specs of load balancers Kubernetes 1.36 has."""

FOCUS = {
    "load-balancers": r"\[sig-network\] LoadBalancers",
    "services": r"\[sig-network\] Services.*\[Conformance\]",
}
"""Sets of specs, by name: what a cloud must do, and what shows that the cluster is sound."""

_CHAOS = "chaos"
_HOURS = "3h"
_ENDED = re.compile(r"\S+ \[(?:([A-Z]+)\] \[)?([0-9.]+) seconds\]")
"""The line before the name of a spec that ended: "• [7.5 seconds]", "• [FAILED] [7.5 seconds]"."""


class Spec(msgspec.Struct, frozen=True):
    """A spec of Kubernetes that ran, with its result."""

    name: str
    seconds: float
    failure: str
    """The first line of why it failed, "" if it passed."""


def main() -> int:
    """Read the command line and run specs; answers the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m labs.cluster.e2e",
        description="Run Kubernetes' own specs on a cluster that runs.",
    )
    parser.add_argument("--name", default="default", help="which cluster (default: default)")
    parser.add_argument(
        "--specs",
        choices=FOCUS,
        default="load-balancers",
        help="which specs (default: load-balancers)",
    )
    parser.add_argument("--focus", help="a regular expression of names, instead of --specs")
    parser.add_argument("--skip", help="a regular expression of names to leave out")
    parser.add_argument(
        "--processes", type=int, help="specs at once (default: 6; 3 with --chaos, to last longer)"
    )
    parser.add_argument("--results", type=Path, default=Path("e2e-results"), metavar="DIRECTORY")
    parser.add_argument(
        "--chaos", action="store_true", help="on a cluster of its own that breaks all the time"
    )
    parser.add_argument(
        "--vrrp", action="store_true", help="its gateways notice one another by VRRP (keepalived)"
    )
    options = parser.parse_args()
    options.processes = options.processes or (3 if options.chaos else 6)
    try:
        programs = asyncio.run(ensure_programs([*CLUSTER_PROGRAMS, *SPEC_PROGRAMS], report=_report))
        if options.chaos:
            return _run_while_it_breaks(options, programs)
        machines = find(options.name, programs)
        nodes = sum(1 for name in machines if name.startswith(NODE))
        return _run(options, programs, machines[CLIENT], nodes)
    except ControlPlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _run_while_it_breaks(options: argparse.Namespace, programs: Programs) -> int:
    """Make a cluster of two gateways, two nodes and one that comes and goes; run specs on it."""
    options.name = _CHAOS
    results = options.results.resolve()
    results.mkdir(parents=True, exist_ok=True)
    remove(_CHAOS)
    cluster = Cluster(Settings(name=_CHAOS, nodes=3, routes=False), programs, _report)
    try:
        cluster.start(partial(start_gateways, vrrp=options.vrrp))
        *_, node = cluster.nodes
        cluster.plane.kubectl("taint", "node", node.name, TAINT)
        breakage = Breakage(cluster, node, _report)
        with breaking(breakage):
            status = _run(options, programs, member(cluster.gateway, CLIENT), nodes=2)
        log = (results / "e2e.log").read_text(errors="replace")
        verdict = judge(breakage.done, log, dt.datetime.now().astimezone().year)
        (results / "chaos.md").write_text(report(breakage.done, verdict))
        print(report(breakage.done, verdict))
    finally:
        for name in GATEWAYS:
            kept = directory_of(_CHAOS) / name / "manager.log"
            if kept.exists():
                shutil.copy(kept, results / f"{name}.log")
        remove(_CHAOS)
    return status


def _run(options: argparse.Namespace, programs: Programs, client: Machine, nodes: int) -> int:
    results = options.results.resolve()
    results.mkdir(parents=True, exist_ok=True)
    junit = results / "junit.xml"
    junit.unlink(missing_ok=True)
    repositories = results / "images.yaml"
    repositories.write_text(f"promoterE2eRegistry: {AGNHOST_IMAGE.rpartition('/')[0]}\n")
    command = [
        *("env", f"KUBE_TEST_REPO_LIST={repositories}"),
        f"PATH={programs.built}:{os.environ.get('PATH', os.defpath)}",
        programs.path("ginkgo"),
        *(f"--procs={options.processes}", f"--focus={options.focus or FOCUS[options.specs]}"),
        *([f"--skip={options.skip}"] if options.skip else []),
        *("--no-color", "-v", f"--timeout={_HOURS}", f"--output-dir={results}"),
        f"--junit-report={junit.name}",
        *(programs.path("e2e.test"), "--", "--provider=local", f"--num-nodes={nodes}"),
        f"--kubeconfig={directory_of(options.name) / GATEWAY / 'admin.kubeconfig'}",
    ]
    begun = time.monotonic()
    status = _follow(client, command, results / "e2e.log")
    if not junit.exists():
        raise ClusterError(f"the specs did not run to their end; see {results / 'e2e.log'}")
    specs = list(read(junit))
    (results / "table.md").write_text(table(specs))
    print(table(specs))
    passed = sum(1 for spec in specs if not spec.failure)
    _report(f"{passed} of {len(specs)} passed in {time.monotonic() - begun:.0f} s; {results}")
    if not specs:
        raise ClusterError("no spec ran: none has a name like that")
    are_all = options.specs == "load-balancers" and not options.focus and not options.skip
    if are_all and len(specs) != LOAD_BALANCERS:
        raise ClusterError(f"{len(specs)} specs ran instead of {LOAD_BALANCERS}: some were skipped")
    return status


def _follow(client: Machine, command: list[str], log: Path) -> int:
    """Run the specs and tell of each that ends; answers their exit status."""
    begun, count, bad = time.monotonic(), 0, 0
    with (
        log.open("w") as kept,
        subprocess.Popen(
            client.command(*command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process,
    ):
        ended: re.Match[str] | None = None
        for line in process.stdout or ():
            kept.write(line)
            if ended is not None:
                count, bad = count + 1, bad + bool(ended[1])
                _report(
                    f"{time.monotonic() - begun:5.0f} s: {count} ended, {bad} not well; "
                    f"{ended[1] or 'passed'} after {float(ended[2]):.0f} s: {line.strip()}"
                )
            ended = _ENDED.match(line)
    return process.returncode


def read(junit: Path) -> Iterator[Spec]:
    """Read the specs that were not skipped, by name, from ginkgo's JUnit file."""
    cases = ET.parse(junit).iter("testcase")  # noqa: S314 - our own file
    for case in sorted(cases, key=lambda one: one.get("name", "")):
        name = case.get("name", "")
        if case.find("skipped") is not None or not name.startswith("[It]"):
            continue
        trouble = case.find("failure")
        trouble = case.find("error") if trouble is None else trouble
        why = "" if trouble is None else trouble.get("message", "") or "failed"
        yield Spec(
            name.removeprefix("[It] "), float(case.get("time", "0")), " ".join(why.split())[:200]
        )


def table(specs: list[Spec]) -> str:
    """Show specs as a table in Markdown."""
    rows = [f"| {spec.name} | {spec.seconds:.0f} | {spec.failure or 'passed'} |" for spec in specs]
    return "\n".join(["| spec | seconds | result |", "|---|---:|---|", *rows, ""])


def _report(line: str) -> None:
    print(f"e2e: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
