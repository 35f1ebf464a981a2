"""What Cloud Load Balancers check of a request, as their documents and their source say."""

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any, Final

from .faults import invalid

Json = dict[str, Any]

PROTOCOLS: Final = {
    "DNS_TCP": 53, "DNS_UDP": 53, "FTP": 21, "HTTP": 80, "HTTPS": 443, "IMAPS": 993, "IMAPv2": 143,
    "IMAPv3": 220, "IMAPv4": 143, "LDAP": 389, "LDAPS": 636, "MYSQL": 3306, "POP3": 110,
    "POP3S": 995, "SFTP": 22, "SMTP": 25, "TCP": 0, "TCP_CLIENT_FIRST": 0, "TCP_STREAM": 0,
    "UDP": 0, "UDP_STREAM": 0,
}  # fmt: skip
UDP: Final = frozenset({"DNS_UDP", "UDP", "UDP_STREAM"})
ALGORITHMS: Final = frozenset(
    {
        "LEAST_CONNECTIONS", "RANDOM", "ROUND_ROBIN", "WEIGHTED_LEAST_CONNECTIONS",
        "WEIGHTED_ROUND_ROBIN",
    }
)  # fmt: skip
PERSISTENCE: Final = {"HTTP_COOKIE": {"HTTP"}, "SOURCE_IP": set(PROTOCOLS), "SSL_ID": {"HTTPS"}}
_TOGETHER: Final = (
    ({"DNS_TCP"}, {"DNS_UDP"}),
    ({"TCP", "TCP_CLIENT_FIRST"}, {"UDP", "UDP_STREAM"}),
)
_CREATED: Final = frozenset(
    {
        "name", "nodes", "protocol", "halfClosed", "virtualIps", "accessList", "algorithm",
        "connectionLogging", "connectionThrottle", "healthMonitor", "metadata", "port", "timeout",
        "sessionPersistence", "httpsRedirect",
    }
)  # fmt: skip
UPDATED: Final = frozenset(
    {"name", "algorithm", "protocol", "halfClosed", "port", "timeout", "httpsRedirect"}
)


def only(body: Mapping[str, Any], known: Iterable[str], what: str) -> None:
    """Refuse fields that nothing is known about."""
    if unknown := sorted(set(body) - set(known)):
        raise invalid(f"{what} has no field {', '.join(unknown)}")


def within(body: Mapping[str, Any], field: str, low: int, high: int, message: str) -> None:
    """Refuse a number that is out of range."""
    value = body.get(field)
    if value is not None and (not isinstance(value, int) or not low <= value <= high):
        raise invalid(message)


def balancer(body: Json, *, new: bool) -> None:
    """Refuse what cannot be made, or what cannot be changed so."""
    only(body, _CREATED if new else UPDATED, "The load balancer")
    if body.get("protocol", "TCP") not in PROTOCOLS:
        raise invalid("Load balancer protocol is invalid. Please specify a valid protocol.")
    if body.get("algorithm", "RANDOM") not in ALGORITHMS:
        raise invalid("Load balancer algorithm is invalid. Please specify a valid algorithm.")
    within(body, "port", 1, 65535, "Load balancer port is invalid. Please specify a valid port.")
    within(body, "timeout", 30, 120, "Load balancer timeout is invalid.")
    if len(body.get("name", "")) > 128:
        raise invalid("Load Balancer name must be less than or equal to 128")
    if not new:
        if not body:
            raise invalid("The load balancer must have at least one of the following to update")
        return
    for field in ("name", "protocol", "virtualIps"):
        if not body.get(field):
            raise invalid(f"Must provide a {field} for the load balancer.")
    virtual_ips(body["virtualIps"])
    if not PROTOCOLS[body["protocol"]] and not body.get("port"):
        raise invalid("Must provide port for TCP and UDP protocols.")
    nodes(body.get("nodes", []))
    metadata(body.get("metadata", []))
    if "accessList" in body:
        access_list(body["accessList"], ())
    protocol = body["protocol"]
    if "healthMonitor" in body:
        monitor(body["healthMonitor"], protocol)
    if "sessionPersistence" in body:
        persistence(body["sessionPersistence"], protocol)
    if "connectionThrottle" in body:
        throttle(body["connectionThrottle"], new=True)


def virtual_ips(given: Any) -> None:
    """Refuse virtual IPs that are neither shared nor new."""
    ids = [one for one in given if "id" in one]
    if ids and len(ids) != len(given):
        raise invalid("Must specify either a shared or new virtual ip.")
    for one in given:
        only(one, {"id", "type", "ipVersion"}, "A virtual ip")
        if "id" in one and len(one) > 1:
            raise invalid("If sharing a virtual ip please only specify the id.")
        if "id" not in one and one.get("type") not in {"PUBLIC", "SERVICENET"}:
            raise invalid("Must specify a valid IP type.")
        if one.get("ipVersion", "IPV4") not in {"IPV4", "IPV6"}:
            raise invalid("Must specify a valid IP version.")
        if one.get("type") == "SERVICENET" and one.get("ipVersion") == "IPV6":
            raise invalid("Must specify a valid IP type. IPv6 supports the 'PUBLIC' type only.")
    kinds = [(one.get("type"), one.get("ipVersion")) for one in given if "id" not in one]
    if len(set(kinds)) < len(kinds):
        raise invalid("Cannot supply more than one IPV4 virtual ip.")


def nodes(given: Any) -> None:
    """Refuse nodes."""
    keys = []
    for one in given:
        only(one, {"address", "port", "condition", "type", "weight"}, "A node")
        if not one.get("address") or not one.get("port") or not one.get("condition"):
            raise invalid("Must provide a valid ip, port and condition for the node.")
        address = ipaddress.ip_address(one["address"])
        if address.is_loopback or address.is_unspecified:
            raise invalid("Node ip is invalid. Please specify a valid ip.")
        node(one)
        within(one, "port", 1, 65535, "Node port is invalid. Please specify a valid port.")
        keys.append((str(address), one["port"]))
    if len(set(keys)) < len(keys):
        raise invalid("Duplicate nodes detected.")


def node(one: Json) -> None:
    """Refuse what a node cannot be."""
    if one.get("condition", "ENABLED") not in {"ENABLED", "DISABLED", "DRAINING"}:
        raise invalid("Node condition is invalid. Please specify a valid condition.")
    if one.get("type", "PRIMARY") not in {"PRIMARY", "SECONDARY"}:
        raise invalid("Node type is invalid.")
    within(one, "weight", 1, 100, "Node weight is invalid. Range is 1-100.")


def metadata(given: Any) -> None:
    """Refuse items of metadata."""
    for one in given:
        only(one, {"key", "value"}, "An item of metadata")
        if not one.get("key") or not one.get("value"):
            raise invalid("Must provide a key and a value for the metadata item.")
        if len(one["key"]) > 32 or len(one["value"]) > 256:
            raise invalid("Meta key must not exceed 32 characters, its value 256.")
    if len({one["key"] for one in given}) < len(given) or len(given) > 25:
        raise invalid("Must not provide more than twenty five metadata items, each once.")


def access_list(given: Any, there: Iterable[str]) -> None:
    """Refuse network items: each has an address of its own."""
    if not given:
        raise invalid("Must provide at least one network item to the access list.")
    taken = list(there)
    for one in given:
        only(one, {"address", "type"}, "A network item")
        try:
            ipaddress.ip_network(one.get("address", ""))
        except ValueError:
            raise invalid("Network Address must be valid Ip Address") from None
        if one.get("type") not in {"ALLOW", "DENY"}:
            raise invalid("Must provide a valid type for the network item.")
        taken.append(one["address"])
    if len(taken) > 100:
        raise invalid("Access list size must not exceed 100 items.")
    if len(set(taken)) < len(taken):
        raise invalid("Must supply a unique access list item to update the current list.")


def monitor(given: Json, protocol: str) -> None:
    """Refuse a health monitor."""
    basic = {"type", "delay", "timeout", "attemptsBeforeDeactivation"}
    more = {"path", "statusRegex", "bodyRegex", "hostHeader"}
    kind = given.get("type")
    if protocol in UDP:
        raise invalid("Protocol UDP, UDP_STREAM and DNS_UDP are not allowed with health monitors. ")
    if kind not in {"CONNECT", "HTTP", "HTTPS"}:
        raise invalid("Must provide a type for the request")
    if kind not in ("CONNECT", protocol):
        raise invalid(f"Protocol must be {kind} for an {kind} health monitor.")
    only(given, basic if kind == "CONNECT" else basic | more, f"A {kind} monitor")
    needed = basic if kind == "CONNECT" else basic | {"path", "statusRegex"}
    if needed - set(given):
        raise invalid(f"Must provide {', '.join(sorted(needed - set(given)))} for the request")
    within(given, "delay", 1, 3600, "delay must be a number between 1 and 3600")
    within(given, "timeout", 1, 300, "timeout must be a number between 1 and 300")
    within(given, "attemptsBeforeDeactivation", 1, 10, "attempts must be between 1 and 10")


def persistence(given: Json, protocol: str) -> None:
    """Refuse session persistence."""
    only(given, {"persistenceType"}, "Session persistence")
    kind = given.get("persistenceType", "")
    if kind not in PERSISTENCE:
        raise invalid("Persistence type is invalid. Please specify a valid persistence type.")
    if protocol not in PERSISTENCE[kind]:
        raise invalid(f"{kind} Session persistence is not valid with the protocol {protocol}.")


def throttle(given: Json, *, new: bool) -> None:
    """Refuse connection throttling."""
    known = {"maxConnections", "minConnections", "maxConnectionRate", "rateInterval"}
    only(given, known, "A connection throttle")
    if not given or (new and known - set(given)):
        raise invalid("Must supply all credentials when creating a connection throttle.")
    within(given, "maxConnections", 1, 100000, "Must provide a valid maximum connections range.")
    within(given, "minConnections", 0, 1000, "Must provide a valid minimum connections range.")
    within(given, "maxConnectionRate", 0, 100000, "Must provide a valid connection rate range.")
    within(given, "rateInterval", 1, 3600, "Must provide a valid rate interval range.")


def can_share(one: str, other: str) -> bool:
    """Whether load balancers of these protocols can have one port of a virtual IP."""
    return any(
        (one in first and other in second) or (one in second and other in first)
        for first, second in _TOGETHER
    )
