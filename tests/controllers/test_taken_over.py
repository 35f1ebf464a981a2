"""A Node that the kubelet of another machine goes on with, once the instance of its id is gone."""

import asyncio

import pytest

from proreus.cloudprovider import NotFound
from proreus.kube.client import Client
from proreus.kube.config import ClientConfig
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer

from .leading import leading
from .test_hints import HOUR, LIFECYCLE, NODE, Cloud, Cluster, add
from .test_lifecycle_alone import OneScope

NAMES = ("a", "b", "c", "d")
FORMER = "2e8c1f0a-1234-4abc-9234-0123456789ab"
NEW = "3e8c1f0a-1234-4abc-9234-0123456789ab"


@pytest.mark.parametrize("is_shown", [True, False], ids=["tombstone", "absent"])
@pytest.mark.parametrize(("uuid", "lives"), [(NEW, True), (FORMER, False)])
def test_a_node_goes_with_its_instance_unless_another_machine_reports_for_it(
    uuid: str, *, lives: bool, is_shown: bool
) -> None:
    """It reports for seconds, and falls silent when it begins its work."""

    @virtual_time
    async def play() -> bool:
        machines = OneScope()
        machines.machines |= {name: machines.machine(name) for name in NAMES}
        cloud = Cloud(machines)
        async with MemoryApiServer() as server, Client(ClientConfig(server=server.url)) as client:
            for name in NAMES:
                await add(client, name, "True", is_initialised=True)
            made = Cluster(client, machines, cloud.hints)
            await reports(client, FORMER)
            async with leading(server.url, cloud, NODE, LIFECYCLE):
                await asyncio.sleep(HOUR)
                machines.machines["c"] = NotFound(tombstone=is_shown)
                await asyncio.sleep(20)
                await reports(client, uuid)
                await asyncio.sleep(10)
                await made.silence("c")
                await asyncio.sleep(HOUR)
                return "c" in await made.nodes()

    assert play() is lives


async def reports(client: Client, uuid: str) -> None:
    """Write what a kubelet writes at its start."""
    status = {"nodeInfo": {"systemUUID": uuid}}
    patch = Patch(PatchType.MERGE, {"status": status})
    await client.patch(NODES, "c", patch, subresource="status")
