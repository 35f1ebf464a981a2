"""A cloud on the wire with two hosts, for tests of load balancers."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from proreus.cloudprovider import (
    ClusterIdentity,
    Ensured,
    LoadBalancer,
    LoadBalancerRef,
    Pending,
)
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.kube.objects import (
    LoadBalancerIngress,
    LoadBalancerStatus,
    Node,
    Service,
    ServicePort,
    ServiceStatus,
)
from proreus.providers.openstack import OpenStackCloud
from proreus.testing import objects

from .octavia_wire import OctaviaWire
from .wire import CLUSTER, Json, Wire, node, served, uuid

P = "loadbalancer.openstack.org/"
INTERNAL = "service.beta.kubernetes.io/openstack-internal-load-balancer"
SUBNET = uuid(500)
SUBNET_V6 = uuid(501)


class Balancing:
    """A cloud with two hosts, and a Service."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.octavia = OctaviaWire(self.wire)
        self.octavia.works = 0
        self.wire.more.append(self.octavia.routes)
        self.nodes: list[Node] = []
        for number in (1, 2):
            id_ = self.wire.add(number)
            fixed = [
                {"subnet_id": SUBNET, "ip_address": f"10.0.0.{number}"},
                {"subnet_id": SUBNET_V6, "ip_address": f"2001:db8::{number}"},
            ]
            self.wire.ports[-1]["fixed_ips"] = fixed
            addresses = [one["ip_address"] for one in fixed]
            self.nodes.append(node(f"n{number}", f"openstack:///{id_}", *addresses))
        self.octavia.subnets = {
            SUBNET: {"id": SUBNET, "ip_version": 4},
            SUBNET_V6: {"id": SUBNET_V6, "ip_version": 6},
        }

    def service(
        self,
        annotations: Mapping[str, str] | None = None,
        name: str = "web",
        namespace: str = "shop",
        **spec: Any,
    ) -> Service:
        given = {"ports": (ServicePort(80, "http", node_port=30080),), "ip_families": ("IPv4",)}
        return objects.service(
            name, namespace=namespace, annotations=dict(annotations or {}), **{**given, **spec}
        )

    def desired(
        self,
        provider: OpenStackCloud,
        of: Service,
        nodes: int = 2,
        cluster: ClusterIdentity = CLUSTER,
    ) -> LoadBalancer:
        assert provider.load_balancers is not None
        return desired_load_balancer(
            of, self.nodes[:nodes], provider.load_balancers.host_policy(of), cluster
        )

    async def ensure(
        self,
        provider: OpenStackCloud,
        of: Service,
        nodes: int = 2,
        cluster: ClusterIdentity = CLUSTER,
    ) -> Any:
        """Until nothing is pending."""
        assert provider.load_balancers is not None
        desired = self.desired(provider, of, nodes, cluster)
        for _ in range(100):
            answer = (await provider.load_balancers.ensure([desired]))[desired.ref.uid]
            if not isinstance(answer, Pending):
                return answer
            await looked_again(answer)
        raise AssertionError(answer)

    async def delete(
        self, provider: OpenStackCloud, of: Service, cluster: ClusterIdentity = CLUSTER
    ) -> Any:
        return await self.delete_ref(provider, self.desired(provider, of, cluster=cluster).ref)

    async def delete_ref(self, provider: OpenStackCloud, ref: LoadBalancerRef) -> Any:
        assert provider.load_balancers is not None
        for _ in range(100):
            answer = (await provider.load_balancers.delete([ref]))[ref.uid]
            if not isinstance(answer, Pending):
                return answer
            await looked_again(answer)
            if answer.withdrawn:
                ref = msgspec.structs.replace(ref, last_ingress=())
        raise AssertionError(answer)

    def members(self) -> list[list[Any]]:
        return [
            [one["address"] for one in self.octavia.members[pool]]
            for pool in self.octavia.of["pools"]
        ]


async def looked_again(answer: Pending) -> None:
    """Let the time pass until what is missing is looked for again: better use virtual time."""
    if "once more" in answer.reason:
        await asyncio.sleep(answer.after)


@asynccontextmanager
async def balancing() -> AsyncIterator[Balancing]:
    made = Balancing()
    async with served(made.wire):
        yield made


def known(service: Service, *addresses: str) -> Service:
    return shown(service, [LoadBalancerIngress(ip=one) for one in addresses])


def shown(service: Service, ingress: Sequence[LoadBalancerIngress]) -> Service:
    status = ServiceStatus(load_balancer=LoadBalancerStatus(ingress=tuple(ingress)))
    return msgspec.structs.replace(service, status=status)


def previews(provider: OpenStackCloud) -> Any:
    return provider.load_balancers.preview  # type: ignore[union-attr]


async def previewed(site: Balancing, provider: OpenStackCloud, service: Service) -> Any:
    return tuple((await previews(provider)([site.desired(provider, service)]))["uid-web"])


def by_id(id_: str) -> dict[str, str]:
    return {f"{P}load-balancer-id": id_}


async def lives(
    site: Balancing, provider: OpenStackCloud, service: Service, cluster: ClusterIdentity = CLUSTER
) -> Service:
    """The Service as it is once it has its load balancer."""
    answer = await site.ensure(provider, service, cluster=cluster)
    assert isinstance(answer, Ensured), answer
    annotations = {**service.metadata.annotations, **answer.annotations}
    metadata = msgspec.structs.replace(service.metadata, annotations=annotations)
    written = msgspec.structs.replace(service, metadata=metadata)
    return known(written, *(one.ip for one in answer.ingress))


def all_there(site: Balancing) -> dict[str, Any]:
    """Everything in the project, but for what Octavia's work changes."""
    of = site.octavia.of
    hidden = {"left", "provisioning_status"}
    shown = {
        id_: {key: value for key, value in one.items() if key not in hidden}
        for kind in of
        for id_, one in of[kind].items()
    }
    found: dict[str, Any] = msgspec.to_builtins({"objects": shown, "members": site.octavia.members})
    return found


def of_a_namesake(site: Balancing) -> Json:
    """What the official manager of another cluster of the same name has made for such a Service."""
    name = "kube_service_test_shop_web"
    site.octavia._make_balancer({"name": name, "tags": [name], "vip_subnet_id": uuid(777)})
    made = site.octavia.only("loadbalancers")
    made |= {"provisioning_status": "ACTIVE", "vip_address": "10.0.0.99"}
    return made
