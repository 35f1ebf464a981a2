"""Longest first: the order in which workers take the files of tests.

A file's tests stay together and in their order, so that what lives for a module lives once. Files
begin by how long they took when `durations.json` was recorded, so that no worker is left with a
long one when the others have ended.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

RECORDED = Path(__file__).with_name("durations.json")
SHORT = 1.0
"""Seconds; what takes less is not recorded."""


def sort(items: list[pytest.Item]) -> None:
    """Bring those of the longest files to the front, in place."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    items.sort(key=lambda item: (-recorded.get(file_of(item.nodeid), 0), file_of(item.nodeid)))


def record(reports: Iterable[pytest.TestReport]) -> None:
    """Write how long the files took whose tests are reported."""
    kept = json.dumps(seconds(reports), indent=1, sort_keys=True)
    RECORDED.write_text(kept + "\n", encoding="utf-8")


def seconds(reports: Iterable[pytest.TestReport]) -> dict[str, int]:
    """Whole seconds by file, of those that take longer than `SHORT`."""
    taken: dict[str, float] = defaultdict(float)
    for report in reports:
        taken[file_of(report.nodeid)] += report.duration
    return {file: round(sum_) for file, sum_ in taken.items() if sum_ > SHORT}


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]
