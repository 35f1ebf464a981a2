"""A whole manager on vSphere: nodes come, stop and leave while vCenter and credentials change."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from labs.vsphere import Fault
from proreus.kube.objects import LABEL_REGION, LABEL_ZONE, TAINT_SHUTDOWN, has_taint
from proreus.testing.controlplane import ControlPlane
from proreus.testing.waiting import until

from ...apiserver.site import set_up  # noqa: TID252 - pytest imports tests by path
from .site import Site
from .stage import Stage

T = TypeVar("T")

FLAGS = (
    "--node-deletion-interval=2s",
    "--node-startup-grace=0s",
)
AT_THE_START = (
    Fault("Login", status=503),
    Fault("CreateFilter", lost=True, after_effect=True),
    Fault("WaitForUpdatesEx", times=2, name="SystemError"),
    Fault("WaitForUpdatesEx", lost=True, after_effect=True),
)
WHILE_JOINING = (
    Fault("tag.attached", status=500),
    Fault("category.list", status=429),
)
WHILE_LEAVING = (
    Fault("FindAllByUuid", name="NoPermission"),
    Fault("RetrievePropertiesEx", name="NotAuthenticated"),
    Fault("WaitForUpdatesEx", times=2, status=503),
)


class Life:
    """A cluster whose machines are in a vCenter."""

    def __init__(self, stage: Stage, patience: float) -> None:
        self.stage = stage
        self.patience = patience

    async def until(self, what: str, attempt: Callable[[], Awaitable[T | None]]) -> T:
        return await until(what, attempt, self.patience)

    async def tainted(self, *names: str) -> bool:
        """Whether these nodes, and no others, have the taint of machines that are off."""
        nodes = await self.stage.site.nodes()
        return {name for name, one in nodes.items() if has_taint(one, TAINT_SHUTDOWN)} == set(names)

    async def live(self, count: int, leaving: int, *faults: Fault) -> list[str]:
        """Nodes come, one stops, some leave; the names of those that are left."""
        stage, gateway = self.stage, self.stage.vcenter.gateway
        simulator = stage.vcenter.simulator
        names = [f"n{number}" for number in range(count)]
        gone, off, rest = names[:leaving], names[leaving], names[leaving:]
        await stage.tag()
        # Before there is a filter: the simulator computes each change from all machines.
        await stage.create(*names)
        for fault in (*faults, *WHILE_JOINING):
            gateway.fail(fault)
        async with stage.manager(*FLAGS):
            await stage.register_all(*names)
            nodes = await self.until("the nodes are initialised", partial(stage.initialised, names))
            zones = {one.metadata.labels[LABEL_ZONE] for one in nodes.values()}
            assert zones == {"eu-0", "eu-1"}
            assert {one.metadata.labels[LABEL_REGION] for one in nodes.values()} == {"eu"}

            await simulator.change(off, power="poweredOff", nics=[], hostName="")
            await stage.site.silence(off)
            await self.until("it is tainted", partial(self.tainted, off))
            await simulator.expire()
            for fault in WHILE_LEAVING:
                gateway.fail(fault)
            for name in gone:
                await simulator.destroy(name)
            await stage.site.silence(*gone)
            await self.until("they are gone", partial(stage.initialised, rest))
            assert not gateway.unspent()
        return rest

    async def lose_sight(self, rest: list[str]) -> None:
        """Another manager that can log in but is shown nothing deletes nothing."""
        stage, gateway = self.stage, self.stage.vcenter.gateway
        simulator = stage.vcenter.simulator
        before = gateway.calls["CreatePropertyCollector"]
        hidden = Fault("WaitForUpdatesEx|RetrievePropertiesEx", times=10**6, name="NoPermission")
        gateway.fail(hidden)
        async with stage.manager(*FLAGS):
            await stage.site.silence(rest[1])
            await simulator.destroy(rest[1])
            await self.until("it asks", partial(self.asked, before + 3))
            assert (await stage.site.nodes()).keys() == set(rest)
            gateway.mend()
            left = [name for name in rest if name != rest[1]]
            await self.until("it is gone now", partial(stage.initialised, left))

    async def asked(self, times: int) -> bool:
        return self.stage.vcenter.gateway.calls["CreatePropertyCollector"] >= times


async def test_nodes_come_stop_and_leave_while_a_vcenter_fails(
    control_plane: ControlPlane, vcenter: Site, tmp_path: Path
) -> None:
    async with set_up(control_plane, tmp_path) as site:
        await Life(Stage(site, vcenter, tmp_path), 120.0).live(4, 1)


@pytest.mark.long
async def test_200_nodes_live_on_a_vcenter_that_fails_and_on_one_that_shows_nothing(
    control_plane: ControlPlane, vcenter: Site, tmp_path: Path
) -> None:
    async with set_up(control_plane, tmp_path) as site:
        life = Life(Stage(site, vcenter, tmp_path), 600.0)
        await life.lose_sight(await life.live(200, 10, *AT_THE_START))
