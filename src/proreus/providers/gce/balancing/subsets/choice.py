"""Choose the nodes to which a load balancer with a subset of nodes sends traffic. Pure.

The choice is the official one (ingress-gce, `pkg/neg/syncers/subsets.go`): in each zone the nodes
come in the order of digests of their names and the Service's, so each Service has others; nodes
that are in already stay as long as there are no more than wanted.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

from proreus.cloudprovider.load_balancers import LoadBalancer
from proreus.providers.gce.names import Machine

MOST: Final = 25
"""Nodes of a Service of which each node serves."""
MOST_LOCAL: Final = 250
"""Nodes of a Service that only nodes with its pods serve: as many as Google takes."""
_DIVISIBLE: Final = 24


def chosen(
    machines: Iterable[Machine],
    current: Iterable[Machine],
    service: str,
    *,
    local: bool,
) -> frozenset[Machine]:
    """Return the nodes of a Service's subset.

    Args:
        machines: All nodes that may be in the subset.
        current: The machines that are in the subset now.
        service: The Service, as namespace/name.
        local: Whether `machines` are only the nodes with pods of the Service.
    """
    zones: dict[str, list[Machine]] = {}
    for one in machines:
        zones.setdefault(one.zone, []).append(one)
    left = MOST_LOCAL if local else _wanted(len(zones))
    salt = "/".join(reversed(service.split("/")))
    now = frozenset(current)
    found: set[Machine] = set()
    # What a small zone leaves over goes to the larger ones after it.
    ordered = sorted(zones, key=lambda zone: (len(zones[zone]), zone))
    for count, zone in enumerate(ordered):
        part = _of_zone(zones[zone], now, salt, left // (len(ordered) - count))
        found |= part
        left -= len(part)
    return frozenset(found)


def _wanted(zones: int) -> int:
    """Return how many nodes to choose: as many in each zone, if that is possible."""
    return _DIVISIBLE if zones and _DIVISIBLE % zones == 0 else MOST


def _of_zone(
    machines: Iterable[Machine], current: frozenset[Machine], salt: str, most: int
) -> set[Machine]:
    ordered = sorted(machines, key=lambda one: _digest(one.name, salt))
    stay = sorted((one for one in ordered if one in current), key=lambda one: one.name)
    others = [one for one in ordered if one not in current]
    return {*[*stay, *others][:most]}


def _digest(name: str, salt: str) -> str:
    return hashlib.sha256(f"{name}:{salt}".encode()).hexdigest()


def serving(lb: LoadBalancer) -> frozenset[str]:
    """Return the nodes that may be in a Service's subset: all, or only those with its pods."""
    if lb.local_traffic:
        return frozenset(one.node for one in lb.endpoints)
    return frozenset(one.node for one in lb.hosts)
