"""Convert Google's descriptions of instances to Kubernetes' terms. Pure."""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from proreus.cloudprovider.instances import Instance, InstanceState
from proreus.cloudprovider.names import LABEL_VALUE
from proreus.kube.objects import NodeAddress
from proreus.providers.gce.config import IPV6
from proreus.providers.gce.names import Machine, last_part, machine, provider_id, region_of

_STATES: Final[Mapping[str, InstanceState]] = {
    "DEPROVISIONING": InstanceState.TERMINATING,
    "SUSPENDED": InstanceState.STOPPED,
    "TERMINATED": InstanceState.STOPPED,
}
"""All others count as running: one that is stopping still has its pods."""


class AccessConfig(msgspec.Struct, frozen=True):
    """An external address of an interface."""

    nat_ip: str = msgspec.field(default="", name="natIP")
    external_ipv6: str = msgspec.field(default="", name="externalIpv6")


class AliasRange(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A range of addresses that an interface has besides its own."""

    ip_cidr_range: str
    subnetwork_range_name: str = ""


class Interface(msgspec.Struct, frozen=True):
    """A network interface."""

    name: str = ""
    network_ip: str = msgspec.field(default="", name="networkIP")
    ipv6_address: str = msgspec.field(default="", name="ipv6Address")
    ipv6_access_type: str = msgspec.field(default="", name="ipv6AccessType")
    access_configs: tuple[AccessConfig, ...] = msgspec.field(default=(), name="accessConfigs")
    ipv6_access_configs: tuple[AccessConfig, ...] = msgspec.field(
        default=(), name="ipv6AccessConfigs"
    )
    alias_ip_ranges: tuple[AliasRange, ...] = msgspec.field(default=(), name="aliasIpRanges")
    fingerprint: str = ""

    @property
    def ipv6(self) -> str:
        """The IPv6 address, or ""; the external one where there is no other."""
        if self.ipv6_address or self.ipv6_access_type != "EXTERNAL":
            return self.ipv6_address
        return self.ipv6_access_configs[-1].external_ipv6 if self.ipv6_access_configs else ""


class Tags(msgspec.Struct, frozen=True):
    """Network tags."""

    items: tuple[str, ...] = ()


class Described(msgspec.Struct, frozen=True):
    """An instance as Google describes it, as far as it matters here."""

    name: str
    zone: str
    id: str = ""
    status: str = ""
    machine_type: str = msgspec.field(default="", name="machineType")
    network_interfaces: tuple[Interface, ...] = msgspec.field(default=(), name="networkInterfaces")
    tags: Tags = Tags()

    @property
    def key(self) -> Machine:
        """The instance's zone and name."""
        return machine(last_part(self.zone), self.name)


def instance(described: Described, *, project: str, stack_type: str, known_as: str) -> Instance:
    """Make the framework's `Instance` from a description.

    Args:
        described: The instance as Google describes it.
        project: The name of the instance's project.
        stack_type: The setting of the cloud-config that says which family comes first.
        known_as: The Node's provider id, or "".
    """
    key = described.key
    return Instance(
        provider_id=known_as or provider_id(project, key),
        name=described.name,
        instance_type=LABEL_VALUE.clean(last_part(described.machine_type)),
        zone=key.zone,
        region=region_of(key.zone),
        addresses=addresses(described, stack_type),
        state=_STATES.get(described.status, InstanceState.RUNNING),
        powered_off=described.status == "TERMINATED",
    )


def addresses(described: Described, stack_type: str) -> tuple[NodeAddress, ...]:
    """Return the addresses of all interfaces: internal, external, IPv6, as officially.

    With the stack type IPV6 those of IPv6 come first.
    """
    found = dict.fromkeys(_addresses(described))
    if stack_type == IPV6:
        return tuple(sorted(found, key=lambda one: ":" not in one.address))
    return tuple(found)


def _addresses(described: Described) -> Iterator[NodeAddress]:
    for nic in described.network_interfaces:
        if nic.network_ip:
            yield NodeAddress("InternalIP", nic.network_ip)
        for config in nic.access_configs:
            if config.nat_ip:
                yield NodeAddress("ExternalIP", config.nat_ip)
        if nic.ipv6:
            yield NodeAddress("InternalIP", nic.ipv6)


def node_tag(described: Described) -> str:
    """Return the network tag by which firewall rules name a node; "" if it has none.

    The tag is the longest with which the node's name begins, as officially.
    """
    fitting = [tag for tag in described.tags.items if described.name.startswith(tag)]
    return max(fitting, key=len, default="")
