"""Run the benchmarks: `python -m benchmarks --help`."""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from benchmarks import report, results
from benchmarks.amounts import FULL, QUICK
from benchmarks.contestants import REFERENCE, Contestant, build_go
from benchmarks.scenarios import Scenario, scenarios
from benchmarks.stage import say, staged
from proreus.kube.errors import KubeError
from proreus.testing.controlplane import ControlPlaneError


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
        "--repeat", type=int, default=1, help="runs of each scenario; tables show the medians"
    )
    parser.add_argument(
        "--append", action="store_true", help="add to the results in --output, of the same commit"
    )
    parser.add_argument(
        "--report", action="store_true", help="run nothing: tables and drawing of the results"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("build/benchmarks"), help="directory for the results"
    )
    return parser.parse_args()


async def _perform(
    scenario: Scenario, contestant: Contestant, goccm: Path, rows: list[results.Row]
) -> None:
    async with staged(contestant, goccm, scenario.settings) as stage:
        async for work, figures in scenario.play(stage):
            results.add(rows, work, contestant.key, contestant.title, figures)
            say(
                f"    {work}: {figures.seconds:.1f} s, {figures.calls:,.0f} cloud calls, "
                f"{figures.requests:,.0f} API requests, {figures.cpu:.1f} CPU s, "
                f"{figures.rss:.0f} MiB"
            )


async def _run(chosen: list[Scenario], options: argparse.Namespace, before: results.Report) -> bool:
    rows = list(before.rows)
    failed = False
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as directory:
        say("building the Go manager")
        goccm = await build_go(Path(directory))
        todo = [
            (number, scenario, run, contestant)
            for number, scenario in enumerate(chosen, 1)
            for run in range(1, options.repeat + 1)
            for contestant in scenario.contestants
            if contestant.key not in (options.without or ())
        ]
        for number, scenario, run, contestant in todo:
            which = f", run {run}/{options.repeat}" if options.repeat > 1 else ""
            say(f"[{number}/{len(chosen)}{which}] {scenario.name}: {contestant.title}")
            try:
                await _perform(scenario, contestant, goccm, rows)
            except (TimeoutError, RuntimeError, OSError, KubeError, ExceptionGroup) as error:
                say(f"    failed: {error}")
                failed = True
            now = datetime.now(UTC).isoformat(timespec="minutes")
            _write(msgspec.structs.replace(before, when=now, rows=rows), options.output)
    return not failed


def _write(made: results.Report, output: Path) -> None:
    results.save(made, output)
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
    if options.repeat < 1:
        problems.append(f"error: --repeat {options.repeat}: give 1 or more")
    if problems:
        print("\n".join(problems), file=sys.stderr)
        return 2
    chosen = [one for one in known if not options.only or one.name in options.only]
    output: Path = options.output
    try:
        output.mkdir(parents=True, exist_ok=True)
        if options.report:
            good = True
            _write(results.load(output), output)
        else:
            before = results.begin(output, append=options.append)
            good = asyncio.run(_run(chosen, options, before))
    except KeyboardInterrupt:
        return 130
    except (RuntimeError, ControlPlaneError, results.UnfitResults) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print((output / "results.md").read_text())
    say(f"results.json, results.md and results.svg are in {output}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
