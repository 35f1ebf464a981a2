"""Run the benchmarks: `python -m benchmarks --help`."""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

import proreus
from benchmarks import report
from benchmarks.contestants import REFERENCE, Contestant, build_go
from benchmarks.scenarios import FULL, QUICK, Scenario, scenarios
from benchmarks.stage import staged
from proreus.kube.errors import KubeError
from proreus.testing.controlplane import ControlPlaneError, kubernetes_version

GO_FRAMEWORK = "0.36.3"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Compare the manager with one of the Go framework, on the same work.",
    )
    parser.add_argument("--quick", action="store_true", help="little work: below 5 minutes")
    parser.add_argument("--list", action="store_true", help="only list the scenarios")
    parser.add_argument("--only", action="append", help="a scenario to run; repeatable")
    parser.add_argument(
        "--without", action="append", help="a contestant to leave out, such as go-default"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("build/benchmarks"), help="directory for the results"
    )
    return parser.parse_args()


def _say(line: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


async def _perform(scenario: Scenario, contestant: Contestant, goccm: Path) -> list[report.Row]:
    rows = []
    async with staged(contestant, goccm, scenario.settings) as stage:
        async for work, figures in scenario.play(stage):
            rows.append(report.Row(work, contestant.key, contestant.title, figures))
            _say(
                f"    {work}: {figures.seconds:.1f} s, {figures.calls:,} cloud calls, "
                f"{figures.requests:,} API requests, {figures.cpu:.1f} CPU s, "
                f"{figures.rss:.0f} MiB"
            )
    return rows


async def _run(chosen: list[Scenario], without: list[str], output: Path) -> bool:
    rows: list[report.Row] = []
    failed = False
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as directory:
        _say("building the Go manager")
        goccm = await build_go(Path(directory))
        for number, scenario in enumerate(chosen, 1):
            for contestant in scenario.contestants:
                if contestant.key in without:
                    continue
                _say(f"[{number}/{len(chosen)}] {scenario.name}: {contestant.title}")
                try:
                    rows += await _perform(scenario, contestant, goccm)
                except (TimeoutError, RuntimeError, OSError, KubeError, ExceptionGroup) as error:
                    _say(f"    failed: {error}")
                    failed = True
                _write(rows, output)
    print((output / "results.md").read_text())
    _say(f"results.json, results.md and results.svg are in {output}")
    return not failed


def _write(rows: list[report.Row], output: Path) -> None:
    versions = {
        "Proreus": proreus.__version__,
        "Python": sys.version.partition(" ")[0],
        "k8s.io/cloud-provider": GO_FRAMEWORK,
        "Kubernetes": kubernetes_version(),
    }
    when = datetime.now(UTC).isoformat(timespec="minutes")
    made = report.Report(when, report.machine(), versions, rows)
    encoded = msgspec.json.format(msgspec.json.encode(made))
    (output / "results.json").write_bytes(encoded + b"\n")
    (output / "results.md").write_text(report.markdown(made, REFERENCE.key))
    (output / "results.svg").write_text(report.drawing(made, REFERENCE.key))


def _unknown(flag: str, given: Sequence[str] | None, known: Collection[str]) -> list[str]:
    wrong = sorted(set(given or ()) - set(known))
    return [f"error: {flag} {one}: choose from {', '.join(sorted(known))}" for one in wrong]


def main() -> int:
    """Read the command line and run what it says; answers the exit status."""
    options = _options()
    known = scenarios(QUICK if options.quick else FULL)
    if options.list:
        print("\n".join(one.name for one in known))
        return 0
    problems = [
        *_unknown("--only", options.only, {one.name for one in known}),
        *_unknown("--without", options.without, {c.key for one in known for c in one.contestants}),
    ]
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return 2
    chosen = [one for one in known if not options.only or one.name in options.only]
    try:
        good = asyncio.run(_run(chosen, options.without or [], options.output))
    except KeyboardInterrupt:
        return 130
    except (RuntimeError, ControlPlaneError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
