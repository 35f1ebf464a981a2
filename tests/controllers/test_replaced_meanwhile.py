"""A Node is deleted and made anew while the cloud is asked about it: the answer is of its machine."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from proreus.cloudprovider import Context
from proreus.cloudprovider.instances import InstanceAnswer, NotFound
from proreus.kube.client import Client
from proreus.kube.config import ClientConfig
from proreus.kube.objects import Node
from proreus.kube.requests import NODES
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer

from .leading import leading
from .test_hints import HOUR, LIFECYCLE, NODE, Cloud, Cluster, add
from .test_lifecycle_alone import OneScope

SLOW = 20.0


class SlowMachines(OneScope):
    """A cloud whose answers take long; the former machine has the name of the next one."""

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        answers = dict(await super().describe(nodes))
        if "former" not in self.machines:
            gone = [one for one in nodes if one.spec.provider_id == "cloud://former"]
            answers |= {one.metadata.name: NotFound() for one in gone}
        await asyncio.sleep(SLOW)
        return answers


@pytest.mark.parametrize("was_initialised", [True, False])
def test_the_next_machine_gets_not_the_id_of_the_former_and_keeps_its_node(
    *, was_initialised: bool
) -> None:
    """The kubelet is not Ready at first, and the former machine is gone by then."""

    @virtual_time
    async def play() -> dict[str, str]:
        machines = SlowMachines()
        cloud = Cloud(machines)
        machines.machines["former"] = machines.machines["c"] = machines.machine("former")
        async with MemoryApiServer() as server, Client(ClientConfig(server=server.url)) as client:
            for name in "ab":
                await add(client, name, "True", is_initialised=True)
            spec = {"providerID": "cloud://former"} if was_initialised else {}
            await client.create(NODES, {"metadata": {"name": "c"}, "spec": spec})
            made = Cluster(client, machines, cloud.hints)
            async with leading(server.url, cloud, NODE, LIFECYCLE):
                await asyncio.sleep(SLOW / 2)
                await client.delete(NODES, "c")
                del machines.machines["former"]
                machines.change("c")
                await add(client, "c", "False", is_initialised=False)
                await asyncio.sleep(HOUR)
            return {name: one.spec.provider_id for name, one in (await made.nodes()).items()}

    assert play().get("c") == "cloud://c"


class Ranges:
    """The pod CIDRs of machines, which a cloud is slow to tell."""

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, tuple[str, ...]]:
        await asyncio.sleep(SLOW)
        return {n.metadata.name: (f"10.0.{n.spec.provider_id[-1]}.0/24",) for n in nodes}


class Ranged(Cloud):
    async def start(self, context: Context) -> None:
        await super().start(context)
        self.pod_cidrs: Any = Ranges()


@virtual_time
async def test_nor_the_pod_cidr_of_the_former_machine() -> None:
    """The API server takes pod CIDRs once, and the cloud gives that one to others."""
    cloud = Ranged(OneScope())
    flags: dict[str, Any] = {"allocate_node_cidrs": True, "cidr_allocator_type": "IPAMFromCloud"}
    async with MemoryApiServer() as server, Client(ClientConfig(server=server.url)) as client:
        async with leading(server.url, cloud, "node-ipam-controller", **flags):
            for machine in ("1", "2"):
                body = {"metadata": {"name": "c"}, "spec": {"providerID": f"cloud://{machine}"}}
                await client.create(NODES, body)
                await asyncio.sleep(SLOW / 2)
                if machine == "1":
                    await client.delete(NODES, "c")
            await asyncio.sleep(HOUR)
        assert (await client.get(NODES, "c")).spec.pod_cidr == "10.0.2.0/24"
