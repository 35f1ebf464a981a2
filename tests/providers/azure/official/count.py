"""Counts the requests of both managers: `python -m tests.providers.azure.official.count`.

On the emulator, with Go, for load balancers alone. Where an operation takes its time, requests that
ask how far it has come are added; the emulator is quick.
"""

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

from proreus.kube.requests import SERVICES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.waiting import until

from ...changes import Change, make  # noqa: TID252 - pytest imports tests by path
from ...play import port  # noqa: TID252
from .scenarios import inner, web
from .stage import PATIENCE, Stage, build, staged

QUIET: Final = 8.0
MANY: Final = {f"web-{number}": web(port(80, 30100 + number)) for number in range(50)}
EVENTS: Final = {
    "a first public Service is made": {"web": web(port(80, 30080))},
    "another one is made": {"more": web(port(80, 30081))},
    "it gets another port": {"more": web(port(80, 30081), port(443, 30082))},
    "it is deleted": {"more": Change()},
    "a first internal Service is made": {"db": inner(port(80, 30083))},
    "it is deleted, the last one": {"db": Change()},
    "50 public Services are made at once": MANY,
    "they are deleted at once": dict.fromkeys(MANY, Change()),
}
RESTART: Final = "a restart with 51 Services"
_OTHERS: Final = ("routeTables", "disks")


async def settled(stage: Stage) -> None:
    """Wait until nothing is asked any more but for nodes and routes."""
    since, count = time.monotonic(), -1
    while time.monotonic() - since < QUIET:
        if len(about(stage)) != count:
            since, count = time.monotonic(), len(about(stage))
        await asyncio.sleep(0.2)


def about(stage: Stage) -> list[tuple[str, str]]:
    """What was asked for load balancers."""
    return [one for one in stage.azure.requests if not one[1].endswith(_OTHERS)]


def summary(stage: Stage) -> str:
    """Reads and changes."""
    kinds = Counter("reads" if method == "GET" else "changes" for method, _ in about(stage))
    return f"{kinds['reads']} + {kinds['changes']}"


async def happened(stage: Stage, name: str, changes: dict[str, Change]) -> None:
    """Let these things happen to Services, and wait until nothing is asked any more."""
    gone = {service for service, change in changes.items() if not change.ports}
    for service in gone:
        await stage.change(service, Change())
    await make(stage.site, {k: one for k, one in changes.items() if one.ports}, PATIENCE)

    async def are_gone() -> bool:
        listed = await stage.site.client.list(SERVICES, "default")
        return gone.isdisjoint(one.metadata.name for one in listed.items)

    await until(name, are_gone, PATIENCE)
    await settled(stage)


async def count(
    stage: Stage, begun: Callable[[], AbstractAsyncContextManager[Any]]
) -> dict[str, str]:
    """Let things happen with a manager; the requests by what happened."""
    found: dict[str, str] = {}
    azure = stage.azure
    async with begun():
        await stage.initialised()
        await settled(stage)
        for name, changes in EVENTS.items():
            azure.requests.clear()
            await happened(stage, name, changes)
            found[name] = summary(stage)
        await happened(stage, "made again", MANY)
    azure.requests.clear()
    async with begun():
        await settled(stage)
        found[RESTART] = summary(stage)
        await happened(stage, "end", dict.fromkeys((*MANY, "web"), Change()))
    return found


async def main() -> None:
    """Print a row for each event."""
    rows: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        program = await build(directory)
        plane = ControlPlane(log_dir=directory)
        await plane.start()
        try:
            for is_ours in (False, True):
                async with staged(plane, directory) as stage:
                    await stage.initialise()
                    begun = stage.ours if is_ours else lambda of=stage: of.official(program)
                    rows.append(await count(stage, begun))
        finally:
            await plane.stop()
    for event in (*EVENTS, RESTART):
        print(f"| {event} | {rows[0][event]} | {rows[1][event]} |", file=sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
