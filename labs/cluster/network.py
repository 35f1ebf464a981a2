"""The addresses of a cluster and the commands that lay its network.

Everything is in network namespaces of the cluster's own, so nothing of the machine's is touched,
and the addresses cannot meet those of the machine. The gateway joins two networks, that of the
nodes and that of clients; it holds the API server, the DNS server and the manager.

    client ── clients0 ┤gateway├ nodes0 (bridge) ─┬─ node-1 ── cni0 ── pods
                                                  └─ node-2 ── cni0 ── pods
"""

import ipaddress
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

Command: TypeAlias = tuple[str, ...]
"""A program and its arguments."""

MOST_NODES = 9
"""More nodes than this are not for one machine."""


class Family(msgspec.Struct, frozen=True):
    """The networks of one IP family, as prefixes."""

    nodes: str
    clients: str
    pods: str
    services: str
    load_balancers: str
    pods_of_a_node: int
    """Length of the prefix of each node's pods."""

    def gateway(self) -> str:
        """Return the gateway's address in the network of the nodes."""
        return _nth(self.nodes, 1)

    def node(self, number: int) -> str:
        """Return the address of a node, counted from 1."""
        return _nth(self.nodes, 10 + number)

    def client_gateway(self) -> str:
        """Return the gateway's address in the network of the clients."""
        return _nth(self.clients, 1)

    def client(self) -> str:
        """Return the client's address."""
        return _nth(self.clients, 2)

    def kubernetes(self) -> str:
        """Return the address of the Service `kubernetes`, the first of its network."""
        return _nth(self.services, 1)


IPV4 = Family(
    nodes="10.80.0.0/24",
    clients="10.81.0.0/24",
    pods="10.82.0.0/16",
    services="10.96.0.0/16",
    load_balancers="10.83.0.0/24",
    pods_of_a_node=24,
)
"""The networks of IPv4."""

IPV6 = Family(
    nodes="fd80:80::/64",
    clients="fd80:81::/64",
    pods="fd80:82::/56",
    services="fd80:96::/112",
    load_balancers="fd80:83::/112",
    pods_of_a_node=64,
)
"""The networks of IPv6."""

_SYSCTLS = {
    "net/ipv4/ip_forward": "1",
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    "net/ipv4/conf/all/send_redirects": "0",
    "net/ipv4/conf/default/send_redirects": "0",
    "net/ipv6/conf/all/forwarding": "1",
    "net/ipv6/conf/default/accept_dad": "0",
    "net/ipv6/conf/all/accept_dad": "0",
}


def families(*, ipv6: bool) -> tuple[Family, ...]:
    """Return the families of a cluster, the first one first."""
    return (IPV4, IPV6) if ipv6 else (IPV4,)


def kernel_has_ipv6() -> bool:
    """Tell whether the kernel can have IPv6 addresses."""
    return Path("/proc/net/if_inet6").exists()


def gateway_commands(used: Sequence[Family]) -> Iterator[Command]:
    """Return what makes the gateway's network, run in its namespace."""
    yield from router_commands()
    # Frames between nodes are none of the gateway's business.
    yield _sysctl("net/bridge/bridge-nf-call-iptables", "0")
    yield _sysctl("net/bridge/bridge-nf-call-ip6tables", "0")
    yield _ip("link", "add", "nodes0", "type", "bridge")
    yield _ip("link", "set", "nodes0", "up")
    for family in used:
        yield _address(family.gateway(), family.nodes, "nodes0")


def router_commands() -> Iterator[Command]:
    """Return what every machine that forwards needs, run in its namespace."""
    yield _ip("link", "set", "lo", "up")
    for name, value in _SYSCTLS.items():
        yield _sysctl(name, value)


def cable_commands(interface: str, holder: int, bridge: str | None) -> Iterator[Command]:
    """Return the commands for a cable from the gateway's `interface` to eth0 of a machine.

    Args:
        interface: name of the gateway's end.
        holder: process that holds the other machine's namespace, as the gateway counts.
        bridge: what the gateway's end is plugged into, if anything.
    """
    far = ("peer", "name", "eth0", "netns", str(holder))
    yield _ip("link", "add", interface, "type", "veth", *far)
    if bridge is not None:
        yield _ip("link", "set", interface, "master", bridge)
    yield _ip("link", "set", interface, "up")


def host_commands(addresses: Sequence[tuple[str, str, str]]) -> Iterator[Command]:
    """Return what makes the network behind eth0, run in its namespace.

    Args:
        addresses: of each family its own address, its network and its gateway.
    """
    yield _ip("link", "set", "eth0", "up")
    for own, network, gateway in addresses:
        yield _address(own, network, "eth0")
        yield _ip("route", "replace", "default", "via", gateway)


def route_commands(networks: Sequence[str], addresses: Sequence[str]) -> Iterator[Command]:
    """Return the gateway's routes to a node's pods, by the node's address of the same family."""
    for network in networks:
        for address in addresses:
            if (":" in network) == (":" in address):
                yield _ip("route", "replace", network, "via", address)


def client_side(used: Sequence[Family]) -> Iterator[Command]:
    """Return the gateway's addresses towards clients."""
    for family in used:
        yield _address(family.client_gateway(), family.clients, "clients0")


def _ip(*arguments: str) -> Command:
    return ("ip", *arguments)


def _address(address: str, network: str, interface: str) -> Command:
    length = network.partition("/")[2]
    # "nodad": a fresh IPv6 address would be of no use for two seconds.
    dad = ("nodad",) if ":" in address else ()
    return _ip("address", "add", f"{address}/{length}", "dev", interface, *dad)


def _sysctl(name: str, value: str) -> Command:
    # Not there: the kernel lacks what would be set, such as IPv6.
    return ("sh", "-c", f"test ! -e /proc/sys/{name} || echo {value} >/proc/sys/{name}")


def _nth(network: str, number: int) -> str:
    return str(ipaddress.ip_network(network)[number])
