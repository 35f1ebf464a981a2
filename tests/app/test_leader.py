"""The work of a replica, on an API server in memory."""

import asyncio
from typing import Any

import pytest

from proreus.app.election import Election
from proreus.app.leader import Leader
from proreus.app.options import Options
from proreus.cloudprovider import CloudProvider, Context
from proreus.controllers.environment import Environment
from proreus.controllers.table import Descriptor
from proreus.kube.config import ClientConfig
from proreus.kube.objects import Node
from proreus.kube.requests import NODES
from proreus.serving.health import Health
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer


class Cloud(CloudProvider):
    """One that is there, and has nothing that the controllers below ask for."""

    name = "there"

    async def start(self, context: Context) -> None:
        self.instances: Any = object()

    async def close(self) -> None:
        pass


class Notes:
    """How many controllers were begun, and which of them heard of which node."""

    def __init__(self) -> None:
        self.begun = 0
        self.heard: list[tuple[int, str]] = []


class Controller:
    """Hears of nodes; the first `bad` ones raise before they are made."""

    is_busy = False

    def __init__(self, env: Environment, notes: Notes, bad: int) -> None:
        notes.begun += 1
        self._number = notes.begun
        self._notes = notes
        env.nodes.subscribe(self._hear)
        env.services.subscribe(lambda old, new: None)
        if self._number <= bad:
            raise RuntimeError("not made")
        self._stopped = asyncio.Event()

    def _hear(self, old: Node | None, new: Node | None) -> None:
        if new is not None:
            self._notes.heard.append((self._number, new.metadata.name))

    async def run(self) -> None:
        await self._stopped.wait()

    def stop(self) -> None:
        self._stopped.set()


@pytest.mark.parametrize("bad", [0, 2])
@virtual_time
async def test_a_controller_that_could_not_be_made_is_not_notified(bad: int) -> None:
    notes = Notes()
    async with MemoryApiServer() as server:
        leader = Leader(
            Options(cloud_provider="there", leader_elect=False),
            Cloud(None),
            ClientConfig(server=server.url),
            Health(),
            chosen=[
                Descriptor(
                    name="noting",
                    alias="noting",
                    capability="instances",
                    create=lambda env: Controller(env, notes, bad),
                    rules=(),
                    account="",
                )
            ],
            election=Election(),
        )
        stop = asyncio.Event()
        work = asyncio.create_task(leader.run(stop))
        while notes.begun <= bad:
            await asyncio.sleep(1)
        server.store.create(NODES, "", {"metadata": {"name": "new"}})
        while not notes.heard:
            await asyncio.sleep(1)
        stop.set()
        assert await work == 0
    assert notes.heard == [(bad + 1, "new")]


@virtual_time
async def test_it_leads_with_the_provider_that_the_standby_ended_with() -> None:
    class Counted(Cloud):
        starts = 0

        async def start(self, context: Context) -> None:
            self.starts += 1
            await super().start(context)

    began_with, succeeding = Counted(None), Counted(None)
    async with MemoryApiServer() as server:
        leader = Leader(
            Options(cloud_provider="there", leader_elect=False),
            began_with,
            ClientConfig(server=server.url),
            Health(),
            chosen=[],
            election=Election(),
        )
        leader.succeed(succeeding)
        stop = asyncio.Event()
        work = asyncio.create_task(leader.run(stop))
        while not succeeding.starts:
            await asyncio.sleep(1)
        stop.set()
        assert await work == 0
    assert (began_with.starts, succeeding.starts) == (0, 1)
