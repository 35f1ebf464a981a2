"""What the tests of the provider `cloudstack` share: an emulator with machines, and a provider."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from proreus.cloudprovider.calls import CallHooks
from proreus.cloudprovider.config import read
from proreus.cloudprovider.context import Context
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.instances import InstanceAnswer
from proreus.kube.objects import Node
from proreus.providers.cloudstack import CloudStackCloud
from proreus.providers.cloudstack.config import CloudStackConfig
from proreus.testing import objects

from ..surroundings import Events, Objects  # noqa: TID252 - pytest imports tests by path
from .emulator.server import Emulator

CLUSTER = ClusterIdentity("test", "0b5e3a1c-0000-4000-8000-000000000001")


def context(
    hooks: CallHooks | None = None,
    cluster: ClusterIdentity = CLUSTER,
    nodes: Iterable[Node] = (),
    services: Objects | None = None,
) -> Context:
    every = {name: Objects() for name in CloudStackCloud.needs}
    return Context(
        cluster,
        now=lambda: datetime.now(UTC),
        events=Events(),
        listers={**every, "nodes": Objects(nodes), "services": services or Objects()},
        hooks=hooks,
    )


def cloud(text: str) -> CloudStackCloud:
    """A provider with this cloud-config, not started yet."""
    return CloudStackCloud(read(text, CloudStackConfig, source="cloud-config"))


@asynccontextmanager
async def started(
    emulator: Emulator,
    extra: str = "",
    sections: str = "",
    cluster: ClusterIdentity = CLUSTER,
    nodes: Iterable[Node] = (),
    *,
    services: Objects | None = None,
) -> AsyncIterator[CloudStackCloud]:
    """A started provider that speaks to the emulator; the calls of its start are forgotten."""
    provider = cloud(emulator.config(extra, sections))
    provider.confirm = 1.0
    try:
        await provider.start(context(cluster=cluster, nodes=nodes, services=services))
        emulator.calls.clear()
        yield provider
    finally:
        await provider.close()


async def describe(provider: CloudStackCloud, *nodes: Node) -> Mapping[str, InstanceAnswer]:
    assert provider.instances is not None
    return await provider.instances.describe(nodes)


def node(name: str, provider_id: str = "") -> Node:
    return objects.node(name, provider_id)
