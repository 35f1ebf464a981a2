"""A whole manager on oVirt: nodes come, stop, move and leave while engine and password change."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import pytest

from proreus.kube.objects import LABEL_REGION, LABEL_ZONE, TAINT_SHUTDOWN, has_taint
from proreus.testing.controlplane import ControlPlane
from proreus.testing.manager import ManagerProcess
from proreus.testing.simulated import Instance
from proreus.testing.waiting import until

from ...apiserver.site import Site, all_of, is_initialised, set_up  # noqa: TID252 - pytest imports tests by path
from .emulator.server import LOST, Engine
from .site import PREFIX

T = TypeVar("T")

FLAGS: Final = (
    "--cloud-provider=ovirt",
    "--node-status-update-frequency=2s",
    "--node-monitor-period=1s",
    "--node-deletion-interval=2s",
    "--node-startup-grace=0s",
)
AT_THE_START: Final = {"sso.token": 503, "api.get": LOST, "clusters.list": 500}
WHILE_JOINING: Final = {"vms.list": LOST, "instancetypes.list": 502}
WHILE_LEAVING: Final = {"vms.list": 429, "vms.get": 500}


class Life:
    """A cluster whose machines are in one engine."""

    def __init__(self, site: Site, engine: Engine, directory: Path, patience: float) -> None:
        self.site = site
        self.engine = engine
        self.world = engine.world
        self._patience = patience
        self._file = directory / "ovirt.conf"
        self.ids: dict[str, str] = {}
        self.configure()

    def configure(self) -> None:
        """Write the cloud-config with the password of now."""
        self._file.write_text(self.engine.config(sections="[filters]\nvms = tag=kubernetes"))

    def manager(self) -> ManagerProcess:
        return self.site.lone_manager(*FLAGS, f"--cloud-config={self._file}")

    async def until(self, what: str, attempt: Callable[[], Awaitable[T | None]]) -> T:
        return await until(what, attempt, self._patience)

    def fail(self, failures: dict[str, int]) -> None:
        for name, status in failures.items():
            self.engine.fail(name, status)

    async def join(self, names: Sequence[str]) -> None:
        """Start machines in two clusters; their kubelets register Nodes."""
        other = self.world.add_cluster("rack-2", self.world.center)
        for cluster, some in ((self.world.cluster, names[::2]), (other, names[1::2])):
            ids = self.world.add_vms(some, cluster=cluster, tags=["kubernetes"])
            self.ids |= dict(zip(some, ids, strict=True))
        self.world.add_vms(["desktop-1"], tags=["desktops"])
        await all_of(
            self.site.register_node(Instance(name=name, id=self.ids[name]), ready=True)
            for name in names
        )

    async def leave(self, *names: str) -> None:
        for name in names:
            self.world.remove(self.ids[name])
        await self.site.silence(*names)

    async def initialised(self, names: Sequence[str]) -> bool:
        """Whether exactly these nodes are there, with all that their machines tell."""
        nodes = await self.site.nodes()
        return nodes.keys() == set(names) and all(
            one.spec.provider_id == f"{PREFIX}{self.ids[name]}"
            and is_initialised(one)
            and any(at.type == "InternalIP" for at in one.status.addresses)
            for name, one in nodes.items()
        )

    async def tainted(self, *names: str) -> bool:
        """Whether these nodes, and no others, have the taint of machines that are off."""
        nodes = await self.site.nodes()
        return {name for name, one in nodes.items() if has_taint(one, TAINT_SHUTDOWN)} == set(names)

    async def asked(self, name: str, times: int) -> bool:
        return self.engine.calls[name] >= times


async def live(life: Life, count: int, leaving: int) -> None:
    engine, world = life.engine, life.world
    names = [f"n{number}" for number in range(count)]
    gone, off, rest = names[:leaving], names[leaving], names[leaving:]
    await life.join(names)
    life.fail(AT_THE_START)
    manager = life.manager()
    async with manager:
        life.fail(WHILE_JOINING)
        await life.until("the nodes are initialised", partial(life.initialised, names))
        nodes = await life.site.nodes()
        assert {one.metadata.labels[LABEL_ZONE] for one in nodes.values()} == {"rack-1", "rack-2"}
        assert {one.metadata.labels[LABEL_REGION] for one in nodes.values()} == {"north"}

        # A machine is off; a host goes into maintenance; sessions end; some leave.
        world.stop(life.ids[off])
        await life.site.silence(off)
        await life.until("it is tainted", partial(life.tainted, off))
        world.maintain(world.vms[life.ids[rest[1]]].host)
        engine.end_tokens()
        life.fail(WHILE_LEAVING)
        await life.leave(*gone)
        await life.until("they are gone", partial(life.initialised, rest))

        # Another password; the one before is refused, and the account not locked.
        engine.password = "planted-password-0002"
        engine.end_tokens()
        before = engine.calls["sso.token"]
        await life.site.silence(rest[1])
        await life.until("the old one is sent", partial(life.asked, "sso.token", before + 1))
        life.configure()
        before = engine.calls["vms.list"]
        await life.until("the new one serves", partial(life.asked, "vms.list", before + 2))

        # A user who is shown nothing: whoever seems to be gone stays.
        engine.is_admin = False
        before = engine.calls["vms.list"]
        world.remove(life.ids[rest[2]])
        await life.site.silence(rest[2])
        await life.until("it asks", partial(life.asked, "vms.list", before + 3))
        await manager.kill()
        await manager.start()
        assert (await life.site.nodes()).keys() == set(rest)
        engine.is_admin = True
        left = [name for name in rest if name != rest[2]]
        await life.until("it is gone now", partial(life.initialised, left))
        assert await life.tainted(off)
    assert engine.rejected < 5
    # That of the manager which was killed is left.
    assert len(engine.tokens) <= 1
    assert "planted-password" not in manager.output()


async def test_nodes_come_stop_move_and_leave_while_an_engine_fails(
    control_plane: ControlPlane, engine: Engine, tmp_path: Path
) -> None:
    async with set_up(control_plane, tmp_path) as site:
        await live(Life(site, engine, tmp_path, 120.0), 6, 1)


@pytest.mark.long
async def test_200_nodes_live_on_an_engine_that_fails(
    control_plane: ControlPlane, engine: Engine, tmp_path: Path
) -> None:
    async with set_up(control_plane, tmp_path) as site:
        await live(Life(site, engine, tmp_path, 600.0), 200, 10)
