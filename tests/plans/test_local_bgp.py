"""Which addresses a node announces."""

from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any

import pytest

from proreus.kube.objects import (
    LABEL_EXCLUDE_LB,
    TAINT_AUTOSCALER,
    Condition,
    Endpoint,
    EndpointConditions,
    EndpointSlice,
    LoadBalancerIngress,
    Node,
    ObjectMeta,
    Service,
    Taint,
)
from proreus.providers.local.addresses import Pool, parse_range
from proreus.providers.local.bgp.plan import Decision, can_serve, decide
from proreus.testing import objects

POOLS = (
    Pool(name="web", ranges=(parse_range("192.0.2.64/27"), parse_range("2001:db8::/120"))),
    Pool(name="even", ranges=(parse_range("198.51.100.0/24"),), avoid_buggy_ips=True),
)
ENSURED = (Condition("LoadBalancerReady", "True"),)
HERE = objects.node("here")
ELSEWHERE = "{}: no endpoint on this node is ready, and the policy is Local"
READY = EndpointConditions(ready=True, serving=True, terminating=False)
ENDING = EndpointConditions(ready=False, serving=True, terminating=True)
ENDED = EndpointConditions(ready=False, serving=False, terminating=True)


def service(name: str = "web", *ips: str, policy: str = "Cluster", **more: Any) -> Service:
    shown = [LoadBalancerIngress(ip=ip, ip_mode="VIP") for ip in ips or ("192.0.2.65",)]
    spec = {"type": "LoadBalancer", "external_traffic_policy": policy, "conditions": ENSURED}
    return objects.service(name, **{"ingress": shown, **spec, **more})


def slice_(*nodes: str | None, family: str = "IPv4", conditions: Any = READY) -> EndpointSlice:
    return EndpointSlice(
        metadata=ObjectMeta(name="slice"),
        address_type=family,
        endpoints=tuple(
            Endpoint(addresses=("10.0.0.1",), conditions=conditions, node_name=node)
            for node in nodes
        ),
    )


def decided(*services: Service, node: Node | None = HERE, **slices: Any) -> dict[str, str]:
    """What is announced, as "", and why the rest is not."""
    known = {f"default/{name}": found for name, found in slices.items()}
    found: Decision = decide(services, known, node, POOLS)
    return {str(one): "" for one in found.announced} | {
        str(one): reason for one, reason in found.withheld.items()
    }


@pytest.mark.parametrize(
    ("policy", "slices", "reason"),
    [
        ("Cluster", [slice_("here")], ""),
        ("Cluster", [slice_("there")], ""),
        ("Cluster", [slice_(None)], ""),
        ("Cluster", [], "default/web: no endpoint is ready"),
        ("Cluster", [slice_()], "default/web: no endpoint is ready"),
        ("Cluster", [EndpointSlice()], "default/web: no endpoint is ready"),
        ("Cluster", [slice_("here", conditions=ENDED)], "default/web: no endpoint is ready"),
        ("Cluster", [slice_("here", family="IPv6")], "default/web: no endpoint is ready"),
        ("Local", [slice_("there"), slice_("there", "here")], ""),
        ("Local", [slice_("here", conditions=ENDING)], ""),
        ("Local", [slice_("there")], "default/web: no endpoint on this node is ready"),
        ("Local", [slice_(None)], "default/web: no endpoint on this node is ready"),
        (
            "Local",
            [slice_("there"), slice_("here", conditions=ENDED)],
            "default/web: no endpoint on this node is ready",
        ),
    ],
)
def test_a_node_announces_what_kube_proxy_on_it_can_serve(
    policy: str, slices: list[EndpointSlice], reason: str
) -> None:
    (found,) = decided(service(policy=policy), web=slices).values()
    assert found.startswith(reason) if reason else found == ""


def test_each_family_has_endpoints_of_its_own() -> None:
    both = service("web", "192.0.2.65", "2001:db8::1", policy="Local")
    found = decided(both, web=[slice_("there"), slice_("here", family="IPv6")])
    assert found["2001:db8::1"] == ""
    assert "policy is Local" in found["192.0.2.65"]


@pytest.mark.parametrize(
    "one",
    [
        service(type="ClusterIP"),
        service(deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC)),
        service("web", "192.0.2.3"),
        service("web", "198.51.100.255"),
        service("web", "nonsense"),
        service(ingress=[LoadBalancerIngress(hostname="web.example")]),
        service(ingress=[LoadBalancerIngress(ip="192.0.2.65", ip_mode="Proxy")]),
        service(ingress=[]),
    ],
    ids=["other type", "deleted", "other range", "left out", "no IP", "hostname", "proxy", "none"],
)
def test_what_is_no_address_of_ours_is_neither_announced_nor_withheld(one: Service) -> None:
    assert decided(one, web=[slice_("here")]) == {}


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (None, "has no Node"),
        (objects.node("here", labels={LABEL_EXCLUDE_LB: ""}), "left out"),
        (objects.node("here", taints=(Taint(TAINT_AUTOSCALER, effect="NoSchedule"),)), "left out"),
        (
            objects.node("here", conditions=(Condition("NetworkUnavailable", "True"),)),
            "network is not available",
        ),
    ],
)
def test_a_node_that_takes_no_traffic_announces_nothing(node: Node | None, words: str) -> None:
    assert words in decided(service(), node=node, web=[slice_("here")])["192.0.2.65"]


@pytest.mark.parametrize(
    "node",
    [
        objects.node("here", labels={LABEL_EXCLUDE_LB: "false"}),
        objects.node("here", conditions=(Condition("NetworkUnavailable", "False"),)),
        objects.node("here", conditions=(Condition("Ready", "Unknown"),)),
        objects.node("here", provider_id=""),
    ],
)
def test_a_node_whose_kubelet_is_silent_or_new_goes_on(node: Node) -> None:
    assert decided(service(), node=node, web=[slice_("here")]) == {"192.0.2.65": ""}


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ([slice_("here")], [slice_("here")], ""),
        ([slice_("here")], [], ""),
        ([], [], "default/a, default/b: no endpoint is ready"),
        (
            [slice_("here")],
            [slice_("there")],
            f"{ELSEWHERE.format('default/b')}; default/a with the same address could be served",
        ),
        (
            [slice_("there")],
            [slice_("there")],
            ELSEWHERE.format("default/a, default/b"),
        ),
    ],
)
def test_a_shared_address_is_announced_where_all_with_endpoints_are_served(
    a: list[EndpointSlice], b: list[EndpointSlice], reason: str
) -> None:
    both = service("a", policy="Local"), service("b", policy="Local")
    assert decided(*both, a=a, b=b) == {"192.0.2.65": reason}


def test_of_a_shared_address_services_with_the_policy_cluster_are_served_everywhere() -> None:
    both = service("a"), service("b", policy="Local")
    assert decided(*both, a=[slice_("there")], b=[slice_("here")]) == {"192.0.2.65": ""}


@pytest.mark.parametrize(
    ("namespace", "policy", "announced"),
    [
        ("default", "Cluster", False),  # a tenant's own Service may keep clients from a node
        ("shop", "Cluster", True),
        ("shop", "Local", False),  # they had the address before, or both have changed it
    ],
)
def test_no_tenant_keeps_the_clients_of_another_one_from_a_node(
    namespace: str, policy: str, *, announced: bool
) -> None:
    one = service("mine", policy=policy, namespace=namespace)
    slices = {f"{namespace}/mine": [slice_("here")], "default/web": [slice_("there")]}
    for order in ([one, service(policy="Local")], [service(policy="Local"), one]):
        found = decide(order, slices, HERE, POOLS)
        assert bool(found.announced) is announced


@pytest.mark.parametrize(
    ("conditions", "answer"),
    [
        (EndpointConditions(), True),
        (EndpointConditions(ready=True), True),
        (EndpointConditions(ready=False), False),
        (READY, True),
        (ENDING, True),
        (ENDED, False),
        (EndpointConditions(ready=None, serving=None, terminating=True), True),
    ],
)
def test_an_endpoint_serves_while_it_ends(conditions: EndpointConditions, answer: object) -> None:
    assert can_serve(conditions) is answer


def test_the_same_objects_give_the_same_decision() -> None:
    services = [service("b"), service("a", "192.0.2.70")]
    slices = {"default/a": [slice_("here")]}
    assert decide(services, slices, HERE, POOLS) == decide(services[::-1], slices, HERE, POOLS)
    assert decide(services, slices, HERE, POOLS).announced == {ip_address("192.0.2.70")}


def test_the_addresses_of_nodes_that_another_balancer_left_are_not_announced() -> None:
    """k3s' own one writes those of all its nodes into the status, and leaves them there."""
    slices = (slice_("here"),)
    assert decided(service("web", "192.0.2.65"), web=slices) == {"192.0.2.65": ""}
    left = service("web", "192.0.2.65", "192.0.2.66", "2001:db8::65")
    assert "192.0.2.65" not in decided(left, web=slices)
    assert "192.0.2.66" not in decided(left, web=slices)


@pytest.mark.parametrize(
    ("status", "announced"),
    [(None, False), ("Unknown", False), ("True", True), ("False", True)],
    ids=["new to the manager", "being ensured", "as it should be", "refused a change"],
)
def test_what_a_status_shows_is_announced_once_the_manager_has_answered(
    status: str | None, *, announced: bool
) -> None:
    """Before that it may be the address of a node, which another balancer has left there."""
    conditions = (Condition("LoadBalancerReady", status),) if status else ()
    found = decided(service("web", conditions=conditions), web=(slice_("here"),))
    assert found == ({"192.0.2.65": ""} if announced else {})
