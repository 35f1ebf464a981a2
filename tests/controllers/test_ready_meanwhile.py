"""A Node that was Ready only while the cloud was asked had a machine that ran: it stays."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proreus.cloudprovider.instances import InstanceAnswer, InstanceState, NotFound
from proreus.kube.client import Client
from proreus.kube.config import ClientConfig
from proreus.kube.objects import TAINT_OUT_OF_SERVICE, Node, has_taint
from proreus.kube.requests import NODES
from proreus.testing.clock import virtual_time
from proreus.testing.memory import Fault, FaultMode, MemoryApiServer

from .leading import leading
from .test_hints import LIFECYCLE, Cloud, Cluster, add
from .test_lifecycle_alone import OneScope

SLOW, PERIOD = 35.0, 5.0
PASS = SLOW + PERIOD
OFF = {"state": InstanceState.STOPPED, "powered_off": True}


class SlowMachines(OneScope):
    """A cloud each of whose answers takes long."""

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        await asyncio.sleep(SLOW)
        return await super().describe(nodes)


async def be_well(cluster: Cluster) -> None:
    """The kubelet of c says for half a minute that it is Ready."""
    await cluster.report("c")
    await asyncio.sleep(30)
    await cluster.silence("c")


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
                if reports:
                    await made.silence("c")
                await asyncio.sleep(PASS + 8)  # two more passes have decided
                machines.change("c")  # the cloud corrects itself
                await asyncio.sleep(3 * PASS)
            left = await made.nodes()
            return "c" in left, "c" in left and has_taint(left["c"], TAINT_OUT_OF_SERVICE)

    stays, is_out = play()
    assert (stays and not is_out) is reports


@pytest.mark.parametrize(("seconds", "stays"), [(20, False), (70, True)])
def test_a_node_that_was_ready_and_unknown_stays_though_no_pass_ended_meanwhile(
    seconds: float, *, stays: bool
) -> None:
    """The cloud that is asked has never shown its machine, which is in another account."""

    @virtual_time
    async def play() -> bool:
        machines = SlowMachines()
        machines.machines = {name: machines.machine(name) for name in "abde"}
        cloud = Cloud(machines)
        async with MemoryApiServer() as server, Client(ClientConfig(server=server.url)) as client:
            for name in "abcd":
                await add(client, name, "True", is_initialised=True)
            await add(client, "e", "Unknown", is_initialised=True)  # the cloud is asked about it
            async with leading(server.url, cloud, LIFECYCLE, node_monitor_period=PERIOD):
                made = Cluster(client, machines, cloud.hints)
                await asyncio.sleep(seconds)
                await made.silence("c")
                await asyncio.sleep(8 * PASS)
            return "c" in await made.nodes()

    assert play() is stays


@asynccontextmanager
async def unwatched(server: MemoryApiServer) -> AsyncIterator[None]:
    """Let no watch of Nodes go on meanwhile, and the API server forget what was until then."""
    server.inject(Fault(FaultMode.ERROR, "watch", "nodes", count=0))
    await server.stop()
    await server.start()
    yield
    server.store.forget()
    server.clear_faults()


@pytest.mark.parametrize("wrong", ["gone", "off"])
@pytest.mark.parametrize("reports", [True, False])
def test_a_node_that_was_ready_while_no_watch_went_on_needs_new_proofs(
    wrong: str, *, reports: bool
) -> None:
    """The API server has forgotten by then what was between; the list shows the last state."""

    @virtual_time
    async def play() -> tuple[bool, bool]:
        machines = OneScope()
        cloud = Cloud(machines)
        async with MemoryApiServer() as server, Client(ClientConfig(server=server.url)) as client:
            made = Cluster(client, machines, cloud.hints)
            for name in "abc":
                await add(client, name, "True", is_initialised=True)
            await made.silence("c")
            if wrong == "gone":
                machines.machines["c"] = NotFound()
            else:
                machines.change("c", **OFF)
            flags: dict[str, Any] = {"node_out_of_service_taint": True}
            flags |= {"node_out_of_service_grace": 0.0, "node_deletion_interval": 60.0}
            async with leading(server.url, cloud, LIFECYCLE, **flags):
                await asyncio.sleep(10)
                async with unwatched(server):
                    if reports:
                        await be_well(made)
                await asyncio.sleep(60)
                machines.change("c")  # the cloud corrects itself
                await asyncio.sleep(300)
            left = await made.nodes()
            return "c" in left, "c" in left and has_taint(left["c"], TAINT_OUT_OF_SERVICE)

    stays, is_out = play()
    assert (stays and not is_out) is reports


@virtual_time
async def test_a_kubelet_that_was_well_while_no_watch_went_on_may_have_been_unwell_before() -> None:
    """It said so itself at first, and is silent now: the two states tell nothing of between."""
    machines = OneScope()
    cloud = Cloud(machines)
    async with MemoryApiServer() as server, Client(ClientConfig(server=server.url)) as client:
        made = Cluster(client, machines, cloud.hints)
        for name in "abc":
            await add(client, name, "True", is_initialised=True)
        await made.fail("c")
        machines.machines["c"] = NotFound()  # its machine is made anew
        async with leading(server.url, cloud, LIFECYCLE, node_deletion_interval=60.0):
            await asyncio.sleep(10)
            async with unwatched(server):
                await be_well(made)
            await asyncio.sleep(60)
            machines.change("c")  # which the cloud shows by now
            await asyncio.sleep(300)
        assert "c" in await made.nodes()


@virtual_time
async def test_a_node_whose_kubelet_had_not_reported_yet_may_have_been_ready_while_none_went_on() -> (
    None
):
    machines = OneScope()
    cloud = Cloud(machines)
    async with MemoryApiServer() as server, Client(ClientConfig(server=server.url)) as client:
        made = Cluster(client, machines, cloud.hints)
        for name in "ab":
            await add(client, name, "True", is_initialised=True)
        await client.create(NODES, {"metadata": {"name": "c"}, "spec": {"providerID": "cloud://c"}})
        machines.machines["c"] = NotFound()  # which the cloud does not show yet
        async with leading(server.url, cloud, LIFECYCLE, node_deletion_interval=60.0):
            await asyncio.sleep(10)
            async with unwatched(server):
                await be_well(made)
            await asyncio.sleep(60)
            machines.change("c")
            await asyncio.sleep(300)
        assert "c" in await made.nodes()
