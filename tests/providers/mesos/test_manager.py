"""A whole manager on Mesos: nodes come, stop and leave while masters fail and change."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from labs.zookeeper import ZooKeeperServer
from proreus.kube.objects import LABEL_REGION, LABEL_ZONE, TAINT_SHUTDOWN, has_taint
from proreus.testing.controlplane import ControlPlane
from proreus.testing.waiting import until

from ...apiserver.site import set_up  # noqa: TID252 - pytest imports tests by path
from .electorate import Electorate
from .emulator import LOST, Cluster
from .stage import Stage
from .world import Status

T = TypeVar("T")

FLAGS = ("--node-deletion-interval=2s", "--node-startup-grace=0s")
SECRETS = ("planted-secret-0001", "planted-secret-0002")
SECTIONS = """
[Client]
principal = proreus
secret-file = {secret}
[Nodes]
type-attribute = machine
label-attribute = rack
"""
LOOKS = 4
"""Questions after which a manager would have deleted a node that it takes for gone."""


class Life:
    """A cluster of Kubernetes whose nodes are agents of Mesos, with three masters."""

    def __init__(self, stage: Stage, patience: float) -> None:
        self.stage, self.mesos, self.patience = stage, stage.mesos, patience
        self.secret = stage.directory / "secret"
        self.secret.write_text(SECRETS[0])
        self.mesos.principal, self.mesos.secret = "proreus", SECRETS[0]
        addresses = ",".join(master.address for master in self.mesos.masters)
        sections = SECTIONS.format(secret=self.secret)
        stage.file.write_text(self.mesos.config(master=addresses, sections=sections))

    async def until(self, what: str, attempt: Callable[[], Awaitable[T | None]]) -> T:
        return await until(what, attempt, self.patience)

    async def asked_more(self, operation: str, times: int = LOOKS) -> None:
        """Wait until an operation was asked for so often more."""
        before = self.mesos.calls[operation]

        async def are_enough() -> bool:
            return self.mesos.calls[operation] >= before + times

        await self.until(f"{operation} is asked for", are_enough)

    async def tainted(self, *names: str) -> bool:
        """Whether these nodes, and no others, have the taint of machines that are off."""
        nodes = await self.stage.site.nodes()
        return {name for name, one in nodes.items() if has_taint(one, TAINT_SHUTDOWN)} == set(names)

    async def come(self, names: list[str]) -> None:
        """Nodes get what their agents tell, although masters fail."""
        attributes = {"machine": "c5.large", "rack": "r1"}
        for number, name in enumerate(names):
            self.mesos.world.add(name, region="eu", zone=f"eu-{number % 2}", attributes=attributes)
        self.mesos.fail("GET_AGENTS", 503, times=3, body=b"Master has not finished recovery")
        await self.stage.register(*names)
        nodes = await self.until(
            "the nodes are initialised", partial(self.stage.initialised, names)
        )
        assert {one.metadata.labels[LABEL_ZONE] for one in nodes.values()} == {"eu-0", "eu-1"}
        assert {one.metadata.labels[LABEL_REGION] for one in nodes.values()} == {"eu"}
        assert {one.metadata.labels["mesos.proreus/rack"] for one in nodes.values()} == {"r1"}

    async def fail_over(self, names: list[str], silent: str) -> None:
        """Another master leads, to which agents come back only later; nothing is deleted."""
        await self.mesos.masters[0].stop()
        self.mesos.elect(1, agents_return=False)
        await self.stage.site.silence(silent)
        await self.asked_more("GET_AGENTS")
        assert await self.stage.initialised(names)
        self.mesos.world.reconnect()
        await self.mesos.masters[0].start()

    async def stop_one(self, name: str) -> None:
        """An agent that an operator has deactivated counts as shut down."""
        self.mesos.world.on(name).deactivated = True
        await self.stage.site.silence(name)
        await self.until("it is tainted", partial(self.tainted, name))

    async def leave(self, gone: list[str], rest: list[str], status: Status) -> None:
        """Agents are unreachable at first, and their nodes stay; then they are gone."""
        for name in gone:
            self.mesos.world.on(name).status = Status.UNREACHABLE
        await self.stage.site.silence(*gone)
        await self.asked_more("registry")
        assert await self.stage.initialised([*gone, *rest])
        if status is Status.REMOVED:
            # Who is not back before may be forgotten only.
            for name in gone:
                self.mesos.world.on(name).status = Status.CONNECTED
            await self.asked_more("GET_AGENTS")
        for operation in ("registry", "GET_MASTER", "GET_AGENTS"):
            self.mesos.fail(operation, LOST, times=2)
        for name in gone:
            self.mesos.world.on(name).status = status
        await self.until("they are gone", partial(self.stage.initialised, rest))
        assert not self.mesos.failures

    async def lose_rights(self, gone: str, rest: list[str]) -> None:
        """A principal that may not read the registry any more deletes nothing."""
        self.mesos.forbidden = {"registry"}
        self.mesos.world.on(gone).status = Status.GONE
        await self.stage.site.silence(gone)
        await self.asked_more("registry")
        assert await self.stage.initialised([gone, *rest])
        self.mesos.forbidden = set()
        await self.until("it is gone", partial(self.stage.initialised, rest))

    async def rotate(self, name: str, all_: list[str]) -> None:
        """A new secret is taken over without a restart."""
        self.mesos.secret = SECRETS[1]
        self.secret.write_text(SECRETS[1])
        await self.stage.join(name)
        await self.until("it is initialised", partial(self.stage.initialised, all_))


async def test_nodes_come_stop_and_leave_while_masters_fail(
    control_plane: ControlPlane, mesos: Cluster, tmp_path: Path
) -> None:
    names = [f"n{number}" for number in range(4)]
    async with set_up(control_plane, tmp_path) as site:
        life = Life(Stage(site, mesos, tmp_path), 120.0)
        async with life.stage.manager(*FLAGS):
            await life.come(names)
            await life.stop_one(names[1])
            await life.leave(names[:1], names[1:], Status.GONE)


@pytest.mark.long
async def test_200_nodes_live_on_masters_that_fail_and_change(
    control_plane: ControlPlane, mesos: Cluster, tmp_path: Path
) -> None:
    names = [f"n{number}" for number in range(200)]
    mesos.fail("GET_AGENTS", LOST)
    async with set_up(control_plane, tmp_path) as site:
        life = Life(Stage(site, mesos, tmp_path), 600.0)
        async with life.stage.manager(*FLAGS):
            await life.come(names)
            await life.fail_over(names, names[30])
            await life.stop_one(names[40])
            await life.leave(names[:10], names[10:], Status.GONE)
            await life.leave(names[10:20], names[20:], Status.REMOVED)
            await life.lose_rights(names[20], names[21:])
            await life.rotate("late", [*names[21:], "late"])
        # One that is killed and started again deletes nothing, and loses no node.
        async with life.stage.manager(*FLAGS) as manager:
            await life.asked_more("GET_AGENTS")
            await manager.kill()
        async with life.stage.manager(*FLAGS):
            await life.leave(["late"], names[21:], Status.GONE)


@pytest.mark.long
async def test_a_manager_follows_the_leader_that_a_real_zookeeper_names(
    control_plane: ControlPlane,
    mesos: Cluster,
    electorate: Electorate,
    zookeeper: ZooKeeperServer,
    tmp_path: Path,
) -> None:
    names = [f"n{number}" for number in range(20)]
    for number in range(3):
        await electorate.join(number)
    async with set_up(control_plane, tmp_path) as site:
        life = Life(Stage(site, mesos, tmp_path), 120.0)
        stage, config = life.stage, life.stage.file.read_text()
        direct = next(line for line in config.splitlines() if line.startswith("mesos-master"))
        hasty = "http-client-timeout = 2s"
        stage.file.write_text(config.replace(direct, f"mesos-master = {electorate.url}\n{hasty}"))
        async with stage.manager(*FLAGS):
            await life.come(names)
            await mesos.masters[0].stop()
            await electorate.leave(0)
            mesos.elect(1)
            await life.leave(names[:2], names[2:], Status.GONE)
            # While ZooKeeper hangs, nodes are looked after, and none is deleted.
            zookeeper.pause()
            mesos.world.on(names[2]).status = Status.GONE
            await site.silence(names[2])
            await stage.join("late")
            there = [*names[2:], "late"]
            await life.until("it is initialised", partial(stage.initialised, there))
            await life.asked_more("GET_AGENTS")
            assert await stage.initialised(there)
            zookeeper.resume()
            # The sessions of masters may have expired meanwhile.
            await electorate.close()
            await electorate.join(1)
            await life.until("it is gone", partial(stage.initialised, there[1:]))
