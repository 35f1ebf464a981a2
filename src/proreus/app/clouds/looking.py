"""Start every cloud of several for a command that only looks, and let each answer for its own."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from proreus.app import readonly
from proreus.app.clouds.config import rules_of
from proreus.app.clouds.registry import Clouds, alone
from proreus.app.clouds.several import flags_of, members_of, names_of
from proreus.app.clouds.undecided import UndecidedCloud
from proreus.app.options import Options
from proreus.cloudprovider import (
    CloudError,
    CloudProvider,
    ClusterIdentity,
    Lister,
    Ownership,
)
from proreus.controllers.service.intake import UNDECIDED
from proreus.kube.objects import KubeObject, Node, Service


class Look(msgspec.Struct, frozen=True):
    """One cloud to look at, with what belongs to it.

    Attributes:
        name: The cloud's name; "" for the only one.
        kind: The name of its provider.
        cloud: The cloud's provider, or the error that kept it from starting.
        routed: The provider for routes, which owns no node that may belong to another cloud.
        nodes: The nodes that belong to it.
        others: All other nodes.
        services: The Services that belong to it.
    """

    name: str
    kind: str
    cloud: CloudProvider | CloudError
    routed: CloudProvider | CloudError
    nodes: tuple[Node, ...]
    others: tuple[Node, ...]
    services: tuple[Service, ...]


@asynccontextmanager
async def looks(
    provider: CloudProvider,
    identity: ClusterIdentity,
    listers: Mapping[str, Lister[KubeObject]],
    objects: tuple[Sequence[Node], Sequence[Service]],
    options: Options,
) -> AsyncIterator[Sequence[Look]]:
    """Start the only cloud, or each of several; the last Look is of what belongs to no one cloud.

    If one of several clouds cannot be started, the others are started all the same.

    Args:
        provider: The provider, or the provider that holds those of several clouds.
        identity: Which cluster this is.
        listers: The caches that providers may read.
        objects: All nodes and all Services.
        options: The flags.

    Raises:
        CloudError: The only cloud cannot be started.
    """
    nodes, services = objects
    members = members_of(provider)
    async with AsyncExitStack() as stack:
        started: dict[str, CloudProvider | CloudError] = {}
        for name, member in members.items():
            flags = flags_of(member, options.provider_flags)
            context = readonly.started(member, identity, listers, flags=flags)
            try:
                started[name] = await stack.enter_async_context(context)
            except CloudError as exc:
                if not name:
                    raise
                started[name] = exc
        if "" in started:
            cloud = started[""]
            if isinstance(cloud, CloudProvider):
                cloud = alone(cloud, names_of(provider))
            yield [Look("", provider.name, cloud, cloud, tuple(nodes), (), tuple(services))]
            return
        clouds = Clouds(tuple(members), rules_of(options))
        for name, one in started.items():
            if isinstance(one, CloudProvider):
                clouds.start(name, one)
        undecided = UndecidedCloud(clouds)
        undecided.answer()
        kinds = {name: member.name for name, member in members.items()}
        found = {**started, UNDECIDED: undecided}
        yield [
            _look(clouds, name, kinds.get(name, ""), one, objects) for name, one in found.items()
        ]


def _look(
    clouds: Clouds,
    name: str,
    kind: str,
    cloud: CloudProvider | CloudError,
    objects: tuple[Sequence[Node], Sequence[Service]],
) -> Look:
    nodes, services = objects
    own = {node.metadata.name: node for node in nodes if clouds.node_of(name, node) is not None}
    seen = (clouds.service_of(name, service) for service in services)
    routed = cloud
    if isinstance(cloud, CloudProvider) and name != UNDECIDED:
        routed = clouds.of_member(name, cloud, undecided=Ownership.NO)
        cloud = clouds.of_member(name, cloud, undecided=Ownership.UNKNOWN)
    return Look(
        name,
        kind,
        cloud,
        routed,
        tuple(own.values()),
        tuple(node for node in nodes if node.metadata.name not in own),
        tuple(service for service in seen if service is not None),
    )
