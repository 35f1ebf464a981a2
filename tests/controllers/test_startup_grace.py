"""What the clocks say of the age of a Node that was never initialised."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from proreus.app.election import Election
from proreus.app.leader import Leader
from proreus.app.options import Options
from proreus.cloudprovider import CloudProvider, Context
from proreus.cloudprovider.instances import InstanceAnswer, NotFound, Ownership
from proreus.controllers.table import CONTROLLERS
from proreus.kube.config import ClientConfig
from proreus.kube.objects import TAINT_UNINITIALIZED, Node
from proreus.kube.requests import NODES
from proreus.runtime.health import Health
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer, Store

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
GRACE = 300.0


class Nothing:
    """A cloud without machines."""

    batch_size = 100

    def owns(self, node: Node) -> Ownership:
        return Ownership.YES

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        return {node.metadata.name: NotFound() for node in nodes}


class Empty(CloudProvider):
    name = "empty"

    async def start(self, context: Context) -> None:
        self.instances = Nothing()


async def lifetime(jump: timedelta, at: float) -> float:
    """For how many seconds a Node stays; the manager's clock jumps `at` that time of them."""
    loop = asyncio.get_running_loop()
    start = loop.time()

    def right() -> datetime:
        return EPOCH + timedelta(seconds=loop.time() - start)

    def wrong() -> datetime:
        return right() + (jump if loop.time() - start >= at else timedelta())

    async with MemoryApiServer(Store(right)) as server:
        leader = Leader(
            Options(
                cloud_provider="empty",
                leader_elect=False,
                node_deletion_witnesses=0,
                node_deletion_confirmations=1,
                node_deletion_breaker=1.0,
            ),
            Empty(None),
            ClientConfig(server=server.url),
            Health(),
            chosen=[one for one in CONTROLLERS if one.name == "cloud-node-lifecycle-controller"],
            election=Election(),
            now=wrong,
        )
        taint = {"key": TAINT_UNINITIALIZED, "effect": "NoSchedule"}
        spec = {"providerID": "empty://young", "taints": [taint]}
        server.store.create(NODES, "", {"metadata": {"name": "young"}, "spec": spec})
        stop = asyncio.Event()
        work = asyncio.create_task(leader.run(stop))
        while server.store.count(NODES):
            await asyncio.sleep(1)
        ended = loop.time() - start
        stop.set()
        assert await work == 0
    return ended


@virtual_time
async def test_a_node_is_as_old_as_both_clocks_say() -> None:
    assert GRACE <= await lifetime(timedelta(), 0.0) < GRACE + 30
    assert GRACE <= await lifetime(timedelta(days=1), 20.0) < GRACE + 30
    # A clock that is wrong from the start, as that of a machine that has just booted.
    assert GRACE <= await lifetime(timedelta(days=1), 0.0) < GRACE + 30
    assert GRACE + 100 <= await lifetime(timedelta(seconds=-100), 20.0) < GRACE + 130
