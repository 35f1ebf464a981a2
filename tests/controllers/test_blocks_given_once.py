"""Another cloud-config comes while a pod CIDR is being written, and the watch of the nodes is silent."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from aiohttp.web import Request

from proreus.kube.requests import NODES
from proreus.testing.clock import virtual_time
from proreus.testing.memory import Fault, FaultMode, MemoryApiServer, Store

from .leading import EPOCH, Balancers, Cloud, leading

IPAM = "node-ipam-controller"
SILENT = 700.0
"""Seconds until a watch has ended; the next one fails."""
TRIED = 400.0
"""Seconds in which each failed write is tried again."""


def blocks(store: Store, *names: str) -> Mapping[str, str]:
    return {name: store.get(NODES, "", name).body["spec"].get("podCIDR", "") for name in names}


@virtual_time
async def test_a_block_whose_write_had_no_answer_goes_to_no_other_node_with_another_provider() -> (
    None
):
    loop = asyncio.get_running_loop()
    store = Store(lambda: EPOCH + timedelta(seconds=loop.time()))
    cloud = Cloud(Balancers())
    cidrs = ("10.0.0.0/23",)
    async with (
        MemoryApiServer(store) as server,
        leading(server.url, cloud, IPAM, allocate_node_cidrs=True, cluster_cidr=cidrs) as leader,
    ):
        store.create(NODES, "", {"metadata": {"name": "former"}})
        await asyncio.sleep(5)
        assert blocks(store, "former") == {"former": "10.0.0.0/24"}
        store.delete(NODES, store.get(NODES, "", "former"), {})
        server.inject(Fault(FaultMode.ERROR, "patch", "nodes", count=0))
        for name in ("a", "b"):
            store.create(NODES, "", {"metadata": {"name": name}})
        await asyncio.sleep(5)
        server.inject(Fault(FaultMode.ERROR, "watch", "nodes", count=0))
        await asyncio.sleep(SILENT)
        server.clear_faults()
        server.inject(Fault(FaultMode.LOST, "patch", "nodes"))
        server.inject(Fault(FaultMode.ERROR, "patch", "nodes", count=0))
        server.inject(Fault(FaultMode.ERROR, "watch", "nodes", count=0))
        await asyncio.sleep(TRIED)
        assert sorted(map(bool, blocks(store, "a", "b").values())) == [False, True]

        await leader.replace_cloud(Cloud(Balancers()))
        server.clear_faults()
        await asyncio.sleep(SILENT)

        assert sorted(blocks(store, "a", "b").values()) == ["10.0.0.0/24", "10.0.1.0/24"]


class SlowLists(MemoryApiServer):
    """An API server that is slow to send a list, such as one of many pages, all of one moment."""

    seconds = 0.0

    async def _answered(self, request: Request, verb: str, target: Any) -> tuple[bytes, int]:
        answer = await super()._answered(request, verb, target)
        if verb == "list":
            await asyncio.sleep(self.seconds)
        return answer


@virtual_time
async def test_a_block_that_a_node_was_seen_to_have_goes_to_no_other_after_an_older_list() -> None:
    """The list had begun before the block was written, and a GET has shown that meanwhile."""
    loop = asyncio.get_running_loop()
    store = Store(lambda: EPOCH + timedelta(seconds=loop.time()))
    cidrs = ("10.0.0.0/24",)
    async with (
        SlowLists(store) as server,
        leading(server.url, Cloud(Balancers()), IPAM, allocate_node_cidrs=True, cluster_cidr=cidrs),
    ):
        server.inject(Fault(FaultMode.ERROR, "patch", "nodes", count=0))
        for name in ("a", "b"):
            store.create(NODES, "", {"metadata": {"name": name}})
        await asyncio.sleep(5)
        server.seconds = 25.0
        await server.stop()
        store.forget()
        await server.start()
        await asyncio.sleep(3)  # the list has begun
        server.clear_faults()
        await asyncio.sleep(SILENT)
        assert sorted(blocks(store, "a", "b").values()) == ["", "10.0.0.0/24"]
