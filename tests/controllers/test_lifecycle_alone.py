"""The lifecycle controller alone in its process: nobody else there asks about all nodes."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from proreus.cloudprovider import NotFound
from proreus.cloudprovider.instances import Instance, InstanceAnswer, Ownership
from proreus.controllers.cloud_node_lifecycle.scopes import ANNOTATION_UNKNOWN
from proreus.kube.client import Client
from proreus.kube.config import ClientConfig
from proreus.kube.objects import Node
from proreus.kube.requests import NODES
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer

from .leading import leading
from .test_hints import HOUR, LIFECYCLE, NODE, Cloud, Cluster, Machines, add

_REFRESHED = 300.0


class OneScope(Machines):
    def scope(self, node: Node) -> str:
        return "here"


@asynccontextmanager
async def one_scope(
    *names: str, machines: OneScope | None = None, server: MemoryApiServer | None = None
) -> AsyncIterator[tuple[Cluster, partial[Any]]]:
    """Ready nodes in one scope, and the leader, to be started."""
    machines = machines or OneScope()
    machines.machines = {name: machines.machine(name) for name in names}
    cloud = Cloud(machines)
    async with server or MemoryApiServer() as api, Client(ClientConfig(server=api.url)) as client:
        for name in names:
            await add(client, name, "True", is_initialised=True)
        yield Cluster(client, machines, cloud.hints), partial(leading, api.url, cloud)


def play(*controllers: str, known_for: float) -> tuple[dict[str, Node], int]:
    """Let the cloud lose sight of the machine of `c`, whose kubelet falls silent an hour later."""

    @virtual_time
    async def played() -> tuple[dict[str, Node], int]:
        async with one_scope("a", "b", "c") as (made, lead):
            machines = made.machines
            if not known_for:
                machines.machines["c"] = NotFound()
            async with lead(*controllers):
                await asyncio.sleep(known_for)
                machines.machines["c"] = NotFound()
                machines.calls = 0
                await asyncio.sleep(HOUR)
                calls = machines.calls
                await made.silence("c")
                await asyncio.sleep(HOUR)
                return await made.nodes(), calls

    return played()


@pytest.mark.parametrize("known_for", [0.0, HOUR])
def test_a_node_that_the_cloud_did_not_know_while_it_was_ready_is_not_deleted(
    known_for: float,
) -> None:
    nodes, calls = play(LIFECYCLE, known_for=known_for)
    assert "c" in nodes
    assert ANNOTATION_UNKNOWN in nodes["c"].metadata.annotations
    assert calls <= HOUR / _REFRESHED + 1


def test_beside_the_controller_that_asks_about_all_nodes_it_asks_no_more() -> None:
    nodes, calls = play(NODE, LIFECYCLE, known_for=0.0)
    assert "c" in nodes
    assert calls <= HOUR / _REFRESHED + 1


class ByName(OneScope):
    def owns(self, node: Node) -> Ownership:
        return Ownership.YES if node.spec.provider_id else Ownership.UNKNOWN

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Find what has no provider id by the names that machines have."""
        found = dict(await super().describe(nodes))
        for node in nodes:
            name, one = node.metadata.name, found[node.metadata.name]
            if not node.spec.provider_id and isinstance(one, Instance) and one.name != name:
                found[name] = NotFound()
        return found


@asynccontextmanager
async def by_name(*others: str) -> AsyncIterator[tuple[Cluster, partial[Any]]]:
    """Do as `one_scope`, beside `d` and others without provider ids, whose names are unknown."""
    server = MemoryApiServer()
    async with one_scope("a", "b", "c", machines=ByName(), server=server) as (made, lead):
        status = {"conditions": [{"type": "Ready", "status": "True"}]}
        async with Client(ClientConfig(server=server.url)) as client:
            for name in ("d", *others):
                await client.create(
                    NODES, {"metadata": {"name": name}, "spec": {}, "status": status}
                )
        yield made, partial(lead, delete_nodes_by_name=True)


@pytest.mark.parametrize("controllers", [(LIFECYCLE,), (NODE, LIFECYCLE)])
@virtual_time
async def test_a_node_without_a_provider_id_that_was_ready_and_unknown_is_not_deleted(
    controllers: tuple[str, ...],
) -> None:
    """Such as one whose machine has another name in the cloud than its Node."""
    async with by_name() as (made, lead), lead(*controllers):
        await asyncio.sleep(HOUR)
        await made.silence("d")
        await asyncio.sleep(HOUR)
        assert "d" in await made.nodes()


@pytest.mark.parametrize("others", [(), ("e", "f", "g", "h")])
@virtual_time
async def test_the_next_manager_knows_that_a_node_without_a_provider_id_was_ready(
    others: tuple[str, ...],
) -> None:
    """Such as when the machine falls silent on which the former manager has run.

    Most nodes may be such, which keeps none that has a provider id from being marked, too.
    """
    async with by_name(*others) as (made, lead):
        async with lead(NODE, LIFECYCLE):
            await asyncio.sleep(HOUR)
            made.machines.machines["c"] = NotFound()
            await asyncio.sleep(HOUR)
        await made.silence("d")
        async with lead(NODE, LIFECYCLE):
            await asyncio.sleep(HOUR)
            nodes = await made.nodes()
            for name in ("c", "d", *others):
                assert ANNOTATION_UNKNOWN in nodes[name].metadata.annotations


@virtual_time
async def test_a_ready_node_without_a_provider_id_holds_no_other_one() -> None:
    async with by_name() as (made, lead):
        async with lead(NODE, LIFECYCLE):
            await asyncio.sleep(HOUR)
        await made.silence("c")
        made.machines.machines["c"] = NotFound()
        async with lead(NODE, LIFECYCLE):
            await asyncio.sleep(HOUR)
            assert (await made.nodes()).keys() == {"a", "b", "d"}


@virtual_time
async def test_a_node_without_a_provider_id_goes_after_its_machine_was_shown() -> None:
    async with by_name() as (made, lead), lead(NODE, LIFECYCLE):
        await asyncio.sleep(HOUR)
        assert ANNOTATION_UNKNOWN in (await made.nodes())["d"].metadata.annotations
        made.machines.change("d")
        await asyncio.sleep(HOUR)
        assert ANNOTATION_UNKNOWN not in (await made.nodes())["d"].metadata.annotations
        made.machines.machines["d"] = NotFound()
        await made.silence("d")
        await asyncio.sleep(HOUR)
        assert "d" not in await made.nodes()


@virtual_time
async def test_a_node_without_a_provider_id_whose_machine_was_renamed_is_not_deleted() -> None:
    """Such as one of CloudStack, which has to be stopped for that; its kubelet keeps the name."""
    async with by_name() as (made, lead), lead(NODE, LIFECYCLE):
        made.machines.change("d")
        await asyncio.sleep(HOUR)
        made.machines.change("d", name="renamed")
        await made.silence("d")
        await asyncio.sleep(HOUR)
        assert "d" in await made.nodes()
        made.machines.machines["d"] = NotFound()
        await asyncio.sleep(HOUR)
        assert "d" not in await made.nodes()
