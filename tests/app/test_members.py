"""Several clouds in one leader, on an API server in memory: what one does is nothing to the others."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from proreus.app.clouds.several import Several
from proreus.app.election import Election
from proreus.app.leader import Leader
from proreus.app.options import Options
from proreus.cloudprovider import (
    CloudError,
    CloudProvider,
    ConfigError,
    Context,
    InstanceAnswer,
    NotFound,
    Ownership,
)
from proreus.controllers.environment import Environment
from proreus.controllers.table import Descriptor, Sees
from proreus.kube.config import ClientConfig
from proreus.kube.objects import Node
from proreus.kube.requests import NODES
from proreus.serving.health import Health
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer, Store

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Machines:
    """Those of a cloud, told by how provider ids begin."""

    batch_size = 10

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def owns(self, node: Node) -> Ownership:
        if not node.spec.provider_id:
            return Ownership.UNKNOWN
        is_ours = node.spec.provider_id.startswith(self._prefix)
        return Ownership.YES if is_ours else Ownership.NO

    async def describe(self, nodes: list[Node]) -> dict[str, InstanceAnswer]:
        return {node.metadata.name: NotFound() for node in nodes}


class Cloud(CloudProvider):
    """A cloud of a test; what `obstacles` give is raised by its starts, or waited for."""

    name = "cloud"

    def __init__(self, prefix: str, *obstacles: Exception | float) -> None:
        super().__init__(None)
        self._prefix = prefix
        self._obstacles = iter(obstacles)

    async def start(self, context: Context) -> None:
        del context
        match next(self._obstacles, None):
            case Exception() as error:
                raise error
            case float() as seconds:
                await asyncio.sleep(seconds)
        self.instances = Machines(self._prefix)  # type: ignore[assignment]


class Notes:
    """Which nodes the controller of each cloud sees, and what it says of them."""

    def __init__(self) -> None:
        self.running: dict[str, Controller] = {}

    def seen(self, cloud: str) -> set[str]:
        found = self.running.get(cloud)
        return {node.metadata.name for node in found.env.nodes.all()} if found else set()

    def owns(self, cloud: str, name: str) -> Ownership:
        env = self.running[cloud].env
        node = env.nodes.get(name)
        assert node is not None
        assert env.provider.instances is not None
        return env.provider.instances.owns(node)


class Controller:
    """It does nothing but look."""

    is_busy = False

    def __init__(self, env: Environment, notes: Notes) -> None:
        self.env = env
        notes.running[env.cloud] = self
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        await self._stopped.wait()

    def stop(self) -> None:
        self._stopped.set()


def store(*provider_ids: str) -> Store:
    loop = asyncio.get_running_loop()
    made = Store(lambda: NOW + timedelta(seconds=loop.time()))
    for provider_id in provider_ids:
        name = provider_id.rpartition("/")[2]
        made.create(NODES, "", {"metadata": {"name": name}, "spec": {"providerID": provider_id}})
    return made


@asynccontextmanager
async def leading(
    stored: Store,
    notes: Notes,
    clouds: Mapping[str, CloudProvider],
    *,
    sees: Sees = Sees.OWN,
    election: Election | None = None,
) -> AsyncIterator[tuple[Leader, Health]]:
    health = Health()
    async with MemoryApiServer(stored) as server:
        leader = Leader(
            Options(cloud_provider="east=cloud,west=cloud", leader_elect=False),
            Several(clouds),
            ClientConfig(server=server.url),
            health,
            chosen=[
                Descriptor(
                    name="looking",
                    alias="looking",
                    capability="instances",
                    create=lambda env: Controller(env, notes),
                    rules=(),
                    account="",
                    sees=sees,
                    undecided=True,
                )
            ],
            election=election or Election(),
        )
        stop = asyncio.Event()
        work = asyncio.create_task(leader.run(stop))
        try:
            yield leader, health
        finally:
            stop.set()
            assert await work == 0


@virtual_time
async def test_each_cloud_sees_its_own_nodes_and_somebody_those_of_none() -> None:
    notes = Notes()
    stored = store("east://e", "west://w", "other://o")
    stored.create(NODES, "", {"metadata": {"name": "nameless"}})
    async with leading(stored, notes, {"east": Cloud("east"), "west": Cloud("west")}):
        await asyncio.sleep(5)
        assert notes.seen("east") == {"e"}
        assert notes.seen("west") == {"w"}
        assert notes.seen("undecided") == {"o", "nameless"}
        stored.create(NODES, "", {"metadata": {"name": "w2"}, "spec": {"providerID": "west://w2"}})
        await asyncio.sleep(5)
        assert notes.seen("west") == {"w", "w2"}
        assert notes.seen("east") == {"e"}


@virtual_time
async def test_a_controller_that_sees_all_nodes_is_told_which_are_not_its_clouds() -> None:
    notes = Notes()
    stored = store("east://e", "west://w", "both://b")
    stored.create(NODES, "", {"metadata": {"name": "nameless"}})
    clouds = {"east": Cloud(("east", "both")), "west": Cloud(("west", "both"))}  # type: ignore[arg-type]
    for sees, unsure in ((Sees.ALL, Ownership.NO), (Sees.HOSTS, Ownership.UNKNOWN)):
        async with leading(stored, notes, clouds, sees=sees):
            await asyncio.sleep(5)
            assert notes.seen("east") == {"e", "w", "b", "nameless"}
            assert notes.owns("east", "e") is Ownership.YES
            assert notes.owns("east", "w") is Ownership.NO
            assert notes.owns("east", "b") is unsure
            assert notes.owns("east", "nameless") is unsure


@pytest.mark.parametrize("obstacle", [3600.0, CloudError("away"), ConfigError(("wrong",))])
def test_a_cloud_that_does_not_start_is_named_and_keeps_no_other_from_starting(
    obstacle: Exception | float,
) -> None:
    @virtual_time
    async def play() -> None:
        notes = Notes()
        clouds = {"east": Cloud("east"), "west": Cloud("west", obstacle)}
        async with leading(store("east://e", "west://w"), notes, clouds) as (_, health):
            await asyncio.sleep(0.9)
            assert notes.seen("east") == {"e"}
            # What only one owns that has started may yet be claimed by another: nothing deletes it.
            assert notes.owns("east", "e") is Ownership.UNKNOWN
            assert "west" not in notes.running
            assert "the cloud west" in str(health.run())
            if isinstance(obstacle, float):
                return
            await asyncio.sleep(120)
            assert notes.seen("west") == {"w"}
            assert notes.owns("east", "e") is Ownership.YES

    play()


class LateElection(Election):
    """One whose third lease lets the controllers run; the first two are those of others."""

    def __init__(self) -> None:
        super().__init__()
        self._leases = 0

    def runs(self, controller: str) -> bool:
        del controller
        return self._leases == 3

    async def news(self) -> None:
        await asyncio.sleep(5 if self._leases < 3 else 3600)
        self._leases += 1


@virtual_time
async def test_a_lease_that_is_won_later_starts_controllers_while_another_cloud_hangs() -> None:
    notes, election = Notes(), LateElection()
    clouds = {"east": Cloud("east"), "west": Cloud("west", 3600.0)}
    async with leading(store("east://e"), notes, clouds, election=election):
        await asyncio.sleep(12)
        assert "east" not in notes.running
        await asyncio.sleep(5)
        assert notes.seen("east") == {"e"}


@virtual_time
async def test_another_provider_of_one_cloud_leaves_the_controllers_of_others_alone() -> None:
    notes = Notes()
    stored = store("east://e", "west://w", "new://n")
    async with leading(stored, notes, {"east": Cloud("east"), "west": Cloud("west")}) as (
        leader,
        _,
    ):
        await asyncio.sleep(5)
        before = dict(notes.running)
        await leader.replace_cloud(Cloud("new"), "west")
        await asyncio.sleep(5)
        assert notes.running["east"] is before["east"]
        assert notes.running["west"] is not before["west"]
        assert notes.seen("west") == {"n"}
        assert notes.seen("undecided") == {"w"}
