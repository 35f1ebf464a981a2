"""The security group of a Service: what it lets in, and which ports have it. Pure.

The group is the Service's own, so everything in it that the Service does not need goes: what people
add, and the two rules with which Neutron makes a group, which let nodes send anything anywhere.
"""

import ipaddress
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from proreus.cloudprovider.firewalls import RuleDiff, diff_rules
from proreus.cloudprovider.load_balancers import LoadBalancer, LoadBalancerRef, PartChange
from proreus.cloudprovider.mark_forms import TagList
from proreus.providers.openstack.machines import Described, id_of
from proreus.providers.openstack.names import parsed
from proreus.providers.openstack.octavia.desired import OVN

PREFIX: Final = "lb-sg-"
"""What the official names of such groups begin with; the Service's uid is next."""

LONGEST_TAG: Final = 60
"""Characters in a tag of Neutron: newer releases allow 255, but not all that are in use."""

_LONGEST = 255
_EVERYONE = {"IPv4": "0.0.0.0/0", "IPv6": "::/0"}
_PROTOCOLS = {"6": "tcp", "17": "udp", "132": "sctp"}


class Rule(msgspec.Struct, frozen=True, order=True):
    """Who may reach a port of nodes.

    Attributes:
        family: IPv4 or IPv6.
        protocol: tcp, udp or sctp.
        port: The port.
        source: A CIDR.
    """

    family: str
    protocol: str
    port: int
    source: str


RuleChange = RuleDiff[Rule, str]
"""What is to be done to the rules of a group; those that nobody needs by id."""


class Spot(msgspec.Struct, frozen=True):
    """Where a node is reached: its server's address in a subnet, by ids."""

    server: str
    address: str
    subnet: str


class PortChange(msgspec.Struct, frozen=True):
    """A port, and the security groups that it is to have."""

    port: Described
    groups: tuple[str, ...]


class GroupWork(msgspec.Struct, frozen=True):
    """What is to be done to a group; nothing is false.

    Attributes:
        tags: All tags that it is to have; none if it has them.
        rules: Of its rules.
        ports: Which ports get it, and which lose it.
    """

    tags: tuple[str, ...] = ()
    rules: RuleChange = RuleChange()
    ports: tuple[PortChange, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is something to do."""
        return bool(self.tags or self.rules or self.ports)


def told(work: GroupWork) -> Iterator[PartChange]:
    """The lines about the work on a group."""
    if work.tags:
        yield PartChange("change", "security group", f"tags {' '.join(work.tags)}")
    yield from work.rules.lines(
        "rule of the security group",
        lambda rule: f"{rule.protocol} {rule.port} from {rule.source}",
        lambda id_: id_,
    )
    for port in work.ports:
        text = f"security groups {' '.join(port.groups) or 'none'}"
        yield PartChange("change", f"port {id_of(port.port)}", text)


def name_of(ref: LoadBalancerRef) -> str:
    """The official name, which proves whose the group is."""
    return f"{PREFIX}{ref.uid}-{ref.namespace}-{ref.service_name}"[:_LONGEST]


def description_of(ref: LoadBalancerRef) -> str:
    """The official description."""
    text = f"Security Group for {ref.key} Service LoadBalancer in cluster {ref.cluster.name}"
    return text[:_LONGEST]


def tags_of(marks: Mapping[str, str]) -> tuple[str, ...]:
    """Our marks as tags; the uids always fit, names may not."""
    return TagList(LONGEST_TAG).write(marks)


def wished(of: LoadBalancer, cidrs: Mapping[str, str], provider: str) -> frozenset[Rule]:
    """What the Service needs.

    Args:
        of: The framework's wish.
        cidrs: The member subnets' CIDRs by family: what load balancers send comes from there.
        provider: Octavia's; to nodes behind `ovn` clients come with their own addresses.
    """
    rules: set[Rule] = set()
    for one in of.frontends:
        if one.node_port and one.family in cidrs:
            subnet = (cidrs[one.family],)
            sources = of.source_ranges.get(one.family, ()) if provider == OVN else subnet
            protocol = one.protocol.lower()
            rules.update(
                Rule(one.family, protocol, one.node_port, _network(source)) for source in sources
            )
    if of.local_traffic and of.health_check.port:
        port = of.health_check.port
        rules.update(Rule(family, "tcp", port, _network(cidr)) for family, cidr in cidrs.items())
    return frozenset(rules)


def changed_rules(wanted: Collection[Rule], actual: Iterable[Described]) -> RuleChange:
    """What is to be done; each rule is kept once."""
    there = {id_of(one): rule_of(one) for one in actual}
    return diff_rules(sorted(wanted), there, read=there.__getitem__)


def rule_of(described: Described) -> Rule | None:
    """A rule as Neutron has it; None if it is none that a Service can need."""
    family, port = described.get("ethertype"), described.get("port_range_min")
    others = ("remote_group_id", "remote_address_group_id")
    if (
        described.get("direction") != "ingress"
        or family not in _EVERYONE
        or port is None
        or port != described.get("port_range_max")
        or any(described.get(other) for other in others)
    ):
        return None
    protocol = str(described.get("protocol")).lower()
    source = described.get("remote_ip_prefix") or _EVERYONE[family]
    return Rule(family, _PROTOCOLS.get(protocol, protocol), int(port), _network(str(source)))


def document(rule: Rule, group: str) -> Mapping[str, object]:
    """A rule as Neutron is given it."""
    return {
        "security_group_id": group,
        "direction": "ingress",
        "ethertype": rule.family,
        "protocol": rule.protocol,
        "port_range_min": rule.port,
        "port_range_max": rule.port,
        "remote_ip_prefix": rule.source,
    }


def spots(of: LoadBalancer, subnets: Mapping[str, str]) -> frozenset[Spot]:
    """Where the hosts are reached: by their first addresses, as members are.

    Args:
        of: The framework's wish.
        subnets: The member subnets by family.
    """
    found: set[Spot] = set()
    for host in of.hosts:
        server = parsed(host.provider_id)
        for family, subnet in subnets.items():
            addresses = host.addresses.get(family)
            if server is not None and addresses:
                found.add(Spot(server[1], _address(addresses[0]), subnet))
    return frozenset(found)


def unreached(wanted: Collection[Spot], attached: Iterable[Described]) -> set[str]:
    """The servers of spots of which no port has the group."""
    there = {spot for port in attached for spot in _spots_of(port)}
    return {spot.server for spot in set(wanted) - there}


def changed_ports(
    wanted: Collection[Spot],
    attached: Sequence[Described],
    candidates: Iterable[Described],
    group: str,
) -> list[PortChange]:
    """Which ports get the group, and which lose it; their other groups stay.

    Args:
        wanted: Where hosts are reached.
        attached: The ports that have the group.
        candidates: Ports of servers that are `unreached`. Those without port security let
            everything through, and can have no groups.
        group: Its id.
    """
    changes = []
    for port in attached:
        if not _spots_of(port) & set(wanted):
            left = (one for one in port.get("security_groups") or () if one != group)
            changes.append(PortChange(port, tuple(left)))
    for port in candidates:
        groups = tuple(port.get("security_groups") or ())
        is_checked = port.get("port_security_enabled") is not False
        if is_checked and group not in groups and _spots_of(port) & set(wanted):
            changes.append(PortChange(port, (*groups, group)))
    return changes


def _spots_of(port: Described) -> set[Spot]:
    return {
        Spot(str(port.get("device_id")), _address(str(one["ip_address"])), str(one["subnet_id"]))
        for one in port.get("fixed_ips") or ()
    }


def _address(text: str) -> str:
    return str(ipaddress.ip_address(text))


def _network(text: str) -> str:
    return str(ipaddress.ip_network(text, strict=False))
