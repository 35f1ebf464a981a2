"""Decide which addresses of Services a node announces. Pure.

A node announces an address where kube-proxy on it can bring a packet to a pod: with
`externalTrafficPolicy: Cluster` if there is any endpoint, with `Local` if there is one on the node
itself (https://kubernetes.io/docs/reference/networking/virtual-ips/#external-traffic-policy).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Final

import msgspec

from proreus.cloudprovider.desired import is_left_out
from proreus.kube.objects import EndpointConditions, EndpointSlice, Node, Service
from proreus.providers.local.addresses import Address, Pool, contains, family_of, parse

LOCAL: Final = "Local"
_NETWORK_UNAVAILABLE: Final = "NetworkUnavailable"

SlicesOf = Mapping[str, Sequence[EndpointSlice]]
"""The EndpointSlices of each Service, by its key, namespace/name."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What a node does with the addresses of Services.

    Attributes:
        announced: The addresses that it announces.
        withheld: Why it does not announce the others.
    """

    announced: frozenset[Address] = frozenset()
    withheld: Mapping[Address, str] = MappingProxyType({})


def decide(
    services: Iterable[Service], slices: SlicesOf, node: Node | None, pools: Sequence[Pool]
) -> Decision:
    """Decide what the node announces.

    Services that share an address are told apart by ports, which routers do not look at. So such
    an address is announced by nodes that serve all of them; those without any endpoint in the
    whole cluster do not count.

    Args:
        services: All Services.
        slices: Their EndpointSlices.
        node: The node; None if it has no Node.
        pools: The pools of the addresses that may be announced.
    """
    users: dict[Address, list[Service]] = {}
    for service in services:
        for address in _addresses(service, pools):
            users.setdefault(address, []).append(service)
    excluded = _excluded(node)
    announced, withheld = set(), {}
    for address, several in users.items():
        reason = excluded or _reason(address, several, slices, node)
        if reason:
            withheld[address] = reason
        else:
            announced.add(address)
    return Decision(announced=frozenset(announced), withheld=withheld)


def _excluded(node: Node | None) -> str:
    """Return why the node takes no traffic at all, or ""."""
    if node is None:
        return "the node has no Node"
    if is_left_out(node):
        return "the node is left out of load balancers, or about to go"
    for one in node.status.conditions:
        if one.type == _NETWORK_UNAVAILABLE and one.status == "True":
            return "the node's network is not available yet"
    return ""


def _addresses(service: Service, pools: Sequence[Pool]) -> Iterator[Address]:
    """Return the addresses of our pools that packets for the Service may have.

    With the IP mode Proxy kube-proxy does not know the address.
    """
    if service.spec.type != "LoadBalancer" or service.metadata.deletion_timestamp is not None:
        return
    for one in service.status.load_balancer.ingress:
        address = parse(one.ip) if one.ip and one.ip_mode != "Proxy" else None
        if address is not None and any(contains(pool, address) for pool in pools):
            yield address


def _reason(
    address: Address, services: Sequence[Service], slices: SlicesOf, node: Node | None
) -> str:
    """Return why the address is not announced, or ""."""
    family = family_of(address)
    name = node.metadata.name if node is not None else ""
    living = [one for one in services if any(_serving(one, slices, family))]
    if not living:
        return f"{_names(services)}: no endpoint is ready"
    elsewhere = [
        one
        for one in living
        if one.spec.external_traffic_policy == LOCAL and name not in _serving(one, slices, family)
    ]
    if not elsewhere:
        return ""
    why = f"{_names(elsewhere)}: no endpoint on this node is ready, and the policy is Local"
    if len(elsewhere) < len(living):
        others = [one for one in living if one not in elsewhere]
        why += f"; {_names(others)} with the same address could be served"
    return why


def _serving(service: Service, slices: SlicesOf, family: str) -> list[str]:
    """Return the nodes of the endpoints that take connections; "?" where none is named."""
    meta = service.metadata
    found = slices.get(f"{meta.namespace}/{meta.name}", ())
    return [
        endpoint.node_name or "?"
        for endpoint in chain.from_iterable(
            one.endpoints or () for one in found if one.address_type == family
        )
        if can_serve(endpoint.conditions)
    ]


def can_serve(conditions: EndpointConditions) -> bool:
    """Tell whether an endpoint takes connections: also while it ends, as long as it serves.

    kube-proxy gives connections to such endpoints where it has no others (KEP-1669); a node that
    withdrew before would break those that it has.
    """
    ready = conditions.ready is None or conditions.ready
    return ready or (conditions.serving is True)


def _names(services: Sequence[Service]) -> str:
    return ", ".join(sorted(f"{one.metadata.namespace}/{one.metadata.name}" for one in services))
