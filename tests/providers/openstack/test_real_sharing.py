"""Two Services on one load balancer of a real Octavia."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from proreus.cloudprovider import Ensured, HostPolicy, LoadBalancer, Pending
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.load_balancers import Done
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

from .real import PATIENCE, Real, hosts, project, settled
from .wire import CLUSTER, started

# Of openstacksdk, by which the tests look at the cloud.
pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")


@pytest.fixture(scope="module")
def room() -> Real:
    return project("sharing")


@pytest.fixture
def real(room: Real) -> Iterator[Real]:
    room.clean()
    yield room
    room.clean()


def service(name: str, port: int, annotations: dict[str, str] | None = None) -> Service:
    return objects.service(
        name,
        namespace="shop",
        annotations=annotations or {},
        ports=(ServicePort(port, node_port=30000 + port),),
        ip_families=("IPv4",),
    )


class Balancing:
    """A provider with nodes."""

    def __init__(self, provider: OpenStackCloud, nodes: list[Node]) -> None:
        assert provider.load_balancers is not None
        self.verbs = provider.load_balancers
        self.nodes = nodes

    def desired(self, one: Service) -> LoadBalancer:
        return desired_load_balancer(one, self.nodes, self.verbs.host_policy(one), CLUSTER)

    async def ensure(self, one: Service) -> Service:
        """The Service as it is afterwards."""
        answer = await settled(self.verbs.ensure, self.desired(one))
        assert isinstance(answer, Ensured), answer
        given = {**one.metadata.annotations, **answer.annotations}
        status = ServiceStatus(load_balancer=LoadBalancerStatus(ingress=answer.ingress))
        metadata = msgspec.structs.replace(one.metadata, annotations=given)
        return msgspec.structs.replace(one, metadata=metadata, status=status)

    async def delete(self, one: Service) -> None:
        assert isinstance(await settled(self.verbs.delete, self.desired(one).ref), Done)


async def test_two_services_share_a_load_balancer_and_leave_it_in_any_order(real: Real) -> None:
    ids = await real.servers("host", 2)
    text = real.config + "[LoadBalancer]\nlb-provider = proreus\ncreate-monitor = true\n"
    octavia = real.api.load_balancer
    async with started(text) as provider:
        balancing = Balancing(provider, await hosts(provider, ids))
        for order in ((0, 1), (1, 0)):
            first = await balancing.ensure(service("a", 80))
            (made,) = real.balancers()
            named = {"loadbalancer.openstack.org/load-balancer-id": str(made.id)}
            second = await balancing.ensure(service("b", 8080, named))
            assert second.status == first.status
            assert {one.protocol_port for one in octavia.listeners()} == {80, 8080}
            services = (first, second)
            await balancing.delete(services[order[0]])
            (left,) = octavia.listeners()
            assert left.protocol_port == (8080, 80)[order[0]]
            assert len(list(octavia.pools())) == len(list(octavia.health_monitors())) == 1
            assert len(list(real.api.network.ips())) == 1
            await balancing.ensure(services[order[1]])
            await balancing.delete(services[order[1]])
            assert real.balancers() == []
            assert list(real.api.network.ips()) == []


async def test_one_that_no_manager_of_ours_has_seen_goes_with_a_new_manager_for_each_call(
    real: Real,
) -> None:
    """Octavia shows tags and Neutron descriptions as soon as it has taken them."""
    octavia, network = real.api.load_balancer, real.api.network
    subnet = network.find_subnet("private-v4", network_id=real.network.id)
    name = f"kube_service_{CLUSTER.name}_shop_a"
    made = octavia.create_load_balancer(vip_subnet_id=subnet.id, name=name, tags=[name])
    await real.until(lambda: octavia.get_load_balancer(made.id).provisioning_status == "ACTIVE")
    text = f"Floating IP for Kubernetes external service shop/a from cluster {CLUSTER.name}"
    public = network.find_network("public")
    address = network.create_ip(
        floating_network_id=public.id, port_id=made.vip_port_id, description=text
    )
    ingress = (LoadBalancerIngress(ip=address.floating_ip_address),)
    status = ServiceStatus(load_balancer=LoadBalancerStatus(ingress=ingress))
    ref = desired_load_balancer(
        msgspec.structs.replace(service("a", 80), status=status), [], HostPolicy(), CLUSTER
    ).ref
    end = time.monotonic() + PATIENCE
    answer: Any = None
    while not isinstance(answer, Done):
        async with started(real.config) as provider:
            assert provider.load_balancers is not None
            answer = (await provider.load_balancers.delete([ref]))[ref.uid]
        if isinstance(answer, Pending) and answer.withdrawn:
            assert f"proreus/service-uid={ref.uid}" in octavia.get_load_balancer(made.id).tags
            assert ref.uid in network.get_ip(address.id).description
            ref = msgspec.structs.replace(ref, last_ingress=())
        assert time.monotonic() < end, answer
        await asyncio.sleep(0.2)
    assert real.balancers() == []
    assert list(network.ips()) == []


async def test_one_that_was_made_by_hand_has_its_own_tags_again_in_the_end(real: Real) -> None:
    ids = await real.servers("host")
    octavia, network = real.api.load_balancer, real.api.network
    subnet = network.find_subnet("private-v4", network_id=real.network.id)
    made = octavia.create_load_balancer(vip_subnet_id=subnet.id, name="ours", tags=["team=a"])
    await real.until(lambda: octavia.get_load_balancer(made.id).provisioning_status == "ACTIVE")
    public = network.find_network("public")
    address = network.create_ip(floating_network_id=public.id, port_id=made.vip_port_id)
    async with started(real.config) as provider:
        balancing = Balancing(provider, await hosts(provider, ids))
        named = {"loadbalancer.openstack.org/load-balancer-id": str(made.id)}
        user = await balancing.ensure(service("a", 80, named))
        assert user.status.load_balancer.ingress[0].ip == address.floating_ip_address
        await balancing.delete(user)
    left = octavia.get_load_balancer(made.id)
    assert left.tags == ["team=a"]
    assert list(octavia.listeners()) == list(octavia.pools()) == []
    assert [one.id for one in network.ips()] == [address.id]
