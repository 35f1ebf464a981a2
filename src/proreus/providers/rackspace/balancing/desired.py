"""Decide which Cloud Load Balancers a Service should have. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from proreus.cloudprovider.addresses import is_loopback, plain_address
from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.load_balancers import Frontend, Host, LoadBalancer
from proreus.cloudprovider.names import digest_of
from proreus.providers.rackspace.balancing import owners
from proreus.providers.rackspace.balancing.annotations import PREFIX, Options
from proreus.providers.rackspace.balancing.documents import visible
from proreus.providers.rackspace.balancing.parts import (
    MOST_ITEMS,
    STATUS_REGEX,
    Desired,
    Item,
    Key,
    Member,
    Monitor,
    Place,
    Settings,
    can_share,
    transport_of,
)
from proreus.providers.rackspace.config import LoadBalancer as Checks
from proreus.providers.rackspace.names import parsed

VERSIONS: Final[Mapping[str, str]] = {"IPv4": "IPV4", "IPv6": "IPV6"}
_EVERYWHERE: Final = {"IPv4": "0.0.0.0/0", "IPv6": "::/0"}
_PERSISTS: Final = {"HTTP_COOKIE": "HTTP", "SSL_ID": "HTTPS"}
_TRANSPORTS: Final = {"TCP": "tcp", "UDP": "udp"}


class Chosen(msgspec.Struct, frozen=True):
    """The nodes of a Service's load balancers.

    Attributes:
        addresses: The addresses at which the nodes are reached.
        rejected: By node, why other nodes cannot be hosts.
    """

    addresses: tuple[str, ...]
    rejected: Mapping[str, str]


def chosen(lb: LoadBalancer, most: int) -> Chosen:
    """Choose the nodes: all hosts of Rackspace with an address, if there are not too many.

    With `externalTrafficPolicy: Local` only those with ready pods, since UDP knows no monitor. Of
    too many, which are chosen depends on Service and node alone: so Services have different ones,
    and a node that comes or goes moves one at most.

    Args:
        lb: The desired load balancer, as the framework describes it.
        most: The most nodes that a load balancer may have.
    """
    rejected: dict[str, str] = {}
    found: dict[str, str] = {}
    family = "IPv4" if "IPv4" in lb.families else "IPv6"
    for host in _used(lb):
        # For one of loopback, which a kubelet can claim, Rackspace refuses all nodes.
        addresses = [one for one in host.addresses.get(family, ()) if not is_loopback(one)]
        if parsed(host.provider_id) is None:
            rejected[host.node] = f"{host.provider_id} is not a server of Rackspace"
        elif not addresses:
            rejected[host.node] = f"it has no {family} address"
        else:
            found[host.node] = plain_address(addresses[0])
    order = sorted(found, key=lambda node: digest_of((lb.ref.uid, "\0", node)))
    rejected |= dict.fromkeys(order[most:], f"{most} nodes are as many as a load balancer takes")
    return Chosen(tuple(sorted(found[node] for node in order[:most])), rejected)


def desired_balancers(
    lb: LoadBalancer, options: Options, checks: Checks, nodes: Chosen, most: int
) -> Desired:
    """Compute the desired load balancers of a Service.

    Args:
        lb: The desired load balancer, as the framework describes it.
        options: The options that annotations choose.
        checks: The settings by which nodes are checked where no annotation says it.
        nodes: The nodes that get the connections.
        most: The most nodes that a load balancer may have.
    """
    versions = frozenset(VERSIONS[family] for family in lb.families)
    return Desired(
        balancers=tuple(
            _settings(lb, options, checks, nodes, frontend) for frontend in _ports(lb).values()
        ),
        place=Place(options.type, versions),
        marks=owners.service_marks(lb.ref),
        max_nodes=most,
    )


def fingerprint(desired: Desired) -> str:
    """Return the digest that a listing shows if all is as desired."""
    return visible(desired.balancers, (desired.place.type,), desired.place.versions)


def check(lb: LoadBalancer, options: Options) -> None:
    """Refuse what no Cloud Load Balancer can be.

    Raises:
        InvalidRequest: Fields are wrong; names each of them.
    """
    problems = [*_wrong_ports(lb), *_wrong_options(lb, options)]
    if problems:
        raise InvalidRequest("; ".join(problems))


def _wrong_ports(lb: LoadBalancer) -> Iterator[str]:
    unknown = sorted({one.protocol for one in lb.frontends} - _TRANSPORTS.keys())
    if unknown:
        yield f"spec.ports: Rackspace balances TCP and UDP only, not {', '.join(unknown)}"
    without = sorted({one.port for one in lb.frontends if not one.node_port})
    if without:
        yield (
            f"spec.ports: {', '.join(map(str, without))} has no node port: remove"
            " allocateLoadBalancerNodePorts"
        )


def _wrong_options(lb: LoadBalancer, options: Options) -> Iterator[str]:
    if len(_access(lb)) > MOST_ITEMS:
        yield f"spec.loadBalancerSourceRanges: an access list has room for {MOST_ITEMS - 1} CIDRs"
    keys = _ports(lb)
    protocols = {key: options.protocol(*key) for key in keys}
    for transport, port in keys:
        tcp, udp = protocols.get(("tcp", port)), protocols.get(("udp", port))
        if transport == "udp" and tcp and udp and not can_share(tcp, udp):
            yield (
                f"spec.ports: {tcp} and {udp} cannot share port {port} of an address: use TCP with"
                f" UDP, or DNS_TCP with DNS_UDP (annotation {PREFIX}protocol)"
            )
    needed = _PERSISTS.get(options.persistence or "")
    if needed and needed not in protocols.values():
        yield (
            f"annotation {PREFIX}session-persistence: {options.persistence} needs a port of"
            f" protocol {needed}: give that in annotation {PREFIX}protocol"
        )
    kind = (options.monitor or "").upper()
    if kind in _PERSISTS.values() and kind not in protocols.values():
        yield (
            f"annotation {PREFIX}health-monitor: {options.monitor} needs a port of protocol {kind}:"
            f" give that in annotation {PREFIX}protocol, or use connect"
        )


def _used(lb: LoadBalancer) -> Sequence[Host]:
    if not lb.local_traffic:
        return lb.hosts
    used = {one.node for one in lb.endpoints}
    return [host for host in lb.hosts if host.node in used]


def _ports(lb: LoadBalancer) -> dict[Key, Frontend]:
    """Return one frontend for each port: one load balancer serves both families."""
    found: dict[Key, Frontend] = {}
    for one in lb.frontends:
        found.setdefault((_TRANSPORTS.get(one.protocol, one.protocol), one.port), one)
    return {key: found[key] for key in sorted(found)}


def _settings(
    lb: LoadBalancer, options: Options, checks: Checks, nodes: Chosen, frontend: Frontend
) -> Settings:
    transport = _TRANSPORTS[frontend.protocol]
    protocol = options.protocol(transport, frontend.port)
    return Settings(
        name=owners.name_of(lb.ref, (transport, frontend.port)),
        protocol=protocol,
        port=frontend.port,
        algorithm=options.algorithm,
        timeout=options.timeout,
        members=frozenset(Member(address, frontend.node_port) for address in nodes.addresses),
        access=_access(lb),
        monitor=_monitor(options, checks, protocol),
        persistence=_persistence(lb, options, protocol),
        max_connections=options.max_connections,
    )


def _access(lb: LoadBalancer) -> frozenset[Item]:
    """Return the access list that lets in the Service's sources, and nobody else."""
    found: set[Item] = set()
    for family in lb.families:
        sources = lb.source_ranges.get(family, ())
        if _EVERYWHERE[family] not in sources:
            found |= {Item(one, "ALLOW") for one in sources}
            found.add(Item(_EVERYWHERE[family], "DENY"))
    return frozenset(found)


def _monitor(options: Options, checks: Checks, protocol: str) -> Monitor | None:
    """Return the health monitor: UDP knows none, and one by HTTP needs the protocol HTTP."""
    default = "connect" if checks.create_monitor else "none"
    kind = (options.monitor or default).upper()
    if kind == "NONE" or transport_of(protocol) == "udp":
        return None
    is_http = kind == protocol and kind != "CONNECT"
    return Monitor(
        type=kind if is_http else "CONNECT",
        delay=options.delay or int(checks.monitor_delay.total_seconds()) or 10,
        timeout=options.wait or int(checks.monitor_timeout.total_seconds()) or 10,
        attempts=options.attempts or checks.monitor_max_retries or 3,
        path=options.path if is_http else "",
        status_regex=STATUS_REGEX if is_http else "",
    )


def _persistence(lb: LoadBalancer, options: Options, protocol: str) -> str:
    if options.persistence is None:
        return "SOURCE_IP" if lb.affinity_seconds is not None else ""
    needed = _PERSISTS.get(options.persistence)
    return options.persistence if needed in {None, protocol} else ""
