"""A whole manager on Photon Controller: nodes come, stop and leave while it fails."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from proreus.testing.controlplane import ControlPlane

from ...apiserver.site import set_up  # noqa: TID252 - pytest imports tests by path
from .emulator.server import LOST, Emulator, served
from .emulator.world import INSIDE, OUTSIDE
from .stage import Stage

WHILE_JOINING: Final[Mapping[str, tuple[int, str, int]]] = {
    "auth.get": (503, "OutOfThreadPoolWorker", 1),
    "vms.list": (LOST, "", 2),
    "vms.page": (404, "PageExpired", 1),
    "vms.networks": (500, "InternalError", 3),
    "tasks.get": (LOST, "", 3),
}
WHILE_LEAVING: Final[Mapping[str, tuple[int, str, int]]] = {
    "vms.list": (404, "NotFound", 2),
    "vms.get": (404, "NotFound", 2),
    "vms.page": (500, "InternalError", 1),
}


@pytest.fixture
async def guarded() -> AsyncIterator[Emulator]:
    """A Photon Controller that wants tokens, over TLS."""
    emulator = Emulator(authentication=True)
    emulator.tls = True
    async with served(emulator) as running:
        yield running


def fail(emulator: Emulator, failures: Mapping[str, tuple[int, str, int]]) -> None:
    for operation, (status, code, times) in failures.items():
        emulator.fail(operation, status, code, times)


async def live(stage: Stage, count: int, leaving: int) -> None:
    """Nodes come, one stops, some leave; credentials change; those that are left stay."""
    emulator, site = stage.emulator, stage.site
    world, names = emulator.world, [f"node-{number}" for number in range(count)]
    gone, off, rest = names[:leaving], names[leaving], names[leaving:]
    world.works, emulator.lightwave.lasts = 0.2, 20
    fail(emulator, WHILE_JOINING)
    async with stage.manager() as manager:
        await stage.join(*names, nics=None)
        both = names[-1]
        world.nics[stage.ids[both]] = [(OUTSIDE, "203.0.113.9"), (INSIDE, "10.99.0.9")]
        nodes = await stage.initialised(names)
        shown = {(at.type, at.address) for at in nodes[names[0]].status.addresses}
        assert ("InternalIP", world.nics[stage.ids[names[0]]][0][1]) in shown
        assert world.most_at_once <= 16

        world.vms[stage.ids[off]]["state"] = "STOPPED"
        await site.silence(off)
        await stage.tainted(off)

        # The password changes: at first the manager has the old one, then a wrong one.
        emulator.lightwave.password = "planted-secret-2"
        emulator.lightwave.tokens.clear()
        await stage.further("auth.get", 1)
        stage.configure(emulator)
        await stage.further("vms.list", 2)
        assert emulator.lightwave.wrong <= 2

        # Another Photon Controller, and then another project: both show none of the machines.
        async with served(Emulator()) as other:
            stage.configure(other)
            await stage.further("status.get", 1, other)
            await site.silence(names[0])
            await stage.further("vms.get", 5, other)
            empty = world.add_project("empty", world.tenant)
            stage.configure(emulator, project=empty)
            await stage.further("vms.get", 5)
            assert (await site.nodes()).keys() == set(names)
        stage.configure(emulator)

        emulator.limit = 60
        fail(emulator, WHILE_LEAVING)
        await stage.leave(*gone)
        await manager.kill()
        await manager.start()
        await stage.initialised(rest)
        world.vms[stage.ids[off]]["state"] = "STARTED"
        await stage.tainted()
        assert not emulator.failures
        assert not emulator.missing
    assert "planted-secret" not in manager.output()


async def test_nodes_come_stop_and_leave_while_photon_controller_fails(
    control_plane: ControlPlane, guarded: Emulator, tmp_path: Path
) -> None:
    guarded.page = 3
    async with set_up(control_plane, tmp_path) as site:
        await live(Stage(site, guarded, tmp_path), 6, 2)


@pytest.mark.long
async def test_200_nodes_live_on_a_photon_controller_that_fails(
    control_plane: ControlPlane, guarded: Emulator, tmp_path: Path
) -> None:
    async with set_up(control_plane, tmp_path) as site:
        await live(Stage(site, guarded, tmp_path, 900.0), 200, 10)
