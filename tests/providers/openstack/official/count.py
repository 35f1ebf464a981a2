"""Counts the requests of both managers: `python -m tests.providers.openstack.official.count`.

On the cloud of `make openstack-up`, with Go. Further pages of a list do not count: that cloud has
pages of 20, others of 1,000. Nor do logins. What both ask about routes when nothing happens has a
row of its own.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Final

from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.waiting import until

from ...changes import Change  # noqa: TID252
from ..real import project  # noqa: TID252
from .managers import build, official, ours
from .picture import ids, picture
from .stage import Stage, is_write, port, service, staged

PERIOD: Final = 20
"""Seconds between two looks at all nodes; five minutes by default."""
EVENTS: Final = (
    "--node-status-update-frequency=1h",
    "--route-reconciliation-period=10s",
    "--node-monitor-period=5s",
)
"""Only what happens makes work; routes and silent nodes are looked at as often as by default."""
PASSES: Final = (
    f"--node-status-update-frequency={PERIOD}s",
    "--route-reconciliation-period=1h",
    "--node-monitor-period=1h",
)
QUIET: Final = 8.0
LONG: Final = 600.0
EXCLUDED: Final = "node.kubernetes.io/exclude-from-external-load-balancers"
WEB: Final = service(port(80, 30080), enable_health_monitor="true")
MORE: Final = service(port(80, 30080), port(443, 30443), enable_health_monitor="true")

Counts = dict[str, tuple[int, int]]
"""Reads and writes, by what was done."""


class Counter:
    """Counts what one manager asks."""

    def __init__(self, stage: Stage) -> None:
        """Nothing yet."""
        self._stage = stage
        self.counts: Counts = {}

    @property
    def now(self) -> int:
        """How many requests there have been."""
        return len(self._stage.proxy.log)

    def since(self, mark: int) -> list[str]:
        """The requests since then that count."""
        return [
            one
            for one in self._stage.proxy.log[mark:]
            if not one.startswith("keystone ") and "marker=" not in one
        ]

    def is_look_at_routes(self, call: str) -> bool:
        """Whether it only reads the router or its ports."""
        return not is_write(call) and str(self._stage.real.router.id) in call

    async def settled(self, name: str, mark: int, *, of_routes: bool = False) -> None:
        """Count what was asked since then, once all is done.

        Looks at routes count if it is about them, until the last change.
        """
        count, since = -1, time.monotonic()
        while time.monotonic() - since < QUIET:
            found = [one for one in self.since(mark) if not self.is_look_at_routes(one)]
            if len(found) != count:
                count, since = len(found), time.monotonic()
            await asyncio.sleep(0.2)
        if of_routes:
            found = self.since(mark)
            while not is_write(found[-1]):
                found.pop()
        self._note(name, found, 1)

    async def in_time(self, name: str, seconds: float, times: float) -> None:
        """Count what is asked in that time, in which the same happens so many times."""
        mark = self.now
        await asyncio.sleep(seconds)
        self._note(name, self.since(mark), times)

    def _note(self, name: str, calls: list[str], times: float) -> None:
        writes = sum(map(is_write, calls))
        self.counts[name] = round((len(calls) - writes) / times), round(writes / times)
        print(name, self.counts[name], file=sys.stderr, flush=True)


async def events(stage: Stage, counter: Counter) -> None:
    """What happens to nodes and to a Service, with a manager that has just begun."""
    count = len(stage.ids)
    await until("the nodes are initialised", stage.have_addresses, LONG)
    await counter.settled(f"{count} nodes are initialised", 0)
    mark = counter.now
    await stage.give_cidrs()
    await until("there are routes", stage.have_routes, LONG)
    await counter.settled(f"{count} routes are made", mark, of_routes=True)
    await counter.in_time("a minute in which nothing happens", 60, 1)
    for name, change in (("is made", WEB), ("gets another port", MORE)):
        mark = counter.now
        await stage.change("web", change)
        await until(name, partial(has_listeners, stage, len(change.ports)), LONG)
        await counter.settled(f"a Service {name}", mark)
    mark = counter.now
    label = {"metadata": {"labels": {EXCLUDED: ""}}}
    await stage.site.client.patch(NODES, min(stage.ids), Patch(PatchType.MERGE, label))
    await until("it is out", lambda: has_members(stage, 2 * (count - 1)), LONG)
    await counter.settled("a node goes out of a Service of two ports", mark)
    mark = counter.now
    await stage.change("web", Change())
    await until("it is gone", lambda: is_empty(stage), LONG)
    await counter.settled("the Service is deleted", mark)
    await stage.site.silence(*stage.ids)
    await asyncio.sleep(10)
    await counter.in_time(f"a minute in which {count} nodes are not ready", 60, 1)


async def has_listeners(stage: Stage, count: int) -> bool:
    """Whether there are so many, and the Service has its address."""
    found = await picture(stage)
    listeners = [one for one in ids(found) if one.startswith("listener ")]
    return len(listeners) == count and "service web/annotation" in " ".join(found)


async def has_members(stage: Stage, count: int) -> bool:
    """Whether there are so many in all pools."""
    return sum(1 for one in ids(await picture(stage)) if "/member " in one) == count


async def is_empty(stage: Stage) -> bool:
    """Whether no load balancer, nor anything of one, is left."""
    return not ids(await picture(stage))


async def counted(plane: ControlPlane, nodes: int, program: Path, directory: Path) -> Counts:
    """What one manager asks: the official one, if there is a program."""
    real = project("count")
    async with staged(plane, real, directory, nodes, routed=False) as stage:
        counter = Counter(stage)
        for pace in (EVENTS, PASSES):
            manager = official(stage, program, pace) if program.name else ours(stage, pace)
            async with manager:
                if pace is EVENTS:
                    await events(stage, counter)
                    continue
                await asyncio.sleep(2 * PERIOD)
                await counter.in_time(
                    f"a look at all {nodes} nodes, every 5 minutes", 3 * PERIOD, 3
                )
        return counter.counts


def table(theirs: Counts, mine: Counts) -> str:
    """For a page of the docs: reads + writes."""
    lines = ["| what happens | official | Proreus |", "|---|---|---|"]
    for name, (reads, writes) in theirs.items():
        lines.append(f"| {name} | {reads} + {writes} | {mine[name][0]} + {mine[name][1]} |")
    return "\n".join(lines)


async def run(nodes: int) -> None:
    """Count, and print the table."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        program = await build(directory)
        plane = ControlPlane(log_dir=directory)
        await plane.start()
        try:
            theirs = await counted(plane, nodes, program, directory)
            mine = await counted(plane, nodes, Path(), directory)
        finally:
            await plane.stop()
    print(table(theirs, mine))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=50, help="50: Neutron takes so many routes")
    asyncio.run(run(parser.parse_args().nodes))
