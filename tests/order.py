"""Longest first, shorter ones in between: the order in which workers take the files of tests.

A file's tests stay together and in their order, so that what lives for a module lives once. Files
begin by how long they took when `durations.json` was recorded, so that no worker is left with a
long one when the others have ended. Those that take longest mostly wait: the others keep the
processors busy meanwhile.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from xdist.scheduler import LoadFileScheduling

RECORDED = Path(__file__).with_name("durations.json")
SHORT = 1.0
"""Seconds; what takes less is not recorded."""
EARLIER = 0.9
"""The part of the run after which all longer files have begun."""


TOGETHER = ("tests/providers/aws/",)
"""Folders whose files one worker takes: each worker with one of them starts a process of its own,
which takes longer than most of their tests."""


class Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """Give workers files, and some folders, as they become free."""

    def _split_scope(self, nodeid: str) -> str:
        folders = (one for one in TOGETHER if nodeid.startswith(one))
        return next(folders, super()._split_scope(nodeid))


def sort(items: list[pytest.Item]) -> None:
    """Bring the files of the tests into their order, in place."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    places = {file: place for place, file in enumerate(ordered(map(_file, items), recorded))}
    items.sort(key=lambda item: places[_file(item)])


def ordered(files: Iterable[str], recorded: Mapping[str, float]) -> list[str]:
    """Return the files, each once, from the longest to the shortest of both halves in turn.

    Both halves take as long. That of the longer files comes to its end before the other, since its
    last ones are long, too, and would leave the workers with one each.
    """
    seconds = {file: recorded.get(file, SHORT / 2) for file in files}
    longest = sorted(seconds, key=lambda file: (-seconds[file], file))
    half = sum(seconds.values()) / 2
    places: dict[str, tuple[float, int]] = {}
    spent = 0.0
    for file in longest:
        is_short = spent >= half
        places[file] = (spent - half if is_short else spent * EARLIER, is_short)
        spent += seconds[file]
    return sorted(longest, key=places.__getitem__)


def record(reports: Iterable[pytest.TestReport]) -> None:
    """Write how long the files took whose tests are reported; those of other rings stay."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    root = RECORDED.parents[1]
    there = {file: took for file, took in recorded.items() if (root / file).exists()}
    kept = json.dumps(there | seconds(reports), indent=1, sort_keys=True)
    RECORDED.write_text(kept + "\n", encoding="utf-8")


def seconds(reports: Iterable[pytest.TestReport]) -> dict[str, int]:
    """Whole seconds by file, of those that take longer than `SHORT`."""
    taken: dict[str, float] = defaultdict(float)
    for report in reports:
        taken[_file(report)] += report.duration
    return {file: round(sum_) for file, sum_ in taken.items() if sum_ > SHORT}


def _file(of: pytest.Item | pytest.TestReport) -> str:
    return of.nodeid.partition("::")[0]
