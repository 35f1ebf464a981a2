"""Managers with the provider `local` in this thread's network, and what Services ask of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from proreus.app import readonly
from proreus.cloudprovider import ClusterIdentity, Context, Done, Ensured, LoadBalancer
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.kube.objects import (
    LoadBalancerIngress,
    Node,
    ServicePort,
)
from proreus.providers.local import LocalCloud
from proreus.providers.local.asked import ANNOTATION_SHARING_KEY
from proreus.providers.local.config import Gateway, HealthChecks, LocalConfig, PoolConfig
from proreus.testing import objects
from proreus.testing.waiting import until

from .traffic import NODES

CLUSTER = ClusterIdentity("one", "uid-of-one")
PORTS = tuple(
    ServicePort(port, f"{protocol.lower()}-{port}", protocol)
    for port in (80, 81)
    for protocol in ("TCP", "UDP")
)
"""Without node ports: nothing here needs them."""


class Nothing:
    def get(self, key: str) -> None: ...

    def all(self) -> tuple[()]:
        return ()

    def by(self, index: str, value: str) -> tuple[()]:
        return ()

    def event(self, ref: Any, type_: str, reason: str, message: str, /) -> None:
        raise AssertionError(f"an event: {reason}")


class Nodes(Nothing):
    """These are all that the cluster has, hosts or not."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self._nodes = nodes

    def all(self) -> tuple[Node, ...]:  # type: ignore[override]  # some, not none
        return self._nodes


@asynccontextmanager
async def manager(
    *addresses: str,
    patience: float = 10.0,
    draining: float = 60.0,
    hold: float = 0.0,
    nodes: tuple[Node, ...] = (),
) -> AsyncIterator[tuple[Any, Context]]:
    """The provider in a new process, so to speak: it knows nothing but what the kernel holds."""
    config = LocalConfig(
        pools={"default": PoolConfig(addresses=addresses)},
        health_checks=HealthChecks(
            interval=timedelta(seconds=0.1), timeout=timedelta(seconds=patience)
        ),
        draining=timedelta(seconds=draining),
        gateway=Gateway(hold=timedelta(seconds=hold)),
    )
    provider = LocalCloud(config)
    context = Context(
        CLUSTER,
        now=lambda: datetime.now(UTC),
        events=Nothing(),
        listers={"services": Nothing(), "nodes": Nodes(nodes)},
    )
    await provider.start(context)
    try:
        yield provider.load_balancers, context
    finally:
        await provider.close()


@asynccontextmanager
async def reader(*addresses: str) -> AsyncIterator[Any]:
    """The same for a command such as `doctor`, which changes nothing, nor repairs by itself."""
    provider = LocalCloud(LocalConfig(pools={"default": PoolConfig(addresses=addresses)}))
    listers = {"services": Nothing(), "nodes": Nothing()}
    async with readonly.started(provider, CLUSTER, listers, flags={}) as started:
        yield started.load_balancers


def node(name: str) -> Node:
    return objects.node(name, f"local://{name}", addresses=NODES[name])


def desired(
    balancers: Any, *names: str, name: str = "web", key: str = "", has: str = "", **spec: Any
) -> LoadBalancer:
    service = objects.service(
        name,
        uid=f"uid-of-{name}",
        annotations={ANNOTATION_SHARING_KEY: key} if key else {},
        ingress=[LoadBalancerIngress(ip=has, ip_mode="VIP")] if has else [],
        **{"ports": PORTS, "ip_families": ("IPv4", "IPv6"), **spec},
    )
    return desired_load_balancer(
        service, [node(one) for one in names], balancers.host_policy(service), CLUSTER
    )


async def ensure(balancers: Any, *several: LoadBalancer) -> list[tuple[str, ...]]:
    answers = await balancers.ensure(several)
    found = []
    for one in several:
        answer = answers[one.ref.uid]
        assert isinstance(answer, Ensured), answer
        assert answer.rejected == {}
        assert {point.ip_mode for point in answer.ingress} == {"VIP"}
        found.append(tuple(point.ip for point in answer.ingress))
    return found


async def delete(balancers: Any, *several: LoadBalancer) -> None:
    answers = await balancers.delete([one.ref for one in several])
    assert all(isinstance(one, Done) for one in answers.values())


async def eventually(condition: Any) -> None:
    await until("what the test waits for", condition)
