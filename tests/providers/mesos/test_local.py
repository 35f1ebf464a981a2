"""Load balancers of the provider `local` before agents of Mesos, as the guide pairs them."""

import asyncio
import shutil
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from proreus.cloudprovider import Context, Done, Ensured
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.instances import Instance, Ownership
from proreus.controllers.service.hosts import candidates
from proreus.kube.objects import Node
from proreus.providers.local import LocalCloud
from proreus.providers.local.config import (
    HealthChecks,
    InstancesConfig,
    LocalConfig,
    PoolConfig,
)
from proreus.testing import objects

from ..local_manager import CLUSTER, PORTS  # noqa: TID252 - pytest imports tests by path
from ..local_namespace import own_namespace  # noqa: TID252
from ..surroundings import Clock, Events, Objects  # noqa: TID252
from .emulator import Cluster
from .site import describe, node, started

if not all(shutil.which(program) for program in ("nft", "ip")):
    pytest.skip("nft or ip is missing", allow_module_level=True)

ADDRESSES = ("10.9.1.1", "10.9.1.2")


async def agents(mesos: Cluster) -> list[Node]:
    """Nodes as the manager of Mesos leaves them."""
    for number, address in enumerate(ADDRESSES):
        mesos.world.add(f"n{number}", address)
    nodes = [node(f"n{number}") for number in range(len(ADDRESSES))]
    async with started(mesos.config()) as provider:
        found = await describe(provider, *nodes)
    made = []
    for one in nodes:
        instance = found[one.metadata.name]
        assert isinstance(instance, Instance)
        made.append(
            objects.node(one.metadata.name, instance.provider_id, addresses=instance.addresses)
        )
    return made


def local(*, enabled: bool) -> LocalCloud:
    return LocalCloud(
        LocalConfig(
            instances=InstancesConfig(enabled=enabled),
            pools={"default": PoolConfig(addresses=("10.9.255.0/24",))},
            # Nobody answers in this network; what is told of it must not come in between.
            health_checks=HealthChecks(interval=timedelta(hours=1)),
        )
    )


def hosts(provider: LocalCloud, nodes: Sequence[Node]) -> list[Node]:
    """The nodes that the service controller offers to the provider."""
    instances = provider.instances
    return list(
        candidates(nodes, lambda _: Ownership.UNKNOWN if instances is None else instances.owns(_))
    )


async def test_agents_are_hosts_of_load_balancers_of_local(mesos: Cluster) -> None:
    nodes = await agents(mesos)
    with own_namespace():
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        provider = local(enabled=False)
        listers = {"services": Objects(), "nodes": Objects(nodes)}
        context = Context(CLUSTER, now=Clock(), events=Events(), listers=listers)
        await provider.start(context)
        try:
            balancers = provider.load_balancers
            assert balancers is not None
            service = objects.service("web", uid="uid-of-web", ports=PORTS)
            policy = balancers.host_policy(service)
            lb = desired_load_balancer(service, hosts(provider, nodes), policy, CLUSTER)
            answer = (await balancers.ensure([lb]))[lb.ref.uid]
            assert isinstance(answer, Ensured)
            assert answer.rejected == {}
            assert answer.ingress[0].ip.startswith("10.9.255.")
            assert set(ADDRESSES) <= await next_hops()
            assert answer.ingress[0].ip in await told("nft", "list", "ruleset")
            done = await balancers.delete([lb.ref])
            assert isinstance(done[lb.ref.uid], Done)
            assert answer.ingress[0].ip not in await told("nft", "list", "ruleset")
            assert not set(ADDRESSES) & await next_hops()
        finally:
            await provider.close()


async def told(*command: str) -> str:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    return said.decode()


async def next_hops() -> set[str]:
    """The machines to which the kernel leads anything."""
    routes = msgspec.json.decode(await told("ip", "-json", "route", "show", "table", "all"))
    return {route["gateway"] for route in routes if "gateway" in route}


async def test_a_local_with_machines_of_its_own_takes_no_agents(mesos: Cluster) -> None:
    """They are another cloud's then, so the guide turns these machines off."""
    nodes = await agents(mesos)
    with own_namespace():
        provider = local(enabled=True)
        listers = {"services": Objects(), "nodes": Objects(nodes)}
        await provider.start(Context(CLUSTER, now=Clock(), events=Events(), listers=listers))
        try:
            assert hosts(provider, nodes) == []
        finally:
            await provider.close()
