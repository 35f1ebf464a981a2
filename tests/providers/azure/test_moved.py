"""Machines that are moved to another resource group work on: their Nodes stay.

https://learn.microsoft.com/azure/azure-resource-manager/management/move-resource-group-and-subscription
"""

import asyncio

import pytest

from proreus.cloudprovider import IdentityConflict, Instance, NotFound
from proreus.cloudprovider.lookups import swapped
from proreus.kube.client import Client
from proreus.kube.config import ClientConfig
from proreus.kube.objects import Node
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES
from proreus.providers.azure import AzureCloud
from proreus.testing import objects
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer

from ...controllers.leading import leading  # noqa: TID252 - pytest imports tests by path
from .emulator import seed
from .emulator.server import Emulator
from .emulator.store import compute
from .site import ID, config, emulated, started
from .test_instances import describe

HOUR = 3600.0


def reporting(azure: Emulator, id_: str, name: str, *, swap: bool = False) -> Node:
    """A Node whose kubelet reports the UUID of its machine."""
    uuid = azure.store.of[id_.lower()]["properties"]["vmId"]
    tail = id_.partition("/Microsoft.Compute")[2]
    uuid = (swapped(uuid) if swap else uuid).upper()
    return objects.node(name, f"{ID}{tail}", system_uuid=uuid)


@pytest.mark.parametrize("swap", [False, True], ids=["as it is", "swapped"])
async def test_a_machine_that_was_moved_is_not_gone(azure: Emulator, *, swap: bool) -> None:
    ids = [seed.machine(azure.store, f"node-{n}") for n in range(5)]
    nodes = [reporting(azure, id_, f"node-{n}", swap=swap) for n, id_ in enumerate(ids)]
    new = seed.move(azure.store, ids[0], "archive")
    seed.remove_machine(azure.store, ids[1])
    async with started(azure) as provider:
        found = await describe(provider, *nodes)
        assert isinstance(found["node-0"], IdentityConflict)
        assert new in str(found["node-0"])
        assert found["node-1"] == NotFound()
        assert all(isinstance(found[f"node-{n}"], Instance) for n in range(2, 5))


async def test_a_scale_set_that_was_moved_takes_no_node_along(azure: Emulator) -> None:
    set_ = seed.scale_set(azure.store, "pool")
    names = [seed.set_machine(azure.store, "pool", number) for number in range(2)]
    ids = [f"{set_}/virtualMachines/{number}" for number in range(2)]
    nodes = [reporting(azure, id_, name, swap=True) for id_, name in zip(ids, names, strict=True)]
    new = seed.move(azure.store, compute("virtualMachineScaleSets", "pool"), "archive")
    seed.remove_machine(azure.store, f"{new}/virtualMachines/1")
    async with started(azure) as provider:
        found = await describe(provider, *nodes)
    assert isinstance(found[names[0]], IdentityConflict)
    assert f"{new}/virtualMachines/0" in str(found[names[0]])
    assert found[names[1]] == NotFound()


async def test_another_machine_of_the_same_name_keeps_no_node(azure: Emulator) -> None:
    """Such as that of another cluster of the subscription; or who may not look is not told."""
    id_ = seed.machine(azure.store, "node-0")
    node = reporting(azure, id_, "node-0")
    moved = seed.move(azure.store, id_, "archive")
    async with started(azure) as provider:
        azure.readers_of_group_only = True
        assert await describe(provider, node) == {"node-0": NotFound()}
        azure.readers_of_group_only = False
        azure.store.of[moved.lower()]["properties"]["vmId"] = "f" * 8
        assert await describe(provider, node) == {"node-0": NotFound()}


@pytest.mark.parametrize("is_moved", [True, False], ids=["moved", "deleted"])
def test_a_node_without_an_id_stays_whose_machine_was_moved(*, is_moved: bool) -> None:
    """It is looked for by its name in one group, and its kubelet is silent meanwhile."""

    @virtual_time
    async def play() -> set[str]:
        async with (
            emulated() as azure,
            MemoryApiServer() as server,
            Client(ClientConfig(server=server.url)) as client,
        ):
            ids = {name: seed.machine(azure.store, name) for name in ("a", "b", "c", "d")}
            for name, id_ in ids.items():
                uuid = azure.store.of[id_.lower()]["properties"]["vmId"]
                spec = {} if name == "d" else {"providerID": f"{ID}/virtualMachines/{name}"}
                ready = [{"type": "Ready", "status": "True"}]
                status = {"conditions": ready, "nodeInfo": {"systemUUID": uuid}}
                body = {"metadata": {"name": name}, "spec": spec, "status": status}
                await client.create(NODES, body)
            provider = AzureCloud(config(azure.url, vmType="standard"))
            controllers = ("cloud-node-controller", "cloud-node-lifecycle-controller")
            async with leading(
                server.url,
                provider,
                *controllers,
                cloud_provider="azure",
                delete_nodes_by_name=True,
            ):
                await asyncio.sleep(HOUR)
                silent = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
                patch = Patch(PatchType.MERGE, {"status": silent})
                await client.patch(NODES, "d", patch, subresource="status")
                if is_moved:
                    seed.move(azure.store, ids["d"], "archive")
                else:
                    seed.remove_machine(azure.store, ids["d"])
                await asyncio.sleep(HOUR)
                return {one.metadata.name for one in (await client.list(NODES)).items}

    assert play() == {"a", "b", "c", *(["d"] if is_moved else [])}
