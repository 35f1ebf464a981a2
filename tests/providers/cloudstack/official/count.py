"""Counts the requests of both managers: `python -m tests.providers.cloudstack.official.count`.

On the emulator, where a job is done when it is asked for first; with Go. A request about a job is a
read. What happens every few minutes is not in the way: nodes are looked at as events.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.simulated import Instance
from proreus.testing.waiting import until

from ....apiserver.site import Site, is_initialised, set_up  # noqa: TID252 - pytest imports tests by path
from ...changes import Change, happen  # noqa: TID252
from ..emulator.server import Emulator, role, served  # noqa: TID252
from .managers import build, official, ours
from .test_migration import PREFIX, port

QUIET: Final = 6.0
"""Seconds without a request after which all is done."""
LONG: Final = 600.0
EXCLUDED: Final = "node.kubernetes.io/exclude-from-external-load-balancers"
PACE: Final = ("--node-status-update-frequency=1h", "--cluster-name=test", "-v=2")

Counts = dict[str, tuple[int, int]]
"""Reads and writes, by what was done."""


class Counter:
    """Counts what one manager asks."""

    def __init__(self, emulator: Emulator) -> None:
        """Nothing yet."""
        self._emulator = emulator
        self.counts: Counts = {}

    async def settled(self, name: str) -> None:
        """Count what was asked since the last time, once nothing is asked any more."""
        count = -1
        while count != len(self._emulator.log):
            count = len(self._emulator.log)
            await asyncio.sleep(QUIET)
        commands = [command for command, _ in self._emulator.log]
        self._emulator.log.clear()
        reads = sum(one.startswith(("list", "query")) for one in commands)
        self.counts[name] = reads, len(commands) - reads
        print(name, self.counts[name], file=sys.stderr, flush=True)


async def events(site: Site, emulator: Emulator, nodes: int) -> Counts:
    """What happens to nodes and to a Service, with a manager that has just begun."""
    counter, world = Counter(emulator), emulator.world

    async def has_begun() -> bool:
        return bool(emulator.log)

    await until("the manager asks", has_begun, LONG)
    await counter.settled("the manager starts")
    names = [f"node-{number}" for number in range(nodes)]
    ids = world.add_machines(names, next(iter(world.networks)))
    for name, id_ in zip(names, ids, strict=True):
        await site.register_node(Instance(name=name, id=id_), ready=True)

    async def are_initialised() -> bool:
        return all(is_initialised(one) for one in (await site.nodes()).values())

    await until("the nodes are initialised", are_initialised, LONG)
    await counter.settled(f"{nodes} nodes are initialised")
    more = Change((port(80, 30080), port(443, 30443)))
    ranges = Change(more.ports, {f"{PREFIX}source-cidrs": "192.0.2.0/24"})
    for name, change, done in (
        ("a Service is made", Change((port(80, 30080),)), has_rules(emulator, 1)),
        ("it gets another port", more, has_rules(emulator, 2)),
        ("its rules get sources", ranges, has_sources(emulator)),
    ):
        await happen(site, "web", change)
        await until(name, done, LONG)
        await counter.settled(name)
    label = {"metadata": {"labels": {EXCLUDED: ""}}}
    await site.client.patch(NODES, names[0], Patch(PatchType.MERGE, label))

    async def is_out() -> bool:
        return all(ids[0] not in members for members in world.members.values())

    await until("the node is out", is_out, LONG)
    await counter.settled("a node goes out of it")
    await happen(site, "web", Change())
    await until("it is gone", has_rules(emulator, 0), LONG)
    await counter.settled("it is deleted")
    return counter.counts


def has_rules(emulator: Emulator, count: int) -> Callable[[], Awaitable[bool]]:
    async def are_there() -> bool:
        return len(emulator.world.rules) == count

    return are_there


def has_sources(emulator: Emulator) -> Callable[[], Awaitable[bool]]:
    async def are_changed() -> bool:
        return all(one["cidrlist"] == "192.0.2.0/24" for one in emulator.world.rules.values())

    return are_changed


async def counted(plane: ControlPlane, nodes: int, program: Path, directory: Path) -> Counts:
    """What one manager asks: the official one, if there is a program."""
    async with served() as emulator, set_up(plane, directory) as site:
        emulator.world.add_network()
        emulator.world.add_addresses("203.0.113.1", 4)
        emulator.rights = None if program.name else role()
        config = directory / "cloud-config"
        config.write_text(emulator.config())
        log = directory / "official.log"
        manager = (
            official(site, program, config, log, PACE) if program.name else ours(site, config, PACE)
        )
        async with manager:
            return await events(site, emulator, nodes)


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
    parser.add_argument("--nodes", type=int, default=100)
    asyncio.run(run(parser.parse_args().nodes))
