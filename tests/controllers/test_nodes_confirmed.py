"""Nodes of which another source of the cloud says that nothing has changed: who is asked, and when."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

from proreus.cloudprovider import CloudError, CloudProvider, Context, Instance
from proreus.cloudprovider.instances import InstanceAnswer, Ownership
from proreus.kube.client import Client
from proreus.kube.config import ClientConfig
from proreus.kube.objects import LABEL_ZONE, TAINT_UNINITIALIZED, Node, NodeAddress
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer

from .leading import leading

ROUND = 300.0
"""Seconds between rounds of all nodes, by default."""


class Machines:
    """A cloud with a machine for each node, and a source that knows whatever it is told."""

    batch_size = 100

    def __init__(self) -> None:
        self.described: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self.silent: set[str] = set()
        """Nodes of which the source does not say that nothing has changed."""
        self.fails = False
        self.zone = "z1"

    def owns(self, node: Node) -> Ownership:
        return Ownership.YES

    async def confirmed(self, nodes: Sequence[Node]) -> Collection[str]:
        names = {node.metadata.name for node in nodes}
        self.asked.update(names)
        if self.fails:
            raise CloudError("the source is away")
        return names - self.silent

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        names = [node.metadata.name for node in nodes]
        self.described.update(names)
        return {
            name: Instance(
                provider_id=f"cloud://{name}", name=name, zone=self.zone, region="r1",
                instance_type="m1", addresses=(NodeAddress("InternalIP", "192.0.2.1"),),
            )
            for name in names
        }  # fmt: skip


class Cloud(CloudProvider):
    name = "cloud"

    def __init__(self, machines: Machines) -> None:
        super().__init__(None)
        self._machines = machines

    async def start(self, context: Context) -> None:
        self.instances = self._machines


async def add(client: Client, name: str, ready: str = "True") -> None:
    taint = {"key": TAINT_UNINITIALIZED, "value": "true", "effect": "NoSchedule"}
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    await client.create(
        NODES, {"metadata": {"name": name}, "spec": {"taints": [taint]}, "status": status}
    )


@asynccontextmanager
async def cluster(machines: Machines) -> AsyncIterator[Client]:
    """A cluster with three nodes, `c` of them silent, in the middle between two rounds.

    Their machines have been looked up by their names, and in a second round by their ids.
    """
    async with (
        MemoryApiServer() as server,
        Client(ClientConfig(server=server.url)) as client,
    ):
        for name in ("a", "b"):
            await add(client, name)
        await add(client, "c", "Unknown")
        async with leading(server.url, Cloud(machines), "cloud-node-controller"):
            await asyncio.sleep(1.5 * ROUND)
            assert machines.described == {"a": 2, "b": 2, "c": 2}
            assert not machines.asked
            machines.described.clear()
            yield client


@virtual_time
async def test_the_cloud_itself_is_asked_about_new_nodes_about_silent_ones_and_once_an_hour() -> (
    None
):
    machines = Machines()
    async with cluster(machines):
        await asyncio.sleep(10 * ROUND)
        assert machines.described == {"c": 10}
        assert machines.asked == {"a": 10, "b": 10}
        await asyncio.sleep(4 * ROUND)
        assert machines.described == {"a": 1, "b": 1, "c": 14}


@virtual_time
async def test_what_the_source_does_not_confirm_is_asked_of_the_cloud_and_repaired() -> None:
    machines = Machines()
    machines.silent = {"b"}
    async with cluster(machines) as client:
        for name in ("a", "b"):
            edit = Patch(PatchType.MERGE, {"status": {"addresses": []}})
            await client.patch(NODES, name, edit, subresource="status")
        await asyncio.sleep(ROUND)
        assert machines.described == {"b": 1, "c": 1}
        nodes = {one.metadata.name: one for one in (await client.list(NODES)).items}
        assert nodes["b"].status.addresses


@virtual_time
async def test_a_source_that_fails_costs_nothing_but_its_own_call() -> None:
    machines = Machines()
    machines.fails = True
    async with cluster(machines):
        await asyncio.sleep(3 * ROUND)
        assert machines.asked == {"a": 3, "b": 3}
        assert machines.described == {"a": 3, "b": 3, "c": 3}


@virtual_time
async def test_a_node_with_which_something_is_wrong_is_not_confirmed() -> None:
    machines = Machines()
    async with cluster(machines) as client:
        await client.patch(
            NODES, "a", Patch(PatchType.MERGE, {"metadata": {"labels": {LABEL_ZONE: "moved"}}})
        )
        machines.silent = {"a"}  # its zone differs: as a source must say
        await asyncio.sleep(ROUND)
        machines.silent.clear()
        machines.asked.clear()
        await asyncio.sleep(ROUND)
        assert machines.asked == {"b": 1}
