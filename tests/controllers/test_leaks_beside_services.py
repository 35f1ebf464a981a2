"""What a former Service has left over is no burden for a Service that has its name now."""

from collections.abc import Mapping, Sequence
from typing import Any

from proreus.cloudprovider import (
    ClusterIdentity,
    Ensured,
    LoadBalancer,
    LoadBalancerRef,
    OwnedObject,
    Unauthenticated,
)
from proreus.kube.objects import LoadBalancerIngress
from proreus.kube.requests import SERVICES
from proreus.testing.clock import virtual_time
from proreus.testing.memory import MemoryApiServer, Store
from proreus.testing.objects import service_body

from .leading import EPOCH, Balancers, Cloud, join, leading, until

FORMER = "uid-of-the-former"


class Immovable(Balancers):
    """A cloud that lists something of a former Service, and refuses to delete it."""

    def __init__(self) -> None:
        self.hosts: Mapping[str, Sequence[str]] = {}
        self.refused = 0
        self.tried: set[str] = set()

    async def ensure(self, desired: Sequence[LoadBalancer]) -> Mapping[str, Any]:
        self.hosts = {one.ref.uid: [host.node for host in one.hosts] for one in desired}
        ingress = (LoadBalancerIngress(ip="192.0.2.1"),)
        return {one.ref.uid: Ensured(ingress) for one in desired}

    async def list_owned(self, cluster: ClusterIdentity) -> Sequence[OwnedObject]:
        return [OwnedObject("listener", "l-1", "default/web", FORMER)]

    async def delete(self, gone: Sequence[LoadBalancerRef]) -> Mapping[str, Any]:
        self.refused += 1
        self.tried.update(one.uid for one in gone)
        return {one.uid: Unauthenticated("listener l-1 is in the state ERROR") for one in gone}


@virtual_time
async def test_a_leak_that_cannot_be_deleted_keeps_no_host_from_a_service_of_the_same_name() -> (
    None
):
    cloud = Immovable()
    store = Store(lambda: EPOCH)
    join(store, "n1")
    store.create(SERVICES, "default", service_body("web"))
    flags: dict[str, Any] = {"load_balancer_resync_period": 10.0, "delete_leaks_after": 30.0}
    async with (
        MemoryApiServer(store) as server,
        leading(server.url, Cloud(cloud), "service-lb-controller", **flags),
    ):
        await until(lambda: ["n1"] in cloud.hosts.values())
        await until(lambda: cloud.refused >= 3)
        join(store, "n2")
        await until(lambda: ["n1", "n2"] in cloud.hosts.values())
    assert cloud.tried == {FORMER}
