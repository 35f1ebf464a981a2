"""What the tests of the provider `photon` share: an emulator with machines, and a provider."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from proreus.cloudprovider.config import read
from proreus.cloudprovider.context import Context
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.instances import Instance, InstanceAnswer
from proreus.kube.objects import Node
from proreus.providers.photon import PhotonCloud
from proreus.providers.photon.config import PhotonConfig
from proreus.testing import objects

from ..surroundings import Clock, Events  # noqa: TID252 - pytest imports tests by path
from .emulator.server import Emulator

CLUSTER = ClusterIdentity("test", "0b5e3a1c-0000-4000-8000-000000000001")


def config(emulator: Emulator, client: str = "", **keys: object) -> str:
    """A cloud-config that leads to the emulator, with keys of [Global] and lines of [Client]."""
    known = {"target": emulator.url, "project": emulator.world.project, **keys}
    lines = [f'{key} = "{value}"' for key, value in known.items()]
    return "\n".join(("[Global]", *lines, "[Client]", client)) + "\n"


def cloud(text: str) -> PhotonCloud:
    """A provider with this cloud-config, not started yet."""
    return PhotonCloud(read(text, PhotonConfig, source="cloud-config"))


def context(clock: Clock | None = None) -> Context:
    clock = clock or Clock()
    return Context(CLUSTER, now=clock, uptime=clock.uptime, events=Events(), listers={})


@asynccontextmanager
async def started(
    emulator: Emulator, text: str = "", clock: Clock | None = None
) -> AsyncIterator[PhotonCloud]:
    """A started provider that speaks to the emulator; the calls of its start are forgotten."""
    provider = cloud(text or config(emulator))
    try:
        await provider.start(context(clock))
        emulator.calls.clear()
        yield provider
    finally:
        await provider.close()


async def describe(provider: PhotonCloud, *nodes: Node) -> Mapping[str, InstanceAnswer]:
    assert provider.instances is not None
    return await provider.instances.describe(nodes)


async def one(provider: PhotonCloud, node: Node) -> Any:
    return (await describe(provider, node))[node.metadata.name]


def node(name: str, id_: str = "", **fields: Any) -> Node:
    return objects.node(name, f"photon://{id_}" if id_ else "", **fields)


def addresses(machine: InstanceAnswer) -> list[tuple[str, str]]:
    assert isinstance(machine, Instance)
    return [(it.type, it.address) for it in machine.addresses]
