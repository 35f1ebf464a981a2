"""Nodes of bare metal while BBC, an API of its own, does not know its machines, and BCC does."""

import asyncio
from typing import Any

import pytest

from proreus.kube.client import Client
from proreus.kube.config import ClientConfig
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import NODES
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer

from ...controllers.leading import leading  # noqa: TID252 - pytest imports tests by path
from .emulator.server import served
from .site import cloud

MINUTE, HOUR = 60.0, 3600.0
CONTROLLERS = ("cloud-node-controller", "cloud-node-lifecycle-controller")


def ready(status: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": "Ready", "status": status}]}}


def left(gone: set[str], *, is_bbc_blind: bool) -> set[str]:
    """Which Nodes are left an hour after some kubelets fell silent.

    Args:
        gone: Whose machines are released.
        is_bbc_blind: Whether BBC shows none of its machines from then on.
    """

    @virtual_time
    async def play() -> set[str]:
        async with (
            served() as emulator,
            MemoryApiServer() as server,
            Client(ClientConfig(server=server.url)) as client,
        ):
            world = emulator.world
            names = ["a", "b", "c", "d"]
            made = world.add_machines(names, world.add_subnet(world.add_vpc()))
            ids = dict(zip(names, made, strict=True))
            ids |= {name: world.add_bare_metal(name) for name in ("iron", "steel")}
            for name, id_ in ids.items():
                spec = {"providerID": f"cce://{id_}"}
                body = {"metadata": {"name": name}, "spec": spec, **ready("True")}
                await client.create(NODES, body)
            provider = cloud(emulator.config())
            async with leading(server.url, provider, *CONTROLLERS, cloud_provider="cce"):
                await asyncio.sleep(HOUR)
                for name in gone:
                    world.instances.pop(ids[name], None)
                    world.bare_metals.pop(ids[name], None)
                if is_bbc_blind:
                    world.bare_metals.clear()
                silent = gone | ({"iron", "steel"} if is_bbc_blind else set())
                for name in silent:
                    patch = Patch(PatchType.MERGE, ready("Unknown"))
                    await client.patch(NODES, name, patch, subresource="status")
                await asyncio.sleep(HOUR)
                return {one.metadata.name for one in (await client.list(NODES)).items}

    return play()


@pytest.mark.parametrize("gone", [set(), {"d"}], ids=["none", "one of BCC"])
def test_bcc_vouches_for_no_answer_of_bbc(gone: set[str]) -> None:
    everybody = {"a", "b", "c", "d", "iron", "steel"}
    assert left(gone, is_bbc_blind=True) == everybody - gone


def test_bare_metal_that_is_released_goes_where_bbc_shows_other_machines() -> None:
    assert left({"iron", "d"}, is_bbc_blind=False) == {"a", "b", "c", "steel"}
