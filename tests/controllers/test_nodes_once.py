"""How often the controller of nodes looks at one: not again for what it has written itself."""

import asyncio
from collections.abc import Mapping, Sequence

from proreus.cloudprovider import CloudProvider, Context, Instance
from proreus.cloudprovider.instances import InstanceAnswer, Ownership
from proreus.controllers.cloud_node.controller import CONTROLLER
from proreus.kube.client import Client
from proreus.kube.config import ClientConfig
from proreus.kube.objects import LABEL_ZONE, TAINT_UNINITIALIZED, Node, NodeAddress, has_taint
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES
from proreus.runtime import metrics
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer

from .leading import leading

BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"


class Machines:
    """A cloud with a machine for each node."""

    batch_size = 100

    def owns(self, node: Node) -> Ownership:
        return Ownership.YES

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        return {
            name: Instance(
                provider_id=f"cloud://{name}",
                name=name,
                zone="z1",
                region="r1",
                instance_type="m1",
                addresses=(NodeAddress("InternalIP", "192.0.2.1"),),
            )
            for name in (node.metadata.name for node in nodes)
        }


class Cloud(CloudProvider):
    name = "cloud"

    async def start(self, context: Context) -> None:
        self.instances = Machines()


def looks() -> float:
    labels = {"controller": CONTROLLER, "result": "ok"}
    return metrics.REGISTRY.get_sample_value("proreus_reconciles_total", labels) or 0.0


async def add(client: Client, *names: str) -> None:
    taint = {"key": TAINT_UNINITIALIZED, "value": "true", "effect": "NoSchedule"}
    for name in names:
        await client.create(NODES, {"metadata": {"name": name}, "spec": {"taints": [taint]}})


@virtual_time
async def test_a_node_is_looked_at_once_for_its_initialisation_and_once_for_an_edit() -> None:
    async with (
        MemoryApiServer() as server,
        Client(ClientConfig(server=server.url)) as client,
    ):
        await add(client, "a", "b")
        before = looks()
        async with leading(server.url, Cloud(None), "cloud-node-controller"):
            await asyncio.sleep(10)
            await add(client, "c", "d", "e")
            await asyncio.sleep(10)
            nodes = (await client.list(NODES)).items
            assert not any(has_taint(node, TAINT_UNINITIALIZED) for node in nodes)
            assert looks() - before == 5

            edit = {"metadata": {"labels": {LABEL_ZONE: "moved"}}}
            await client.patch(NODES, "a", Patch(PatchType.MERGE, edit))
            await asyncio.sleep(10)
            assert (await client.get(NODES, "a")).metadata.labels[BETA_ZONE] == "moved"
            assert looks() - before == 6
