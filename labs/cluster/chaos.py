"""Break a cluster while Kubernetes' own specs run on it, and tell afterwards what that has cost.

    every minute         the manager that leads is killed; it starts again after a second
    every three minutes  another gateway gets the addresses: the one that has them is told to end,
                         or its cable is pulled for a minute, in turn
    every four minutes   a node without pods of the specs is silent for a minute, or leaves the
                         cluster for a minute and joins again, in turn

A gateway or a node whose cable is pulled says nothing to anybody. Until another gateway has the
lease, or the node's silence has been noticed, packets to it are lost and its connections end. The
specs forbid that, but no load balancer could keep them. What is lost otherwise is our fault.
"""

import datetime as dt
import heapq
import itertools
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from labs.cluster.cluster import Cluster
from labs.cluster.errors import ClusterError
from labs.cluster.gateways import leader
from labs.cluster.machines import member
from labs.cluster.node import Node

MINUTE = 60.0
KILL, END, PULL, PLUG = "kill", "end", "pull", "plug"
SILENCE, LEAVE, RETURN = "silence", "leave", "return"

TAINT = "node-role.kubernetes.io/control-plane:NoSchedule"
"""What keeps the specs' pods from a node; they begin in spite of it (`--non-blocking-taints`)."""

UNAVOIDABLE = {PULL: 40.0, SILENCE: 15.0, LEAVE: 15.0}
"""Seconds within which a lost request is no fault of ours, by what was done before.

A lease lasts 15 s, a manager waits up to 2 s more, and asks each node before it lets clients in;
a node is dead after two questions without an answer in 2 s each. A request takes up to 5 s.
"""

_TOLD = {
    KILL: "the manager that leads is killed",
    END: "it is told to end",
    PULL: "the cable of its gateway is pulled",
    SILENCE: "a node is silent for a minute",
    LEAVE: "a node leaves for a minute",
}
_LOST = re.compile(r"I(\d\d)(\d\d) (\d\d:\d\d:\d\d\.\d+) .*Got error testing for reachability of ")
_FAILED = re.compile(r"\[FAILED\] in \[.*? @ (\d\d/\d\d/\d\d \d\d:\d\d:\d\d)")


class Act(NamedTuple):
    """What is done, and when, in seconds since the beginning, or of the clock once it is done."""

    at: float
    what: str
    whom: str = ""


def plan() -> Iterator[Act]:
    """Return what to do, in the order of time, without an end."""
    return heapq.merge(
        (Act(MINUTE * number, KILL) for number in itertools.count(1)),
        _in_turn(0.5 * MINUTE, 3 * MINUTE, ([(0.0, END)], [(0.0, PULL), (MINUTE, PLUG)])),
        _in_turn(
            0.75 * MINUTE,
            4 * MINUTE,
            ([(0.0, SILENCE), (MINUTE, RETURN)], [(0.0, LEAVE), (MINUTE, RETURN)]),
        ),
    )


def _in_turn(
    first: float, every: float, turns: Sequence[Sequence[tuple[float, str]]]
) -> Iterator[Act]:
    for number in itertools.count():
        for after, what in turns[number % len(turns)]:
            yield Act(first + number * every + after, what)


class Breakage:
    """Does what is planned, to a cluster with two gateways."""

    def __init__(self, cluster: Cluster, node: Node, report: Callable[[str], None]) -> None:
        """Nothing is broken yet; `node` is the one that comes and goes."""
        self._cluster = cluster
        self._node = node
        self._cable = node.name.replace("-", "")
        self._report = report
        self._pulled = ""
        self._has_left = False
        self._ended = threading.Event()
        self.done: list[Act] = []

    def run(self) -> None:
        """Do all of it until `end`."""
        begun = time.monotonic()
        for act in plan():
            if self._ended.wait(max(0.0, begun + act.at - time.monotonic())):
                return
            try:
                whom = self._do(act.what)
            except ClusterError as error:
                self._report(f"{act.what}: {error}")
            else:
                self.done.append(Act(time.time(), act.what, whom))
                self._report(f"{act.what} {whom}")

    def end(self) -> None:
        """Do nothing more."""
        self._ended.set()

    def _do(self, what: str) -> str:
        gateway = self._cluster.gateway
        if what in {KILL, END, PULL}:
            return self._to_leader(what)
        if what == PLUG:
            gateway.run("ip", "link", "set", self._pulled, "up")
            return self._pulled
        gateway.run("ip", "link", "set", self._cable, "up" if what == RETURN else "down")
        if what == LEAVE:
            self._cluster.plane.kubectl("delete", "node", self._node.name)
            self._node.machine.kill("kubelet", signal.SIGKILL)
            self._has_left = True
        if what == RETURN and self._has_left:  # a kubelet makes its Node only when it starts
            taint = f"--register-with-taints={TAINT}"
            self._node.start_kubelet(self._cluster.plane, self._cluster.families, taint)
            self._has_left = False
        return self._node.name

    def _to_leader(self, what: str) -> str:
        name = leader(self._cluster.plane)
        if not name:
            raise ClusterError("no manager leads")
        if what == PULL:
            self._cluster.gateway.run("ip", "link", "set", name, "down")
            self._pulled = name
            return name
        machine = member(self._cluster.gateway, name)
        how = "-KILL" if what == KILL else "-TERM"
        machine.run("pkill", how, "-P", str(machine.pid("manager")))
        return name


@contextmanager
def breaking(breakage: Breakage) -> Iterator[None]:
    """Break things meanwhile."""
    thread = threading.Thread(target=breakage.run, name="chaos", daemon=True)
    thread.start()
    try:
        yield
    finally:
        breakage.end()
        thread.join()


class Verdict(NamedTuple):
    """What the specs' log says of requests that were lost, and of specs that failed.

    Attributes:
        unavoidable: Lost requests by the act that took their way from them.
        ours: Lines of the log about other lost requests, each with what was done before.
        failed: The times at which specs failed, each with what was done before.
    """

    unavoidable: Mapping[str, int]
    ours: Sequence[str]
    failed: Sequence[str]


def judge(done: Sequence[Act], log: str, year: int) -> Verdict:
    """Tell what no load balancer could have kept from what we have lost."""
    unavoidable = dict.fromkeys(UNAVOIDABLE, 0)
    ours, failed = list[str](), list[str]()
    for line in log.splitlines():
        if lost := _LOST.search(line):
            at = _moment(f"{year}-{lost[1]}-{lost[2]} {lost[3]}", "%Y-%m-%d %H:%M:%S.%f")
            cause = _cause(done, at)
            if cause:
                unavoidable[cause] += 1
            else:
                ours.append(f"{line.strip()[:200]} ({_told(done, at)})")
        if failure := _FAILED.search(line):
            at = _moment(failure[1], "%m/%d/%y %H:%M:%S")
            failed.append(f"{failure[1]} ({_told(done, at)})")
    return Verdict(unavoidable, ours, failed)


def _cause(done: Sequence[Act], at: float) -> str:
    """Return what has taken its way from a request that failed at a moment, "" if nothing has."""
    return next(
        (
            act.what
            for act in reversed(done)
            if act.what in UNAVOIDABLE and act.at <= at <= act.at + UNAVOIDABLE[act.what]
        ),
        "",
    )


def _told(done: Sequence[Act], at: float) -> str:
    """Tell what was done in the two minutes before a moment."""
    before = [act for act in done if at - 2 * MINUTE <= act.at <= at]
    told = (f"{act.what} {act.whom} {at - act.at:.0f} s before".strip() for act in before)
    return ", ".join(told) or "nothing was done before"


def _moment(text: str, form: str) -> float:
    return dt.datetime.strptime(text, form).astimezone().timestamp()


def report(done: Sequence[Act], verdict: Verdict) -> str:
    """Show what was done and what it cost, in Markdown."""
    lines = ["| what was done | times | requests that it cost |", "|---|---:|---:|"]
    for what, told in _TOLD.items():
        times = sum(1 for act in done if act.what == what)
        lines.append(f"| {told} | {times} | {verdict.unavoidable.get(what, '')} |")
    lines += [f"| nothing of that, or none of it lately: our fault | | {len(verdict.ours)} |", ""]
    lines += [f"* lost: {line}" for line in verdict.ours]
    lines += [f"* a spec failed at {line}" for line in verdict.failed]
    return "\n".join([*lines, ""])
