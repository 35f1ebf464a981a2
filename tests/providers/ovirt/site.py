"""What the tests of the provider `ovirt` share: an engine with machines, and a provider."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec

from proreus.cloudprovider.config import read
from proreus.cloudprovider.context import Context
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.instances import InstanceAnswer
from proreus.kube.objects import Node, NodeStatus, NodeSystemInfo
from proreus.providers.ovirt import OVirtCloud
from proreus.providers.ovirt.config import OVirtConfig
from proreus.testing import objects

from ..surroundings import Events  # noqa: TID252 - pytest imports tests by path
from .emulator.server import Engine

CLUSTER = ClusterIdentity("test", "0b5e3a1c-0000-4000-8000-000000000001")
PREFIX = "ovirt:///"


def context() -> Context:
    return Context(CLUSTER, now=lambda: datetime.now(UTC), events=Events(), listers={})


def cloud(text: str) -> OVirtCloud:
    """A provider with this cloud-config, not started yet."""
    return OVirtCloud(read(text, OVirtConfig, source="cloud-config"))


@asynccontextmanager
async def started(
    engine: Engine, extra: str = "", sections: str = "", text: str = ""
) -> AsyncIterator[OVirtCloud]:
    """A started provider that speaks to the engine; the calls of its start are forgotten."""
    provider = cloud(text or engine.config(extra, sections))
    try:
        await provider.start(context())
        engine.calls.clear()
        engine.log.clear()
        yield provider
    finally:
        await provider.close()


async def describe(provider: OVirtCloud, *nodes: Node) -> Mapping[str, InstanceAnswer]:
    assert provider.instances is not None
    return await provider.instances.describe(nodes)


async def one(provider: OVirtCloud, of: Node) -> InstanceAnswer:
    return (await describe(provider, of))[of.metadata.name]


def node(name: str, provider_id: str = "", *, uuid: str = "", **labels: str) -> Node:
    made = objects.node(
        name, provider_id, labels={key.replace("__", "/"): value for key, value in labels.items()}
    )
    status = NodeStatus(
        conditions=made.status.conditions, node_info=NodeSystemInfo(system_uuid=uuid)
    )
    return msgspec.structs.replace(made, status=status)
