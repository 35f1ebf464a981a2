"""Tables and properties of the load balancer that the framework desires for a Service."""

from collections.abc import Iterable
from datetime import UTC, datetime
from ipaddress import ip_address
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.cloudprovider.desired import desired_load_balancer, hosts, load_balancer_ref
from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.identity import MARK_SERVICE_UID, ClusterIdentity
from proreus.cloudprovider.load_balancers import (
    Endpoints,
    EndpointTarget,
    Frontend,
    HealthCheck,
    HostPolicy,
    LoadBalancer,
)
from proreus.kube.objects import (
    ANNOTATION_SOURCE_RANGES,
    LABEL_EXCLUDE_LB,
    TAINT_AUTOSCALER,
    TAINT_UNINITIALIZED,
    ClientIPConfig,
    Endpoint,
    EndpointConditions,
    EndpointSlice,
    LoadBalancerIngress,
    Node,
    NodeAddress,
    ObjectMeta,
    Service,
    ServicePort,
    SessionAffinityConfig,
    Taint,
)
from proreus.testing import objects

CLUSTER = ClusterIdentity(name="prod", uid="cluster-uid")
UID = "0b1c2d3e-0000-4000-8000-00000000000f"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HTTP = ServicePort(name="http", port=80, node_port=30080)
DUAL = ("IPv4", "IPv6")


def service(**fields: Any) -> Service:
    return objects.service("web", **{"namespace": "shop", "uid": UID, "ports": (HTTP,), **fields})


def node(
    name: str = "n1",
    *,
    provider_id: str = "sim://1",
    deleted: datetime | None = None,
    addresses: tuple[tuple[str, str], ...] = (),
    **fields: Any,
) -> Node:
    shown = [NodeAddress(*pair) for pair in addresses]
    return objects.node(name, provider_id, addresses=shown, deletion_timestamp=deleted, **fields)


def desired(
    svc: Service,
    *,
    policy: HostPolicy | None = None,
    endpoints: Iterable[EndpointSlice] = (),
) -> LoadBalancer:
    return desired_load_balancer(svc, [node()], policy or HostPolicy(), CLUSTER, endpoints)


@pytest.mark.parametrize(
    ("case", "is_host"),
    [
        (node(), True),
        (node(deleted=NOW), False),
        (node(provider_id=""), False),
        (node(taints=(Taint(key=TAINT_AUTOSCALER, effect="NoSchedule"),)), False),
        (node(taints=(Taint(key=TAINT_AUTOSCALER, effect="PreferNoSchedule"),)), False),
        (node(taints=(Taint(key=TAINT_UNINITIALIZED, effect="NoSchedule"),)), True),
        (node(labels={LABEL_EXCLUDE_LB: "true"}), False),
        (node(labels={LABEL_EXCLUDE_LB: ""}), False),
        (node(labels={LABEL_EXCLUDE_LB: "no"}), False),
        (node(labels={LABEL_EXCLUDE_LB: "false"}), True),
        (node(labels={LABEL_EXCLUDE_LB: "0"}), True),
        (node(labels={LABEL_EXCLUDE_LB: "F"}), True),
    ],
)
def test_a_node_is_a_host_by_the_stable_node_set_rules(case: Node, *, is_host: bool) -> None:
    assert bool(hosts([case], HostPolicy(), DUAL)) is is_host


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ({}, ["a", "b", "c"]),
        ({"pool": "edge"}, ["a", "b"]),
        ({"pool": "edge", "arch": "arm"}, ["b"]),
        ({"pool": ""}, []),
        ({"pool": None}, ["a", "b"]),
    ],
)
def test_hosts_match_the_whole_selector_and_are_sorted_by_name(
    selector: dict[str, str | None], names: list[str]
) -> None:
    nodes = [
        node("b", labels={"pool": "edge", "arch": "arm"}),
        node("c"),
        node("a", labels={"pool": "edge"}),
    ]
    found = hosts(nodes, HostPolicy(selector=selector), DUAL)
    assert [host.node for host in found] == names


def test_a_host_has_its_internal_addresses_first_by_family_without_names_and_doubles() -> None:
    case = node(
        addresses=(
            ("Hostname", "n1"),
            ("ExternalIP", "198.51.100.7"),
            ("InternalIP", "10.0.0.7"),
            ("InternalIP", "10.0.0.7"),
            ("ExternalIP", "10.0.0.7"),
            ("InternalIP", "2001:db8::7"),
            ("InternalIP", "not-an-address"),
            ("InternalDNS", "n1.internal"),
        )
    )
    (both,) = hosts([case], HostPolicy(), DUAL)
    assert both.addresses == {"IPv4": ("10.0.0.7", "198.51.100.7"), "IPv6": ("2001:db8::7",)}
    (six,) = hosts([case], HostPolicy(), ("IPv6",))
    assert six.addresses == {"IPv6": ("2001:db8::7",)}


@pytest.mark.parametrize(
    "claimed",
    [
        *("169.254.169.254", "224.0.0.1", "fe80::1", "ff02::1", "::", "2001:db8::7%1"),
        "::ffff:169.254.169.254",
    ],
)
def test_an_address_that_no_load_balancer_reaches_is_none_of_a_host(claimed: str) -> None:
    case = node(addresses=(("InternalIP", claimed), ("ExternalIP", "198.51.100.7")))
    (host,) = hosts([case], HostPolicy(), ("IPv4",))
    assert host.addresses == {"IPv4": ("198.51.100.7",)}
    (six,) = hosts([case], HostPolicy(), ("IPv6",))
    assert six.addresses == {}


def test_a_host_without_addresses_is_still_a_host() -> None:
    (host,) = hosts([node()], HostPolicy(), DUAL)
    assert (host.node, host.provider_id, host.addresses) == ("n1", "sim://1", {})


@pytest.mark.parametrize(
    ("asked", "offered", "families"),
    [
        ((), DUAL, ("IPv4",)),
        (("IPv6", "IPv4"), DUAL, ("IPv6", "IPv4")),
        (("IPv6", "IPv4"), ("IPv4",), ("IPv4",)),
        (("IPv6",), ("IPv6",), ("IPv6",)),
    ],
)
def test_families_are_those_of_the_service_that_the_cloud_offers(
    asked: tuple[str, ...], offered: tuple[str, ...], families: tuple[str, ...]
) -> None:
    found = desired(service(ip_families=asked), policy=HostPolicy(families=offered))
    assert found.families == families
    assert tuple(front.family for front in found.frontends) == families
    assert tuple(found.source_ranges) == families


@pytest.mark.parametrize(
    ("svc", "policy", "parts"),
    [
        (service(ip_families=("IPv6",)), HostPolicy(families=("IPv4",)), ["spec.ipFamilies"]),
        (service(ip_families=("IPv6",)), HostPolicy(families=()), ["can only have none"]),
        (service(ports=()), HostPolicy(), ["spec.ports"]),
        (
            service(
                load_balancer_source_ranges=("10.0.0.0/8", "ten", "10.0.0.0/99", "fe80::%1/64")
            ),
            HostPolicy(),
            ["spec.loadBalancerSourceRanges: 'ten'", "'10.0.0.0/99'", "'fe80::%1/64'"],
        ),
        (
            service(annotations={ANNOTATION_SOURCE_RANGES: "10.0.0.0/8,,x"}),
            HostPolicy(),
            [f"annotation {ANNOTATION_SOURCE_RANGES}: ''", "'x'"],
        ),
        (
            service(ports=(), load_balancer_source_ranges=("ten",)),
            HostPolicy(),
            ["spec.ports", "spec.loadBalancerSourceRanges"],
        ),
    ],
)
def test_an_impossible_service_is_refused_with_every_field_named(
    svc: Service, policy: HostPolicy, parts: list[str]
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        desired(svc, policy=policy)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "annotation", "ranges"),
    [
        ((), None, {"IPv4": ("0.0.0.0/0",), "IPv6": ("::/0",)}),
        ((), "  ", {"IPv4": ("0.0.0.0/0",), "IPv6": ("::/0",)}),
        ((), "10.0.0.0/8, 2001:db8::/32", {"IPv4": ("10.0.0.0/8",), "IPv6": ("2001:db8::/32",)}),
        (("10.1.2.3/8",), None, {"IPv4": ("10.0.0.0/8",), "IPv6": ()}),
        ((" 10.0.0.0/8 ",), "192.0.2.0/24", {"IPv4": ("10.0.0.0/8",), "IPv6": ()}),
        (
            ("10.0.0.0/8", "10.0.0.1/8", "9.0.0.0/8"),
            None,
            {"IPv4": ("10.0.0.0/8", "9.0.0.0/8"), "IPv6": ()},
        ),
    ],
)
def test_source_ranges_come_from_the_spec_then_the_annotation_then_everywhere(
    spec: tuple[str, ...], annotation: str | None, ranges: dict[str, tuple[str, ...]]
) -> None:
    annotations = {} if annotation is None else {ANNOTATION_SOURCE_RANGES: annotation}
    svc = service(
        annotations=annotations, load_balancer_source_ranges=spec, ip_families=("IPv4", "IPv6")
    )
    assert desired(svc).source_ranges == ranges


def test_a_range_of_a_family_that_the_service_lacks_is_left_out() -> None:
    svc = service(load_balancer_source_ranges=("2001:db8::/32",), ip_families=("IPv4",))
    assert desired(svc).source_ranges == {"IPv4": ()}


@pytest.mark.parametrize(
    ("policy", "port", "check"),
    [
        ("Cluster", 0, HealthCheck(port=10256, path="/healthz")),
        ("", 0, HealthCheck(port=10256, path="/healthz")),
        ("Local", 31000, HealthCheck(port=31000, path="/healthz")),
        ("Local", 0, HealthCheck(port=0, path="")),
    ],
)
def test_the_health_check_follows_the_external_traffic_policy(
    policy: str, port: int, check: HealthCheck
) -> None:
    found = desired(service(external_traffic_policy=policy, health_check_node_port=port))
    assert found.health_check == check
    assert found.local_traffic is (policy == "Local")


@pytest.mark.parametrize(
    ("affinity", "config", "seconds"),
    [
        ("None", None, None),
        ("ClientIP", None, 10800),
        ("ClientIP", SessionAffinityConfig(), 10800),
        ("ClientIP", SessionAffinityConfig(client_ip=ClientIPConfig()), 10800),
        ("ClientIP", SessionAffinityConfig(client_ip=ClientIPConfig(timeout_seconds=60)), 60),
        ("None", SessionAffinityConfig(client_ip=ClientIPConfig(timeout_seconds=60)), None),
    ],
)
def test_affinity_has_the_timeout_of_the_api_or_its_default(
    affinity: str, config: SessionAffinityConfig | None, seconds: int | None
) -> None:
    found = desired(service(session_affinity=affinity, session_affinity_config=config))
    assert found.affinity_seconds == seconds


def test_frontends_are_every_port_on_every_family() -> None:
    dns = ServicePort(name="dns", port=53, protocol="UDP", node_port=30053, app_protocol="dns")
    found = desired(service(ports=(HTTP, dns), ip_families=DUAL))
    assert found.frontends == (
        Frontend("TCP", 80, 30080, "IPv4", "http"),
        Frontend("UDP", 53, 30053, "IPv4", "dns", "dns"),
        Frontend("TCP", 80, 30080, "IPv6", "http"),
        Frontend("UDP", 53, 30053, "IPv6", "dns", "dns"),
    )


def test_the_desired_load_balancer_names_its_owner_and_the_requested_address() -> None:
    svc = service(load_balancer_ip="192.0.2.9", ingress=(LoadBalancerIngress(ip="192.0.2.8"),))
    found = desired(svc)
    assert found.ref == load_balancer_ref(svc, CLUSTER)
    assert found.ref.key == "shop/web"
    assert found.ref.name == "a0b1c2d3e00004000800000000000000"
    assert found.ref.last_ingress == (LoadBalancerIngress(ip="192.0.2.8"),)
    assert found.ref.service is svc
    assert found.marks[MARK_SERVICE_UID] == UID
    assert found.requested_address == "192.0.2.9"
    assert [host.node for host in found.hosts] == ["n1"]


def slice_of(
    *endpoints: Endpoint, name: str = "web", namespace: str = "shop", family: str = "IPv4"
) -> EndpointSlice:
    return EndpointSlice(
        metadata=ObjectMeta(namespace=namespace, labels={"kubernetes.io/service-name": name}),
        address_type=family,
        endpoints=endpoints,
    )


SLICES = [
    slice_of(
        Endpoint(("10.1.0.2",), node_name="b"),
        Endpoint(("10.1.0.1",), EndpointConditions(ready=True), "b"),
        Endpoint(("10.1.0.3",), EndpointConditions(ready=False, serving=True), "c"),
        Endpoint(("10.1.0.4",)),
    ),
    slice_of(Endpoint(("10.1.0.1",), node_name="b")),
    slice_of(Endpoint(("2001:db8::1",), node_name="a"), family="IPv6"),
    slice_of(Endpoint(("10.1.0.9",), node_name="a"), name="other"),
    slice_of(Endpoint(("10.1.0.8",), node_name="a"), namespace="other"),
    slice_of(Endpoint(("example.org",), node_name="a"), family="FQDN"),
]


@pytest.mark.parametrize(
    ("needed", "targets"),
    [
        (Endpoints.NONE, ()),
        (Endpoints.NODES, (EndpointTarget("", "b", "IPv4"), EndpointTarget("", "a", "IPv6"))),
        (
            Endpoints.PODS,
            (
                EndpointTarget("10.1.0.4", "", "IPv4"),
                EndpointTarget("10.1.0.1", "b", "IPv4"),
                EndpointTarget("10.1.0.2", "b", "IPv4"),
                EndpointTarget("2001:db8::1", "a", "IPv6"),
            ),
        ),
    ],
)
def test_endpoints_are_the_ready_ones_of_this_service_as_far_as_the_policy_asks(
    needed: Endpoints, targets: tuple[EndpointTarget, ...]
) -> None:
    found = desired(
        service(ip_families=DUAL), policy=HostPolicy(endpoints=needed), endpoints=iter(SLICES)
    )
    assert found.endpoints == targets


def test_a_pod_that_moves_within_its_node_does_not_change_what_is_desired_by_nodes() -> None:
    policy = HostPolicy(endpoints=Endpoints.NODES)
    before = [slice_of(Endpoint(("10.1.0.1",), node_name="a"))]
    after = [slice_of(Endpoint(("10.1.0.2",), node_name="a"))]
    svc = service()
    assert desired(svc, policy=policy, endpoints=before) == desired(
        svc, policy=policy, endpoints=after
    )


addresses = st.tuples(
    st.sampled_from(["InternalIP", "ExternalIP", "Hostname", "InternalDNS"]),
    st.one_of(st.ip_addresses().map(str), st.just("name")),
)
nodes = st.lists(
    st.builds(
        node,
        name=st.text("abc", min_size=1, max_size=3),
        labels=st.dictionaries(
            st.sampled_from([LABEL_EXCLUDE_LB, "pool"]), st.sampled_from(["true", "false", "x"])
        ),
        taints=st.lists(
            st.builds(
                Taint,
                key=st.sampled_from([TAINT_AUTOSCALER, "other"]),
                effect=st.just("NoSchedule"),
            ),
            max_size=2,
        ).map(tuple),
        provider_id=st.sampled_from(["", "sim://1"]),
        deleted=st.sampled_from([None, NOW]),
        addresses=st.lists(addresses, max_size=4).map(tuple),
    ),
    max_size=8,
    unique_by=lambda case: case.metadata.name,
)
policies = st.builds(
    HostPolicy, selector=st.dictionaries(st.just("pool"), st.sampled_from(["x", "true"]))
)


@given(nodes, policies, st.randoms(use_true_random=False))
def test_the_order_of_the_nodes_does_not_matter(
    cluster_nodes: list[Node], policy: HostPolicy, chance: Random
) -> None:
    shuffled = list(cluster_nodes)
    chance.shuffle(shuffled)
    assert hosts(cluster_nodes, policy, DUAL) == hosts(shuffled, policy, DUAL)


@given(nodes, policies)
def test_every_host_is_safe_to_send_traffic_to(
    cluster_nodes: list[Node], policy: HostPolicy
) -> None:
    by_name = {case.metadata.name: case for case in cluster_nodes}
    for host in hosts(cluster_nodes, policy, DUAL):
        case = by_name[host.node]
        assert host.provider_id
        assert case.metadata.deletion_timestamp is None
        assert TAINT_AUTOSCALER not in {taint.key for taint in case.spec.taints}
        assert case.metadata.labels.get(LABEL_EXCLUDE_LB) in {None, "false"}
        assert policy.selector.items() <= case.metadata.labels.items()
        for family, found in host.addresses.items():
            assert {f"IPv{ip_address(address).version}" for address in found} == {family}


@given(nodes, policies, st.integers(0, 7))
def test_a_node_joins_or_leaves_without_changing_the_other_hosts(
    cluster_nodes: list[Node], policy: HostPolicy, index: int
) -> None:
    everyone = hosts(cluster_nodes, policy, DUAL)
    left = cluster_nodes[:index] + cluster_nodes[index + 1 :]
    names = {case.metadata.name for case in left}
    assert hosts(left, policy, DUAL) == tuple(host for host in everyone if host.node in names)


@given(nodes, policies)
def test_a_narrower_selector_never_adds_a_host(
    cluster_nodes: list[Node], policy: HostPolicy
) -> None:
    wide = {host.node for host in hosts(cluster_nodes, HostPolicy(), DUAL)}
    assert {host.node for host in hosts(cluster_nodes, policy, DUAL)} <= wide
