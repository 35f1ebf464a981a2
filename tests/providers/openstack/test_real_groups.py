"""Security groups of Services in a real Neutron.

`make openstack-up` starts it; without it these tests are not collected.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from proreus.cloudprovider import Ensured, LoadBalancer
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.load_balancers import Done
from proreus.kube.objects import Service, ServicePort

from .real import PATIENCE, Real, hosts, project, settled
from .test_real import service
from .wire import CLUSTER, started

# Of openstacksdk, by which the tests look at the cloud.
pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")

HTTP = ServicePort(80, "http", node_port=30080)
DNS = ServicePort(53, "dns", protocol="UDP", node_port=30053)
FAMILIES = ("IPv4", "IPv6")
SETTINGS = "[LoadBalancer]\nlb-provider = proreus\nmanage-security-groups = true\n"


@pytest.fixture(scope="module")
def room() -> Real:
    return project("groups")


@pytest.fixture
def real(room: Real) -> Iterator[Real]:
    room.clean()
    yield room
    room.clean()


def groups(real: Real) -> list[Any]:
    """All but the one that each project has."""
    return [one for one in real.api.network.security_groups() if one.name != "default"]


def lets_in(real: Real) -> list[tuple[str, str, str, int, str]]:
    (group,) = groups(real)
    return sorted(
        (one.direction, one.ether_type, one.protocol, one.port_range_min, one.remote_ip_prefix)
        for one in real.api.network.security_group_rules(security_group_id=group.id)
    )


def attached(real: Real, ids: list[str]) -> list[int]:
    """How many groups the ports of each server have: one is `default`."""
    return [len(port.security_group_ids) for id_ in ids for port in real.ports(id_)]


async def until(verb: Any, what: Any, answer: type[object], says: str = "") -> None:
    """Ask until that is the answer, as the framework does: services under load refuse a lot."""
    end = time.monotonic() + PATIENCE
    while True:
        last = await settled(verb, what)
        if isinstance(last, answer) and says in str(last):
            return
        assert time.monotonic() < end, last
        await asyncio.sleep(1)


async def test_a_group_is_made_follows_hosts_and_ports_and_goes(real: Real) -> None:
    ids = await real.servers("guarded", 2)
    async with started(real.config + SETTINGS) as provider:
        nodes = await hosts(provider, ids)
        offered = provider.load_balancers
        assert offered is not None

        def desired(made: Service, count: int = 2) -> LoadBalancer:
            return desired_load_balancer(made, nodes[:count], offered.host_policy(made), CLUSTER)

        dual = service(HTTP, ip_families=FAMILIES)
        await until(offered.ensure, desired(dual), Ensured)
        assert lets_in(real) == [
            ("ingress", "IPv4", "tcp", 30080, "10.1.0.0/16"),
            ("ingress", "IPv6", "tcp", 30080, "2001:db8:1::/64"),
        ]
        assert attached(real, ids) == [2, 2]
        (group,) = groups(real)
        assert group.name == "lb-sg-uid-web-shop-web"
        owned = await offered.list_owned(CLUSTER)
        assert {one.service for one in owned if one.id == group.id} == {"shop/web"}

        assert provider._api is not None
        calls = provider._api.context.calls
        before = len(calls)
        await until(offered.ensure, desired(dual), Ensured)
        assert all(call.read for call in list(calls)[before:])

        more = service(DNS, HTTP, ip_families=FAMILIES)
        await until(offered.ensure, desired(more, 1), Ensured)
        assert attached(real, ids) == [2, 1]
        assert len(lets_in(real)) == 4
        assert [one.id for one in groups(real)] == [group.id]

        await until(offered.delete, desired(more).ref, Done)
    assert groups(real) == []
    assert attached(real, ids) == [1, 1]


async def test_a_port_that_cannot_have_the_group_is_reported(real: Real) -> None:
    """A port has either groups that know connections or such that do not."""
    (id_,) = await real.servers("odd")
    network = real.api.network
    (port,) = real.ports(id_)
    stateless = await asyncio.to_thread(
        lambda: network.create_security_group(name="stateless", stateful=False)
    )
    await asyncio.to_thread(lambda: network.update_port(port.id, security_group_ids=[stateless.id]))
    async with started(real.config + SETTINGS) as provider:
        offered = provider.load_balancers
        assert offered is not None
        made = service(HTTP, ip_families=("IPv4",))
        nodes = await hosts(provider, [id_])
        desired = desired_load_balancer(made, nodes, offered.host_policy(made), CLUSTER)
        await until(offered.ensure, desired, CloudError, "port_update: 409")
        await until(offered.delete, desired.ref, Done)
    assert [one.id for one in groups(real)] == [stateless.id]
