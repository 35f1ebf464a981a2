"""A gateway that stands by, beside another cluster's manager: on a real kernel."""

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from proreus.cloudprovider import ClusterIdentity, Context, Ensured, LoadBalancer
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.kube.objects import LoadBalancerIngress
from proreus.providers.local.config import LocalConfig, PoolConfig
from proreus.providers.local.load_balancers import LocalLoadBalancers
from proreus.testing import objects

from .local_namespace import own_namespace
from .local_site import CLUSTER, NoEvents, Objects, node

if not all(shutil.which(program) for program in ("nft", "ip")):
    pytest.skip("nft or ip is missing", allow_module_level=True)

OTHER = ClusterIdentity("two", "uid-of-two")
CONFIG = LocalConfig(pools={"default": PoolConfig(addresses=("10.9.255.0/24",))})


@pytest.fixture(autouse=True)
def _namespace() -> Iterator[None]:
    with own_namespace():
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        yield


def balancers(cluster: ClusterIdentity) -> LocalLoadBalancers:
    listers = {"services": Objects(), "nodes": Objects()}
    given = Context(cluster, now=lambda: datetime.now(UTC), events=NoEvents(), listers=listers)
    return LocalLoadBalancers(given, CONFIG)


def web(of: LocalLoadBalancers, cluster: ClusterIdentity, name: str, *shown: str) -> LoadBalancer:
    ingress = [LoadBalancerIngress(ip=one, ip_mode="VIP") for one in shown]
    service = objects.service(name, uid=f"uid-of-{name}", ingress=ingress)
    return desired_load_balancer(
        service, [node("one", "10.9.0.11")], of.host_policy(service), cluster
    )


async def test_a_standby_leaves_the_load_balancers_of_other_clusters_alone() -> None:
    theirs, standby = balancers(OTHER), balancers(CLUSTER)
    await theirs.start()
    await standby.start()
    try:
        lb = web(theirs, OTHER, "theirs")
        assert isinstance((await theirs.ensure([lb]))[lb.ref.uid], Ensured)
        await standby.mirror([web(standby, CLUSTER, "ours", "10.9.255.9")])
        assert len(await theirs.list_owned(OTHER)) == 1
        assert len(await standby.list_owned(CLUSTER)) == 1
        await standby.mirror([])
        assert len(await theirs.list_owned(OTHER)) == 1
        assert not await standby.list_owned(CLUSTER)
    finally:
        await standby.close()
        await theirs.close()
