"""A cluster on GCE moves from the official manager to this one and back, and keeps its parts."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from proreus.testing.controlplane import ControlPlane
from proreus.testing.waiting import until

from ....apiserver.site import PATIENCE  # noqa: TID252 - pytest imports tests by path
from ....parity.compare import surprises  # noqa: TID252
from ...changes import Change, make  # noqa: TID252
from ...play import Picture, port  # noqa: TID252
from ..cloud.server import Gce  # noqa: TID252
from .expected import MEANT
from .managers import build, official, ours
from .picture import KINDS, nodes, picture, playing
from .scenarios import LOCAL, RANGES, STICKY, external, internal
from .stage import STATIC, Stage, staged

pytestmark = pytest.mark.long

QUIET: Final = 4.0
"""Seconds without a write after which a manager is taken to be content."""
FIRST: Final[Mapping[str, Change]] = {
    "plain": external(port(80, 30180)),
    "many": external(port(80, 30280), port(443, 30283), spec=RANGES),
    "sticky": external(port(80, 30380), spec=STICKY),
    "near": external(port(80, 30480), spec=LOCAL),
    "fixed": external(port(80, 30580), spec={"loadBalancerIP": STATIC}),
    "names": internal(port(53, 30653, "UDP")),
    "inner": internal(port(80, 30780), port(443, 30783)),
    "short": external(port(81, 30881)),
    "old": internal(port(82, 30982)),
}
HARMLESS: Final = {"compute.forwardingRules.setLabels", "compute.firewalls.patch"}
"""The patch lets checks of nodes through to all addresses, not the first one's alone."""


async def test_a_cluster_moves_from_the_official_manager_and_back_and_keeps_its_parts(
    control_plane: ControlPlane, gce: Gce, tmp_path: Path
) -> None:
    program = await build(tmp_path)
    async with staged(control_plane, gce, tmp_path) as stage:
        theirs, mine = official(stage, program), ours(stage)
        try:
            await theirs.start()
            await stage.initialised()
            await make(stage.site, FIRST)
            before, ids, machines = await seen(stage), parts(gce), await nodes(stage)
            await theirs.stop()

            gce.requests.clear()
            await mine.start()
            await until("all are ours", lambda: are_ready(stage))
            after = await seen(stage)
            kept = {key: one for key, one in after.items() if "/finalizer " not in key}
            was = {key: one for key, one in before.items() if "/finalizer " not in key}
            found = surprises("services", was, kept, MEANT)
            assert found == [], "\n".join(found)
            assert surprises("nodes", machines, await nodes(stage), MEANT) == []
            assert set(gce.writes()) <= HARMLESS
            assert parts(gce) == ids

            await stage.change(
                "inner", internal(port(80, 30780), port(443, 30783), port(8443, 30784))
            )
            await stage.change("plain", external(port(80, 30180), port(443, 30183)))
            await stage.change("short", Change())
            await stage.change("old", Change())
            await make(stage.site, {"late": external(port(83, 31083))})
            edited, ids = await seen(stage), parts(gce)
            await mine.stop()

            gce.requests.clear()
            await theirs.start()
            await until("the official one has looked at all", looked(stage))
            found = [
                one
                for one in surprises("services", await seen(stage), edited, MEANT)
                if "/finalizer " not in one
            ]
            assert found == [], "\n".join(found)
            assert [one for one in gce.writes() if one.endswith((".insert", ".delete"))] in (
                [],
                gce_holds(gce),
            )
            assert parts(gce) == ids

            for name in (*FIRST, "late"):
                if name not in {"short", "old"}:
                    await stage.change(name, Change())
            deadline = time.monotonic() + PATIENCE
            while (rest := left(gce)) and time.monotonic() < deadline:
                await asyncio.sleep(1)
            assert rest == []
        finally:
            await mine.stop()
            await theirs.stop()
            print(mine.output()[-4000:], (tmp_path / "official.log").read_text()[-4000:])


def gce_holds(gce: Gce) -> list[str]:
    """The writes with which the official manager reserves addresses and releases them again."""
    return [one for one in gce.writes() if one.startswith("compute.addresses.")]


async def seen(stage: Stage) -> Picture:
    """What there is, once nothing changes any more."""
    return await playing(stage, lambda *_: True, QUIET).picture()


def parts(gce: Gce) -> dict[str, str]:
    """What load balancers consist of: their ids."""
    with gce.world.lock:
        return {path: one["id"] for kind in KINDS for path, one in gce.world.of(kind)}


async def are_ready(stage: Stage) -> bool:
    """Whether this manager has found all Services to be as they should be."""
    found = await picture(stage)
    ready = [value for key, value in found.items() if key.endswith("condition LoadBalancerReady")]
    return ready == ["True Ensured"] * len(FIRST)


def looked(stage: Stage) -> Callable[[], Awaitable[bool]]:
    """Whether the official manager has ensured all Services since now."""
    log = stage.directory / "official.log"
    start = log.stat().st_size
    names = {*FIRST, "late"} - {"short", "old"}

    async def all_named() -> bool:
        text = log.read_bytes()[start:].decode(errors="replace")
        ensured = text.count('reason="EnsuredLoadBalancer"')
        return ensured >= len(names)

    return all_named


def left(gce: Gce) -> list[str]:
    """What is there that was not before there were Services."""
    return [f"{kind} {name}" for kind in KINDS for name in gce.names(kind) if name != "fixed"]
