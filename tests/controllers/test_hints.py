"""A provider hints that machines have changed: their nodes are looked at now, and not too often."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from proreus.cloudprovider import CloudError, CloudProvider, Context, Hints, Instance, NotFound
from proreus.cloudprovider.instances import InstanceAnswer, InstanceState, Ownership
from proreus.controllers.cloud_node_lifecycle.declared import ANNOTATION_GONE
from proreus.kube.client import Client
from proreus.kube.config import ClientConfig
from proreus.kube.objects import TAINT_SHUTDOWN, TAINT_UNINITIALIZED, Node, NodeAddress, has_taint
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer

from .leading import EPOCH, leading

HOUR = 3600.0
NODE, LIFECYCLE = "cloud-node-controller", "cloud-node-lifecycle-controller"


class Machines:
    """A cloud in two scopes, whose other source says of every node that nothing has changed."""

    batch_size = 100

    def __init__(self) -> None:
        self.calls = 0
        self.described: Counter[str] = Counter()
        self.machines: dict[str, InstanceAnswer] = {
            name: self.machine(name) for name in ("a", "b", "c")
        }

    def machine(self, name: str, /, **more: Any) -> Instance:
        known = {"name": name, "addresses": (NodeAddress("InternalIP", "192.0.2.1"),)}
        return Instance(provider_id=f"cloud://{name}", **{**known, **more})

    def owns(self, node: Node) -> Ownership:
        return Ownership.YES

    def scope(self, node: Node) -> str:
        return "east" if node.metadata.name == "a" else "west"

    async def confirmed(self, nodes: Sequence[Node]) -> Collection[str]:
        return {node.metadata.name for node in nodes}

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        self.calls += 1
        names = [node.metadata.name for node in nodes]
        self.described.update(names)
        return {name: self.machines.get(name, NotFound()) for name in names}

    def change(self, name: str, /, **to: Any) -> None:
        self.machines[name] = self.machine(name, **to)


class Cloud(CloudProvider):
    name = "cloud"

    def __init__(self, machines: Machines) -> None:
        super().__init__(None)
        self._machines = machines
        self.hints = Hints()

    async def start(self, context: Context) -> None:
        self.instances = self._machines
        self.hints = context.hints


async def add(client: Client, name: str, ready: str, *, is_initialised: bool) -> None:
    taint = {"key": TAINT_UNINITIALIZED, "value": "true", "effect": "NoSchedule"}
    spec = {"providerID": f"cloud://{name}"} if is_initialised else {"taints": [taint]}
    status = {"conditions": [{"type": "Ready", "status": ready}]}
    await client.create(NODES, {"metadata": {"name": name}, "spec": spec, "status": status})


class Cluster:
    def __init__(self, client: Client, machines: Machines, hints: Hints) -> None:
        self._client = client
        self.machines = machines
        self.hints = hints

    async def nodes(self) -> dict[str, Node]:
        return {one.metadata.name: one for one in (await self._client.list(NODES)).items}

    async def add(self, name: str) -> None:
        await add(self._client, name, "True", is_initialised=False)

    async def silence(self, name: str) -> None:
        """Write what the node monitor writes when a kubelet is silent."""
        await self._is_ready(name, "Unknown")

    async def fail(self, name: str) -> None:
        """Write what a kubelet writes that is not well."""
        await self._is_ready(name, "False")

    async def report(self, name: str) -> None:
        """Write what a kubelet writes that is well."""
        await self._is_ready(name, "True")

    async def declare_gone(self, name: str) -> None:
        """Write what an operator writes who knows that a machine is gone."""
        patch = Patch(PatchType.MERGE, {"metadata": {"annotations": {ANNOTATION_GONE: "true"}}})
        await self._client.patch(NODES, name, patch)

    async def started_on(self, name: str, uuid: str) -> None:
        """Write what a kubelet writes at its start on a machine."""
        await self._report(name, {"nodeInfo": {"systemUUID": uuid}})

    async def _is_ready(self, name: str, ready: str) -> None:
        at = EPOCH + timedelta(seconds=round(asyncio.get_running_loop().time()))
        condition = {"type": "Ready", "status": ready, "lastTransitionTime": at.isoformat()}
        await self._report(name, {"conditions": [condition]})

    async def _report(self, name: str, status: dict[str, object]) -> None:
        patch = Patch(PatchType.MERGE, {"status": status})
        await self._client.patch(NODES, name, patch, subresource="status")

    async def flood(self, seconds: float, *names: str) -> None:
        """Hint every 10 ms."""
        for _ in range(round(seconds * 100)):
            self.hints.changed(*names)
            await asyncio.sleep(0.01)


@asynccontextmanager
async def cluster(controller: str) -> AsyncIterator[Cluster]:
    """Nodes `a`, `b` and a silent `c`, and a controller that does nothing by itself for hours."""
    machines = Machines()
    cloud = Cloud(machines)
    async with (
        MemoryApiServer() as server,
        Client(ClientConfig(server=server.url)) as client,
    ):
        for name, ready in (("a", "True"), ("b", "True"), ("c", "Unknown")):
            await add(client, name, ready, is_initialised=controller == LIFECYCLE)
        async with leading(
            server.url,
            cloud,
            controller,
            node_status_update_frequency=24 * HOUR,
            node_monitor_period=24 * HOUR,
        ):
            await asyncio.sleep(HOUR)
            made = Cluster(client, machines, cloud.hints)
            machines.calls = 0
            machines.described.clear()
            yield made


@virtual_time
async def test_a_new_address_is_on_the_node_within_a_second_of_the_hint() -> None:
    async with cluster(NODE) as made:
        made.machines.change("a", addresses=(NodeAddress("InternalIP", "192.0.2.9"),))
        made.hints.changed("cloud://A", "nobody")
        await asyncio.sleep(1)
        nodes = await made.nodes()
        assert [one.address for one in nodes["a"].status.addresses] == ["192.0.2.9"]
        assert made.machines.described == {"a": 1}


@virtual_time
async def test_a_node_that_was_tried_in_vain_is_initialised_within_a_second_of_the_hint() -> None:
    async with cluster(NODE) as made:
        made.machines.machines["d"] = CloudError("reports no address yet")
        await made.add("d")
        await asyncio.sleep(HOUR)
        tried = made.machines.calls
        made.machines.machines["d"] = made.machines.machine("d")
        made.hints.changed("d")
        await asyncio.sleep(1)
        assert not has_taint((await made.nodes())["d"], TAINT_UNINITIALIZED)
        assert made.machines.calls == tried + 1


@virtual_time
async def test_hints_about_unknown_machines_cost_no_call() -> None:
    async with cluster(NODE) as made:
        await made.flood(10, "cloud://z", "z")
        assert made.machines.calls == 0


@virtual_time
async def test_a_flood_of_hints_costs_a_bounded_number_of_calls() -> None:
    for controller, name in ((NODE, "a"), (LIFECYCLE, "c")):
        async with cluster(controller) as made:
            await made.flood(120, name)
            assert 6 <= made.machines.calls <= 10, controller


@virtual_time
async def test_all_nodes_of_a_scope_are_looked_at_and_again_only_later() -> None:
    async with cluster(NODE) as made:
        made.hints.scope_changed("west")
        await asyncio.sleep(1)
        assert made.machines.described == {"b": 1, "c": 1}
        made.hints.scope_changed("west")
        await asyncio.sleep(20)
        assert made.machines.described == {"b": 1, "c": 1}
        await asyncio.sleep(20)
        assert made.machines.described == {"b": 2, "c": 2}


@virtual_time
async def test_a_silent_node_whose_machine_stops_is_tainted_within_a_second_of_the_hint() -> None:
    async with cluster(LIFECYCLE) as made:
        made.machines.change("c", state=InstanceState.STOPPED)
        made.hints.changed("c")
        await asyncio.sleep(1)
        nodes = await made.nodes()
        assert [name for name, one in nodes.items() if has_taint(one, TAINT_SHUTDOWN)] == ["c"]


@virtual_time
async def test_a_node_whose_machine_has_stopped_is_tainted_as_soon_as_its_kubelet_is_silent() -> (
    None
):
    async with cluster(LIFECYCLE) as made:
        made.machines.change("a", state=InstanceState.STOPPED)
        made.hints.changed("a")
        await asyncio.sleep(40)
        assert made.machines.calls == 0
        await made.silence("a")
        await asyncio.sleep(1)
        nodes = await made.nodes()
        assert [name for name, one in nodes.items() if has_taint(one, TAINT_SHUTDOWN)] == ["a"]


@virtual_time
async def test_a_hint_about_a_ready_node_asks_nothing_and_deletes_nothing() -> None:
    async with cluster(LIFECYCLE) as made:
        del made.machines.machines["a"]
        await made.flood(10, "a")
        assert made.machines.calls == 0
        assert (await made.nodes()).keys() == {"a", "b", "c"}


@virtual_time
async def test_hints_make_no_proof_of_one_answer_that_a_machine_is_gone() -> None:
    """Several answers must say so, some time apart: a flood does not make them come sooner."""
    async with cluster(LIFECYCLE) as made:
        del made.machines.machines["c"]
        await made.flood(4, "c")
        assert made.machines.described["c"] > 1
        assert (await made.nodes()).keys() == {"a", "b", "c"}
