"""Compute the security group of a Service: its rules, and which ports have it. Pure.

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
from proreus.providers.nova.machines import Described, id_of
from proreus.providers.openstack.names import parsed
from proreus.providers.openstack.octavia.desired import OVN

PREFIX: Final = "lb-sg-"
"""The prefix of the official names of such groups; the Service's uid is next."""

LONGEST_TAG: Final = 60
"""Characters in a tag of Neutron: newer releases allow 255, but not all that are in use."""

_LONGEST = 255
_EVERYONE = {"IPv4": "0.0.0.0/0", "IPv6": "::/0"}
_PROTOCOLS = {"6": "tcp", "17": "udp", "132": "sctp"}


class Rule(msgspec.Struct, frozen=True, order=True):
    """A rule that lets a source reach a port of nodes.

    Attributes:
        family: IPv4 or IPv6.
        protocol: tcp, udp or sctp.
        port: The port.
        source: The source, a CIDR.
    """

    family: str
    protocol: str
    port: int
    source: str


RuleChange = RuleDiff[Rule, str]
"""The diff of a group's rules; those to be revoked by id."""


class Spot(msgspec.Struct, frozen=True):
    """A place where a node is reached: its server's address in a subnet, by ids."""

    server: str
    address: str
    subnet: str


class PortChange(msgspec.Struct, frozen=True):
    """A port, and the security groups that it should have."""

    port: Described
    groups: tuple[str, ...]


class GroupWork(msgspec.Struct, frozen=True):
    """The diff of a group, its rules and its ports; false if there is none.

    Attributes:
        tags: All tags that the group is to have; () if it has them.
        rules: The diff of its rules.
        ports: The ports that are to get the group, and those that are to lose it.
        doubt: Why ports are left out that are to be looked at again; "" if there are none.
    """

    tags: tuple[str, ...] = ()
    rules: RuleChange = RuleChange()
    ports: tuple[PortChange, ...] = ()
    doubt: str = ""

    def __bool__(self) -> bool:
        """Tell whether anything differs."""
        return bool(self.tags or self.rules or self.ports)


def part_changes(work: GroupWork) -> Iterator[PartChange]:
    """Return the changes of a group for `proreus plan`."""
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
    """Return the official name of a Service's group, which proves whose it is."""
    return f"{PREFIX}{ref.uid}-{ref.namespace}-{ref.service_name}"[:_LONGEST]


def description_of(ref: LoadBalancerRef) -> str:
    """Return the official description of a Service's group."""
    text = f"Security Group for {ref.key} Service LoadBalancer in cluster {ref.cluster.name}"
    return text[:_LONGEST]


def tags_of(marks: Mapping[str, str]) -> tuple[str, ...]:
    """Return our marks as tags; the uids always fit, names may not."""
    return TagList(LONGEST_TAG).write(marks)


def desired_rules(lb: LoadBalancer, cidrs: Mapping[str, str], provider: str) -> frozenset[Rule]:
    """Return the rules that the Service needs.

    Args:
        lb: The desired load balancer, as the framework describes it.
        cidrs: The member subnets' CIDRs by family, from which load balancers send.
        provider: The provider (driver) of Octavia; with `ovn` nodes see the clients' own addresses.
    """
    rules: set[Rule] = set()
    for port in lb.frontends:
        if port.node_port and port.family in cidrs:
            subnet = (cidrs[port.family],)
            sources = lb.source_ranges.get(port.family, ()) if provider == OVN else subnet
            protocol = port.protocol.lower()
            rules.update(
                Rule(port.family, protocol, port.node_port, _network(source)) for source in sources
            )
    if lb.local_traffic and (check := lb.health_check.port):
        rules.update(Rule(family, "tcp", check, _network(cidr)) for family, cidr in cidrs.items())
    return frozenset(rules)


def changed_rules(desired: Collection[Rule], described: Iterable[Described]) -> RuleChange:
    """Return the diff of a group's rules; each desired rule is kept once."""
    observed = {id_of(rule): rule_of(rule) for rule in described}
    return diff_rules(sorted(desired), observed, read=observed.__getitem__)


def rule_of(described: Described) -> Rule | None:
    """Return a rule from Neutron's description; None if no Service can need such a rule."""
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
    """Return the document of Neutron's API that makes a rule."""
    return {
        "security_group_id": group,
        "direction": "ingress",
        "ethertype": rule.family,
        "protocol": rule.protocol,
        "port_range_min": rule.port,
        "port_range_max": rule.port,
        "remote_ip_prefix": rule.source,
    }


def spots(lb: LoadBalancer, subnets: Mapping[str, str]) -> frozenset[Spot]:
    """Return the places where the hosts are reached: their first addresses, as members have.

    Args:
        lb: The desired load balancer, as the framework describes it.
        subnets: The member subnets by family.
    """
    found: set[Spot] = set()
    for host in lb.hosts:
        server = parsed(host.provider_id)
        for family, subnet in subnets.items():
            addresses = host.addresses.get(family)
            if server is not None and addresses:
                found.add(Spot(server[1], _address(addresses[0]), subnet))
    return frozenset(found)


def unreached(desired: Collection[Spot], attached: Iterable[Described]) -> set[str]:
    """Return the servers that lack a port with the group where one is desired."""
    observed = {spot for port in attached for spot in _spots_of(port)}
    return {spot.server for spot in set(desired) - observed}


def changed_ports(
    desired: Collection[Spot],
    attached: Sequence[Described],
    candidates: Iterable[Described],
    group: str,
) -> list[PortChange]:
    """Return which ports get the group, and which lose it; their other groups stay.

    Args:
        desired: The places where hosts are reached.
        attached: The ports that have the group.
        candidates: The ports of servers that are `unreached`. Ports without port security let all
            traffic through, and can have no groups.
        group: The id of the group.
    """
    changes = []
    for port in attached:
        if not _spots_of(port) & set(desired):
            left = (id_ for id_ in port.get("security_groups") or () if id_ != group)
            changes.append(PortChange(port, tuple(left)))
    for port in candidates:
        groups = tuple(port.get("security_groups") or ())
        is_checked = port.get("port_security_enabled") is not False
        if is_checked and group not in groups and _spots_of(port) & set(desired):
            changes.append(PortChange(port, (*groups, group)))
    return changes


def _spots_of(port: Described) -> set[Spot]:
    return {
        Spot(str(port.get("device_id")), _address(str(ip["ip_address"])), str(ip["subnet_id"]))
        for ip in port.get("fixed_ips") or ()
    }


def _address(text: str) -> str:
    return str(ipaddress.ip_address(text))


def _network(text: str) -> str:
    return str(ipaddress.ip_network(text, strict=False))
