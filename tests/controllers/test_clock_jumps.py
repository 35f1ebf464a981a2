"""What the manager does not take away early when its clock jumps."""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from proreus.cloudprovider import (
    CloudProvider,
    ClusterIdentity,
    Context,
    Done,
    LoadBalancerRef,
    OwnedObject,
)
from proreus.cloudprovider.instances import InstanceAnswer, NotFound, Ownership
from proreus.kube.objects import TAINT_UNINITIALIZED, Node
from proreus.kube.requests import NODES
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer, Store

from .leading import EPOCH, leading


class NoMachines:
    """A cloud without machines."""

    batch_size = 100

    def owns(self, node: Node) -> Ownership:
        return Ownership.YES

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        return {node.metadata.name: NotFound() for node in nodes}


class LeftOver:
    """A cloud with one listener, whose Service is gone."""

    def __init__(self) -> None:
        self.owned = [OwnedObject("listener", "l-1", "shop/web", "uid-1")]

    def group(self, lb: LoadBalancerRef) -> Hashable:
        return lb.uid

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        return tuple(self.owned)

    async def delete(self, gone: Sequence[LoadBalancerRef]) -> Mapping[str, Any]:
        self.owned.clear()
        return {one.uid: Done() for one in gone}


class Cloud(CloudProvider):
    name = "cloud"

    async def start(self, context: Context) -> None:
        self.instances = NoMachines()
        self.load_balancers: Any = LeftOver()


class Stage:
    """A manager with one controller, whose clock jumps at some time."""

    def __init__(self, jump: timedelta, at: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()
        self._jump, self._at = jump, at
        self.cloud = Cloud(None)
        self.store = Store(lambda: EPOCH + timedelta(seconds=self.seconds))

    @property
    def seconds(self) -> float:
        return self._loop.time() - self._start

    def now(self) -> datetime:
        jumped = self._jump if self.seconds >= self._at else timedelta()
        return EPOCH + timedelta(seconds=self.seconds) + jumped

    @asynccontextmanager
    async def manager(self, controller: str, **flags: Any) -> AsyncIterator[None]:
        async with (
            MemoryApiServer(self.store) as server,
            leading(server.url, self.cloud, controller, now=self.now, **flags),
        ):
            yield

    async def lasts(self, is_there: Callable[[], object]) -> float:
        """Until when something is there."""
        while is_there():
            await asyncio.sleep(1)
            assert self.seconds < 10_000
        return self.seconds


JUMPS = pytest.mark.parametrize(
    ("jump", "at"),
    [
        pytest.param(timedelta(), 0.0, id="none"),
        pytest.param(timedelta(days=1), 20.0, id="forward"),
        pytest.param(timedelta(days=1), 0.0, id="wrong from the start"),
    ],
)


@JUMPS
@virtual_time
async def test_a_node_that_was_never_initialised_keeps_its_grace(
    jump: timedelta, at: float
) -> None:
    stage = Stage(jump, at)
    taint = {"key": TAINT_UNINITIALIZED, "effect": "NoSchedule"}
    spec = {"providerID": "cloud://young", "taints": [taint]}
    stage.store.create(NODES, "", {"metadata": {"name": "young"}, "spec": spec})
    async with stage.manager(
        "cloud-node-lifecycle-controller",
        node_deletion_witnesses=0,
        node_deletion_confirmations=1,
        node_deletion_breaker=1.0,
    ):
        assert 300 <= await stage.lasts(lambda: stage.store.count(NODES)) < 330


@JUMPS
@virtual_time
async def test_what_is_left_over_stays_for_as_long_as_the_flag_sets(
    jump: timedelta, at: float
) -> None:
    stage = Stage(jump, at)
    async with stage.manager(
        "service-lb-controller", load_balancer_resync_period=10.0, delete_leaks_after=600.0
    ):
        while stage.cloud.load_balancers is None:
            await asyncio.sleep(1)
        left = stage.cloud.load_balancers.owned
        assert 600 <= await stage.lasts(lambda: left) < 630
