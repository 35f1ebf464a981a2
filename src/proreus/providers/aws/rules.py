"""Compute the rules of security groups that load balancers need. Pure.

    classic   clients ─► group k8s-elb-<name> of the load balancer ─► every port of hosts' groups
    network   clients ─► node ports in hosts' groups (the client's address is seen there)

AWS groups rules into permissions as it likes, so they are compared one by one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from proreus.cloudprovider.firewalls import RuleDiff, diff_rules
from proreus.cloudprovider.load_balancers import PartChange
from proreus.cloudprovider.names import default_load_balancer_name
from proreus.kube.objects import KubeObject, Service
from proreus.providers.aws.annotations import TRAFFIC_PORT
from proreus.providers.aws.listeners import Listener, PortMapping

CLIENT_RULE: Final = "kubernetes.io/rule/nlb/client"
"""The prefix of the description of a rule that lets clients of a network load balancer in."""
HEALTH_RULE: Final = "kubernetes.io/rule/nlb/health"
"""The prefix of the description of a rule that lets its health checks in."""
HOST_RULE: Final = "kubernetes.io/rule/elb/host"
"""The description of a rule that lets a group which was given, and is not ours, reach hosts."""
MTU_RULE: Final = "kubernetes.io/rule/nlb/mtu"
"""The description of a rule that lets path MTU discovery work; all load balancers share it."""
ALL: Final = "-1"
"""The protocol that stands for all protocols."""

Permission = Mapping[str, Any]
"""Rules with the same protocol and ports, as AWS shows and takes them."""

_EVERYWHERE: Final = frozenset({"0.0.0.0/0"})


class Rule(msgspec.Struct, frozen=True, order=True):
    """A rule that lets a source reach ports; `source` is a CIDR or the id of a security group.

    With the protocol icmp, `from_port` and `to_port` are type and code.
    """

    protocol: str
    from_port: int
    to_port: int
    source: str
    description: str = ""


Change = RuleDiff[Rule, Rule]
"""The changes of the rules of a group."""


def rules_of(permissions: Iterable[Permission]) -> frozenset[Rule]:
    """Return the single rules in permissions as AWS shows them."""
    found = set()
    for permission in permissions:
        protocol = permission["IpProtocol"]
        first, last = (permission.get("FromPort", -1), permission.get("ToPort", -1))
        for field, key in (
            ("IpRanges", "CidrIp"),
            ("Ipv6Ranges", "CidrIpv6"),
            ("UserIdGroupPairs", "GroupId"),
        ):
            for source in permission.get(field) or ():
                description = source.get("Description") or ""
                found.add(Rule(protocol, first, last, source[key], description))
    return frozenset(found)


def permissions_of(rules: Iterable[Rule]) -> list[dict[str, Any]]:
    """Return rules as permissions, as AWS takes them."""
    found: dict[tuple[str, int, int], dict[str, Any]] = {}
    for rule in sorted(rules):
        ports = {} if rule.protocol == ALL else {"FromPort": rule.from_port, "ToPort": rule.to_port}
        permission = found.setdefault(
            (rule.protocol, rule.from_port, rule.to_port), {"IpProtocol": rule.protocol, **ports}
        )
        field, key = _place(rule.source)
        description = {"Description": rule.description} if rule.description else {}
        permission.setdefault(field, []).append({key: rule.source, **description})
    return list(found.values())


def _place(source: str) -> tuple[str, str]:
    if source.startswith("sg-"):
        return "UserIdGroupPairs", "GroupId"
    return ("Ipv6Ranges", "CidrIpv6") if ":" in source else ("IpRanges", "CidrIp")


def changed(observed: frozenset[Rule], desired: frozenset[Rule], ours: frozenset[Rule]) -> Change:
    """Return the diff of a group's observed and desired rules; only `ours` may be revoked.

    A rule that differs in its description alone is the same to AWS: it cannot be granted beside
    the other, and is left.
    """
    return diff_rules(
        sorted(desired), sorted(observed), key=_bare, read=_bare, mine=ours.__contains__
    )


def rule_part_changes(group: str, change: Change) -> Iterator[PartChange]:
    """Return the changes of a group's rules for `proreus plan`."""
    return change.lines(f"rule of security group {group}", rule_text, rule_text)


def rules_part_changes(changes: Mapping[str, Change]) -> Iterator[PartChange]:
    """Return the changes of groups for `proreus plan`, by their ids."""
    for group, change in changes.items():
        yield from rule_part_changes(group, change)


def rule_text(rule: Rule) -> str:
    """Return a rule in words."""
    if rule.protocol == ALL:
        return f"everything from {rule.source}"
    first, last = rule.from_port, rule.to_port
    ports = str(first) if first == last else f"{first} to {last}"
    return f"{rule.protocol} {ports} from {rule.source}"


def _bare(rule: Rule) -> Rule:
    return msgspec.structs.replace(rule, description="")


def of_classic(listeners: Iterable[Listener], ranges: Iterable[str]) -> frozenset[Rule]:
    """Return the rules of a classic load balancer's own group.

    The rules are for its ports, and for path MTU discovery.
    """
    return _of_ports([("tcp", listener.port) for listener in listeners], ranges)


def of_managed(mappings: Iterable[PortMapping], ranges: Iterable[str]) -> frozenset[Rule]:
    """Return the rules of a network load balancer's own group.

    The rules are for its ports, and for path MTU discovery.
    """
    ports = [
        (protocol, mapping.port)
        for mapping in mappings
        for protocol in transports(mapping.protocol)
    ]
    return _of_ports(ports, ranges)


def _of_ports(ports: Sequence[tuple[str, int]], ranges: Iterable[str]) -> frozenset[Rule]:
    return frozenset(
        rule
        for source in ranges
        for rule in (
            *(Rule(protocol, port, port, source) for protocol, port in ports),
            _mtu(source),
        )
    )


def of_hosts(load_balancer_group: str, description: str = "") -> Rule:
    """Return the rule of a host's group that lets a classic load balancer in."""
    return Rule(ALL, -1, -1, load_balancer_group, description)


def _mtu(source: str, description: str = "") -> Rule:
    # ICMP type 3, code 4: fragmentation needed. ICMPv6 has a type of its own: packet too big.
    if ":" in source:
        return Rule("icmpv6", 2, 0, source, description)
    return Rule("icmp", 3, 4, source, description)


def of_network(
    name: str,
    mappings: Sequence[PortMapping],
    ranges: Iterable[str],
    subnets: Iterable[str],
) -> frozenset[Rule]:
    """Return the rules that a network load balancer needs in the group of its hosts.

    Args:
        name: The load balancer's name.
        mappings: Its listeners.
        ranges: The CIDRs of clients.
        subnets: The CIDRs of the load balancer's subnets, from which health checks come.
    """
    ranges = frozenset(ranges)
    clients = frozenset(
        (protocol, mapping.target_port)
        for mapping in mappings
        for protocol in transports(mapping.target_protocol)
    )
    checked = {_health_port(mapping) for mapping in mappings}
    found = {
        Rule(protocol, port, port, source, f"{CLIENT_RULE}={name}")
        for protocol, port in clients
        for source in ranges
    }
    found |= {_mtu(source, MTU_RULE) for source in ranges}
    # Where everybody is let in anyway, the health checks are, too.
    open_ports = {port for protocol, port in clients if protocol == "tcp"}
    if not (ranges >= _EVERYWHERE and checked <= open_ports):
        found |= {
            Rule("tcp", port, port, source, f"{HEALTH_RULE}={name}")
            for port in checked
            for source in subnets
            # To AWS a port and a source make one rule: that of clients is handed over.
            if source not in ranges or port not in open_ports
        }
    return frozenset(found)


def transports(protocol: str) -> tuple[str, ...]:
    """Return the protocols of rules that a listener or target group needs, by its protocol."""
    if protocol == "TCP_UDP":
        return ("tcp", "udp")
    return ("udp",) if protocol == "UDP" else ("tcp",)


def _health_port(mapping: PortMapping) -> int:
    port = mapping.health.port
    return mapping.target_port if port == TRAFFIC_PORT else int(port)


def made_for(name: str, rules: Iterable[Rule]) -> frozenset[Rule]:
    """Return those of a group's rules that were made for a network load balancer."""
    own = {f"{CLIENT_RULE}={name}", f"{HEALTH_RULE}={name}"}
    return frozenset(rule for rule in rules if rule.description in own)


def clients_of(name: str, rules: Iterable[Rule]) -> frozenset[Rule]:
    """Return those rules that let a network load balancer's clients in and bear its name."""
    return frozenset(rule for rule in rules if rule.description == f"{CLIENT_RULE}={name}")


def handed_to(name: str, rule: Rule) -> Rule:
    """Return a rule as it is when it lets another load balancer's clients in."""
    return msgspec.structs.replace(rule, description=f"{CLIENT_RULE}={name}")


def shared_health(name: str, observed: frozenset[Rule]) -> frozenset[Rule]:
    """Return the rules of a load balancer's health checks that others may need, too.

    To AWS a port and a source make one rule, which has the description of the load balancer that
    came first. Other load balancers may check health at any port but those of its own clients.

    Args:
        name: The network load balancer's name.
        observed: The rules of a group.
    """
    own = made_for(name, observed)
    if not _has_clients(observed - own):
        return frozenset()
    ports = {rule.from_port for rule in clients_of(name, own)}
    return frozenset(
        rule
        for rule in own
        if rule.description.startswith(HEALTH_RULE) and rule.from_port not in ports
    )


def idle_health(observed: Iterable[Rule], remaining: Iterable[Rule]) -> frozenset[Rule]:
    """Return the rules of health checks in a group in which no load balancer has clients any more.

    Args:
        observed: The rules of the group.
        remaining: The rules that the group will have, of all load balancers.
    """
    if _has_clients(remaining):
        return frozenset()
    return frozenset(filter(_is_health, observed))


def in_doubt(revoked: Iterable[Rule]) -> frozenset[str]:
    """Return the load balancers of the rules that living ones may need, by name; "" for all."""
    health = f"{HEALTH_RULE}="
    return frozenset(
        rule.description.removeprefix(health) if rule.description != MTU_RULE else ""
        for rule in revoked
        if rule.description == MTU_RULE or rule.description.startswith(health)
    )


def node_ports_beside(name: str, services: Iterable[KubeObject]) -> frozenset[int]:
    """Return the node ports at which clients come by other load balancers than one."""
    return frozenset(
        port.node_port
        for one in services
        if isinstance(one, Service) and default_load_balancer_name(one.metadata.uid) != name
        for port in one.spec.ports
    )


def sparing(
    name: str,
    observed: frozenset[Rule],
    change: Change,
    living: Iterable[str],
    node_ports: Collection[int] = (),
) -> Change:
    """Return a change of a group that leaves living load balancers what they may need.

    A load balancer whose clients another rule lets in, such as an operator's, has no rule for
    clients of its own. So only that it lives says that it needs its health checks. Nor has one
    whose clients the rule for another one's health checks lets in, at a port that a Service chose.

    Args:
        name: The name of the network load balancer that is changed or deleted.
        observed: The rules of the group.
        change: What is to be changed in it.
        living: The names of all other network load balancers of Services.
        node_ports: The node ports of all other Services.
    """
    living = frozenset(living) - {name}
    there = {rule.description for rule in observed}
    has_hidden = any(f"{CLIENT_RULE}={other}" not in there for other in living)
    others = {rule for rule in observed if _is_health(rule) and rule.from_port in node_ports}
    others |= set(filter(_may_let_clients_in, observed))
    hidden = {rule.source for rule in others} if has_hidden else set[str]()
    ports = {rule.from_port for rule in clients_of(name, observed)}

    def is_needed(rule: Rule) -> bool:
        if rule.description == MTU_RULE:
            return rule.source in hidden
        if not _is_health(rule):
            return False
        of = rule.description.removeprefix(f"{HEALTH_RULE}=")
        return of in living or (bool(hidden) and rule.from_port not in ports)

    left = tuple(rule for rule in change.revoke if not is_needed(rule))
    return msgspec.structs.replace(change, revoke=left)


def _is_health(rule: Rule) -> bool:
    return rule.description.startswith(f"{HEALTH_RULE}=")


def _may_let_clients_in(rule: Rule) -> bool:
    """Tell whether a rule of somebody else may be what a load balancer's clients need."""
    is_port = rule.protocol in {"tcp", "udp"} and rule.from_port == rule.to_port
    return is_port and not rule.description.startswith((CLIENT_RULE, HEALTH_RULE))


def _has_clients(rules: Iterable[Rule]) -> bool:
    return any(rule.description.startswith(CLIENT_RULE) for rule in rules)


def idle_mtu(observed: Iterable[Rule], remaining: Iterable[Rule]) -> frozenset[Rule]:
    """Return the rules of path MTU discovery that no load balancer's clients need any more.

    Args:
        observed: The rules of a group.
        remaining: The rules that the group will have, of all load balancers.
    """
    needed = {rule.source for rule in remaining if rule.description.startswith(CLIENT_RULE)}
    return frozenset(
        rule for rule in observed if rule.description == MTU_RULE and rule.source not in needed
    )
