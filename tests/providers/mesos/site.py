"""What the tests of the provider `mesos` share: a provider on an emulated cluster, and Nodes."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from proreus.cloudprovider.config import read
from proreus.cloudprovider.context import Context
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.instances import InstanceAnswer
from proreus.kube.objects import Node
from proreus.providers.mesos import MesosCloud
from proreus.providers.mesos.config import MesosConfig
from proreus.testing import objects

from ..surroundings import Events  # noqa: TID252 - pytest imports tests by path
from .world import Agent


def context() -> Context:
    return Context(
        ClusterIdentity("test", "cluster-uid"),
        now=lambda: datetime.now(UTC),
        events=Events(),
        listers={},
    )


def cloud(text: str) -> MesosCloud:
    """A provider with this cloud-config, not started yet."""
    return MesosCloud(read(text, MesosConfig, source="cloud-config"))


@asynccontextmanager
async def started(text: str) -> AsyncIterator[MesosCloud]:
    provider = cloud(text)
    try:
        await provider.start(context())
        yield provider
    finally:
        await provider.close()


def node(name: str, agent: Agent | str = "", **labels: str) -> Node:
    """A Node; of an agent it has the provider id."""
    id_ = f"mesos://{agent.id}" if isinstance(agent, Agent) else agent
    return objects.node(
        name, id_, labels={key.replace("__", "/"): value for key, value in labels.items()}
    )


async def describe(provider: MesosCloud, *nodes: Node) -> Mapping[str, InstanceAnswer]:
    assert provider.instances is not None
    return await provider.instances.describe(nodes)


async def one(provider: MesosCloud, of: Node) -> InstanceAnswer:
    return (await describe(provider, of))[of.metadata.name]
