"""What annotations, the cloud-config and the Service ask of a load balancer."""

from typing import Any

import msgspec
import pytest

from proreus.cloudprovider import InvalidRequest
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.cloudprovider.load_balancers import HostPolicy, LoadBalancer
from proreus.kube.objects import ObjectMeta, Service, ServicePort, ServiceSpec
from proreus.providers.openstack.config import LoadBalancer as Settings
from proreus.providers.openstack.config import LoadBalancerClass
from proreus.providers.openstack.octavia.annotations import (
    INTERNAL,
    PREFIX,
    Floating,
    read_options,
    selector,
)
from proreus.providers.openstack.octavia.desired import desired_balancer
from proreus.providers.openstack.octavia.parts import Listener, Monitor
from proreus.providers.openstack.octavia.subnets import matching

from .wire import CLUSTER, node, uuid

CLASSES = {"dmz": LoadBalancerClass(floating_network_id=uuid(1), subnet_id=uuid(2))}
MONITORED = {f"{PREFIX}enable-health-monitor": "true"}


def read(settings: Any = None, **annotations: str) -> Any:
    named = {f"{PREFIX}{name.replace('_', '-')}": value for name, value in annotations.items()}
    return read_options(named, settings or Settings(), CLASSES)


def service(**spec: Any) -> LoadBalancer:
    given = {"ports": (ServicePort(80, node_port=30080),), **spec}
    made = Service(ObjectMeta(name="web", namespace="shop", uid="u"), ServiceSpec(**given))
    hosts = [node("a", "openstack:///a", "10.0.0.1"), node("b", "openstack:///b", "2001:db8::1")]
    return desired_load_balancer(made, hosts, HostPolicy(), CLUSTER)


def listener(of: LoadBalancer, provider: str = "amphora", **annotations: str) -> Listener:
    made = desired_balancer(of, read(**annotations), "IPv4", provider=provider, member_subnet="s")
    return made.listeners[0]


def monitor(of: LoadBalancer, provider: str = "amphora", **annotations: str) -> Monitor:
    found = listener(of, provider, enable_health_monitor="true", **annotations).pool
    assert found is not None
    assert found.monitor is not None
    return found.monitor


def test_an_annotation_goes_before_the_class_and_that_before_the_config() -> None:
    settings = Settings(subnet_id=uuid(9), member_subnet_id=uuid(8), lb_method="SOURCE_IP")
    assert read(settings).subnet_id == uuid(9)
    assert read(settings, **{"class": "dmz"}).subnet_id == uuid(2)
    assert read(settings, **{"class": "dmz", "subnet_id": uuid(3)}).subnet_id == uuid(3)
    assert read(settings, **{"class": "dmz"}).floating.network_id == uuid(1)
    assert read(settings).method == "SOURCE_IP"
    assert read(settings).member_subnet_id == uuid(8)


def test_an_id_in_capitals_is_the_same_and_may_be_listed_as_it_is_written() -> None:
    small = "2e8c1f0a-0000-4000-8000-00000000000a"
    named = read(port_id=small.upper(), floating_subnet_id=small.upper())
    assert (named.port_id, named.floating.subnet_id) == (small, small)
    assert named.named == {"port-id": small.upper(), "floating-subnet-id": small.upper()}
    settings = Settings(network_id=small.upper(), floating_subnet_id=small.upper())
    assert read(settings, network_id=small, floating_subnet_id=small).named == {}


def test_a_tenant_cannot_have_a_floating_address_where_the_config_forbids_them() -> None:
    def internal(settings: Settings, value: str) -> bool:
        return bool(read_options({INTERNAL: value}, settings, {}).internal)

    assert not internal(Settings(), "false")
    assert internal(Settings(), "true")
    assert internal(Settings(internal_lb=True), "false")
    assert read(Settings(internal_lb=True)).internal


def test_everything_wrong_is_reported_at_once_and_by_name() -> None:
    wrong = {
        "subnet_id": "x'; drop",
        "connection_limit": "many",
        "timeout_client_data": "-1",
        "lb_method": "BEST",
        "proxy_protocol": "v3",
        "x_forwarded_for": "perhaps",
        "class": "none",
        "health_monitor_delay": "0",
        "hostname": "a b",
        "keep_floatingip": "2",
        "floating_subnet": "~(a+)+$",
    }
    with pytest.raises(InvalidRequest) as refused:
        read(**wrong)
    for name in wrong:
        assert f"{PREFIX}{name.replace('_', '-')}:" in str(refused.value)


def test_proxy_protocol_and_http_do_not_go_together() -> None:
    with pytest.raises(InvalidRequest, match="proxy-protocol"):
        read(proxy_protocol="true", x_forwarded_for="true")
    with pytest.raises(InvalidRequest, match="health-monitor-delay"):
        read(enable_health_monitor="true", health_monitor_delay="2", health_monitor_timeout="3")


def test_a_plain_listener_spreads_traffic_over_hosts_of_its_family() -> None:
    found = listener(service(), connection_limit="7", timeout_tcp_inspect="9")
    assert (found.protocol, found.port) == ("TCP", 80)
    assert found.fields["connection_limit"] == 7
    assert found.fields["timeout_tcp_inspect"] == 9
    assert found.fields["timeout_client_data"] == 50000
    assert found.fields["allowed_cidrs"] is None
    assert found.pool is not None
    assert [(one.name, one.address, one.port) for one in found.pool.members] == [
        ("a", "10.0.0.1", 30080)
    ]
    assert found.pool.monitor is None


@pytest.mark.parametrize(
    ("annotations", "protocol", "pool"),
    [
        ({"x_forwarded_for": "true"}, "HTTP", "HTTP"),
        ({"default_tls_container_ref": "https://barbican/1"}, "TERMINATED_HTTPS", "HTTP"),
        ({"proxy_protocol": "true"}, "TCP", "PROXY"),
        ({"proxy_protocol": "v2"}, "TCP", "PROXYV2"),
    ],
)
def test_protocols_follow_from_annotations(
    annotations: dict[str, str], protocol: str, pool: str
) -> None:
    found = listener(service(), **annotations)
    assert found.pool is not None
    assert (found.protocol, found.pool.protocol) == (protocol, pool)
    has_header = found.fields.get("insert_headers") == {"X-Forwarded-For": "true"}
    assert has_header == ("x_forwarded_for" in annotations)


def test_datagrams_have_no_timeouts_and_their_own_monitor() -> None:
    of = service(ports=(ServicePort(53, protocol="UDP", node_port=30053),))
    found = listener(of, proxy_protocol="true")
    assert (found.protocol, found.pool and found.pool.protocol) == ("UDP", "UDP")
    assert not any(name.startswith("timeout") for name in found.fields)
    assert monitor(of).type == "UDP-CONNECT"


def test_local_traffic_is_asked_for_where_the_pods_are() -> None:
    of = service(external_traffic_policy="Local", health_check_node_port=31000)
    found = monitor(of)
    assert (found.type, found.fields["url_path"]) == ("HTTP", "/healthz")
    members = listener(of, enable_health_monitor="true").pool
    assert members is not None
    assert {one.monitor_port for one in members.members} == {31000}
    assert monitor(of, "ovn").type == monitor(service()).type == "TCP"


def test_ovn_gets_only_what_it_can_do() -> None:
    found = listener(service(), "ovn", lb_method="LEAST_CONNECTIONS")
    assert found.pool is not None
    assert found.pool.fields["lb_algorithm"] == "SOURCE_IP_PORT"
    assert not any(name.startswith("timeout") for name in found.fields)


def test_source_ranges_let_in_those_and_nobody_if_there_are_none_of_the_family() -> None:
    some = service(load_balancer_source_ranges=("192.0.2.0/24", "198.51.100.0/24"))
    assert listener(some).fields["allowed_cidrs"] == ["192.0.2.0/24", "198.51.100.0/24"]
    none = service(load_balancer_source_ranges=("2001:db8::/32",))
    assert listener(none).fields["allowed_cidrs"] == ["255.255.255.255/32"]


def test_affinity_is_by_the_clients_address() -> None:
    found = listener(service(session_affinity="ClientIP")).pool
    assert found is not None
    assert found.fields["session_persistence"] == {"type": "SOURCE_IP"}


def test_names_fit_whatever_the_service_is_called() -> None:
    of = service()
    named = msgspec.structs.replace(of.ref, namespace="n" * 63, service_name="s" * 200)
    made = desired_balancer(
        msgspec.structs.replace(of, ref=named, families=("IPv6", "IPv4")),
        read(**{name.removeprefix(PREFIX): value for name, value in MONITORED.items()}),
        "IPv4",
        provider="amphora",
        member_subnet="",
    )
    assert made.name.endswith("_ipv4")
    names = [made.name, made.listeners[0].name]
    pool = made.listeners[0].pool
    assert pool is not None
    assert pool.monitor is not None
    assert all(len(name) <= 255 for name in (*names, pool.name, pool.monitor.name))


def test_hosts_are_chosen_by_labels() -> None:
    assert selector({f"{PREFIX}node-selector": "a=b, c"}, "x=y") == {"a": "b", "c": None}
    assert selector({}, "x=y") == {"x": "y"}
    assert selector({}, "") == {}


SUBNETS = [
    {"id": "1", "name": "dmz-1", "tags": ["front", "a"]},
    {"id": "2", "name": "dmz-2", "tags": ["front"]},
    {"id": "3", "name": "lan", "tags": []},
]


@pytest.mark.parametrize(
    ("floating", "ids"),
    [
        (Floating(subnet="dmz-*"), "12"),
        (Floating(subnet="!dmz-*"), "3"),
        (Floating(subnet="~^dmz-[12]$"), "12"),
        (Floating(subnet="!~1$"), "23"),
        (Floating(subnet_tags="front"), "12"),
        (Floating(subnet_tags="front, a"), "1"),
        (Floating(subnet_tags="!front,a"), "23"),
    ],
)
def test_floating_subnets_are_chosen_by_name_or_tags(floating: Floating, ids: str) -> None:
    assert "".join(one["id"] for one in matching(SUBNETS, floating)) == ids
