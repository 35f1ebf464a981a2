"""Convert EC2's description of an instance to Kubernetes' terms. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from proreus.cloudprovider.instances import Instance, InstanceState
from proreus.kube.objects import NodeAddress
from proreus.providers.aws.config import Family
from proreus.providers.aws.identity import Described
from proreus.providers.aws.names import provider_id

LABEL_ZONE_ID = "topology.k8s.aws/zone-id"
"""Node label: the zone's id, which means the same place in every account."""
LABEL_NETWORK_LAYER = "topology.k8s.aws/network-node-layer-"
"""Prefix of node labels: the network nodes above an instance; 1 and so on follow, from the top."""
TERMINATED = "terminated"
"""The state of an instance that is gone for good; EC2 shows it for about an hour."""

_STATES = {
    "pending": InstanceState.RUNNING,
    "running": InstanceState.RUNNING,
    "shutting-down": InstanceState.TERMINATING,
    "stopped": InstanceState.STOPPED,
}
"""Others, such as stopping, say nothing yet."""


_HIBERNATED = "Client.UserInitiatedHibernate"
"""Why an instance is "stopped" whose memory lies on its disk (API StateReason)."""
_SPOT = "spot"
_SHUT_DOWN = frozenset({"Client.UserInitiatedShutdown", "Client.InstanceInitiatedShutdown"})


def state_of(described: Described) -> str:
    """Return EC2's word for the state of an instance."""
    return str(described.get("State", {}).get("Name", ""))


def is_powered_off(described: Described) -> bool:
    """Tell whether an instance is stopped and not hibernated.

    EC2 calls both stopped. Where an instance can hibernate, the reason must say that it was shut
    down. A Spot instance can though its `HibernationOptions` say no: `InstanceInterruptionBehavior`
    of its request may say so, which its description does not show.
    """
    reason = str(described.get("StateReason", {}).get("Code", ""))
    is_configured = bool(described.get("HibernationOptions", {}).get("Configured"))
    may_hibernate = is_configured or described.get("InstanceLifecycle") == _SPOT
    is_off = state_of(described) == "stopped" and reason != _HIBERNATED
    return is_off and (not may_hibernate or reason in _SHUT_DOWN)


def zone_of(described: Described) -> str:
    """Return the availability zone of an instance."""
    return str(described.get("Placement", {}).get("AvailabilityZone", ""))


def zone_id_of(described: Described) -> str:
    """Return the id of an instance's zone, or "" where EC2 does not tell it."""
    return str(described.get("Placement", {}).get("AvailabilityZoneId", ""))


def instance(
    described: Described,
    *,
    region: str,
    families: Sequence[Family],
    labels: Mapping[str, str],
    known_as: str,
) -> Instance:
    """Make the framework's `Instance` from EC2's description.

    Args:
        described: The instance as DescribeInstances describes it.
        region: The machine's region.
        families: The address families, in the order of preference.
        labels: Additional labels.
        known_as: The Node's provider id, "" if it has none; one machine's id may be written in
            several forms.
    """
    zone, id_ = zone_of(described), str(described["InstanceId"])
    return Instance(
        provider_id=known_as or provider_id(zone, id_),
        name=str(described.get("PrivateDnsName", "")),
        instance_type=str(described.get("InstanceType", "")),
        zone=zone,
        region=region,
        addresses=addresses(described, families),
        additional_labels=labels,
        state=_STATES.get(state_of(described), InstanceState.UNKNOWN),
        powered_off=is_powered_off(described),
    )


def addresses(described: Described, families: Sequence[Family]) -> tuple[NodeAddress, ...]:
    """Return all addresses of an instance, as the official manager orders them.

    For each family the interfaces in use by device index: of IPv4 each private address, of IPv6
    each interface's first. The public address follows those of IPv4, and the names come last.
    """
    interfaces = sorted(
        (
            interface
            for interface in described.get("NetworkInterfaces") or ()
            if interface.get("Status") == "in-use"
        ),
        key=lambda one: int(one.get("Attachment", {}).get("DeviceIndex", 0)),
    )
    found: list[NodeAddress] = []
    for family in families:
        of_family = _ipv4 if family is Family.IPV4 else _ipv6
        found.extend(NodeAddress("InternalIP", address) for address in of_family(interfaces))
        if family is Family.IPV4 and described.get("PublicIpAddress"):
            found.append(NodeAddress("ExternalIP", described["PublicIpAddress"]))
    if name := described.get("PrivateDnsName"):
        found += [NodeAddress("InternalDNS", name), NodeAddress("Hostname", name)]
    if name := described.get("PublicDnsName"):
        found.append(NodeAddress("ExternalDNS", name))
    return tuple(dict.fromkeys(found))


def _ipv4(interfaces: Iterable[Described]) -> Iterator[str]:
    for interface in interfaces:
        for private in interface.get("PrivateIpAddresses") or ():
            if private.get("PrivateIpAddress"):
                yield private["PrivateIpAddress"]


def _ipv6(interfaces: Iterable[Described]) -> Iterator[str]:
    for interface in interfaces:
        for first in (interface.get("Ipv6Addresses") or ())[:1]:
            yield first["Ipv6Address"]


def fargate(
    interface: Described, *, region: str, families: Sequence[Family], name: str, known_as: str
) -> Instance:
    """Make the `Instance` of a Fargate pod, of which only the network interface can be seen.

    Args:
        interface: The network interface as DescribeNetworkInterfaces describes it.
        region: The machine's region.
        families: The address families, in the order of preference.
        name: The Node's name.
        known_as: The Node's provider id; "" if it has none.
    """
    zone = str(interface.get("AvailabilityZone", ""))
    own: list[NodeAddress] = []
    for family in families:
        of_family = _ipv4 if family is Family.IPV4 else _ipv6
        own.extend(NodeAddress("InternalIP", address) for address in of_family([interface]))
    if dns := interface.get("PrivateDnsName"):
        own += [NodeAddress("InternalDNS", dns), NodeAddress("Hostname", dns)]
    return Instance(
        provider_id=known_as or provider_id(zone, name),
        name=str(interface.get("PrivateDnsName", "")),
        zone=zone,
        region=region,
        addresses=tuple(own),
    )


def network_layers(nodes: Iterable[str]) -> dict[str, str]:
    """Return the labels of an instance's place in the network, from the top layer down."""
    return {f"{LABEL_NETWORK_LAYER}{layer}": node for layer, node in enumerate(nodes, 1)}
