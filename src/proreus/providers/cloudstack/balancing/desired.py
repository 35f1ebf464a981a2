"""Decide which load balancer of CloudStack a Service should have. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.load_balancers import LoadBalancer
from proreus.kube.objects import IP_MODE_PROXY
from proreus.providers.cloudstack.balancing.annotations import (
    EVERYONE,
    NOBODY,
    PREFIX,
    Options,
    read_options,
)
from proreus.providers.cloudstack.balancing.parts import Desired, Network, Rule
from proreus.providers.cloudstack.machines import GONE, networks_of
from proreus.providers.cloudstack.names import parsed

Version = tuple[int, ...]

SOURCES_SINCE: Final[Version] = (4, 18)
"""The version since which rules have sources."""
CHANGED_SINCE: Final[Version] = (4, 22)
"""The version since which the sources of a rule can be changed."""

_PROTOCOLS: Final = {"TCP": "tcp", "UDP": "udp"}


class Placed(msgspec.Struct, frozen=True):
    """The place of a Service's hosts.

    Attributes:
        network: The id of the hosts' network; "" if there is none.
        members: The ids of the hosts' machines.
        rejected: By node, why other nodes cannot be hosts.
        unseen: The ids of hosts' machines that CloudStack does not show, but that rules have.
    """

    network: str
    members: frozenset[str]
    rejected: Mapping[str, str]
    unseen: frozenset[str] = frozenset()


def placed(
    lb: LoadBalancer, machines: Mapping[str, Mapping[str, Any] | None], rules: Iterable[Rule]
) -> Placed:
    """Find the network and the machines of a Service's hosts.

    All rules of a Service are in one network. That is where it has rules, if any host is there,
    or else the first network of most hosts; those that are not in it are rejected. A machine that
    is not shown, and that rules have, stays in them, and they in their network: CloudStack takes
    it out when it expunges it.

    Args:
        lb: The desired load balancer, as the framework describes it.
        machines: The machines by id; None for those that are gone.
        rules: The rules that the Service has.
    """
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    rejected: dict[str, str] = {}
    rules = tuple(rules)
    in_rules = frozenset[str]().union(*(one.members for one in rules))
    unseen: set[str] = set()
    for host in lb.hosts:
        id_ = parsed(host.provider_id)
        machine = machines.get(id_) if id_ else None
        if id_ is None:
            rejected[host.node] = f"{host.provider_id} is not a machine of CloudStack"
        elif machine is None and id_ in in_rules:
            unseen.add(id_)
        elif machine is None:
            rejected[host.node] = "CloudStack has no such machine"
        elif machine.get("state") in GONE:
            rejected[host.node] = f"its machine is in the state {machine['state']}"
        else:
            found[host.node] = id_, networks_of(machine)
    of_hosts = [networks for _, networks in found.values()]
    network = _network(of_hosts, rules, is_pinned=bool(unseen))
    members = {id_ for id_, networks in found.values() if network in networks}
    for node, (_, networks) in found.items():
        if network not in networks:
            rejected[node] = f"its machine is not in the network {network} of the others"
    used = _wanted(lb)
    if used is not None:
        ids = {host.node: parsed(host.provider_id) for host in lb.hosts}
        serving = {str(ids[node]) for node in used if node in ids}
        members &= serving
        unseen &= serving
    return Placed(network, frozenset(members), rejected, frozenset(unseen))


def _wanted(lb: LoadBalancer) -> frozenset[str] | None:
    """Return the nodes that may get traffic, None for all.

    CloudStack checks no node's health, so with `externalTrafficPolicy: Local` only nodes with
    ready pods are members.
    """
    if not lb.local_traffic:
        return None
    return frozenset(one.node for one in lb.endpoints)


def _network(of_hosts: Iterable[tuple[str, ...]], rules: Iterable[Rule], *, is_pinned: bool) -> str:
    hosts = [networks for networks in of_hosts if networks and networks[0]]
    there = sorted({one.network for one in rules if one.network})
    for network in there:
        if is_pinned or not hosts or any(network in networks for networks in hosts):
            return network
    counted = Counter(networks[0] for networks in hosts)
    return max(sorted(counted), key=lambda network: counted[network], default="")


def desired_balancer(
    lb: LoadBalancer, options: Options, place: Placed, network: Network, version: Version
) -> Desired:
    """Compute the desired load balancer of a Service.

    Args:
        lb: The desired load balancer, as the framework describes it.
        options: The options that annotations choose.
        place: Where its hosts are.
        network: The network of the hosts.
        version: The version of CloudStack.
    """
    sources = frozenset(lb.source_ranges.get("IPv4", ()))
    cidrs = options.sources if options.sources is not None else EVERYONE
    if options.sources is None and not network.has_firewall:
        # An access list may let others in whom nobody here asked for.
        cidrs = sources or NOBODY
    if version < SOURCES_SINCE:
        cidrs = EVERYONE
    algorithm = "roundrobin" if lb.affinity_seconds is None else "source"
    rules = []
    for one in lb.frontends:
        protocol = _PROTOCOLS[one.protocol]
        if protocol == "tcp" and options.proxy:
            protocol = "tcp-proxy"
        name = f"{lb.ref.name}-{protocol}-{one.port}"
        rules.append(Rule(name, protocol, one.port, one.node_port, algorithm, cidrs, network.id))
    return Desired(
        tuple(rules),
        place.members,
        sources,
        network,
        can_change_sources=version >= CHANGED_SINCE,
        affinity_seconds=lb.affinity_seconds if network.has_stickiness else None,
        unseen=place.unseen,
    )


def shared_before(lb: LoadBalancer) -> frozenset[str]:
    """Return the addresses in a Service's status that were surely not acquired for it.

    Those are shown with another mode. One that was acquired for it, and that somebody has released,
    is theirs who acquire it next; with the PROXY protocol both have the same mode.
    """
    if read_options(lb.service.metadata.annotations).proxy:
        return frozenset()
    points = lb.ref.last_ingress
    return frozenset(one.ip for one in points if one.ip and one.ip_mode == IP_MODE_PROXY)


def check_place(place: Placed) -> None:
    """Refuse a load balancer while the network of its hosts is unknown.

    Raises:
        CloudError: No host has a machine.
    """
    if not place.network:
        raise CloudError(
            "no node of the Service has a machine in a network of CloudStack: "
            + ("; ".join(sorted(set(place.rejected.values()))) or "there are no nodes")
        )


def check_move(former: Network, network: Network) -> None:
    """Refuse to make rules anew in another network to which their address cannot go.

    Only the tiers of one VPC share addresses.

    Raises:
        CloudError: The rules would go, and others could not be made.
    """
    if not former.vpc or former.vpc != network.vpc:
        raise CloudError(
            f"the Service's rules are in the network {former.id}, and no node is there any more:"
            f" their address cannot go to the network {network.id} of the nodes; bring a node back,"
            " or make the Service anew, with another address"
        )


def check_network(network: Network) -> None:
    """Refuse a load balancer in a network that cannot have one, before an address is acquired.

    Such networks are those of basic zones, those of other zones with security groups, and tiers of
    a VPC with internal load balancing.

    Raises:
        CloudError: The network lacks something, which the message names.
    """
    if not network.has_balancing:
        raise CloudError(
            f"the nodes' network {network.id} has no load balancing of public addresses: its"
            " offering lacks the service Lb, or has it for internal addresses only, as in basic"
            " zones and with security groups; put the nodes into a network whose offering has it,"
            " or balance with the provider local beside this one"
        )


def check(lb: LoadBalancer, options: Options, version: Version) -> None:
    """Refuse what no load balancer of CloudStack can be.

    Raises:
        InvalidRequest: Fields are wrong; names each of them.
    """
    problems = []
    unknown = sorted({one.protocol for one in lb.frontends} - _PROTOCOLS.keys())
    if unknown:
        problems.append(
            f"spec.ports: CloudStack balances TCP and UDP only, not {', '.join(unknown)}"
        )
    without = sorted(one.port for one in lb.frontends if not one.node_port)
    if without:
        problems.append(
            f"spec.ports: {', '.join(map(str, without))} has no node port: remove"
            " allocateLoadBalancerNodePorts"
        )
    has_sources = options.sources not in {None, EVERYONE}
    if has_sources and version < SOURCES_SINCE:
        shown = ".".join(map(str, version))
        problems.append(
            f"annotation {PREFIX}source-cidrs: needs CloudStack 4.18, this is {shown}: use"
            " spec.loadBalancerSourceRanges"
        )
    if problems:
        raise InvalidRequest("; ".join(problems))
