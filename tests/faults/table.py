"""What was tried and what was survived, as a table at the end of the run.

A test says what it tries before it tries it; what it does not take back has not been survived.
The lines travel with pytest's reports, and so also from its workers.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from _pytest.reports import TestReport

PROPERTY: Final = "fault"
"""The name of pytest's user property; its value is a `Line`."""

Line = tuple[str, str, int, int]
"""What was spoilt, how, how often it was tried, how often survived."""


class Tally:
    """Takes down what a test tries."""

    def __init__(self, record: Callable[[str, object], None]) -> None:
        self._record = record

    @contextmanager
    def trying(self) -> Iterator[Callable[[str, str], None]]:
        """Answers the function that takes down a fault; all are survived if the body comes through."""
        tried: dict[tuple[str, str], int] = {}

        def take_down(what: str, how: str) -> None:
            tried[what, how] = tried.get((what, how), 0) + 1

        survived = False
        try:
            yield take_down
            survived = True
        finally:
            for (what, how), count in tried.items():
                # Plain strings: the values cross processes.
                self._record(PROPERTY, (what, str(how), count, count if survived else 0))


def table(lines: Iterable[Line]) -> list[str]:
    """The lines of the table, with a sum at its end; empty without any fault."""
    sums: dict[tuple[str, str], list[int]] = {}
    for what, how, tried, survived in lines:
        counts = sums.setdefault((what, how), [0, 0])
        counts[0] += tried
        counts[1] += survived
    if not sums:
        return []
    total = [sum(counts[i] for counts in sums.values()) for i in range(2)]
    rows = [
        ("what", "fault", "tried", "survived"),
        *((what, how, *map(str, sums[what, how])) for what, how in sorted(sums)),
        ("all", "", *map(str, total)),
    ]
    wide = [max(len(row[column]) for row in rows) for column in range(4)]
    return [
        f"{row[0]:<{wide[0]}}  {row[1]:<{wide[1]}}  {row[2]:>{wide[2]}}  {row[3]:>{wide[3]}}"
        for row in rows
    ]


def lines(reports: Iterable[TestReport]) -> Iterator[Line]:
    """What the reports carry."""
    for report in reports:
        for name, value in report.user_properties:
            if name == PROPERTY:
                yield value  # type: ignore[misc]  # it is a Line
