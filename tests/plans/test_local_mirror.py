"""What a gateway of the provider `local` has in its kernel while another one's manager leads."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from typing import Any

import pytest
from msgspec import structs

from proreus.cloudprovider import ClusterIdentity, LoadBalancer
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.load_balancers import HostPolicy
from proreus.kube.objects import Condition, LoadBalancerIngress, ServicePort
from proreus.providers.local.addresses import Pool
from proreus.providers.local.asked import ANNOTATION_ADDRESSES, ANNOTATION_SHARING_KEY
from proreus.providers.local.config import LocalConfig, PoolConfig
from proreus.providers.local.mirror import mirrored
from proreus.providers.local.plan import Member, Reach, State, ensured
from proreus.testing import objects

CLUSTER = ClusterIdentity("one", "cluster-uid")
REACH = Reach((ip_network("10.9.0.0/16"), ip_network("fd00:9::/64")))
POOLS = LocalConfig(
    pools={"default": PoolConfig(addresses=("192.0.2.0/28", "2001:db8::/120"))}
).address_pools
SMALLER = LocalConfig(
    pools={"default": PoolConfig(addresses=("2001:db8::/120",))}
).address_pools  # fmt: skip
BOTH = ("IPv4", "IPv6")
V6_AND_V4 = ("2001:db8::5", "192.0.2.3")
NODES = {"one": "10.9.0.11", "two": "10.9.0.12"}


def web(*addresses: str, name: str = "web", nodes: tuple[str, ...] = ("one",), **spec: Any) -> Any:
    service = objects.service(
        name,
        uid=f"uid-of-{name}",
        ingress=[LoadBalancerIngress(ip=one, ip_mode="VIP") for one in addresses],
        **spec,
    )
    members = [objects.node(one, f"local://{one}", addresses=(NODES[one],)) for one in nodes]
    return desired_load_balancer(service, members, HostPolicy(), CLUSTER)


def state(
    *desired: LoadBalancer,
    before: State | None = None,
    leave: float = 0.0,
    refused: tuple[LoadBalancer, ...] = (),
    cluster: str = CLUSTER.uid,
    pools: Sequence[Pool] = POOLS,
    machines: tuple[str, ...] = (),
) -> State:
    refs = [one.ref for one in refused]
    given = (before or State(), desired, refs, pools, REACH)
    return mirrored(*given, machines=machines, leave=leave, cluster=cluster)


def ports(found: State) -> dict[str, set[int]]:
    return {one.service: {port for _, port in one.ports} for one in found.balancers.values()}


def shared(
    name: str, port: int, *more: int, age: int = 0, key: str = "together", is_refused: bool = False
) -> LoadBalancer:
    """Make a Service with the address that others have, too."""
    found = web(
        "192.0.2.3",
        name=name,
        ports=tuple(ServicePort(one, f"p{one}", "TCP") for one in (port, *more)),
        annotations={ANNOTATION_SHARING_KEY: key},
        creation_timestamp=datetime(2026, 1, 1, tzinfo=UTC) - timedelta(days=age),
    )
    refused = Condition("LoadBalancerReady", "False", reason="CloudError")
    return with_condition(found, refused) if is_refused else found


def with_condition(lb: LoadBalancer, one: Condition) -> LoadBalancer:
    status = structs.replace(lb.service.status, conditions=(one,))
    return structs.replace(lb, service=structs.replace(lb.service, status=status))


def addresses(found: State) -> dict[str, dict[str, str]]:
    return {one.service: dict(one.addresses) for one in found.balancers.values()}


def test_it_is_what_the_leader_has_with_the_addresses_of_the_status() -> None:
    lb = web("192.0.2.3")
    assert state(lb) == ensured(State(), lb, {"IPv4": "192.0.2.3"}, REACH)[0]
    both = web("192.0.2.3", "2001:db8::5", ip_families=("IPv4", "IPv6"))
    assert addresses(state(both)) == {"default/web": {"IPv4": "192.0.2.3", "IPv6": "2001:db8::5"}}


def test_what_is_not_served_by_the_leader_is_left_out() -> None:
    others = web("198.51.100.1", name="of-another-balancer")
    named = web(name="without-address")
    strange = web("192.0.2.4", name="strange", ports=(ServicePort(80, "x", "ICMP"),))
    family = web("2001:db8::7", name="of-another-family")
    assert addresses(state(others, named, strange, family)) == {}


def test_what_is_gone_is_left_out() -> None:
    before = state(web("192.0.2.3"), web("192.0.2.4", name="shop"))
    assert addresses(state(web("192.0.2.3"), before=before)) == {
        "default/web": {"IPv4": "192.0.2.3"}
    }
    assert addresses(state(before=before)) == {}


def test_what_the_leader_refuses_stays_as_it_is() -> None:
    """It vanished from gateways that stood by, while the leader's went on."""
    before = state(web("192.0.2.3"), web("192.0.2.4", name="shop"))
    web_now = web("192.0.2.3", ports=(ServicePort(80, "x", "ICMP"),))
    shop = web("192.0.2.4", name="shop")
    assert state(web_now, before=before, refused=(shop,)) == before
    assert state(refused=(shop,)) == State(), "nothing is known of it"


@pytest.mark.parametrize("wish", ["impossible", "refused", "another address", "another's port"])
def test_what_is_refused_after_it_has_moved_is_in_nobody_s_way(wish: str) -> None:
    """Both came in one look: it kept what it had had, and whoever was given that was not served."""
    before = state(web("192.0.2.3"))
    moved = web("192.0.2.4", ports=(ServicePort(80, "x", "ICMP"),))
    if wish == "another address":
        moved = web("192.0.2.4", annotations={ANNOTATION_ADDRESSES: "198.51.100.9"})
    elif wish == "another's port":
        moved = web("192.0.2.4")
    others = [web("192.0.2.3", name="next"), web("192.0.2.4", name="shop")]
    refused, desired = ((moved,), others) if wish == "refused" else ((), [moved, *others])
    found = state(*desired, before=before, refused=refused)
    assert addresses(found) == {
        "default/next": {"IPv4": "192.0.2.3"},
        "default/shop": {"IPv4": "192.0.2.4"},
    }


def test_what_is_refused_keeps_its_port_on_a_shared_address() -> None:
    before = state(shared("web", 80), shared("shop", 81))
    found = state(shared("shop", 80), before=before, refused=(shared("web", 80),))
    assert ports(found) == {"default/web": {80}, "default/shop": {81}}


def test_a_refused_service_does_not_keep_what_another_cluster_has() -> None:
    before = state(web("192.0.2.3"))
    assert state(before=before, refused=(web("192.0.2.3"),), cluster="another") == before


@pytest.mark.parametrize("had", [("192.0.2.3",), V6_AND_V4])
def test_an_address_that_left_the_pools_stays_while_the_status_shows_it(
    had: tuple[str, ...],
) -> None:
    """As after the pool was made smaller, and nothing else is free: the leader goes on with it."""
    before = state(web(*had, ip_families=BOTH))
    assert state(web(*had, ip_families=BOTH), before=before, pools=SMALLER) == before


@pytest.mark.parametrize("had", [("192.0.2.3",), V6_AND_V4])
def test_an_address_that_the_status_shows_no_more_goes(had: tuple[str, ...]) -> None:
    before = state(web(*had, ip_families=BOTH))
    found = state(web("2001:db8::5", ip_families=BOTH), before=before, pools=SMALLER)
    assert addresses(found) == {"default/web": {"IPv6": "2001:db8::5"}}
    elsewhere = web("198.51.100.1", ip_families=BOTH)
    assert addresses(state(elsewhere, before=before, pools=SMALLER)) == {}


def test_what_another_cluster_has_on_the_gateway_stays() -> None:
    before = state(web("192.0.2.3"), web("192.0.2.4", name="shop"))
    for desired in ([], [web("192.0.2.9")]):
        assert state(*desired, before=before, cluster="another") == before


def test_a_node_that_is_no_host_any_more_drains_as_with_the_leader() -> None:
    before = state(web("192.0.2.3", nodes=("one", "two")))
    found = state(web("192.0.2.3"), before=before, leave=99.0)
    (pool,) = (found.pools[key] for one in found.balancers.values() for key in one.pools.values())
    assert pool.members == (Member("one"), Member("two", leaving=99.0))


def test_a_service_gets_no_port_that_another_has_on_the_shared_address() -> None:
    """The leader refuses it, and leaves it as it was."""
    before = state(shared("web", 80), shared("shop", 81))
    for first in (True, False):
        changed = [shared("web", 80), shared("shop", 80, 82)]
        found = state(*(changed if first else changed[::-1]), before=before)
        assert ports(found) == {"default/web": {80}, "default/shop": {81}}


def test_a_service_of_another_cluster_keeps_its_port_on_an_address() -> None:
    before = state(shared("web", 80))
    found = state(shared("shop", 80), before=before, cluster="another")
    assert ports(found) == {"default/web": {80}}


def test_of_two_new_services_with_one_port_on_one_address_the_older_has_it() -> None:
    for order in ((0, 1), (1, 0)):
        both = [shared("web", 80, age=2), shared("shop", 80, age=1)]
        assert ports(state(*(both[one] for one in order))) == {"default/web": {80}}


def test_of_two_new_services_that_one_which_was_not_refused_the_port_has_it() -> None:
    """The older one asked later: on a gateway that knew neither it took the other's port."""
    late = shared("web", 80, age=2, is_refused=True)
    for both in ([late, shared("shop", 80)], [shared("shop", 80), late]):
        assert ports(state(*both)) == {"default/shop": {80}}


@pytest.mark.parametrize("key", ["", "another"])
def test_a_service_with_another_key_than_others_on_its_address_stays_as_it_was(key: str) -> None:
    """The leader refuses that; the next one, with a kernel like this, took the others' address."""
    both = [shared("web", 80), shared("shop", 81, key=key)]
    before = state(shared("web", 80), shared("shop", 81))
    assert state(*both, before=before) == before
    assert state(*both[::-1], before=before) == before
    refused = shared("shop", 81, key=key, age=2, is_refused=True)
    assert ports(state(refused, both[0])) == {"default/web": {80}}


def test_a_service_that_asks_for_an_address_it_cannot_have_gets_no_ports_beside_others() -> None:
    """The leader refuses all of it, and gives the ports to whoever asks next."""
    both = (shared("a", 80), shared("b", 81))
    wants = shared("b", 81, 82)
    asks = {**wants.service.metadata.annotations, ANNOTATION_ADDRESSES: "198.51.100.9"}
    meta = structs.replace(wants.service.metadata, annotations=asks)
    wants = structs.replace(wants, service=structs.replace(wants.service, metadata=meta))
    found = state(both[0], wants, shared("c", 82), before=state(*both))
    assert ports(found) == {"default/a": {80}, "default/b": {81}, "default/c": {82}}
    assert set(addresses(found)) == {"default/a", "default/b", "default/c"}


def test_services_that_all_have_another_key_have_it() -> None:
    before = state(shared("web", 80), shared("shop", 81))
    changed = shared("web", 80, key="new"), shared("shop", 81, key="new")
    assert state(*changed, before=before) == state(*changed)


def test_a_service_gets_the_port_that_another_leaves_in_the_same_moment() -> None:
    before = state(shared("web", 80, age=1), shared("shop", 81))
    found = state(shared("web", 81, age=1), shared("shop", 82), before=before)
    assert ports(found) == {"default/web": {81}, "default/shop": {82}}


def test_services_that_have_exchanged_their_ports_have_them() -> None:
    before = state(shared("web", 80), shared("shop", 81))
    found = state(shared("web", 81), shared("shop", 80), before=before)
    assert ports(found) == {"default/web": {81}, "default/shop": {80}}


def test_addresses_of_nodes_that_a_status_shows_are_not_taken_from_them() -> None:
    """As after k3s' own balancer, which writes the addresses of its nodes into the status."""
    left = web("192.0.2.3", "192.0.2.4")
    assert state(left, machines=("192.0.2.3", "192.0.2.4")).balancers == {}
    had = state(left)
    assert state(left, before=had, machines=("192.0.2.3", "192.0.2.4")) == had


def test_addresses_of_several_nodes_are_not_taken_from_them_by_a_service_that_is_ready() -> None:
    """As where k3s' own balancer came back: what it writes takes the place of what we gave."""
    shown = web("192.0.2.3", "192.0.2.4")
    known = with_condition(shown, Condition("LoadBalancerReady", "True", reason="Ensured"))
    assert state(known, machines=("192.0.2.3", "192.0.2.4")).balancers == {}
