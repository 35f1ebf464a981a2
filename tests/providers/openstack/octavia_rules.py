"""What Octavia refuses, in its own words. Pure."""

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Any, Final

from aiohttp import web

from .wire import Json, octavia

LONGEST_NAME: Final = 255
NAMES: Final = {
    "loadbalancers": "Load Balancer",
    "listeners": "Listener",
    "pools": "Pool",
    "healthmonitors": "Health Monitor",
}
DEFAULTS: Final[dict[str, Json]] = {
    "loadbalancers": {
        "name": "", "description": "", "tags": [], "admin_state_up": True, "provider": "amphora",
        "flavor_id": None, "availability_zone": None, "vip_subnet_id": None,
        "vip_qos_policy_id": None, "additional_vips": [],
        "vip_network_id": "private", "project_id": "p", "tenant_id": "p",
    },
    "listeners": {
        "name": "", "description": "", "tags": [], "admin_state_up": True, "connection_limit": -1,
        "timeout_client_data": 50000, "timeout_member_connect": 5000,
        "timeout_member_data": 50000, "timeout_tcp_inspect": 0, "allowed_cidrs": None,
        "insert_headers": {}, "alpn_protocols": None, "l7policies": [],
        "client_authentication": "NONE", "client_ca_tls_container_ref": None,
        "client_crl_container_ref": None, "tls_ciphers": None, "tls_versions": None,
        "default_tls_container_ref": None, "sni_container_refs": [], "default_pool_id": None,
        "project_id": "p", "tenant_id": "p", "created_at": "2026-01-01T00:00:00",
    },
    "pools": {
        "name": "", "description": "", "tags": [], "admin_state_up": True,
        "session_persistence": None, "tls_enabled": False, "tls_ciphers": None,
        "tls_versions": None, "tls_container_ref": None, "ca_tls_container_ref": None,
        "crl_container_ref": None, "alpn_protocols": None, "project_id": "p", "tenant_id": "p",
        "created_at": "2026-01-01T00:00:00",
    },
    "healthmonitors": {
        "name": "", "tags": [], "admin_state_up": True, "max_retries_down": 3,
        "url_path": None, "http_method": None, "expected_codes": None, "domain_name": None,
        "http_version": None, "project_id": "p", "tenant_id": "p",
        "created_at": "2026-01-01T00:00:00",
    },
    "members": {
        "name": "", "tags": [], "admin_state_up": True, "backup": False, "weight": 1,
        "monitor_address": None, "monitor_port": None, "subnet_id": None, "project_id": "p",
        "tenant_id": "p", "created_at": "2026-01-01T00:00:00",
    },
}  # fmt: skip
"""What is there where a request says nothing, or null."""

SESSION: Final[Json] = {
    "cookie_name": None, "persistence_granularity": None, "persistence_timeout": None,
}  # fmt: skip
"""What session persistence has beside its type."""

_LISTENER_PROTOCOLS = ("HTTP", "HTTPS", "PROMETHEUS", "SCTP", "TCP", "TERMINATED_HTTPS", "UDP")
_POOL_PROTOCOLS = {
    "TCP": {"TCP", "PROXY", "PROXYV2", "HTTP"},
    "HTTP": {"HTTP", "PROXY", "PROXYV2"},
    "HTTPS": {"HTTPS", "TCP", "PROXY", "PROXYV2"},
    "TERMINATED_HTTPS": {"HTTP", "PROXY", "PROXYV2"},
    "UDP": {"UDP"},
    "SCTP": {"SCTP"},
}
_ALGORITHMS = ("LEAST_CONNECTIONS", "ROUND_ROBIN", "SOURCE_IP", "SOURCE_IP_PORT")
_MONITORS = ("HTTP", "HTTPS", "PING", "SCTP", "TCP", "TLS-HELLO", "UDP-CONNECT")
_RESERVED = ("169.254.169.254",)
"""The option `reserved_ips` of Octavia, by default."""
_STAYS = ("vip_address", "vip_network_id", "vip_port_id", "vip_subnet_id", "provider")
_LAST_PORT = 65535


def filled(kind: str, given: Json) -> Json:
    """With the defaults."""
    return {**DEFAULTS[kind], **{name: value for name, value in given.items() if value is not None}}


def changed(kind: str, given: Json) -> Json:
    """What a change comes to: null means the default."""
    return {
        name: DEFAULTS[kind].get(name) if value is None else value for name, value in given.items()
    }


def transport(listener: Json) -> tuple[str, int]:
    """What no two listeners of a load balancer can share."""
    protocol = str(listener["protocol"])
    is_stream = protocol not in {"UDP", "SCTP"}
    return "TCP" if is_stream else protocol, int(listener["protocol_port"])


def balancer(given: Json, subnets: Iterable[str], cidr: str) -> web.Response | None:
    """Of a load balancer.

    Args:
        given: As it is asked for.
        subnets: Those that are there.
        cidr: Of its own subnet, or "".
    """
    if len(given.get("name", "")) > LONGEST_NAME:
        should = f"have a maximum character requirement of {LONGEST_NAME}"
        return _invalid("name", given["name"], should)
    if given.get("provider") == "nobody":
        return octavia(400, "Provider 'nobody' is not enabled.")
    if (refused := _place(given, subnets, cidr)) is not None:
        return refused
    there: list[Json] = []
    for one in given.get("listeners") or ():
        if (refused := listener(one, there, "")) is not None:
            return refused
        there.append(one)
    return None


def _place(given: Json, subnets: Iterable[str], cidr: str) -> web.Response | None:
    subnet, address = given.get("vip_subnet_id"), given.get("vip_address")
    if not (subnet or given.get("vip_network_id") or given.get("vip_port_id")):
        where = "vip_port_id, vip_network_id, vip_subnet_id"
        return octavia(400, f"Validation failure: VIP must contain one of: {where}.")
    if subnet and subnet not in set(subnets):
        return octavia(400, f"Subnet {subnet} not found.")
    if given.get("flavor_id"):
        return octavia(400, "Validation failure: Invalid flavor_id.")
    if address and cidr and ipaddress.ip_address(address) not in ipaddress.ip_network(cidr):
        text = f"IP address {address} is not a valid IP for the specified subnet."
        where = f"neutron port on network {'0' * 32}"
        asked = "Neutron server returns request_ids: ['req-1']."
        return octavia(400, f"Error creating {where} due to {text} {asked}")
    return None


def balancer_change(given: Json) -> web.Response | None:
    """Of a change of a load balancer."""
    for name in _STAYS:
        if name in given:
            where = "argument load_balancer.loadbalancer"
            return octavia(400, f"Unknown attribute for {where}: {name}")
    return None


def listener(given: Json, there: Iterable[Json], vip: str) -> web.Response | None:
    """Of a listener beside others, on the address of its load balancer, or ""."""
    if given["protocol"] not in _LISTENER_PROTOCOLS:
        return _none_of("protocol", given["protocol"], _LISTENER_PROTOCOLS)
    if given["protocol_port"] > _LAST_PORT:
        return _invalid(
            "protocol_port", given["protocol_port"], f"be lower or equal to {_LAST_PORT}"
        )
    if (refused := ranges(given, vip)) is not None:
        return refused
    has_secrets = given.get("default_tls_container_ref") or given.get("sni_container_refs")
    if given["protocol"] == "TERMINATED_HTTPS" and not has_secrets:
        text = "An SNI or default certificate container reference must be provided for"
        return octavia(400, f"Validation failure: {text} TERMINATED_HTTPS protocol listeners.")
    if any(transport(one) == transport(given) for one in there):
        where = f"protocol {given['protocol']} and protocol_port {given['protocol_port']}"
        return octavia(409, f"Another Listener on this Load Balancer is already using {where}")
    return None


def ranges(given: Json, vip: str) -> web.Response | None:
    """Of the ranges of a listener."""
    allowed = given.get("allowed_cidrs") or []
    for one in allowed:
        try:
            version = ipaddress.ip_network(one, strict=False).version
        except ValueError:
            return _invalid("allowed_cidrs", allowed, "be IPv4 or IPv6 CIDR format")
        if vip and version != ipaddress.ip_address(vip).version:
            text = f"CIDR {one} IP version incompatible with VIP {vip} IP version."
            return octavia(400, f"Validation failure: {text}")
    return None


def pool(given: Json, listener_: Json | None) -> web.Response | None:
    """Of a pool for a listener, or of one that no listener uses."""
    if given["lb_algorithm"] not in _ALGORITHMS:
        return _none_of("lb_algorithm", given["lb_algorithm"], _ALGORITHMS)
    if listener_ is None:
        return None
    mine, its = given["protocol"], listener_["protocol"]
    if mine not in _POOL_PROTOCOLS.get(its, {mine}):
        text = f"The pool protocol '{mine}' is invalid while the listener protocol is '{its}'."
        return octavia(400, f"Validation failure: {text}")
    if listener_["default_pool_id"]:
        return octavia(409, "This listener already has a default pool")
    return None


def monitor(given: Json, pool_: Json) -> web.Response | None:
    """Of a monitor for a pool."""
    if given["type"] not in _MONITORS:
        return _none_of("type", given["type"], _MONITORS)
    if pool_["healthmonitor_id"]:
        return octavia(409, "This pool already has a health monitor")
    return None


def members(given: Sequence[Json], subnets: Iterable[str]) -> web.Response | None:
    """Of all members of a pool."""
    known = set(subnets)
    seen: set[tuple[str, int]] = set()
    for one in given:
        try:
            ipaddress.ip_address(one["address"])
        except ValueError:
            return _invalid("address", one["address"], "be IPv4 or IPv6 format")
        if one["address"] in _RESERVED:
            return octavia(400, f"{one['address']} is not a valid option for member address")
        if one.get("subnet_id", "") not in {"", *known}:
            return octavia(400, f"Subnet {one['subnet_id']} not found.")
        if (key := (one["address"], one["protocol_port"])) in seen:
            text = f"Another member on this pool is already using ip {key[0]}"
            return octavia(409, f"{text} on protocol_port {key[1]}")
        seen.add(key)
    return None


def _none_of(field: str, value: str, words: Iterable[str]) -> web.Response:
    return _invalid(field, value, f"be one of: {', '.join(words)}")


def _invalid(field: str, value: Any, should: str) -> web.Response:
    text = f"Invalid input for field/attribute {field}. Value: '{value}'. Value should {should}"
    return octavia(400, text)
