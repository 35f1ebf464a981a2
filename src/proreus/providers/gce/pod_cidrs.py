"""The capability `PodCIDRs` of the provider `gce`: alias IP ranges of instances.

Either Google gives them to an instance when that is made, or the cluster chooses them and they are
assigned here. The IPv6 block of pods is the first /112 of the instance's own /96.
"""

import ipaddress
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.listers import Lister
from proreus.cloudprovider.ownership import EVERY_NAMESPACE, Tenants
from proreus.cloudprovider.routes import network_of
from proreus.kube.objects import KubeObject, Node
from proreus.providers.gce.api import Api
from proreus.providers.gce.machines import AliasRange, Described, Interface
from proreus.providers.gce.names import Machine, instance_path, is_misnamed, parsed
from proreus.providers.gce.place import Place
from proreus.providers.gce.reading import Reader

IPV6_BITS: Final = 112


def pod_cidrs_of(described: Described) -> tuple[str, ...]:
    """Return the blocks of an instance: alias ranges, and an IPv6 block of each interface. Pure."""
    found: list[str] = []
    for nic in described.network_interfaces:
        found += [one.ip_cidr_range for one in nic.alias_ip_ranges]
        if nic.ipv6:
            block = ipaddress.ip_network(f"{nic.ipv6}/{IPV6_BITS}", strict=False)
            found.append(str(block))
    return tuple(found)


def changed_ranges(
    nic: Interface, add: Collection[str], remove: Collection[str], range_name: str
) -> tuple[AliasRange, ...] | None:
    """Return the alias ranges of an interface after a change; None if nothing changes. Pure.

    Args:
        nic: The interface as it is.
        add: Blocks to add; those of IPv6 follow from the interface's address.
        remove: Blocks to remove.
        range_name: The name of the subnetwork's range from which new blocks are taken.
    """
    have = {one.ip_cidr_range for one in nic.alias_ip_ranges}
    new = [one for one in add if ":" not in one and one not in have]
    rest = tuple(one for one in nic.alias_ip_ranges if one.ip_cidr_range not in set(remove))
    ranges = (*rest, *(AliasRange(one, range_name) for one in new))
    return ranges if ranges != nic.alias_ip_ranges else None


class GCEPodCIDRs:
    """The alias ranges of instances."""

    def __init__(
        self,
        api: Api,
        reader: Reader,
        place: Place,
        range_name: str,
        *,
        nodes: Lister[KubeObject],
        tenants: Tenants,
    ) -> None:
        """Keep the client of Google, and what says whose an instance is.

        Args:
            api: The client of Google.
            reader: The reader of instances.
            place: The project of the cluster.
            range_name: The range of the subnetwork for pods, or "".
            nodes: All nodes.
            tenants: The section that may list instances with other names than their Nodes.
        """
        self._api = api
        self._reader = reader
        self._place = place
        self._range_name = range_name
        self._nodes = nodes
        self._tenants = tenants

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, tuple[str, ...]]:
        """Read blocks in bulk by provider id; leave out a node without an instance."""
        keys = {node.metadata.name: key for node in nodes if (key := self._key(node)) is not None}
        found = await self._reader.by_key(set(keys.values()))
        described = {name: found[key] for name, key in keys.items()}
        return {
            name: pod_cidrs_of(one) for name, one in described.items() if isinstance(one, Described)
        }

    async def assign(self, node: Node, cidrs: tuple[str, ...]) -> None:
        """Add blocks to the first interface; those that it has are no error.

        Raises:
            InvalidRequest: The node has no instance in the project, or names one of another name.
            CloudError: Google refuses.
        """
        key = self._key(node)
        if key is not None and self._is_strange(node, key):
            raise InvalidRequest(
                f"the instance {key} gets no pod CIDR: its Node is called {node.metadata.name},"
                " while most instances have the name of their Node and are in a managed zone: if it"
                f" is the node's, give allow = *={key.name} in [Tenants] of the cloud-config"
            )
        described = await self._described(key) if key is not None else None
        if key is None or described is None or not described.network_interfaces:
            raise InvalidRequest(
                f"spec.providerID {node.spec.provider_id!r} names no instance of the project"
                f" {self._place.project}, or one without a network interface: check project-id in"
                " [Global], or give the instance an interface"
            )
        await self._change(key, described.network_interfaces[0], cidrs, ())

    async def release(self, node: Node, cidrs: tuple[str, ...]) -> None:
        """Take blocks from all interfaces; an instance that is gone has none.

        One that has another name than its Node was given none, and those that another Node has on
        the instance stay: provider ids of one instance can be written in several ways.

        Raises:
            CloudError: Google refuses.
        """
        key = self._key(node)
        if key is None or self._is_strange(node, key):
            return
        held = {
            network_of(text)
            for one in self._nodes.all()
            if isinstance(one, Node)
            and one.metadata.uid != node.metadata.uid
            and self._key(one) == key
            for text in (one.spec.pod_cidrs or (one.spec.pod_cidr,))
        }
        left = [text for text in cidrs if network_of(text) not in held]
        described = await self._described(key) if left else None
        for nic in described.network_interfaces if described is not None else ():
            await self._change(key, nic, (), left)

    async def _change(
        self, key: Machine, nic: Interface, add: Collection[str], remove: Collection[str]
    ) -> None:
        ranges = changed_ranges(nic, add, remove, self._range_name)
        if ranges is None:
            return
        path = f"{instance_path(self._place.project, key)}/updateNetworkInterface"
        body = {"fingerprint": nic.fingerprint, "aliasIpRanges": msgspec.to_builtins(ranges)}
        query = {"networkInterface": nic.name}
        await self._api.change("instances.updateNetworkInterface", path, body, query)

    async def _described(self, key: Machine) -> Described | None:
        found = (await self._reader.by_key({key}))[key]
        if isinstance(found, CloudError):
            raise found
        return found

    def _is_strange(self, node: Node, key: Machine) -> bool:
        """Tell whether an instance is taken for none of the cluster's, though its Node names it."""
        is_listed = self._tenants.lists(EVERY_NAMESPACE, (key.name,))
        return not is_listed and is_misnamed(node, self._nodes.all(), self._place.zones)

    def _key(self, node: Node) -> Machine | None:
        found = parsed(node.spec.provider_id)
        return found[1] if found is not None and found[0] == self._place.project else None
