"""The least that initialising nodes can cost: the same patches, and no manager around them.

`python -m benchmarks.bare KUBECONFIG` lists the nodes once and then sends, for each of them, the
two patches that the manager sends, with the same client and as many at once: merges of the version
that it knows, the cheapest that the API server offers for this. It writes no Events:
the manager's wait until the nodes are done. Then it waits to be ended.
"""

import asyncio
import sys
from datetime import UTC, datetime

from proreus.cloudprovider.instances import Instance, InstanceState
from proreus.controllers.cloud_node.plan import plan
from proreus.kube import config
from proreus.kube.client import Client
from proreus.kube.objects import Node, NodeAddress
from proreus.kube.requests import NODES
from proreus.runtime.writes import write_node

_CONCURRENCY = 32


async def main(kubeconfig: str) -> None:
    """Initialise all nodes that there are."""
    async with Client(config.load(kubeconfig, env={}), user_agent="bare") as client:
        nodes = (await client.list(NODES)).items
        slots = asyncio.Semaphore(_CONCURRENCY)

        async def one(number: int, node: Node) -> None:
            async with slots:
                await _initialise(client, number, node)

        await asyncio.gather(*(one(number, node) for number, node in enumerate(nodes)))
        await asyncio.Event().wait()


async def _initialise(client: Client, number: int, node: Node) -> None:
    name = node.metadata.name
    change = plan(node, _instance(number, name), datetime.now(UTC), refresh=False)
    if change is None:
        return
    result = await write_node(client, name, status=change.status, main=change.main)
    if result.error is not None:
        raise result.error


def _instance(number: int, name: str) -> Instance:
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return Instance(
        provider_id=f"simulated://sim-1/i-{number:012x}",
        name=name,
        instance_type="sim.large",
        zone="sim-1a",
        region="sim-1",
        addresses=(
            NodeAddress("InternalIP", address),
            NodeAddress("InternalDNS", f"{name}.internal"),
            NodeAddress("Hostname", name),
        ),
        additional_labels={},
        state=InstanceState.RUNNING,
    )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
