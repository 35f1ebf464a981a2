"""Keeps the results of runs as JSON, joins several runs, and computes medians."""

import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

import proreus
from benchmarks.measure import Figures
from proreus.testing.controlplane import kubernetes_version

GO_FRAMEWORK = "0.36.3"
FILE = "results.json"
_GIB = 1024.0 * 1024.0


class Row(msgspec.Struct, frozen=True):
    """The result of one piece of work, done once by one contestant.

    Attributes:
        work: What was done.
        key: Names the contestant in files.
        title: Names the contestant for people.
        figures: What it took; the median, if there were several runs.
        run: Which run of this work by this contestant it was, from 1; or how many there were.
    """

    work: str
    key: str
    title: str
    figures: Figures
    run: int = 1


class Report(msgspec.Struct, frozen=True):
    """All that was found on one machine with the same versions.

    Attributes:
        when: When the last of it was measured, in ISO 8601.
        machine: What it ran on, for people.
        versions: Of everything that has one, with the commit measured.
        rows: What came out, in the order of the runs.
    """

    when: str
    machine: str
    versions: Mapping[str, str]
    rows: Sequence[Row]

    @property
    def works(self) -> Mapping[str, Sequence[Row]]:
        """The medians by piece of work, both in the order in which they were first done."""
        by_work: dict[str, dict[str, list[Row]]] = {}
        for row in self.rows:
            by_work.setdefault(row.work, {}).setdefault(row.key, []).append(row)
        return {work: [_median(runs) for runs in by.values()] for work, by in by_work.items()}


class UnfitResults(Exception):
    """Results that cannot be read, or that new ones cannot be added to; says why."""


def load(directory: Path) -> Report:
    """Return the results in a directory.

    Raises:
        UnfitResults: There are none, or they are of another form.
    """
    file = directory / FILE
    try:
        return msgspec.json.decode(file.read_bytes(), type=Report)
    except FileNotFoundError as error:
        raise UnfitResults(f"there is no {file}: run the benchmarks first") from error
    except msgspec.DecodeError as error:
        raise UnfitResults(f"{file}: {error}; remove it and run anew") from error


def save(report: Report, directory: Path) -> None:
    """Write results; those that were there are replaced."""
    encoded = msgspec.json.format(msgspec.json.encode(report))
    (directory / FILE).write_bytes(encoded + b"\n")


def begin(directory: Path, *, append: bool) -> Report:
    """Return what new results are added to: nothing yet, or with `append` what is in the directory.

    Raises:
        UnfitResults: That was measured on another machine, or with other versions.
    """
    blank = Report("", machine(), versions(), [])
    if not append or not (directory / FILE).exists():
        return blank
    old = load(directory)
    for what, before, now in (
        ("machine", old.machine, blank.machine),
        *((one, old.versions.get(one, "none"), now) for one, now in blank.versions.items()),
    ):
        if before != now:
            raise UnfitResults(
                f"--append: {directory / FILE} was measured with another {what}: {before}, "
                f"now {now}; choose another --output, or leave --append out to begin anew"
            )
    return old


def add(rows: list[Row], work: str, key: str, title: str, figures: Figures) -> None:
    """Add what a contestant took for some work, as its next run of it."""
    run = 1 + sum((row.work, row.key) == (work, key) for row in rows)
    rows.append(Row(work, key, title, figures, run))


def machine() -> str:
    """Return what runs this, for people."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = next(
        int(line.split()[1]) / _GIB
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemTotal:")
    )
    system = f"{platform.system()} {platform.release()}"
    return f"{model}, {os.cpu_count()} processors, {memory:.0f} GiB, {system}"


def versions() -> Mapping[str, str]:
    """Return the version of everything that has one; the commit only in a work tree of git."""
    found = {
        "Proreus": proreus.__version__,
        "commit": _commit(),
        "Python": sys.version.partition(" ")[0],
        "k8s.io/cloud-provider": GO_FRAMEWORK,
        "Kubernetes": kubernetes_version(),
    }
    return {name: version for name, version in found.items() if version}


def _commit() -> str:
    """Return the commit of what is measured, marked if files differ from it; "" without git."""
    command = "git --no-optional-locks describe --always --abbrev=10 --dirty=+changes"
    try:
        done = subprocess.run(
            command.split(),
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _median(runs: Sequence[Row]) -> Row:
    """Return the row of the medians; each figure has its own."""
    figures = [row.figures for row in runs]

    def of(value: Callable[[Figures], float]) -> float:
        return statistics.median(map(value, figures))

    def each(values: Callable[[Figures], Mapping[str, float]]) -> dict[str, float]:
        names = dict.fromkeys(name for one in figures for name in values(one))
        return {
            name: statistics.median(values(one).get(name, 0) for one in figures) for name in names
        }

    middle = Figures(
        seconds=of(lambda f: f.seconds),
        cloud_calls=each(lambda f: f.cloud_calls),
        throttled=of(lambda f: f.throttled),
        api_requests=each(lambda f: f.api_requests),
        api_failures=of(lambda f: f.api_failures),
        sent=of(lambda f: f.sent),
        received=of(lambda f: f.received),
        rss=of(lambda f: f.rss),
        cpu=of(lambda f: f.cpu),
        apiserver_cpu=of(lambda f: f.apiserver_cpu),
        etcd_cpu=of(lambda f: f.etcd_cpu),
        cloud_cpu=of(lambda f: f.cloud_cpu),
        units=of(lambda f: f.units),
        more=each(lambda f: f.more),
    )
    return msgspec.structs.replace(runs[0], figures=middle, run=len(runs))
