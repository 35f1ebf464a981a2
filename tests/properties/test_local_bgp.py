"""What nodes announce together, in random clusters: every address where it is served, no other."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proreus.kube.objects import (
    Condition,
    Endpoint,
    EndpointConditions,
    EndpointSlice,
    LoadBalancerIngress,
    ObjectMeta,
    Service,
)
from proreus.providers.local.addresses import Pool, parse_range
from proreus.providers.local.bgp.plan import can_serve, decide
from proreus.testing import objects

POOLS = (Pool(name="web", ranges=(parse_range("192.0.2.64/30"),)),)
NODES = ("a", "b", "c")
ADDRESSES = ("192.0.2.64", "192.0.2.65", "192.0.2.66", "198.51.100.1")

flags = st.sampled_from([None, True, False])
endpoints = st.builds(
    Endpoint,
    addresses=st.just(("10.0.0.1",)),
    conditions=st.builds(EndpointConditions, ready=flags, serving=flags, terminating=flags),
    node_name=st.sampled_from([None, *NODES]),
)
slices = st.lists(st.lists(endpoints, max_size=4), max_size=2)


@st.composite
def services(draw: Any) -> tuple[list[Service], dict[str, list[EndpointSlice]]]:
    found, known = [], {}
    for number in range(draw(st.integers(0, 4))):
        name = f"s{number}"
        found.append(
            objects.service(
                name,
                external_traffic_policy=draw(st.sampled_from(["Cluster", "Local"])),
                ingress=[LoadBalancerIngress(ip=draw(st.sampled_from(ADDRESSES)), ip_mode="VIP")],
                conditions=(Condition("LoadBalancerReady", "True"),),
            )
        )
        known[f"default/{name}"] = [
            EndpointSlice(metadata=ObjectMeta(name=name), endpoints=tuple(some))
            for some in draw(slices)
        ]
    return found, known


@given(services())
def test_an_address_is_announced_exactly_where_all_that_live_at_it_are_served(
    cluster: tuple[list[Service], dict[str, list[EndpointSlice]]],
) -> None:
    found, known = cluster
    serving = {
        key: [
            endpoint.node_name
            for one in several
            for endpoint in one.endpoints or ()
            if can_serve(endpoint.conditions)
        ]
        for key, several in known.items()
    }
    for node in NODES:
        decision = decide(found, known, objects.node(node), POOLS)
        announced = {str(one) for one in decision.announced}
        withheld = {str(one) for one in decision.withheld}
        assert announced.isdisjoint(withheld)
        assert all(decision.withheld.values())
        at = {
            address: [one for one in found if one.status.load_balancer.ingress[0].ip == address]
            for address in ADDRESSES[:3]
        }
        assert announced | withheld == {address for address, several in at.items() if several}
        for address in announced | withheld:
            living = [one for one in at[address] if serving[f"default/{one.metadata.name}"]]
            served = [
                one
                for one in living
                if one.spec.external_traffic_policy == "Cluster"
                or node in serving[f"default/{one.metadata.name}"]
            ]
            assert (address in announced) == (bool(living) and served == living)
