"""Decide where a route to a node's pods leads, and what its port must let through. Pure."""

import ipaddress
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from proreus.cloudprovider.routes import network_of as cidr_of
from proreus.kube.objects import Node, by_age
from proreus.providers.nova.machines import Described, id_of

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Pair = Mapping[str, str]
"""An allowed address pair, as Neutron has it."""


class Hop(msgspec.Struct, frozen=True):
    """The next hop of a route: an address and its port.

    Attributes:
        address: The address of the next hop.
        port: The port that has the address.
    """

    address: str
    port: Described


def network_of(text: str) -> Network:
    """Parse a CIDR as a network."""
    return ipaddress.ip_network(text, strict=False)


def same(one: str, other: str) -> bool:
    """Tell whether two CIDRs or addresses mean the same, however they are written."""
    return network_of(one) == network_of(other)


def subnets_of(ports: Iterable[Described]) -> frozenset[str]:
    """Return the subnets in which these ports have addresses."""
    return frozenset(
        str(fixed["subnet_id"]) for port in ports for fixed in port.get("fixed_ips") or ()
    )


def hop(
    node: Node, ports: Sequence[Described], subnets: Collection[str], destination: str
) -> Hop | None:
    """Return the address of a node that a router can reach, with its port; None if there is none.

    The Node's own order of addresses decides where there are several.

    Args:
        node: The node.
        ports: The ports of the node's server.
        subnets: The subnets in which the router has an address.
        destination: The destination, a CIDR, which tells the family.
    """
    version = network_of(destination).version
    reachable = [
        Hop(str(fixed["ip_address"]), port)
        for port in ports
        for fixed in port.get("fixed_ips") or ()
        if str(fixed["subnet_id"]) in subnets
        and ipaddress.ip_address(str(fixed["ip_address"])).version == version
    ]
    order = {one.address: place for place, one in enumerate(node.status.addresses)}
    reachable.sort(key=lambda one: order.get(one.address, len(order)))
    return reachable[0] if reachable else None


def addresses_of(node: Node | None, ports: Iterable[Described]) -> frozenset[str]:
    """Return every address of a node to which a route may lead."""
    own = {address.address for address in node.status.addresses} if node is not None else set()
    fixed = {
        str(fixed_ip["ip_address"]) for port in ports for fixed_ip in port.get("fixed_ips") or ()
    }
    return frozenset(own | fixed)


def owners_of(nodes: Iterable[Node]) -> dict[Hashable, Node]:
    """Return the oldest node that has each pod CIDR, as the framework routes it."""
    found: dict[Hashable, Node] = {}
    for node in sorted(nodes, key=by_age):
        for cidr in node.spec.pod_cidrs or (node.spec.pod_cidr,):
            found.setdefault(cidr_of(cidr), node)
    return found


def leading_to(
    extras: Iterable[Mapping[str, str]], destination: str, addresses: Collection[str]
) -> Mapping[str, str] | None:
    """Return the router's route to that destination by one of the addresses."""
    for one in extras:
        if same(one["destination"], destination) and one["nexthop"] in addresses:
            return one
    return None


def holder(address: str, ports: Iterable[Described], subnets: Collection[str]) -> Described | None:
    """Return the port with that address in one of the subnets."""
    for port in ports:
        for fixed in port.get("fixed_ips") or ():
            is_here = str(fixed["subnet_id"]) in subnets
            if is_here and same(str(fixed["ip_address"]), address):
                return port
    return None


def checks_addresses(port: Described) -> bool:
    """Tell whether a port lets only known addresses through, to which others can be added."""
    return port.get("port_security_enabled") is not False and "allowed_address_pairs" in port


def answers_for(
    port: Described, addresses: Collection[str], subnets: Iterable[Described] = ()
) -> bool:
    """Tell whether a port may have one of these addresses beside its own, as virtual ones are.

    A pair may be a range. One with a whole subnet in it only lets the port send what it likes.

    Args:
        port: The port.
        addresses: The addresses.
        subnets: The subnets of the port's network; without any no range counts.
    """
    pairs = {str(pair["ip_address"]) for pair in port.get("allowed_address_pairs") or ()}
    homes = [network_of(str(one["cidr"])) for one in subnets if one.get("cidr")]
    return any(
        same(pair, address) or _is_in_range(network_of(address), network_of(pair), homes)
        for pair in pairs
        for address in addresses
    )


def _is_in_range(address: Network, pair: Network, homes: Iterable[Network]) -> bool:
    around = [home for home in homes if _is_within(address, home)]
    is_part = bool(around) and not any(_is_within(home, pair) for home in around)
    return is_part and _is_within(address, pair)


def _is_within(inner: Network, outer: Network) -> bool:
    return inner.version == outer.version and inner.subnet_of(outer)  # type: ignore[arg-type]


def leads_to(subnet: Described, addresses: Collection[str]) -> bool:
    """Tell whether machines of a subnet send packets to one of these addresses, as to a router."""
    routers = {str(route["nexthop"]) for route in subnet.get("host_routes") or ()}
    routers |= {str(subnet["gateway_ip"])} if subnet.get("gateway_ip") else set()
    return any(same(router, address) for router in routers for address in addresses)


def asks_at(subnet: Described, addresses: Collection[str]) -> bool:
    """Tell whether machines of a subnet ask one of these addresses for names."""
    servers = map(str, subnet.get("dns_nameservers") or ())
    return any(same(server, address) for server in servers for address in addresses)


def changed_pairs(
    port: Described, add: Collection[str], remove: Collection[str]
) -> list[Pair] | None:
    """Return the allowed address pairs after a change; None if nothing changes.

    Only pairs without a MAC address of their own are taken away.
    """
    pairs: list[Pair] = list(port.get("allowed_address_pairs") or ())
    mac = str(port.get("mac_address", ""))

    def is_mine(pair: Pair, cidr: str) -> bool:
        return same(pair["ip_address"], cidr) and pair.get("mac_address", mac) == mac

    left = [pair for pair in pairs if not any(is_mine(pair, cidr) for cidr in remove)]
    new = [{"ip_address": cidr} for cidr in add if not any(is_mine(one, cidr) for one in left)]
    return None if not new and left == pairs else [*left, *new]


def revision_of(described: Described) -> int | None:
    """Return an object's revision, where Neutron counts them."""
    found: Any = described.get("revision_number")
    return found if isinstance(found, int) else None


def by_device(ports: Iterable[Described]) -> dict[str, list[Described]]:
    """Return ports by the device that they belong to, each once."""
    found: dict[str, dict[str, Described]] = {}
    for port in ports:
        found.setdefault(str(port["device_id"]), {})[id_of(port)] = port
    return {device: list(of.values()) for device, of in found.items()}
