"""What the tests of the provider `baidu` share: an emulator with machines, and a provider."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from proreus.cloudprovider.config import read
from proreus.cloudprovider.context import Context
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.instances import InstanceAnswer
from proreus.kube.objects import Node
from proreus.providers.baidu import BaiduCloud
from proreus.providers.baidu.config import BaiduConfig
from proreus.testing import objects

from ..surroundings import Events, Objects  # noqa: TID252 - pytest imports tests by path
from .emulator.server import Emulator

CLUSTER = ClusterIdentity("test", "0b5e3a1c-0000-4000-8000-000000000001")


def context(
    cluster: ClusterIdentity = CLUSTER,
    events: Events | None = None,
    nodes: Iterable[Node] = (),
    services: Objects | None = None,
) -> Context:
    every = {name: Objects() for name in BaiduCloud.needs}
    return Context(
        cluster,
        now=lambda: datetime.now(UTC),
        events=events or Events(),
        listers={**every, "nodes": Objects(nodes), "services": services or Objects()},
    )


def cloud(text: str) -> BaiduCloud:
    """A provider with this cloud-config, not started yet."""
    return BaiduCloud(read(text, BaiduConfig, source="cloud-config"))


@asynccontextmanager
async def started(
    emulator: Emulator,
    cluster: ClusterIdentity = CLUSTER,
    events: Events | None = None,
    nodes: Iterable[Node] = (),
    services: Objects | None = None,
    **config: Any,
) -> AsyncIterator[BaiduCloud]:
    """A started provider that speaks to the emulator."""
    provider = cloud(emulator.config(**config))
    provider.confirm = 1.0
    try:
        await provider.start(context(cluster, events, nodes, services))
        yield provider
    finally:
        await provider.close()


async def describe(provider: BaiduCloud, *nodes: Node) -> Mapping[str, InstanceAnswer]:
    assert provider.instances is not None
    return await provider.instances.describe(nodes)


def node(name: str, id_: str = "", **fields: Any) -> Node:
    return objects.node(name, f"cce://{id_}" if id_ else "", **fields)
