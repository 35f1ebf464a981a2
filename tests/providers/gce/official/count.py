"""Counts the requests of both managers: `python -m tests.providers.gce.official.count`.

On the emulator, with Go. Requests that wait for an operation, or ask whether it is done, have a column
of their own: the official manager asks every second, and the emulator is quick.
"""

import asyncio
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from proreus.kube.requests import SERVICES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.waiting import until

from ...changes import Change, make  # noqa: TID252 - pytest imports tests by path
from ...play import port  # noqa: TID252
from ..cloud.server import Gce  # noqa: TID252
from ..conftest import environment  # noqa: TID252
from .managers import build, official, ours
from .scenarios import external, internal
from .stage import Stage, staged

QUIET: Final = 5.0
EVENTS: Final = {
    "a first external Service is made": ("web", external(port(80, 30180))),
    "another one is made": ("more", external(port(80, 30280))),
    "it gets another port": ("more", external(port(80, 30280), port(443, 30283))),
    "it is deleted": ("more", Change()),
    "a first internal Service is made": ("db", internal(port(80, 30380))),
    "it is deleted, the last one": ("db", Change()),
}


async def settled(gce: Gce) -> None:
    """Wait until nothing is asked any more but for nodes and routes."""
    since, count = time.monotonic(), -1
    while time.monotonic() - since < QUIET:
        if len(about(gce)) != count:
            since, count = time.monotonic(), len(about(gce))
        await asyncio.sleep(0.2)


def about(gce: Gce) -> list[str]:
    """What was asked for load balancers."""
    return [
        one for one in gce.calls if not one.startswith(("compute.routes.", "compute.instances.get"))
    ]


def summary(calls: list[str]) -> str:
    """Reads, changes, and requests about operations."""
    kinds = Counter(
        "operations"
        if "Operations." in one
        else "reads"
        if one.endswith((".get", ".list", ".aggregatedList", ".listInstances"))
        else "changes"
        for one in calls
    )
    return f"{kinds['reads']} + {kinds['changes']} + {kinds['operations']}"


async def count(stage: Stage) -> dict[str, str]:
    """Let things happen, with a manager that has just begun."""
    gce, found = stage.gce, dict[str, str]()
    await stage.initialised()
    await settled(gce)
    for name, (service, change) in EVENTS.items():
        gce.calls.clear()
        if change.ports:
            await make(stage.site, {service: change})
        else:
            await stage.change(service, change)

            async def is_gone(of: str = service) -> bool:
                listed = await stage.site.client.list(SERVICES, "default")
                return of not in {one.metadata.name for one in listed.items}

            await until(name, is_gone)
        await settled(gce)
        found[name] = summary(about(gce))
    return found


async def main() -> None:
    """Print a row for each event."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        directory, gce = Path(name), Gce()
        plane = ControlPlane(log_dir=directory)
        environment(patch, gce)
        program = await build(directory)
        await plane.start()
        try:
            rows: list[dict[str, str]] = []
            for start in (lambda stage: official(stage, program), ours):
                gce.reset()
                async with staged(plane, gce, directory) as stage, start(stage):
                    rows.append(await count(stage))
        finally:
            gce.close()
            await plane.stop()
    for event in EVENTS:
        print(f"| {event} | {rows[0][event]} | {rows[1][event]} |", file=sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
