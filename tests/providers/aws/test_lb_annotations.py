"""Tables of what annotations ask for, and of what is refused."""

import contextlib
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proreus.cloudprovider.errors import ImplementedElsewhere, InvalidRequest
from proreus.providers.aws.annotations import PREFIX, AccessLog, Health, Kind, Options, read

ARN = "arn:aws:acm:us-east-1:123456789012:certificate/12345678-1234-1234-1234-123456789012"
NAMES = (
    "type", "internal", "ssl-cert", "ssl-ports", "ssl-negotiation-policy", "backend-protocol",
    "proxy-protocol", "cross-zone-load-balancing-enabled", "connection-draining-enabled",
    "connection-draining-timeout", "connection-idle-timeout", "access-log-enabled",
    "access-log-emit-interval", "access-log-s3-bucket-name", "access-log-s3-bucket-prefix",
    "extra-security-groups", "security-groups", "additional-resource-tags",
    "healthcheck-protocol", "healthcheck-port", "healthcheck-path", "healthcheck-healthy-threshold",
    "healthcheck-unhealthy-threshold", "healthcheck-timeout", "healthcheck-interval",
    "eip-allocations", "private-ipv4-addresses", "subnets", "target-node-labels",
    "target-group-attributes",
)  # fmt: skip


def asked(**values: str) -> Options:
    return read(annotations(values))


def annotations(values: Mapping[str, str]) -> dict[str, str]:
    return {PREFIX + name.replace("_", "-"): value for name, value in values.items()}


ASKED: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "nlb": ({"type": "nlb"}, {"kind": Kind.NETWORK}),
    "an unknown type is a classic one, as officially": ({"type": "clb"}, {}),
    "internal": ({"internal": "true"}, {"internal": True}),
    "internal as of old": ({"internal": "0.0.0.0/0"}, {"internal": True}),
    "not internal": ({"internal": "false"}, {}),
    "proxy protocol": ({"proxy-protocol": "*"}, {"proxy_protocol": True}),
    "cross zone": ({"cross-zone-load-balancing-enabled": "t"}, {"cross_zone": True}),
    "draining": ({"connection-draining-enabled": "true"}, {"draining": 300}),
    "draining for a time": (
        {"connection-draining-enabled": "1", "connection-draining-timeout": "60"},
        {"draining": 60},
    ),
    "a draining time alone": ({"connection-draining-timeout": "60"}, {}),
    "idle timeout": ({"connection-idle-timeout": "4000"}, {"idle_timeout": 4000}),
    "access log": (
        {
            "access-log-enabled": "true",
            "access-log-s3-bucket-name": "logs",
            "access-log-s3-bucket-prefix": "web/a",
            "access-log-emit-interval": "5",
        },
        {"access_log": AccessLog("logs", "web/a", 5)},
    ),
    "an access log that is off": ({"access-log-s3-bucket-name": "logs"}, {}),
    "TLS": (
        {"ssl-cert": ARN, "ssl-ports": "443, HTTPS", "ssl-negotiation-policy": "ELBSecurity-1-2"},
        {
            "certificate": ARN,
            "tls_ports": frozenset({"443", "https"}),
            "tls_policy": "ELBSecurity-1-2",
        },
    ),
    "TLS for all": ({"ssl-cert": ARN, "ssl-ports": "*"}, {"certificate": ARN}),
    "backend": ({"backend-protocol": "HTTP"}, {"backend_protocol": "http"}),
    "groups": (
        {"security-groups": "sg-1, sg-2", "extra-security-groups": "sg-3"},
        {"security_groups": ("sg-1", "sg-2"), "extra_security_groups": ("sg-3",)},
    ),
    "tags": (
        {"additional-resource-tags": "team=a, empty=,bare,odd=1=2,"},
        {"tags": {"team": "a", "empty": "", "bare": "", "odd": "1"}},
    ),
    "elastic addresses": (
        {"type": "nlb", "eip-allocations": "eipalloc-1,eipalloc-2"},
        {"kind": Kind.NETWORK, "allocations": ("eipalloc-1", "eipalloc-2")},
    ),
    "private addresses": (
        {"type": "nlb", "internal": "true", "private-ipv4-addresses": "10.0.0.9"},
        {"kind": Kind.NETWORK, "internal": True, "private_addresses": ("10.0.0.9",)},
    ),
    "subnets": ({"subnets": "subnet-1,front a"}, {"subnets": ("subnet-1", "front a")}),
    "hosts": ({"target-node-labels": "role=edge,spot"}, {"target_labels": {"role": "edge", "spot": ""}}),
    "target groups": (
        {"type": "nlb", "target-group-attributes": "preserve_client_ip.enabled=false"},
        {"kind": Kind.NETWORK, "target_attributes": {"preserve_client_ip.enabled": "false"}},
    ),
    "health": (
        {
            "healthcheck-protocol": "http",
            "healthcheck-port": "8080",
            "healthcheck-path": "/up",
            "healthcheck-healthy-threshold": "2",
            "healthcheck-unhealthy-threshold": "3",
            "healthcheck-timeout": "5",
            "healthcheck-interval": "6",
        },
        {"health": Health("HTTP", "8080", "/up", 2, 3, 5, 6)},
    ),
    "health at the traffic's port": (
        {"healthcheck-port": "traffic-port"},
        {"health": Health(port="traffic-port")},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ASKED)
def test_what_is_asked_for(case: str) -> None:
    given_, fields = ASKED[case]
    assert read(annotations(given_)) == msgspec.structs.replace(Options(), **fields)


REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "flag": ({"access-log-enabled": "yes"}, "access-log-enabled: give true or false"),
    "number": ({"connection-idle-timeout": "1h"}, "connection-idle-timeout: give a number from 1"),
    "too large": ({"connection-idle-timeout": "4001"}, "from 1 to 4000"),
    "proxy protocol": ({"proxy-protocol": "80"}, "proxy-protocol: give *"),
    "backend": ({"backend-protocol": "grpc"}, "backend-protocol: give one of http, https"),
    "certificate": ({"ssl-cert": "arn:aws:s3:::bucket"}, "ssl-cert: give the ARN"),
    "policy": ({"ssl-negotiation-policy": "a b"}, "ssl-negotiation-policy: give the name"),
    "group": ({"security-groups": "default"}, "security-groups: give ids such as sg-"),
    "group twice": ({"security-groups": "sg-1,sg-1"}, "security-groups: give each value once, not several times: sg-1"),
    "log without bucket": ({"access-log-enabled": "true"}, "s3-bucket-name: is required"),
    "bucket": ({"access-log-s3-bucket-name": "../x"}, "give the name of an S3 bucket"),
    "emit interval": ({"access-log-emit-interval": "7"}, "emit-interval: give 5 or 60"),
    "reserved tag": ({"additional-resource-tags": "kubernetes.io/cluster/x=owned"}, "are reserved"),
    "tag of a cluster": ({"additional-resource-tags": "KubernetesCluster=x"}, "are reserved"),
    "tag by which the AWS Load Balancer Controller knows its own": (
        {"additional-resource-tags": "team=a,service.k8s.aws/stack=bank/web"}, "are reserved",
    ),
    "tag by which that knows what it has made for Gateways": (
        {"additional-resource-tags": "gateway.k8s.aws.nlb/stack=bank/web"}, "are reserved",
    ),
    "tag by which Karpenter knows groups": (
        {"additional-resource-tags": "karpenter.sh/discovery=x"}, "are reserved",
    ),
    "tag by which EKS Auto Mode knows its own": (
        {"additional-resource-tags": "service.eks.amazonaws.com/stack=bank/web"}, "are reserved",
    ),
    "tag by which EKS knows clusters": (
        {"additional-resource-tags": "eks:eks-cluster-name=prod"}, "are reserved",
    ),
    "tag with a line": ({"additional-resource-tags": "a=b\nc"}, "a key has at most 128"),
    "many tags": ({"additional-resource-tags": ",".join(f"k{n}" for n in range(46))}, "at most 45"),
    "subnet": ({"subnets": "a\tb"}, "subnets: give ids or names"),
    "attribute": ({"type": "nlb", "target-group-attributes": "stickiness=1"}, "give only preserve"),
    "attribute's value": (
        {"type": "nlb", "target-group-attributes": "proxy_protocol_v2.enabled=on"},
        "give proxy_protocol_v2.enabled=true or proxy_protocol_v2.enabled=false",
    ),
    "health port": ({"healthcheck-port": "http"}, "healthcheck-port: give a number"),
    "health path": ({"healthcheck-path": "up"}, "healthcheck-path: give a path"),
    "slow health": (
        {"healthcheck-timeout": "10", "healthcheck-interval": "10"},
        "healthcheck-timeout: must be shorter",
    ),
    "ssl health of nlb": ({"type": "nlb", "healthcheck-protocol": "ssl"}, "give tcp, http or https"),
    "extra group of nlb": (
        {"type": "nlb", "extra-security-groups": "sg-1"}, "give security-groups with type: nlb",
    ),
    "elastic address of classic": ({"eip-allocations": "eipalloc-1"}, "needs " + PREFIX + "type: nlb"),
    "elastic address of internal": (
        {"type": "nlb", "internal": "true", "eip-allocations": "eipalloc-1"},
        "has no public addresses",
    ),
    "private address": (
        {"type": "nlb", "internal": "true", "private-ipv4-addresses": "10.0.0.256"},
        "private-ipv4-addresses: give IPv4 addresses",
    ),
    "private address of public": (
        {"type": "nlb", "private-ipv4-addresses": "10.0.0.1"},
        "needs " + PREFIX + "internal: true",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_is_named_with_the_remedy(case: str) -> None:
    given_, message = REFUSED[case]
    with pytest.raises(InvalidRequest) as caught:
        read(annotations(given_))
    assert message in str(caught.value)


def test_all_that_is_wrong_is_reported_at_once() -> None:
    with pytest.raises(InvalidRequest) as caught:
        asked(ssl_cert="x", proxy_protocol="80", subnets="\t\x00")
    assert str(caught.value).count("annotation ") == 3


@pytest.mark.parametrize("other", ["external", "nlb-ip"])
def test_what_another_controller_serves_is_left_to_it(other: str) -> None:
    with pytest.raises(ImplementedElsewhere, match="AWS Load Balancer Controller"):
        asked(type=other)


@pytest.mark.parametrize(
    ("values", "port", "name", "is_tls"),
    [
        ({}, 443, "https", False),
        ({"ssl_cert": ARN}, 80, "http", True),
        ({"ssl_cert": ARN, "ssl_ports": "443"}, 443, "a", True),
        ({"ssl_cert": ARN, "ssl_ports": "https"}, 443, "HTTPS", True),
        ({"ssl_cert": ARN, "ssl_ports": "https"}, 80, "http", False),
    ],
)
def test_tls_ends_at_the_ports_that_are_named(
    values: dict[str, str], port: int, name: str, *, is_tls: bool
) -> None:
    assert asked(**values).has_tls(port, name) is is_tls


@given(st.dictionaries(st.sampled_from(NAMES), st.text()))
def test_no_text_of_a_tenant_raises_anything_else(values: dict[str, str]) -> None:
    with contextlib.suppress(InvalidRequest, ImplementedElsewhere):
        read(annotations(values))
