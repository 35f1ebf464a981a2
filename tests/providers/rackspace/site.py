"""What the tests of the provider `rackspace` share: an emulator with servers, and a provider."""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from proreus.cloudprovider.calls import CallHooks
from proreus.cloudprovider.config import read
from proreus.cloudprovider.context import Context
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.instances import InstanceAnswer
from proreus.kube.objects import Node
from proreus.providers.rackspace import RackspaceCloud
from proreus.providers.rackspace.config import RackspaceConfig
from proreus.testing import objects

from ..surroundings import Events, Objects  # noqa: TID252 - pytest imports tests by path
from .emulator.server import REGION, Emulator

CLUSTER = ClusterIdentity("test", "0b5e3a1c-0000-4000-8000-000000000001")
SCHEME = "rackspace://"


def context(
    hooks: CallHooks | None = None,
    cluster: ClusterIdentity = CLUSTER,
    nodes: Iterable[Node] = (),
    services: Objects | None = None,
) -> Context:
    every = {name: Objects() for name in RackspaceCloud.needs}
    return Context(
        cluster,
        now=lambda: datetime.now(UTC),
        events=Events(),
        listers={**every, "nodes": Objects(nodes), "services": services or Objects()},
        hooks=hooks,
    )


def cloud(text: str) -> RackspaceCloud:
    """A provider with this cloud-config, not started yet."""
    return RackspaceCloud(read(text, RackspaceConfig, source="cloud-config"))


@asynccontextmanager
async def started(
    emulator: Emulator,
    sections: str = "",
    cluster: ClusterIdentity = CLUSTER,
    region: str = REGION,
    nodes: Iterable[Node] = (),
    *,
    services: Objects | None = None,
) -> AsyncIterator[RackspaceCloud]:
    """A started provider that speaks to the emulator; the calls of its start are forgotten."""
    provider = cloud(emulator.config(sections, region))
    provider.confirm = 1.0
    try:
        await provider.start(context(cluster=cluster, nodes=nodes, services=services))
        emulator.calls.clear()
        yield provider
    finally:
        await provider.close()


async def describe(provider: RackspaceCloud, *nodes: Node) -> Mapping[str, InstanceAnswer]:
    assert provider.instances is not None
    return await provider.instances.describe(nodes)


def node(name: str, provider_id: str = "") -> Node:
    return objects.node(name, provider_id)
