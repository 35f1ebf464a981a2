"""Read Rackspace's descriptions of Cloud Load Balancers. Pure."""

import ipaddress
from collections.abc import Iterable, Mapping
from typing import Any, Final

from proreus.cloudprovider.addresses import plain_address
from proreus.cloudprovider.names import digest_of
from proreus.providers.rackspace.balancing.parts import (
    ENABLED,
    Existing,
    Item,
    Member,
    Monitor,
    Settings,
    Vip,
)

Described = Mapping[str, Any]

PARTS: Final[Mapping[str, str]] = {
    "accessList": "accesslist",
    "connectionThrottle": "connectionthrottle",
    "healthMonitor": "healthmonitor",
    "metadata": "metadata",
    "sessionPersistence": "sessionpersistence",
}
"""Fields that details show if they are set, and where each is to be had by itself."""


def existing(described: Described) -> Existing:
    """Read the details of a load balancer."""
    nodes = described.get("nodes") or ()
    items = described.get("accessList") or ()
    metadata = described.get("metadata") or ()
    settings = Settings(
        name=str(described.get("name", "")),
        protocol=str(described.get("protocol", "")),
        port=int(described.get("port") or 0),
        algorithm=str(described.get("algorithm", "")),
        timeout=int(described.get("timeout") or 0),
        members=frozenset(
            Member(str(one["address"]), int(one["port"]), _condition(one)) for one in nodes
        ),
        access=frozenset(Item(_network(one["address"]), str(one["type"])) for one in items),
        monitor=_monitor(described.get("healthMonitor") or {}),
        persistence=str((described.get("sessionPersistence") or {}).get("persistenceType", "")),
        max_connections=int((described.get("connectionThrottle") or {}).get("maxConnections") or 0),
    )
    return Existing(
        id=int(described["id"]),
        status=str(described.get("status", "")),
        vips=tuple(vips(described)),
        settings=settings,
        marks=marks_of(described),
        member_ids={(str(one["address"]), int(one["port"])): int(one["id"]) for one in nodes},
        item_ids={_network(one["address"]): int(one["id"]) for one in items},
        mark_ids={str(one["key"]): int(one["id"]) for one in metadata},
    )


def vips(described: Described) -> Iterable[Vip]:
    """Read the virtual IPs of a load balancer, IPv4 first."""
    found = [
        Vip(
            int(one["id"]),
            plain_address(str(one["address"])),
            str(one.get("type", "")),
            str(one.get("ipVersion", "")),
        )
        for one in described.get("virtualIps") or ()
    ]
    return sorted(found, key=lambda one: (one.version, one.id))


def marks_of(described: Described) -> dict[str, str]:
    """Return the metadata of a load balancer."""
    return {str(one["key"]): str(one["value"]) for one in described.get("metadata") or ()}


def visible(settings: Iterable[Settings], types: Iterable[str], versions: Iterable[str]) -> str:
    """Return a digest of all that can be compared of a Service's load balancers.

    Args:
        settings: The settings of each load balancer.
        types: The types of their virtual IPs.
        versions: The IP versions of their virtual IPs.
    """
    texts = sorted(
        repr((one.name, one.protocol, one.port, one.algorithm, one.timeout))
        + repr((sorted(one.members), sorted(one.access), one.monitor))
        + repr((one.persistence, one.max_connections))
        for one in settings
    )
    return digest_of([*texts, *sorted(set(types)), *sorted(set(versions))], length=16)


def _condition(node: Described) -> str:
    """Return the condition of a node; one that is no primary one gets no traffic either."""
    is_primary = node.get("type", "PRIMARY") == "PRIMARY"
    return str(node.get("condition", ENABLED)) if is_primary else "SECONDARY"


def _monitor(described: Described) -> Monitor | None:
    if not described.get("type"):
        return None
    return Monitor(
        str(described["type"]),
        int(described.get("delay") or 0),
        int(described.get("timeout") or 0),
        int(described.get("attemptsBeforeDeactivation") or 0),
        str(described.get("path") or ""),
        str(described.get("statusRegex") or ""),
    )


def _network(text: str) -> str:
    """Return the address of an item as a network: a single one may be shown without its length."""
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        return text
