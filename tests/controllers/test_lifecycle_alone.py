"""The lifecycle controller alone in its process: nobody else there asks about all nodes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from proreus.cloudprovider import NotFound
from proreus.controllers.cloud_node_lifecycle.scopes import ANNOTATION_UNKNOWN
from proreus.kube.client import Client
from proreus.kube.config import ClientConfig
from proreus.kube.objects import Node
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
