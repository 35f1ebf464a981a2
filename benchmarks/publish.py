"""Put the results of a run into README and docs: `python -m benchmarks.publish --help`."""

import argparse
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import report, results
from benchmarks.amounts import FULL
from benchmarks.contestants import GO_TUNED, PROREUS
from benchmarks.measure import Figures
from benchmarks.results import Report, Row, UnfitResults
from benchmarks.scenarios import WITH_QUOTA, balancing, initialising, joining, steady

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = Path("docs/explanation/benchmarks")
"""The folder of the documentation that has the results, below the root."""
BEGIN: Final = "<!-- made by `python -m benchmarks.publish` -->"
END: Final = "<!-- until here -->"
_FEW: Final = 3
"""Runs of which a median says something."""
_NUMBERS: Final = {1: "one run", 2: "two runs"}


class Line(msgspec.Struct, frozen=True):
    """A line of README's table.

    Attributes:
        text: What was done, or which figure of the line before this is.
        work: The piece of work.
        value: The figure.
        form: How it is shown.
        calls: Whether the cloud calls stand beside it.
    """

    text: str
    work: str
    value: Callable[[Figures], float] = lambda figures: figures.seconds
    form: str = "{:,.1f} s"
    calls: bool = True


def _lines() -> Iterator[Line]:
    nodes = initialising(5000)
    yield Line("initialise 5,000 nodes", nodes)
    yield Line("the same: CPU time of the manager", nodes, lambda f: f.cpu, calls=False)
    yield Line(
        "the same: CPU time of the API server", nodes, lambda f: f.apiserver_cpu, calls=False
    )
    yield Line("the same: peak memory", nodes, lambda f: f.rss, "{:,.0f} MiB", calls=False)
    limited = initialising(FULL.throttled_nodes, WITH_QUOTA)
    yield Line(f"{FULL.throttled_nodes:,} nodes, a cloud that admits 20 calls/s", limited)
    for count in FULL.services:
        yield Line(f"make {count:,} load balancers", balancing("ensure", count, FULL.hosts))
        yield Line("change them", balancing("edit", count, FULL.hosts))
        yield Line("delete them", balancing("delete", count, FULL.hosts))
        found = f"find {count:,} in place after a restart"
        yield Line(found, f"restart, {count:,} Services on {FULL.hosts} nodes in place")
    services = FULL.join_services
    yield Line(f"50 nodes join {services} load balancers within 5 s", joining(50, services))
    rest = steady(5000, FULL.steady_seconds)
    yield Line("5,000 nodes at rest for 5 min: CPU time of the manager", rest, lambda f: f.cpu)
    yield Line("the next leader works, after SIGTERM", "failover after SIGTERM", calls=False)
    yield Line("the same, after SIGKILL", "failover after SIGKILL", calls=False)


def table(found: Report) -> str:
    """Return README's table of the results; works that were not done are left out."""
    tuned, ours = GO_TUNED.key, PROREUS.key
    lines = [
        "| | tuned Go | Proreus | cloud calls: tuned Go | Proreus |",
        "|---|---:|---:|---:|---:|",
    ]
    works = found.works
    for line in _lines():
        rows = {row.key: row for row in works.get(line.work, ())}
        if tuned in rows and ours in rows:
            cells = [_shown(line, rows[key]) for key in (tuned, ours)]
            cells += [
                f"{rows[key].figures.calls:,.0f}" if line.calls else "" for key in (tuned, ours)
            ]
            lines.append(f"| {' | '.join([line.text, *cells])} |")
    return "\n".join(lines)


def _shown(line: Line, row: Row) -> str:
    shown = line.form.format(line.value(row.figures))
    return shown if row.run >= _FEW else f"{shown} ({_NUMBERS[row.run]})"


def with_table(readme: str, found: Report) -> str:
    """Return README with the table of these results in the place of its own.

    Raises:
        ValueError: It has no place for the table.
    """
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"README.md has no lines {BEGIN} and {END}: put them around its table")
    return f"{before}{BEGIN}\n\n{table(found)}\n\n{END}{after}"


def publish(source: Path, root: Path) -> None:
    """Write the results of a directory into README and documentation.

    Raises:
        UnfitResults: There are none.
        ValueError: README has no place for them.
    """
    found = results.load(source)
    readme = root / "README.md"
    text = with_table(readme.read_text(), found)
    if source.resolve() != (root / DOCS).resolve():
        shutil.copy(source / results.FILE, root / DOCS / results.FILE)
    (root / DOCS / "results.md").write_text(report.markdown(found, GO_TUNED.key))
    (root / DOCS / "results.svg").write_text(report.drawing(found, GO_TUNED.key))
    readme.write_text(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run what it says; answers the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.publish",
        description="Put the results of a run of the benchmarks into README.md and docs.",
    )
    parser.add_argument(
        "--results", type=Path, default=Path("build/benchmarks"), help="directory of the results"
    )
    try:
        publish(parser.parse_args(arguments).results, ROOT)
    except (UnfitResults, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
