"""Decide which load balancer of Rancher a Service should have. Pure."""

from collections.abc import Mapping
from typing import Final

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.load_balancers import LoadBalancer, LoadBalancerRef
from proreus.providers.rancher.balancing import documents, owners
from proreus.providers.rancher.balancing.parts import Desired, Target
from proreus.providers.rancher.names import LB_NAME, parsed
from proreus.providers.rancher.versions import Version

RESERVED: Final = 42
"""The port at which Rancher checks its load balancers' own health."""
_EVERYONE: Final = "0.0.0.0/0"


def name_of(ref: LoadBalancerRef) -> str:
    """Return the official name of a Service's load balancer."""
    return f"{LB_NAME}{ref.name}"


def check(lb: LoadBalancer) -> None:
    """Refuse what no load balancer of Rancher can be.

    Raises:
        InvalidRequest: Fields are wrong; names each of them, and the remedy.
    """
    problems = []
    if lb.requested_address:
        problems.append(
            "spec.loadBalancerIP: Rancher chooses the host, so the address cannot be: remove it"
        )
    if lb.affinity_seconds is not None:
        problems.append("spec.sessionAffinity: Rancher keeps sessions of HTTP only: set it to None")
    if set(lb.source_ranges.get("IPv4", ())) != {_EVERYONE}:
        problems.append(
            "spec.loadBalancerSourceRanges: Rancher lets everyone in: remove it, and use a firewall"
            " before the hosts"
        )
    if others := sorted({one.protocol for one in lb.frontends} - {"TCP"}):
        problems.append(f"spec.ports: Rancher balances TCP only, not {', '.join(others)}")
    if without := sorted(one.port for one in lb.frontends if not one.node_port):
        problems.append(
            f"spec.ports: {', '.join(map(str, without))} has no node port: remove"
            " allocateLoadBalancerNodePorts"
        )
    if any(one.port == RESERVED for one in lb.frontends):
        problems.append(f"spec.ports: {RESERVED} is the port of Rancher's own health check")
    if problems:
        raise InvalidRequest("; ".join(problems))


def desired_balancer(lb: LoadBalancer, version: Version) -> Desired:
    """Compute the desired load balancer of a Service.

    Args:
        lb: The desired load balancer, as the framework describes it.
        version: The version of the API.
    """
    frontends = tuple((one.port, one.node_port) for one in lb.frontends)
    used = {one.node for one in lb.endpoints} if lb.local_traffic else None
    without = rejected(lb)
    targets = tuple(
        Target(host.node, host.addresses["IPv4"][0])
        for host in lb.hosts
        if host.node not in without and (used is None or host.node in used)
    )
    return Desired(
        name=name_of(lb.ref),
        description=owners.description(lb.ref),
        ports=frozenset(_published(port, to, version) for port, to in frontends),
        frontends=frontends,
        targets=targets,
        cluster_uid=lb.ref.cluster.uid,
        cluster=lb.ref.cluster.name,
    )


def rejected(lb: LoadBalancer) -> Mapping[str, str]:
    """Return why nodes cannot be hosts, by name."""
    found: dict[str, str] = {}
    for host in lb.hosts:
        if parsed(host.provider_id) is None:
            found[host.node] = f"{host.provider_id} is not a host of Rancher"
        elif not host.addresses.get("IPv4"):
            found[host.node] = "it has no IPv4 address"
    return found


def desired_fingerprint(desired: Desired, version: Version) -> str:
    """Return the fingerprint of a load balancer that is as desired."""
    addresses = [one.address for one in desired.targets]
    rules = [(port, to, address) for port, to in desired.frontends for address in addresses]
    return documents.fingerprint(desired.ports, rules if version.has_rules else (), addresses)


def _published(port: int, node_port: int, version: Version) -> str:
    """Return a published port: `PORT:PORT/tcp` with port rules, else `PORT:NODE_PORT/tcp`."""
    return f"{port}:{port if version.has_rules else node_port}/tcp"
