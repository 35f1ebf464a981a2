"""A load balancer that was there is believed gone only if the cloud shows none twice in a row."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from proreus.cloudprovider import (
    CloudError,
    Done,
    Ensured,
    LoadBalancer,
    LoadBalancerRef,
    Pending,
)
from proreus.kube.objects import LoadBalancerIngress
from proreus.kube.requests import SERVICES
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer, Store

from .leading import EPOCH, Balancers, Cloud, leading

FAILED = CloudError("the cloud is out of order")
LIE = Done(found=False)
WITHDRAWN = Pending(0.0, "marked", withdrawn=True)
WORKING = Pending(1.0, "the cloud deletes it")
RESTART = None


class OneBalancer(Balancers):
    """One load balancer, and what a deletion is answered before it is carried out."""

    def __init__(self, answers: Sequence[Any]) -> None:
        self.answers = list(answers)
        self.is_there = False
        self.restart = asyncio.Event()

    async def ensure(self, desired: Sequence[LoadBalancer]) -> Mapping[str, Any]:
        self.is_there = True
        return {one.ref.uid: Ensured((LoadBalancerIngress(ip="192.0.2.1"),)) for one in desired}

    async def delete(self, gone: Sequence[LoadBalancerRef]) -> Mapping[str, Any]:
        return {one.uid: await self._answer() for one in gone}

    async def _answer(self) -> Any:
        if self.answers and self.answers[0] is RESTART:
            self.restart.set()
            await asyncio.sleep(3600)
        if self.answers:
            return self.answers.pop(0)
        was_there, self.is_there = self.is_there, False
        return Done(found=was_there)


ROWS: Mapping[str, Sequence[Any]] = {
    "missing": [LIE],
    "missing after a restart": [RESTART, LIE],
    "missing, shown, missing": [LIE, WORKING, LIE],
    "withdrawn, missing": [WITHDRAWN, LIE],
    "withdrawn, failed, missing": [WITHDRAWN, FAILED, LIE],
    "withdrawn, failed, missing after a restart": [WITHDRAWN, FAILED, RESTART, LIE],
}


@pytest.mark.parametrize(
    ("answers", "is_forced"),
    [
        pytest.param(answers, is_forced, id=f"{name}, finalizer taken away" if is_forced else name)
        for name, answers in ROWS.items()
        # A manager that starts cannot know of a Service that is gone.
        for is_forced in ([False] if RESTART in answers else [False, True])
    ],
)
def test_one_listing_without_it_leaves_no_load_balancer_behind(
    answers: Sequence[Any], *, is_forced: bool
) -> None:
    @virtual_time
    async def play() -> bool:
        loop = asyncio.get_running_loop()
        store = Store(lambda: EPOCH + timedelta(seconds=loop.time()))
        spec = {"type": "LoadBalancer", "ipFamilies": ["IPv4"], "ports": [{"port": 80}]}
        store.create(SERVICES, "shop", {"metadata": {"name": "web"}, "spec": spec})
        balancers = OneBalancer(answers)

        async def manager(managers: AsyncExitStack) -> None:
            led = leading(server.url, Cloud(balancers), "service-lb-controller")
            await managers.enter_async_context(led)

        async with MemoryApiServer(store) as server, AsyncExitStack() as managers:
            await manager(managers)
            await asyncio.sleep(10)
            assert balancers.is_there
            store.delete(SERVICES, store.get(SERVICES, "shop", "web"), {})
            if is_forced:
                found = store.get(SERVICES, "shop", "web")
                metadata = {**found.body["metadata"], "finalizers": []}
                store.update(SERVICES, found, {**found.body, "metadata": metadata})
            if RESTART in answers:
                await balancers.restart.wait()
                balancers.answers = balancers.answers[1:]
                await managers.aclose()
                await manager(managers)
            await asyncio.sleep(600)
            assert not store.count(SERVICES)
        return balancers.is_there

    assert not play()
