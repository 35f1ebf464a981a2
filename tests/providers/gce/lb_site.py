"""What tests of load balancers share: Services, nodes, and what is left in the project."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.load_balancers import (
    Done,
    Ensured,
    LoadBalancer,
    LoadBalancerRef,
    LoadBalancers,
    Pending,
)
from proreus.kube.objects import Node, ObjectMeta, Service, ServicePort, ServiceSpec
from proreus.providers.gce import GCECloud
from proreus.testing import objects

from ..surroundings import Events  # noqa: TID252 - pytest imports tests by path
from .cloud.server import Gce
from .cloud.world import PROJECT, ZONES
from .site import CLUSTER, PATIENT, config_text, context, started

UID = "5e00aaaa-0000-4000-8000-000000000001"
NAME = "a5e00aaaa00004000800000000000000"
KINDS = (
    *("addresses", "backendServices", "firewalls", "forwardingRules", "healthChecks"),
    *("httpHealthChecks", "instanceGroups", "networkEndpointGroups", "targetPools"),
)
SECOND = {"name": "second", "uid": "5e00bbbb-0000-4000-8000-000000000002"}
NODES = {"node-1": ZONES[0], "node-2": ZONES[1]}
HTTP = (80, "TCP")


class Balancing:
    """A started provider, with nodes."""

    def __init__(self, gce: Gce, provider: GCECloud, events: Events) -> None:
        self.gce = gce
        self.events = events
        assert provider.load_balancers is not None
        self.verbs: LoadBalancers = provider.load_balancers
        self.nodes: list[Node] = [
            objects.node(name, f"gce://{PROJECT}/{zone}/{name}") for name, zone in NODES.items()
        ]

    @staticmethod
    def service(
        *ports: tuple[int, str],
        name: str = "web",
        uid: str = UID,
        annotations: Mapping[str, str] | None = None,
        finalizers: Sequence[str] = (),
        **spec: Any,
    ) -> Service:
        made = tuple(
            ServicePort(port, f"p-{port}", protocol) for port, protocol in ports or (HTTP,)
        )
        return Service(
            metadata=ObjectMeta(
                name=name,
                namespace="shop",
                uid=uid,
                annotations=annotations or {},
                finalizers=tuple(finalizers),
            ),
            spec=ServiceSpec(type="LoadBalancer", ports=made, **spec),
        )

    def desired(
        self, service: Service, nodes: Sequence[Node] | None = None, cluster: Any = CLUSTER
    ) -> LoadBalancer:
        policy = self.verbs.host_policy(service)
        chosen = self.nodes if nodes is None else nodes
        return desired_load_balancer(service, chosen, policy, cluster)

    async def answer(self, lb: LoadBalancer) -> object:
        return (await self.verbs.ensure([lb]))[lb.ref.uid]

    async def ensured(self, lb: LoadBalancer) -> Ensured:
        for _ in range(50):
            answer = await self.answer(lb)
            if not isinstance(answer, Pending):
                break
            await asyncio.sleep(0.05)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Ensured), answer
        return answer

    async def make(self, *ports: tuple[int, str], **fields: Any) -> str:
        """Ensure a Service; its address."""
        answer = await self.ensured(self.desired(self.service(*ports, **fields)))
        return answer.ingress[0].ip

    async def deleted(self, ref: LoadBalancerRef) -> Done:
        for _ in range(50):
            answer = (await self.verbs.delete([ref]))[ref.uid]
            if not isinstance(answer, Pending):
                break
            await asyncio.sleep(0.05)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Done), answer
        return answer

    async def delete(self, **fields: Any) -> Done:
        ref = self.desired(self.service(**fields)).ref
        return await self.deleted(msgspec.structs.replace(ref, service=None))

    def left(self) -> dict[str, list[str]]:
        """What there is, by kind."""
        return {kind: names for kind in KINDS if (names := self.gce.names(kind))}


@asynccontextmanager
async def balancing(
    gce: Gce, extra: str = "", sections: str = PATIENT, /, **listers: Any
) -> AsyncIterator[Balancing]:
    """A provider with two nodes, whose tag is the beginning of their names."""
    events = Events()
    for name, zone in NODES.items():
        gce.run(name, zone=zone)
    async with started(
        config_text(gce, extra, sections), context(events=events, **listers)
    ) as provider:
        site = Balancing(gce, provider, events)
        gce.requests.clear()
        gce.calls.clear()
        yield site


@pytest.fixture
async def lbs(gce: Gce) -> AsyncIterator[Balancing]:
    async with balancing(gce) as site:
        yield site
