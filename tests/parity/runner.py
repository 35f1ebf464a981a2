"""Plays all scripts against one manager and answers their final pictures."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from benchmarks.contestants import Contestant, Process, build_go, command
from proreus.cloudprovider.identity import MARK_CLUSTER_UID
from proreus.kube.errors import KubeError, NotFound
from proreus.kube.requests import NAMESPACES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.simulated import AdminError, Settings

from ..apiserver.site import Site, set_up  # noqa: TID252 - pytest imports tests by path
from .picture import Picture, picture
from .scripts.script import Script, Wave
from .steps import joined
from .world import CLUSTER_CIDRS, PATIENCE, World, look

GO: Final = Contestant(
    "go",
    "the Go framework",
    (
        "--kube-api-qps=1000",
        "--kube-api-burst=1000",
        "--concurrent-node-syncs=8",
        "--concurrent-service-syncs=8",
    ),
    go=True,
)
PACE: Final = (
    "--node-monitor-period=1s",
    "--node-status-update-frequency=2s",
    "--route-reconciliation-period=1s",
    f"--cluster-cidr={','.join(CLUSTER_CIDRS)}",
    "-v=2",
)
"""Flags of both managers: what they do every few minutes they do every few seconds."""
SETTLE: Final = 2.0
"""Seconds that a picture must stay as it is."""
LOOK: Final = 0.5
"""Seconds between looks at all there is."""
FAILED: Final = "the script could not go on"

SETTINGS: Final = Settings(health_interval=0, route_limit=500)
LOG_TAIL: Final = 8000

Judge = Callable[[str, Picture], bool]
"""Whether the picture of a script is as it should be in the end."""


@asynccontextmanager
async def ours(plane: ControlPlane, directory: Path) -> AsyncIterator[tuple[Site, dict[str, str]]]:
    """A site with this manager, and the tags of its routes."""
    async with set_up(plane, directory, SETTINGS) as site:
        uid = (await site.client.get(NAMESPACES, "kube-system")).metadata.uid
        manager = site.lone_manager(*PACE, "--node-deletion-interval=1s")
        async with manager:
            try:
                yield site, {MARK_CLUSTER_UID: uid}
            finally:
                print(manager.output()[-LOG_TAIL:])


@asynccontextmanager
async def go(plane: ControlPlane, directory: Path) -> AsyncIterator[tuple[Site, dict[str, str]]]:
    """A site with the manager of the Go framework, and the tags of its routes."""
    async with set_up(plane, directory, SETTINGS) as site:
        whole = command(
            GO,
            goccm=await build_go(directory),
            kubeconfig=plane.kubeconfig_for("go-manager", ["system:masters"]),
            cloud=site.cloud,
            directory=directory,
            routes=True,
        )
        log = directory / "go-manager.log"
        async with Process([*whole, *PACE], log):
            try:
                yield site, {"goccm-cluster": "kubernetes"}
            finally:
                print(log.read_text(errors="replace")[-LOG_TAIL:])


class Run:
    """One manager's turn."""

    def __init__(
        self, site: Site, routes: Mapping[str, str], judge: Judge, settle: float = SETTLE
    ) -> None:
        """Nothing is played yet.

        Args:
            site: The stage; the manager runs.
            routes: The tags of the manager's routes.
            judge: Pictures are waited for until it is content.
            settle: Seconds for which it must be so.
        """
        self._site = site
        self._routes = routes
        self._judge = judge
        self._settle = settle
        self._number = 0
        self._failures: dict[str, str] = {}

    async def play(self, waves: Sequence[Wave]) -> dict[str, Picture]:
        """Play the waves one after another; those that last meanwhile."""
        lasting = [wave for wave in waves if wave.lasting]
        worlds = {wave.name: self._worlds(wave) for wave in waves}
        tasks = [asyncio.create_task(self._act(one, worlds[one.name])) for one in lasting]
        pictures: dict[str, Picture] = {}
        try:
            for wave in waves:
                if not wave.lasting:
                    pictures |= await self._play(wave, worlds[wave.name])
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        for wave in lasting:
            pictures |= await self._settled(worlds[wave.name])
        return pictures

    def _worlds(self, wave: Wave) -> list[World]:
        return [self._world(one.name) for one in wave.scripts]

    def _world(self, name: str) -> World:
        self._number += 1
        speaks = MARK_CLUSTER_UID in self._routes
        return World(self._site, name, self._number, self._routes, speaks=speaks)

    async def _play(self, wave: Wave, worlds: Sequence[World]) -> dict[str, Picture]:
        started = time.monotonic()
        stage = self._world("stage")
        for step in joined(*(f"n{number}" for number in range(wave.nodes))) if wave.nodes else ():
            await step(stage)
        await self._act(wave, worlds)
        pictures = await self._settled(worlds)
        await self._clear([*worlds, stage])
        print(f"{wave.name}: {time.monotonic() - started:.1f} s")
        return pictures

    async def _act(self, wave: Wave, worlds: Sequence[World]) -> None:
        """The stages of the scripts, each begun together."""
        for number in range(max(len(one.stages) for one in wave.scripts)):
            await asyncio.gather(
                *(
                    self._stage(script, number, world)
                    for script, world in zip(wave.scripts, worlds, strict=True)
                )
            )

    async def _stage(self, script: Script, number: int, world: World) -> None:
        if number >= len(script.stages) or script.name in self._failures:
            return
        try:
            for step in script.stages[number]:
                await step(world)
        except (
            AssertionError,
            KubeError,
            AdminError,
            TimeoutError,
            ValueError,
        ) as error:
            self._failures[script.name] = f"stage {number}: {error!r}"

    async def _settled(self, worlds: Sequence[World]) -> dict[str, Picture]:
        """The pictures, once they are as they should be and stay so, or after long patience."""
        deadline = time.monotonic() + PATIENCE
        since = time.monotonic()
        last: dict[str, Picture] = {}
        while True:
            seen = await look(self._site)
            now = {
                one.cast.name: {FAILED: self._failures[one.cast.name]}
                if one.cast.name in self._failures
                else picture(one.cast, seen)
                for one in worlds
            }
            if now != last or not all(
                FAILED in one or self._judge(name, one) for name, one in now.items()
            ):
                since = time.monotonic()
            last = now
            if time.monotonic() - since >= self._settle or time.monotonic() > deadline:
                return now
            await asyncio.sleep(LOOK)

    async def _clear(self, worlds: Sequence[World]) -> None:
        """Take away what the scripts have left."""
        await self._site.cloud.admin.clear_faults()
        for world in worlds:
            for kind, here in world.cast.written:
                with contextlib.suppress(NotFound):
                    await world.delete(kind, here)
        for world in worlds:
            for kind, here in world.cast.written:
                with contextlib.suppress(NotFound):
                    await world.patch(kind, here, {"metadata": {"finalizers": None}})
        mine = {id_ for world in worlds for id_ in world.cast.machines}
        for one in await self._site.cloud.admin.instances():
            if one.id in mine:
                await self._site.cloud.admin.delete(one.id)
