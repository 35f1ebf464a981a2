"""Decide which instances are hosts, and what they are called in requests. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from proreus.cloudprovider.load_balancers import Host
from proreus.cloudprovider.ownership import EVERY_NAMESPACE, Tenants
from proreus.kube.objects import KubeObject
from proreus.providers.gce.names import (
    Machine,
    instance_path,
    is_own,
    misnamed,
    parsed,
    region_of,
)
from proreus.providers.gce.place import Place

MOST_IN_GROUP: Final = 1000
"""Instances of an instance group."""


def machines_of(hosts: Iterable[Host], place: Place) -> tuple[dict[str, Machine], dict[str, str]]:
    """Return each node's instance, and for each node that cannot be a host the reason."""
    found: dict[str, Machine] = {}
    rejected: dict[str, str] = {}
    for host in hosts:
        read = parsed(host.provider_id)
        if read is None or read[0] != place.project:
            rejected[host.node] = (
                f"{host.provider_id} is not an instance of the project {place.project}"
            )
        elif region_of(read[1].zone) != place.region:
            rejected[host.node] = f"{host.provider_id} is not in the region {place.region}"
        else:
            found[host.node] = read[1]
    return found, rejected


def by_zone(machines: Iterable[Machine]) -> dict[str, frozenset[Machine]]:
    """Return instances by zone, no more than a group can have."""
    found: dict[str, list[Machine]] = {}
    for one in sorted(machines):
        found.setdefault(one.zone, []).append(one)
    return {zone: frozenset(ones[:MOST_IN_GROUP]) for zone, ones in sorted(found.items())}


def tags_for(
    nodes: Mapping[str, Machine], tags: Mapping[Machine, str], given: Sequence[str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the network tags for firewall rules, and why a node is not let through to, by node.

    Args:
        nodes: The hosts.
        tags: The network tag of each host.
        given: The network tags of the cloud-config, which apply to all nodes.
    """
    if given:
        return tuple(given), {}
    missing = {
        node: (
            "the instance has no network tag with which its name begins: give it one, or set"
            " node-tags in [Global] of the cloud-config"
        )
        for node, machine in nodes.items()
        if not tags.get(machine)
    }
    return tuple(sorted({tags[one] for one in nodes.values() if tags.get(one)})), missing


def strangers(
    nodes: Mapping[str, Machine],
    every: Iterable[KubeObject],
    tenants: Tenants,
    zones: Collection[str],
) -> frozenset[str]:
    """Return the hosts whose Nodes name their instances by mistake, or by a lie.

    That of another node, by whose name it is called, is a host all the same.

    Args:
        nodes: The hosts.
        every: All Nodes of the cluster.
        tenants: The section that may list instances with other names than their Nodes.
        zones: The managed zones.
    """
    own = {machine for node, machine in nodes.items() if is_own(machine, node, zones)}
    alike = [node for node, machine in nodes.items() if machine not in own]
    other = {one.metadata.name for one in misnamed(every, zones)} if alike else set[str]()
    return frozenset(
        one
        for one in alike
        if one in other and not tenants.lists(EVERY_NAMESPACE, (nodes[one].name,))
    )


def mistaken(machine: Machine, what: str) -> str:
    """Return in words what follows where a Node may name an instance by mistake."""
    return (
        f"the instance {machine.name} has another name than its Node, or is in a zone that is not"
        f" managed, unlike most, and {what}: if it is the node's, give allow = *={machine.name} in"
        " [Tenants] of the cloud-config"
    )


def others_tags(
    strange: Collection[str], nodes: Mapping[str, Machine], tags: Mapping[Machine, str]
) -> dict[str, str]:
    """Return the network tags that only instances have which Nodes name by mistake, or by a lie.

    A firewall rule that has one lets clients in at all instances of another service.

    Args:
        strange: The names of the Nodes whose instances may be others'.
        nodes: The hosts.
        tags: The network tag of each host.
    """
    own = {tags.get(machine, "") for node, machine in nodes.items() if node not in strange}
    return {node: tag for node in strange if (tag := tags.get(nodes[node], "")) and tag not in own}


def instance_urls(machines: Iterable[Machine], place: Place) -> tuple[str, ...]:
    """Return the URLs of instances."""
    return tuple(place.url(instance_path(place.project, one)) for one in sorted(machines))
