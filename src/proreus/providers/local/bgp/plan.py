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
from proreus.kube.objects import (
    CONDITION_LOAD_BALANCER_READY,
    EndpointConditions,
    EndpointSlice,
    Node,
    Service,
    condition,
    has_local_traffic,
    vip_addresses,
)
from proreus.providers.local.addresses import Address, Pool, contains, family_of, parse

_NETWORK_UNAVAILABLE: Final = "NetworkUnavailable"

SlicesOf = Mapping[str, Sequence[EndpointSlice]]
"""The EndpointSlices of each Service, by its key, namespace/name."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What a node does with the addresses of Services.

    Attributes:
        announced: The addresses that it announces.
        withheld: The reasons why it does not announce other addresses.
    """

    announced: frozenset[Address] = frozenset()
    withheld: Mapping[Address, str] = MappingProxyType({})


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An address of Services that any node may announce, and where it can be served.

    Attributes:
        address: The address.
        services: The Services that have it, by name.
        elsewhere: The Services with an endpoint that only certain nodes can serve, and these nodes.
        anywhere: The Services with an endpoint that every node can serve, or, beside such ones of
            another namespace, is to announce.
    """

    address: Address
    services: tuple[str, ...]
    elsewhere: Mapping[str, frozenset[str]]
    anywhere: tuple[str, ...]


def decide(
    services: Iterable[Service], slices: SlicesOf, node: Node | None, pools: Sequence[Pool]
) -> Decision:
    """Decide what the node announces.

    Services that share an address are told apart by ports, which routers do not look at. So such
    an address is announced by nodes that serve all of them; those without any endpoint in the
    whole cluster do not count, nor do those of which another namespace's let every node serve.

    Args:
        services: All Services.
        slices: Their EndpointSlices.
        node: The node; None if the Node object does not exist.
        pools: The pools of the addresses that may be announced.
    """
    return decided(candidates(services, slices, pools), node)


def candidates(
    services: Iterable[Service], slices: SlicesOf, pools: Sequence[Pool] | None
) -> tuple[Candidate, ...]:
    """Return the candidates of all nodes; without pools, those of every address."""
    users: dict[Address, list[Service]] = {}
    for service in services:
        for address in _addresses(service, pools):
            users.setdefault(address, []).append(service)
    return tuple(_candidate(address, several, slices) for address, several in users.items())


def _candidate(address: Address, services: Sequence[Service], slices: SlicesOf) -> Candidate:
    family = family_of(address)
    serving = [(one, nodes) for one in services if (nodes := _serving(one, slices, family))]
    everywhere = {one.metadata.namespace for one, _ in serving if not has_local_traffic(one)}
    elsewhere: dict[str, frozenset[str]] = {}
    anywhere = []
    for one, nodes in serving:
        # Another namespace's clients reach every node: to keep them from some is no tenant's right.
        if has_local_traffic(one) and everywhere <= {one.metadata.namespace}:
            elsewhere[_name(one)] = frozenset(nodes)
        else:
            anywhere.append(_name(one))
    return Candidate(
        address=address,
        services=tuple(map(_name, services)),
        elsewhere=elsewhere,
        anywhere=tuple(anywhere),
    )


def decided(candidates: Iterable[Candidate], node: Node | None) -> Decision:
    """Decide which of the candidates a node announces."""
    excluded = _excluded(node)
    name = node.metadata.name if node is not None else ""
    announced, withheld = set(), {}
    for one in candidates:
        if reason := excluded or _reason(one, name):
            withheld[one.address] = reason
        else:
            announced.add(one.address)
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


def _addresses(service: Service, pools: Sequence[Pool] | None) -> Iterator[Address]:
    """Return the addresses of our pools that packets for the Service may have.

    With the IP mode Proxy kube-proxy does not know the address. Of each family we give a Service
    one: several are those of nodes, which a balancer there has left, such as that of k3s. A single
    one may be a node's, too, until the manager has said how the load balancer is.
    """
    if service.spec.type != "LoadBalancer" or service.metadata.deletion_timestamp is not None:
        return
    ready = condition(service.status.conditions, CONDITION_LOAD_BALANCER_READY)
    if ready is None or ready.status == "Unknown":
        return
    texts = vip_addresses(service.status.load_balancer.ingress)
    shown = {address: None for text in texts if (address := parse(text)) is not None}
    for address in shown:
        is_alone = sum(one.version == address.version for one in shown) == 1
        if is_alone and (pools is None or any(contains(it, address) for it in pools)):
            yield address


def _reason(one: Candidate, node: str) -> str:
    """Return why the address is not announced by the node of that name, or ""."""
    if not (one.elsewhere or one.anywhere):
        return f"{_listed(one.services)}: no endpoint is ready"
    missing = [name for name, nodes in one.elsewhere.items() if node not in nodes]
    if not missing:
        return ""
    why = f"{_listed(missing)}: no endpoint on this node is ready, and the policy is Local"
    if others := [name for name in (*one.elsewhere, *one.anywhere) if name not in missing]:
        why += f"; {_listed(others)} with the same address could be served"
    return why


def _serving(service: Service, slices: SlicesOf, family: str) -> list[str]:
    """Return the nodes of the endpoints that take connections; "?" where none is named."""
    found = slices.get(_name(service), ())
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


def _name(service: Service) -> str:
    return f"{service.metadata.namespace}/{service.metadata.name}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
