"""A Node that was Ready only while the cloud was asked had a machine that ran: it stays."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from proreus.cloudprovider.instances import InstanceAnswer, InstanceState, NotFound
from proreus.kube.client import Client
from proreus.kube.config import ClientConfig
from proreus.kube.objects import TAINT_OUT_OF_SERVICE, Node, has_taint
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer

from .leading import leading
from .test_hints import LIFECYCLE, Cloud, Cluster, Machines, add

SLOW, PERIOD = 35.0, 5.0
PASS = SLOW + PERIOD
OFF = {"state": InstanceState.STOPPED, "powered_off": True}


class SlowMachines(Machines):
    """A cloud each of whose answers takes long."""

    def scope(self, node: Node) -> str:
        return "here"

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        await asyncio.sleep(SLOW)
        return await super().describe(nodes)


@pytest.mark.parametrize("wrong", ["gone", "off"])
@pytest.mark.parametrize("reports", [True, False])
def test_a_node_that_was_ready_while_the_cloud_was_asked_needs_new_proofs(
    wrong: str, *, reports: bool
) -> None:
    @virtual_time
    async def play() -> tuple[bool, bool]:
        machines = SlowMachines()
        cloud = Cloud(machines)
        async with MemoryApiServer() as server, Client(ClientConfig(server=server.url)) as client:
            for name, ready in (("a", "True"), ("b", "True"), ("c", "Unknown")):
                await add(client, name, ready, is_initialised=True)
            if wrong == "gone":
                machines.machines["c"] = NotFound()
            else:
                machines.change("c", **OFF)
            flags: dict[str, Any] = {"node_monitor_period": PERIOD}
            flags |= {"node_out_of_service_taint": True, "node_out_of_service_grace": 0.0}
            async with leading(server.url, cloud, LIFECYCLE, **flags):
                made = Cluster(client, machines, cloud.hints)
                await asyncio.sleep(PASS + 5)  # one pass has decided, the next one asks
                if reports:
                    await made.report("c")
                await asyncio.sleep(SLOW - 10)
                await made.silence("c")
                await asyncio.sleep(PASS + 8)  # two more passes have decided
                machines.change("c")  # the cloud corrects itself
                await asyncio.sleep(3 * PASS)
            left = await made.nodes()
            return "c" in left, "c" in left and has_taint(left["c"], TAINT_OUT_OF_SERVICE)

    stays, is_out = play()
    assert (stays and not is_out) is reports
