"""Tables of listeners and health checks that annotations come to."""

from collections.abc import Mapping
from typing import Any

import pytest

from proreus.cloudprovider import ClusterIdentity, HostPolicy, InvalidRequest, LoadBalancer
from proreus.cloudprovider.desired import desired_load_balancer
from proreus.kube.objects import ServicePort
from proreus.providers.aws.annotations import PREFIX, Options, read
from proreus.providers.aws.config import Global, HealthProbeMode
from proreus.providers.aws.listeners import (
    ClassicHealthCheck,
    HealthCheck,
    Listener,
    PortMapping,
    check,
    classic_health_check,
    classic_listeners,
    health_check,
    port_mappings,
)
from proreus.testing import objects

ARN = "arn:aws:acm:us-east-1:123456789012:certificate/1"
SHARED = Global(cluster_service_load_balancer_health_probe_mode=HealthProbeMode.SHARED)
HTTP = ServicePort(80, "http", node_port=30080)
HTTPS = ServicePort(443, "https", node_port=30443)
DNS = (ServicePort(53, "t", node_port=30053), ServicePort(53, "u", "UDP", node_port=30053))


def desired(
    *ports: ServicePort, asked: Mapping[str, str] | None = None, **spec: Any
) -> tuple[LoadBalancer, Options]:
    annotations = {PREFIX + name: value for name, value in (asked or {}).items()}
    given = {"ports": ports or (HTTP,), "ip_families": ("IPv4",), **spec}
    service = objects.service(namespace="shop", uid="u-1", annotations=annotations, **given)
    policy = HostPolicy(families=("IPv4",))
    return desired_load_balancer(service, (), policy, ClusterIdentity("c", "c-1")), read(
        annotations
    )


def test_a_port_without_tls_is_plain_tcp() -> None:
    assert classic_listeners(*desired()) == {Listener(80, "TCP", 30080, "TCP")}


CLASSIC: dict[str, tuple[dict[str, str], set[Listener]]] = {
    "http": ({"backend-protocol": "http"}, {Listener(443, "HTTP", 30443, "HTTP")}),
    "https without a certificate": (
        {"backend-protocol": "https"},
        {Listener(443, "TCP", 30443, "TCP")},
    ),
    "a certificate": ({"ssl-cert": ARN}, {Listener(443, "SSL", 30443, "TCP", ARN)}),
    "a certificate for another port": (
        {"ssl-cert": ARN, "ssl-ports": "444"},
        {Listener(443, "TCP", 30443, "TCP")},
    ),
    **{
        f"a certificate before {backend}": (
            {"ssl-cert": ARN, "backend-protocol": backend, "ssl-ports": "https"},
            {Listener(443, protocol, 30443, backend.upper(), ARN)},
        )
        for backend, protocol in
        (("http", "HTTPS"), ("https", "HTTPS"), ("tcp", "SSL"), ("ssl", "SSL"))
    },
}  # fmt: skip


@pytest.mark.parametrize("case", CLASSIC)
def test_the_listeners_of_a_classic_load_balancer(case: str) -> None:
    asked, listeners = CLASSIC[case]
    assert classic_listeners(*desired(HTTPS, asked=asked)) == listeners


CLASSIC_HEALTH: dict[str, tuple[dict[str, Any], Global, ClassicHealthCheck]] = {
    "the first port": ({}, Global(), ClassicHealthCheck("TCP:30080")),
    "hosts with TLS": (
        {"asked": {"ssl-cert": ARN, "backend-protocol": "https"}},
        Global(),
        ClassicHealthCheck("SSL:30080"),
    ),
    "local traffic": (
        {"external_traffic_policy": "Local", "health_check_node_port": 31000},
        Global(),
        ClassicHealthCheck("HTTP:31000/healthz"),
    ),
    "local traffic without its port": (
        {"external_traffic_policy": "Local"},
        Global(),
        ClassicHealthCheck("TCP:30080"),
    ),
    "local traffic, asked where it goes": (
        {
            "external_traffic_policy": "Local",
            "health_check_node_port": 31000,
            "asked": {"healthcheck-port": "traffic-port"},
        },
        Global(),
        ClassicHealthCheck("HTTP:30080/healthz"),
    ),
    "hosts with TLS of their own": (
        {"asked": {"backend-protocol": "ssl"}},
        Global(),
        ClassicHealthCheck("SSL:30080"),
    ),
    "shared": ({}, SHARED, ClassicHealthCheck("HTTP:10256/healthz")),
    "said otherwise": (
        {
            "asked": {
                "healthcheck-protocol": "https",
                "healthcheck-port": "8443",
                "healthcheck-path": "/up",
                "healthcheck-healthy-threshold": "3",
                "healthcheck-unhealthy-threshold": "4",
                "healthcheck-timeout": "7",
                "healthcheck-interval": "20",
            }
        },
        Global(),
        ClassicHealthCheck("HTTPS:8443/up", 3, 4, 7, 20),
    ),
    "http without a path": (
        {"asked": {"healthcheck-protocol": "http", "healthcheck-port": "traffic-port"}},
        Global(),
        ClassicHealthCheck("HTTP:30080/"),
    ),
}


@pytest.mark.parametrize("case", CLASSIC_HEALTH)
def test_the_health_check_of_a_classic_load_balancer(case: str) -> None:
    fields, settings, expected = CLASSIC_HEALTH[case]
    assert classic_health_check(*desired(HTTP, HTTPS, **fields), settings) == expected


def test_the_health_check_asks_at_the_first_port_that_the_service_names() -> None:
    assert classic_health_check(*desired(HTTPS, HTTP), Global()).target == "TCP:30443"


TCP = HealthCheck()
NETWORK: dict[str, tuple[tuple[ServicePort, ...], dict[str, str], tuple[PortMapping, ...]]] = {
    "two ports": (
        (HTTPS, HTTP),
        {},
        (PortMapping(80, "TCP", 30080, "TCP", TCP), PortMapping(443, "TCP", 30443, "TCP", TCP)),
    ),
    "udp": (DNS[1:], {}, (PortMapping(53, "UDP", 30053, "UDP", TCP),)),
    "tcp and udp at one port": (DNS, {}, (PortMapping(53, "TCP_UDP", 30053, "TCP_UDP", TCP),)),
    "tls": (
        (HTTP, HTTPS),
        {"ssl-cert": ARN, "ssl-ports": "443", "ssl-negotiation-policy": "P"},
        (
            PortMapping(80, "TCP", 30080, "TCP", TCP),
            PortMapping(443, "TLS", 30443, "TCP", TCP, ARN, "P"),
        ),
    ),
    "tls to hosts": (
        (HTTPS,),
        {"ssl-cert": ARN, "backend-protocol": "ssl"},
        (PortMapping(443, "TLS", 30443, "TLS", TCP, ARN),),
    ),
    "udp beside tls": (
        (HTTPS, DNS[1]),
        {"ssl-cert": ARN},
        (
            PortMapping(53, "UDP", 30053, "UDP", TCP),
            PortMapping(443, "TLS", 30443, "TCP", TCP, ARN),
        ),
    ),
}


@pytest.mark.parametrize("case", NETWORK)
def test_the_listeners_of_a_network_load_balancer(case: str) -> None:
    ports, asked, expected = NETWORK[case]
    assert port_mappings(*desired(*ports, asked={"type": "nlb", **asked}), Global()) == expected


NETWORK_HEALTH: dict[str, tuple[dict[str, Any], Global, HealthCheck]] = {
    "tcp": ({}, Global(), HealthCheck("TCP", "traffic-port", "", 3, 3, 30)),
    "local traffic": (
        {"external_traffic_policy": "Local", "health_check_node_port": 31000},
        Global(),
        HealthCheck("HTTP", "31000", "/healthz", 2, 2, 10),
    ),
    "local traffic without its port": (
        {"external_traffic_policy": "Local"},
        Global(),
        HealthCheck(),
    ),
    "shared": ({}, SHARED, HealthCheck("HTTP", "10256", "/healthz", 3, 3, 30)),
    "said otherwise": (
        {
            "asked": {
                "healthcheck-protocol": "http",
                "healthcheck-port": "8080",
                "healthcheck-healthy-threshold": "2",
                "healthcheck-unhealthy-threshold": "5",
                "healthcheck-interval": "10",
            }
        },
        SHARED,
        HealthCheck("HTTP", "8080", "/healthz", 2, 5, 10),
    ),
    "tcp although shared": (
        {"asked": {"healthcheck-protocol": "tcp"}},
        SHARED,
        HealthCheck("TCP", "10256"),
    ),
}


@pytest.mark.parametrize("case", NETWORK_HEALTH)
def test_the_health_check_of_a_network_load_balancer(case: str) -> None:
    fields, settings, expected = NETWORK_HEALTH[case]
    assert health_check(*desired(**fields), settings) == expected


SCTP = ServicePort(80, protocol="SCTP", node_port=30080)
REFUSED: dict[str, tuple[tuple[ServicePort, ...], dict[str, Any], str]] = {
    "udp at a classic one": (DNS[1:], {}, "53/UDP: the load balancer forwards only TCP; UDP needs"),
    "the client's address hidden from udp": (
        DNS[1:],
        {"asked": {"type": "nlb", "target-group-attributes": "preserve_client_ip.enabled=false"}},
        "target-group-attributes: with UDP",
    ),
    "sctp": ((SCTP,), {"asked": {"type": "nlb"}}, "80/SCTP: the load balancer forwards only TCP"),
    "no node port": ((ServicePort(80),), {}, "80/TCP: it has no node port"),
    "affinity": ((HTTP,), {"session_affinity": "ClientIP"}, "spec.sessionAffinity"),
    "an address": ((HTTP,), {"load_balancer_ip": "192.0.2.1"}, "spec.loadBalancerIP"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_by_its_field(case: str) -> None:
    ports, fields, message = REFUSED[case]
    with pytest.raises(InvalidRequest, match=message):
        check(*desired(*ports, **fields))


def test_all_that_is_impossible_is_reported_at_once() -> None:
    with pytest.raises(InvalidRequest) as caught:
        check(*desired(SCTP, ServicePort(81), session_affinity="ClientIP"))
    assert all(part in str(caught.value) for part in ("80/SCTP", "81/TCP", "sessionAffinity"))


def test_what_can_be_is_accepted() -> None:
    check(*desired(HTTP, HTTPS))
    check(*desired(*DNS, asked={"type": "nlb"}))


@pytest.mark.parametrize(
    ("ports", "asked", "message"),
    [
        ((DNS[0], ServicePort(53, "u", "UDP", node_port=1)), {}, "need the same nodePort"),
        (DNS, {"ssl-cert": ARN}, "TLS and UDP cannot share a port"),
    ],
)
def test_a_port_that_tcp_and_udp_cannot_share_is_refused(
    ports: tuple[ServicePort, ...], asked: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidRequest, match=message):
        port_mappings(*desired(*ports, asked={"type": "nlb", **asked}), Global())
