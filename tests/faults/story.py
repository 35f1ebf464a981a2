"""The demo's story in a hurry, in which the manager is killed and started again.

The moment of a kill is a call to the cloud, or a share of a phase's length, which a story without
a kill has shown: so it falls into the phase on a slow machine, too.
"""

import asyncio
import io
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

from proreus.kube.objects import TAINT_UNINITIALIZED, has_taint
from proreus.kube.requests import NODES, SERVICES
from proreus.testing.controlplane import ControlPlane
from proreus.testing.demo.narrator import Narrator, running
from proreus.testing.demo.node_ports import NodePorts
from proreus.testing.demo.stage import MACHINES, Manager, Stage, machines
from proreus.testing.demo.story import Story
from proreus.testing.kubelet import KubeletPlayer
from proreus.testing.nodemonitor import NodeMonitor
from proreus.testing.simulated import Instance, Settings

from ..apiserver.rights import MANAGERS  # noqa: TID252 - pytest imports tests by path
from ..apiserver.site import Site, set_up  # noqa: TID252 - pytest imports tests by path

LATENCY = 0.03
GRACE = 1.5
LOG_TAIL = 6000
FLAGS = (
    "--leader-elect=false",  # a killed leader's lease is another test's business
    "--node-monitor-period=500ms",
    "--node-deletion-interval=1s",
)


Moment = Callable[[Site], Awaitable[None]]
"""Waits, from the beginning of a phase, until the manager is to be killed."""


def after(seconds: float) -> Moment:
    """So much later."""

    async def wait(_: Site) -> None:
        await asyncio.sleep(seconds)

    return wait


def at_call(number: int) -> Moment:
    """When the manager has called the cloud so many times."""

    async def wait(site: Site) -> None:
        before = len(await site.cloud.admin.calls())
        while True:
            started = time.monotonic()
            if len(await site.cloud.admin.calls()) >= before + number:
                return
            # Looking must not slow down what is looked for.
            await asyncio.sleep(max(LATENCY / 2, 3 * (time.monotonic() - started)))

    return wait


class Play:
    """One story, in which the manager is killed now and then or not at all."""

    def __init__(self, site: Site, stage: Stage, machines: Sequence[Instance]) -> None:
        self.took: dict[str, float] = {}
        self._site = site
        self._stage = stage
        self._machines = machines
        self._killing = asyncio.Lock()
        self._told = io.StringIO()
        self._story = Story(stage, Narrator(self._told))

    async def tell(self, kills: Mapping[str, Moment]) -> None:
        """Play it to the end, and check the end; `kills` says in which phases, and when."""
        phases: dict[str, Callable[[], Awaitable[None]]] = {
            "initialise": self._story.initialise,
            "route": self._story.route,
            "serve": self._story.serve,
            "lose": self._story.lose_a_machine,
            "delete": self._story.delete_the_service,
        }
        await self._story.register()
        await self._stage.manager.start()
        async with asyncio.TaskGroup() as killer:
            for name, play in phases.items():
                if name in kills:
                    killer.create_task(self._kill_at(kills[name]))
                began = time.monotonic()
                await play()
                self.took[name] = time.monotonic() - began
        await self._check_end()

    async def _kill_at(self, moment: Moment) -> None:
        await moment(self._site)
        async with self._killing:
            await self._stage.manager.kill()
            await self._stage.manager.start()

    async def _check_end(self) -> None:
        """All other nodes are there and as they were, and nothing is left of the Service."""
        nodes = {node.metadata.name: node for node in (await self._site.client.list(NODES)).items}
        kept = {one.name for one in await self._site.cloud.admin.instances()}
        assert len(kept) == MACHINES - 1
        assert nodes.keys() == kept
        assert not [name for name, one in nodes.items() if has_taint(one, TAINT_UNINITIALIZED)]
        assert all(node.spec.provider_id for node in nodes.values())
        services = (await self._site.client.list(SERVICES)).items
        assert {one.metadata.name for one in services} == {"kubernetes"}
        parts = await self._site.cloud.admin.parts()
        assert {part["kind"] for part in parts} == {"route"}
        # The lost machine's route goes after two looks, which the story does not wait for.
        assert len(nodes) <= len(parts) <= MACHINES
        assert {node.spec.pod_cidr for node in nodes.values()} <= {
            part["destination"] for part in parts
        }
        await self._check_history(kept)

    async def _check_history(self, kept: set[str]) -> None:
        """No part was ever made twice, and no Node but the lost machine's was ever deleted.

        A create that is repeated finds what the first made, and is answered with 200.
        """
        calls = await self._site.cloud.admin.calls()
        made = [one.operation for one in calls if one.status == HTTPStatus.CREATED]
        assert sorted(made) == [
            "addresses.create",
            "firewalls.create",
            "listeners.create",
            "load_balancers.create",
            *["routes.create"] * MACHINES,
        ]
        lost = {machine.name for machine in self._machines} - kept
        deletes = [one for one in self._site.writes() if one.verb == "delete"]
        assert {one.object_ref.name for one in deletes} == lost

    def told(self) -> str:
        """The story so far, and the end of the manager's log."""
        return f"{self._told.getvalue()}\n{self._stage.manager.output()[-LOG_TAIL:]}"


@asynccontextmanager
async def stage(plane: ControlPlane, directory: Path) -> AsyncIterator[Play]:
    """The demo's stage on an API server that is there, with everything quicker."""
    async with set_up(plane, directory, Settings(latency=LATENCY)) as site:
        made = await site.cloud.admin.create(machines(site.cloud.endpoint))
        stage = Stage(plane, site.cloud, site.client)
        stage.manager = Manager(plane.kubeconfig_for("manager", [MANAGERS]), site.cloud, directory)
        stage.manager.flags = (*stage.manager.flags, *FLAGS)
        kubelets = KubeletPlayer(
            site.client,
            site.cloud.admin.instances,
            lease_period=0.4,
            status_period=1.0,  # a node that was taken for silent is soon Ready again
        )
        monitor = NodeMonitor(site.client, grace=GRACE, period=0.3)
        ports = NodePorts(site.client, site.cloud.admin.instances)
        async with running(
            asyncio.create_task(kubelets.run()),
            asyncio.create_task(monitor.run()),
            asyncio.create_task(ports.run()),
        ):
            play = Play(site, stage, made)
            try:
                yield play
            finally:
                print(play.told())
                await stage.manager.kill()
