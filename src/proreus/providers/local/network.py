"""Convert the state to routes, rules and announced addresses, and find what differs. Pure.

Each node has a routing table with nothing but a way to it, which packets with its mark take. Each
address of a load balancer is routed to a device that leads nowhere, so that the kernel answers
ARP and NDP for it on the interfaces where it is announced, and does not take it for its own.

What is ours is known by the protocol number; nothing else is read or changed.
"""

import ipaddress
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from proreus.providers.local.addresses import Pool, parse, range_text
from proreus.providers.local.config import Gateway
from proreus.providers.local.gateways import plan as gateways
from proreus.providers.local.gateways.plan import Holding
from proreus.providers.local.nft import Settings
from proreus.providers.local.plan import HERE, Network, Reach, State

FAMILIES: Final = MappingProxyType({"IPv4": "-4", "IPv6": "-6"})
"""The option of `ip` for each family."""
QUESTIONS: Final = ("rule show", "route show table all proto {}", "neigh show proxy")
"""The questions to `ip` in each family; {} is our protocol number."""

Way = tuple[str, str]
"""The number of a node's routing table, or "" for our device, and the address that it leads to."""
_EVERYWHERE: Final = MappingProxyType({"IPv4": "0.0.0.0/0", "IPv6": "::/0"})
LENGTH: Final = MappingProxyType({"IPv4": 32, "IPv6": 128})
"""How long the prefix of a single address is, by family."""
_LOOPBACK: Final = "lo"
_OF_SERVICES: Final = "kube-ipvs0"
_OF_KERNEL: Final = "2"
"""The protocol of routes that the kernel itself makes."""


class Interface(msgspec.Struct, frozen=True):
    """A network interface that is up, with its addresses, each with its prefix length."""

    name: str
    addresses: tuple[ipaddress.IPv4Interface | ipaddress.IPv6Interface, ...] = ()


class Ways(msgspec.Struct, frozen=True):
    """The routes and rules of one family.

    Attributes:
        rules: The numbers of the nodes whose mark leads to their table.
        nodes: The address of the node that each table leads to, by the table's number.
        addresses: The addresses that are routed to the device.
        announced: The announced addresses, each with the interfaces on which it is announced.
        others: The addresses that somebody else announces, each with the interfaces.
        shared: The numbers of the nodes to whose table the rule of another mark leads, too.
    """

    rules: frozenset[int] = frozenset()
    nodes: Mapping[int, str] = MappingProxyType({})
    addresses: frozenset[str] = frozenset()
    announced: frozenset[tuple[str, str]] = frozenset()
    others: frozenset[tuple[str, str]] = frozenset()
    shared: frozenset[int] = frozenset()


def interfaces(shown: Sequence[Mapping[str, Any]], device: str) -> tuple[Interface, ...]:
    """Parse `ip -j addr show`; return interfaces but for the loopback and our device."""
    return tuple(
        Interface(
            one["ifname"],
            tuple(
                ipaddress.ip_interface(f"{each['local']}/{each['prefixlen']}")
                for each in one.get("addr_info", ())
                if each.get("scope") != "link" and "local" in each
            ),
        )
        for one in shown
        if one.get("ifname") not in {device, _LOOPBACK} and "UP" in one.get("flags", ())
    )


def not_our_device(
    shown: Sequence[Mapping[str, Any]], gateway: Gateway, routes: Sequence[Mapping[str, Any]] = ()
) -> str:
    """Return why the network device of the manager's name is not the one that it makes, or "".

    That one has no addresses, no other device is above or below it, and nobody else's `routes` lead
    to it. Any other one would lose its traffic, and go with the last load balancer.
    """
    device, remedy = gateway.device, "set gateway device in the cloud-config to a name that no"
    is_used = any(device in {one.get("master"), one.get("link")} for one in shown)
    for one in shown:
        found = local_addresses((one,))
        own = [each for each in found if not ipaddress.ip_address(each).is_link_local]
        is_linked = one.get("master") or one.get("link")
        if one.get("ifname") == device and (is_used or is_linked or own):
            return (
                f"the network device {device} is in use, so it is not the manager's: {remedy}"
                " device has"
            )
    protocols = {str(one.get("protocol")) for one in routes}
    if others := sorted(protocols - {str(gateway.protocol), _OF_KERNEL}):
        return (
            f"the network device {device} has routes of the protocol {', '.join(others)}, so"
            f" another manager or program uses it: {remedy} device has"
        )
    return ""


def of_machine(shown: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return the machine's addresses, also those of the loopback and of interfaces that are down.

    Such as a virtual one that is announced by BGP. What kube-proxy puts on its device for IPVS,
    which is down, are the addresses of Services.
    """
    return local_addresses(one for one in shown if one.get("ifname") != _OF_SERVICES)


def local_addresses(shown: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return all addresses of these interfaces of `ip -j addr show`."""
    return frozenset(
        each["local"] for one in shown for each in one.get("addr_info", ()) if "local" in each
    )


def reach(found: Sequence[Interface], marks: int, own: Collection[str] = ()) -> Reach:
    """Return what a machine with these interfaces, and more addresses of its own, reaches."""
    every = [address for one in found for address in one.addresses]
    networks: list[Network] = [address.network for address in every]
    return Reach(tuple(networks), frozenset({str(one.ip) for one in every}.union(own)), marks)


def announcing(address: str, found: Sequence[Interface], named: Collection[str]) -> tuple[str, ...]:
    """Return the interfaces to announce an address on: named ones, or those in its network.

    An address that is in no interface's network is announced nowhere: routers lead to it.
    """
    if named:
        return tuple(one.name for one in found if one.name in named)
    parsed = parse(address)
    return tuple(
        one.name
        for one in found
        if any(
            parsed is not None and each.version == parsed.version and parsed in each.network
            for each in one.addresses
        )
    )


def beyond(
    pools: Sequence[Pool], found: Sequence[Interface], named: Collection[str]
) -> tuple[str, ...]:
    """Return the ranges of pools that are not announced as a whole, each with the remedy."""
    return tuple(
        f"{range_text(one)} of the pool {pool.name} is not within a network of this machine's"
        " interfaces: let routers lead it here, or change the pool in the cloud-config"
        for pool in pools
        for one in pool.ranges
        if not all(announcing(str(end), found, named) for end in (one.first, one.last))
    )


def ways(state: State, found: Sequence[Interface], gateway: Gateway) -> Mapping[str, Ways]:
    """Return the desired routes and rules, by family."""
    desired = {}
    for family in FAMILIES:
        nodes = {
            machine.mark: machine.addresses[family]
            for machine in state.machines.values()
            if machine.mark != HERE and family in machine.addresses
        }
        addresses = frozenset(
            balancer.addresses[family]
            for balancer in state.balancers.values()
            if family in balancer.addresses
        )
        announced = frozenset(
            (address, name)
            for address in addresses
            for name in announcing(address, found, gateway.interfaces)
        )
        desired[family] = Ways(frozenset(nodes), nodes, addresses, announced)
    return desired


def addresses_of(state: State) -> frozenset[str]:
    """Return the addresses of all load balancers."""
    every = state.balancers.values()
    return frozenset(address for one in every for address in one.addresses.values())


def leading(state: State) -> frozenset[Way]:
    """Return the ways that a state needs."""
    nodes = {
        (str(machine.mark), address)
        for machine in state.machines.values()
        for address in machine.addresses.values()
    }
    return frozenset(nodes | {("", one) for one in addresses_of(state)})


def led(found: Ways) -> frozenset[Way]:
    """Return the ways that the kernel has."""
    nodes = {(str(number), address) for number, address in found.nodes.items()}
    return frozenset(nodes | {("", one) for one in found.addresses})


def meets(found: Mapping[str, Ways], known: State, other: State) -> bool:
    """Tell whether ways that the kernel has are not of the `known` state, but of another one.

    Numbers of nodes are the same where routing tables begin alike; else a table is also led to by
    the other one's rules.
    """
    unknown = {one for ways in found.values() for one in led(ways)} - leading(known)
    numbers = {str(number) for ways in found.values() for number in ways.shared}
    nodes = {address for number, address in leading(other) if number}
    return not leading(other).isdisjoint(unknown) or any(
        number in numbers and address in nodes for number, address in unknown
    )


def announced(
    wanted: Collection[tuple[str, str]],
    before: Collection[tuple[str, str]],
    holding: Holding | None,
) -> frozenset[tuple[str, str]]:
    """Return what this machine announces of `wanted`: all of it, or what VRRP gives a gateway."""
    return frozenset(wanted) if holding is None else gateways.announced(wanted, before, holding)


def parse_ways(
    rules: Sequence[Mapping[str, Any]],
    routes: Sequence[Mapping[str, Any]],
    proxies: Sequence[Mapping[str, Any]],
    gateway: Gateway,
    known: Collection[str] = (),
) -> Ways:
    """Parse the answers of `ip -N -j` to the `QUESTIONS` as routes and rules.

    Another manager on this machine may have our protocol number: a routing table is ours if its
    number is that of a mark, and a proxy entry if its address is routed to our device, or `known`
    from our nftables table.
    """
    protocol = str(gateway.protocol)
    settings = Settings(mask=gateway.mark_mask)
    numbers = range(1, settings.marks + 1)
    ours = [
        (int(rule["table"]) - gateway.first_table, int(rule.get("fwmark", "0"), 16))
        for rule in rules
        if rule.get("protocol") == protocol
    ]
    marked = dict(ours)
    nodes = {
        int(route["table"]) - gateway.first_table: route.get("gateway", "")
        for route in routes
        if route.get("dst") == "default"
    }
    routed = frozenset(route["dst"] for route in routes if route.get("dev") == gateway.device)
    entries = {(one["dst"], one["dev"]): one.get("protocol") for one in proxies}
    announced = frozenset(
        entry
        for entry, by in entries.items()
        if by == protocol and (entry[0] in routed or entry[0] in known)
    )
    return Ways(
        frozenset(
            number
            for number, mark in marked.items()
            if number in numbers and mark == settings.mark(number)
        ),
        {number: via for number, via in nodes.items() if number in numbers},
        routed,
        announced,
        frozenset(entries) - announced,
        frozenset(number for number, mark in ours if mark != settings.mark(number)),
    )


def added(family: str, desired: Ways, observed: Ways, gateway: Gateway) -> Iterator[str]:
    """Return the lines of `ip -batch` to run before packets are led to the new routes.

    The kernel lets `replace` take over somebody else's route, so only what is ours is replaced.
    """
    protocol = gateway.protocol
    for number, address in sorted(desired.nodes.items()):
        if (before := observed.nodes.get(number)) != address:
            verb, table = "add" if before is None else "replace", gateway.first_table + number
            yield f"route {verb} {_EVERYWHERE[family]} via {address} table {table} proto {protocol}"
    for number in sorted(desired.rules - observed.rules):
        yield f"rule add {_rule(number, gateway)}"
    for address in sorted(desired.addresses - observed.addresses):
        yield f"route add {address}/{LENGTH[family]} dev {gateway.device} proto {protocol}"
    for address, interface in sorted(desired.announced - observed.announced):
        yield f"neigh replace proxy {address} dev {interface} protocol {protocol}"


def removed(family: str, desired: Ways, observed: Ways, gateway: Gateway) -> Iterator[str]:
    """Return the lines of `ip -batch` to run when no packets are led to the old routes any more."""
    for address, interface in sorted(observed.announced - desired.announced):
        yield f"neigh del proxy {address} dev {interface}"
    for address in sorted(observed.addresses - desired.addresses):
        yield (
            f"route del {address}/{LENGTH[family]} dev {gateway.device} proto {gateway.protocol}"
        )
    for number in sorted(observed.rules - desired.rules):
        yield f"rule del {_rule(number, gateway)}"
    for number in sorted(observed.nodes.keys() - desired.nodes.keys()):
        table = gateway.first_table + number
        yield f"route del {_EVERYWHERE[family]} table {table} proto {gateway.protocol}"


def _rule(number: int, gateway: Gateway) -> str:
    mark = Settings(mask=gateway.mark_mask).mark(number)
    table = gateway.first_table + number
    return (
        f"fwmark {mark:#x}/{gateway.mark_mask:#x} lookup {table}"
        f" pref {gateway.rule_priority} protocol {gateway.protocol}"
    )


def answers_pass_by(state: State, found: Sequence[Interface], gateway: Gateway) -> bool:
    """Tell whether nodes answer clients past this machine, as neighbours of theirs.

    They do not if this machine is a node itself, for its kube-proxy has to see whole connections.
    """
    if any(machine.mark == HERE for machine in state.machines.values()):
        return False
    announced = {name for one in ways(state, found, gateway).values() for _, name in one.announced}
    return bool(announced.intersection(_towards_nodes(state, found)))


def needs(
    state: State, found: Sequence[Interface], gateway: Gateway
) -> tuple[tuple[str, int], ...]:
    """Return the kernel settings that make interfaces answer for our addresses without delay."""
    names = sorted(
        {name for one in ways(state, found, gateway).values() for _, name in one.announced}
    )
    return tuple(
        setting
        for name in names
        for setting in (
            (f"ipv4/neigh/{name}/proxy_delay", 0),
            (f"ipv6/neigh/{name}/proxy_delay", 0),
            (f"ipv6/conf/{name}/proxy_ndp", 1),
        )
    )


def obstacles(
    state: State, settings: Mapping[str, int], found: Sequence[Interface]
) -> tuple[str, ...]:
    """Return which settings of the machine keep traffic from flowing, each with the remedy.

    `settings` holds what is below /proc/sys/net; a setting left out does not exist.
    """
    families = {family for balancer in state.balancers.values() for family in balancer.addresses}
    problems = []
    if "IPv4" in families and settings.get("ipv4/ip_forward") == 0:
        problems.append(
            "this machine forwards no IPv4 packets: set net.ipv4.ip_forward=1 with sysctl"
        )
    if "IPv6" in families and settings.get("ipv6/conf/all/forwarding") == 0:
        problems.append(
            "this machine forwards no IPv6 packets: set net.ipv6.conf.all.forwarding=1 with sysctl"
        )
    for name in _towards_nodes(state, found) if "IPv4" in families else ():
        strict = max(
            settings.get("ipv4/conf/all/rp_filter", 0),
            settings.get(f"ipv4/conf/{name}/rp_filter", 0),
        )
        if strict == 1:
            problems.append(
                f"{name} drops the nodes' answers, by strict reverse path filtering: set"
                f" net.ipv4.conf.{name}.rp_filter=2 with sysctl"
            )
    return tuple(problems)


def _towards_nodes(state: State, found: Sequence[Interface]) -> list[str]:
    nodes = [address for each in state.machines.values() for address in each.addresses.values()]
    return sorted({name for node in nodes for name in announcing(node, found, ())})


QUESTIONABLE: Final = ("ipv4/ip_forward", "ipv6/conf/all/forwarding", "ipv4/conf/all/rp_filter")
"""Settings below /proc/sys/net that `obstacles` reads, beside each interface's rp_filter."""
