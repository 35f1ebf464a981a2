"""Checks the promises about our figures beside those of others."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from benchmarks.amounts import FULL
from benchmarks.contestants import BARE, GO_TUNED, PROREUS, PROREUS_SINGLE
from benchmarks.measure import Figures
from benchmarks.results import Row
from benchmarks.scenarios import (
    SAME_PATCHES,
    WITH_QUOTA,
    balancing,
    initialising,
    joining,
    steady,
)

_MEGABYTES = 1.048576  # in a MiB
_NODES = initialising(5000)
_LIMIT = initialising(FULL.limit_nodes, SAME_PATCHES)
_LIMITED = initialising(FULL.throttled_nodes, WITH_QUOTA)
_STEADY = steady(5000, FULL.steady_seconds)
_JOIN = joining(50, FULL.join_services)

_Value = Callable[[Figures, Figures], float]


class Promise(msgspec.Struct, frozen=True):
    """A figure of ours that has a limit.

    Attributes:
        text: What is promised, without the figure.
        work: The work that shows it.
        value: Ours, from our figures and those of `beside`.
        limit: The most it may be; or the least, if `at_least`.
        form: How the figure is shown.
        key: Whose figures are ours.
        beside: Whose figures they are compared with.
        at_least: Whether `limit` is the least.
    """

    text: str
    work: str
    value: _Value
    limit: float
    form: str = "{:,.2f}"
    key: str = PROREUS.key
    beside: str = PROREUS.key
    at_least: bool = False

    def is_kept(self, found: float) -> bool:
        """Tell whether a figure keeps the promise."""
        return found >= self.limit if self.at_least else found <= self.limit


def _seconds(ours: Figures, others: Figures) -> float:
    return ours.seconds / others.seconds


def _server_cpu(ours: Figures, others: Figures) -> float:
    return ours.apiserver_cpu / others.apiserver_cpu


def _speed(ours: Figures, others: Figures) -> float:
    return others.seconds / ours.seconds


def _cpu(ours: Figures, others: Figures) -> float:
    return ours.cpu / others.cpu


def _load(ours: Figures, _: Figures) -> float:
    return 100 * ours.cpu / ours.seconds


def _calls(ours: Figures, _: Figures) -> float:
    return ours.calls


def _describes(ours: Figures, _: Figures) -> float:
    """Calls about machines; what all Services should have is asked for besides, once a start."""
    return sum(count for call, count in ours.cloud_calls.items() if call.startswith("instances."))


def _quota(ours: Figures, _: Figures) -> float:
    """Return how many times what a quota of 20 calls/s needs for the calls that it admitted."""
    return ours.seconds / ((ours.calls - ours.throttled) / 20)


def _refused(ours: Figures, _: Figures) -> float:
    return 100 * ours.throttled / ours.calls


_TUNED = GO_TUNED.key
_TIMES = "{:.2f} times"
_COUNT = "{:,.0f}"
_SECONDS = "{:.1f} s"

PROMISES: Sequence[Promise] = (
    Promise("time of tuned Go", _NODES, _seconds, 0.9, _TIMES, beside=_TUNED),
    Promise("CPU of tuned Go", _NODES, _cpu, 0.6, _TIMES, beside=_TUNED),
    Promise("API server's CPU of tuned Go", _NODES, _server_cpu, 1, _TIMES, beside=_TUNED),
    Promise("calls about machines", _NODES, _describes, 10, _COUNT),
    Promise("peak memory", _NODES, lambda f, _: f.rss * _MEGABYTES, 100, "{:.0f} MB"),
    Promise("speed of a bare loop", _LIMIT, _speed, 0.85, _TIMES, beside=BARE.key, at_least=True),
    Promise("seconds", _LIMITED, lambda f, _: f.seconds, 6, _SECONDS),
    Promise("calls refused", _LIMITED, lambda f, _: f.throttled, 0, _COUNT),
    Promise(
        "time that the quota needs, one machine a call",
        *(_LIMITED, _quota, 1.2, _TIMES, PROREUS_SINGLE.key, PROREUS_SINGLE.key),
    ),
    Promise(
        "calls refused, one machine a call",
        *(_LIMITED, _refused, 2, "{:.1f} %", PROREUS_SINGLE.key, PROREUS_SINGLE.key),
    ),
    *(
        Promise(
            "time of tuned Go",
            *(balancing(verb, count, FULL.hosts), _seconds, 1, _TIMES),
            beside=_TUNED,
        )
        for count in FULL.services
        for verb in ("ensure", "edit", "delete")
    ),
    Promise("time of tuned Go", _JOIN, _seconds, 1, _TIMES, beside=_TUNED),
    Promise("cloud calls", _JOIN, _calls, 450, _COUNT),
    Promise(
        "from the last join to all hosts everywhere",
        *(_JOIN, lambda f, _: f.more["after_the_last_join"], 2, _SECONDS),
    ),
    Promise("calls about machines", _STEADY, _describes, 20, _COUNT),
    Promise("of a core, heartbeats decoded too", _STEADY, _load, 2, "{:.1f} %"),
)
"""All promises, each of the median of the runs there are."""


class Verdict(msgspec.Struct, frozen=True):
    """A promise, the median that was found, and how many runs it is of."""

    promise: Promise
    found: float
    runs: int

    @property
    def is_kept(self) -> bool:
        """Whether it is kept."""
        return self.promise.is_kept(self.found)


def judged(works: Mapping[str, Sequence[Row]]) -> list[Verdict]:
    """Return the promises whose work was done, by the medians of each piece of work."""
    verdicts = []
    for promise in PROMISES:
        rows = {row.key: row for row in works.get(promise.work, ())}
        if promise.key in rows and promise.beside in rows:
            ours, others = rows[promise.key], rows[promise.beside]
            found = promise.value(ours.figures, others.figures)
            verdicts.append(Verdict(promise, found, min(ours.run, others.run)))
    return verdicts
