"""Measure the data path of the provider `local`: `python -m benchmarks.local`, or one part.

It needs what `make cluster-up` needs, and the packages haproxy, iperf3 and wrk. Clients, gateways
and nodes share the processors: compare figures with one another, not with those of other machines.
"""

import argparse
import asyncio
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from benchmarks.local import gateways, paths, works
from benchmarks.local.lab import Lab, Line, one_gateway, two_gateways, working_gateways
from labs.cluster import ensure_programs
from labs.cluster.programs import Programs
from proreus.testing.controlplane import ControlPlaneError

_Stage = Callable[[Programs], AbstractContextManager[Lab]]
_WORKS: dict[_Stage, dict[str, Callable[[Lab], Iterator[Line]]]] = {
    one_gateway: {
        "paths": paths.paths,
        "cores": paths.cores,
        "first-answer": works.first_answer,
        "updates": works.updates,
        "dead-node": works.dead_node,
    },
    two_gateways: {"failover": works.failover},
    working_gateways: {"gateways": gateways.gateways},
}
_NEEDED = ("haproxy", "iperf3", "wrk", "pkill")


def main() -> int:
    """Read the command line and measure; answers the exit status."""
    names = [name for group in _WORKS.values() for name in group]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.local", description=__doc__)
    parser.add_argument("--only", action="append", choices=names, help="a work; repeatable")
    parser.add_argument(
        "--output", type=Path, default=Path("build/benchmarks-local"), help="where tables go"
    )
    options = parser.parse_args()
    chosen = options.only or names
    if missing := [name for name in _NEEDED if not shutil.which(name)]:
        print(f"error: missing: {', '.join(missing)}; install them", file=sys.stderr)
        return 1
    options.output.mkdir(parents=True, exist_ok=True)
    try:
        programs = asyncio.run(ensure_programs())
        for stage, group in _WORKS.items():
            selected = {name: work for name, work in group.items() if name in chosen}
            if not selected:
                continue
            with stage(programs) as lab:
                for name, work in selected.items():
                    text = table(list(work(lab)))
                    (options.output / f"{name}.md").write_text(text)
                    print(f"{name}\n\n{text}", flush=True)
    except (ControlPlaneError, TimeoutError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def table(lines: Sequence[Line]) -> str:
    """Show lines as a table in Markdown."""
    heads = list(lines[0])
    rows = [" | ".join(line[head] for head in heads) for line in lines]
    rule = "---|" + "---:|" * (len(heads) - 1)
    return "\n".join([f"| {' | '.join(heads)} |", f"|{rule}", *(f"| {row} |" for row in rows), ""])


if __name__ == "__main__":
    sys.exit(main())
