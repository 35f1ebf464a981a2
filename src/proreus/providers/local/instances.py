"""Describe machines by the inventory, or else by the Node itself.

A provider id is `local://` and what never names another machine: the `id` of the inventory, or the
name. A Node whose machine has got another id, or another system UUID, is another machine
(`IdentityConflict`), so that neither a rename nor a name used again deletes anything. Where
both are new, as of an entry without an id that is renamed, the address tells.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from proreus.cloudprovider.addresses import is_address
from proreus.cloudprovider.errors import CloudError, IdentityConflict, InvalidRequest
from proreus.cloudprovider.instances import (
    Instance,
    InstanceAnswer,
    InstanceState,
    NotFound,
    Ownership,
)
from proreus.kube.objects import (
    ANNOTATION_PROVIDED_NODE_IP,
    TAINT_UNINITIALIZED,
    KubeObject,
    Node,
    NodeAddress,
    has_taint,
)
from proreus.providers.local.addresses import IP_TYPES, parse
from proreus.providers.local.config import Probing
from proreus.providers.local.inventory import Defaults, Inventory, Machine, MachineState
from proreus.providers.local.silence import Probe, Silence, Ways

SCHEME: Final = "local://"

_BATCH: Final = 1000
_STATES: Final[Mapping[MachineState, InstanceState]] = {
    MachineState.RUNNING: InstanceState.RUNNING,
    MachineState.STOPPED: InstanceState.STOPPED,
    MachineState.GONE: InstanceState.TERMINATING,
}
_TYPES: Final = ("ExternalIP", "Hostname", "InternalDNS", "ExternalDNS")

Claims = Collection[str]
"""The names of the machines that have Nodes."""


def owns(node: Node) -> Ownership:
    """Tell by the provider id's scheme whether a node is of this cloud; unknown without one."""
    if not node.spec.provider_id:
        return Ownership.UNKNOWN
    return Ownership.NO if machine_id(node.spec.provider_id) is None else Ownership.YES


class LocalInstances:
    """The capability `Instances` of the provider `local`."""

    def __init__(
        self,
        read: Callable[[], Awaitable[Inventory]] | None,
        defaults: Defaults,
        probe: Probe | None,
        probing: Probing,
        nodes: Callable[[], Iterable[KubeObject]] = tuple,
        *,
        ways: Ways,
    ) -> None:
        """Keep the readers of the inventory (None: Nodes are believed) and of probes.

        Args:
            read: Reads the inventory; None if there is none.
            defaults: The region and zone of machines without an inventory.
            probe: Asks a machine whether it lives; None to believe the inventory.
            probing: The settings that say what failed probes mean.
            nodes: Returns all Nodes of the cluster.
            ways: Tells by which ways machines are reached.
        """
        self._read = read
        self._defaults = defaults
        self._silence = Silence(probe, probing, ways) if probe is not None else None
        self._nodes = nodes

    @property
    def batch_size(self) -> int:
        """The most nodes that one `describe` takes."""
        return _BATCH

    def owns(self, node: Node) -> Ownership:
        """Tell by the provider id's scheme whether a node is of this cloud; unknown without one."""
        return owns(node)

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Read the inventory once, and probe the machines of nodes that are not Ready."""
        if self._read is None:
            answers = {node.metadata.name: from_node(node, self._defaults) for node in nodes}
        else:
            inventory = await self._read()
            claims = claimed(self._nodes())
            answers = {
                node.metadata.name: from_inventory(node, inventory, claims) for node in nodes
            }
        if self._silence is not None:
            answers |= await self._silence.judged(nodes, answers)
        return answers


def from_node(node: Node, defaults: Defaults) -> InstanceAnswer:
    """Describe a machine by its Node, where there is no inventory. Never says gone. Pure."""
    problem = _not_ours(node)
    if problem is not None:
        return problem
    addresses = addresses_of(node)
    name = node.metadata.name
    if all(address.type not in IP_TYPES for address in addresses):
        return CloudError(
            f"the Node {name} has no address: start its kubelet with --node-ip, or name an"
            " inventory in the cloud-config (instances.inventory)"
        )
    return Instance(
        provider_id=node.spec.provider_id or f"{SCHEME}{name}",
        name=name,
        instance_type=defaults.type,
        zone=defaults.zone,
        region=defaults.region,
        addresses=addresses,
        self_reported=True,
    )


def addresses_of(node: Node) -> tuple[NodeAddress, ...]:
    """Return the Node's own addresses: `--node-ip`, else those of its status."""
    provided = node.metadata.annotations.get(ANNOTATION_PROVIDED_NODE_IP, "")
    internal = [text.strip() for text in provided.split(",") if is_address(text.strip())]
    known = node.status.addresses
    if not internal:
        internal = [one.address for one in known if one.type == "InternalIP"]
    found = [NodeAddress("InternalIP", one) for one in internal]
    found += [one for type_ in _TYPES for one in known if one.type == type_]
    if all(one.type != "Hostname" for one in found):
        found.append(NodeAddress("Hostname", node.metadata.name))
    return tuple(dict.fromkeys(found))


def claimed(nodes: Iterable[KubeObject]) -> Claims:
    """Return the machines that have Nodes, by name. Pure.

    A kubelet can write any machine's provider id on its new Node, but not choose that one's name.
    """
    return frozenset(node.metadata.name for node in nodes)


def from_inventory(node: Node, inventory: Inventory, claims: Claims = ()) -> InstanceAnswer:
    """Describe a Node's machine by the inventory. Pure.

    An entry with the address of a machine that is listed no more may be that machine, renamed. It
    is another one if there is a Node of its name.

    Args:
        node: The Node.
        inventory: The inventory.
        claims: The names of the machines that have Nodes.
    """
    problem = _not_ours(node)
    if problem is not None:
        return problem
    if not node.spec.provider_id:
        return _new(node, inventory, claims)
    id_ = machine_id(node.spec.provider_id) or ""
    found = inventory.by_id.get(id_)
    if found is not None:
        return _known(node, found, inventory)
    other = _by_name(node, inventory)
    if other is not None:
        return IdentityConflict(
            f"the Node's machine is {id_}, the inventory's {other.name} is {other.machine_id}: say"
            f" that {id_} is gone (an entry with state: gone), or correct the id"
        )
    return _renamed(node, id_, inventory, claims) or _absent(inventory)


def _renamed(node: Node, id_: str, inventory: Inventory, claims: Claims) -> IdentityConflict | None:
    """Return that an entry of another name may be a Node's machine, which the inventory lacks."""
    same, other = f"id {id_}", f"say that {id_} is gone (an entry with state: gone)"
    if not node.spec.provider_id:
        same, other = f"name {id_}", "delete the Node"
    for heir in _heirs(node, inventory):
        if heir.name not in claims:
            return IdentityConflict(
                f"the Node's machine is {id_}, which the inventory lacks, and {heir.name}"
                f" ({heir.machine_id}) has its address: if that is the same machine, give its"
                f" entry the {same}; else {other}"
            )
    return None


def _heirs(node: Node, inventory: Inventory) -> Iterable[Machine]:
    """Return the machines that have an address of a Node, and may be its own under another name."""
    uuid = node.status.node_info.system_uuid.lower()
    for one in node.status.addresses:
        address = parse(one.address) if one.type in IP_TYPES else None
        machine = inventory.by_address.get(str(address))
        if machine is not None and uuid in {machine.system_uuid.lower() or uuid, ""}:
            yield machine


def _new(node: Node, inventory: Inventory, claims: Claims) -> InstanceAnswer:
    """Return the answer about a Node that has no provider id yet.

    One that waits to be initialised is of another cloud, perhaps, with the same addresses.
    """
    machine = _by_name(node, inventory)
    if machine is None:
        if has_taint(node, TAINT_UNINITIALIZED):
            return _absent(inventory)
        return _renamed(node, node.metadata.name, inventory, claims) or _absent(inventory)
    return _elsewhere(node, machine, inventory) or _matched(node, machine)


def _known(node: Node, machine: Machine, inventory: Inventory) -> InstanceAnswer:
    """Return the answer about a Node with the provider id of a machine of the inventory."""
    same = _matched(node, machine)
    if machine.state is not MachineState.GONE or not isinstance(same, Instance):
        return same
    return _elsewhere(node, machine, inventory) or _absent(inventory, tombstone=True)


def _elsewhere(node: Node, machine: Machine, inventory: Inventory) -> IdentityConflict | None:
    """Return that a kubelet runs on another machine, where only the UUID of that one is known."""
    uuid = node.status.node_info.system_uuid
    other = inventory.by_uuid.get(uuid.lower())
    if machine.system_uuid or other is None or other is machine:
        return None
    id_ = machine.machine_id
    return IdentityConflict(
        f"by its name or provider id the Node's machine is {id_}, but its kubelet reports the"
        f" system UUID {uuid}, that of {other.name} ({other.machine_id}): correct the inventory;"
        f" or, if {id_} is gone, delete the Node, so that its kubelet makes it anew"
    )


def _by_name(node: Node, inventory: Inventory) -> Machine | None:
    uuid = node.status.node_info.system_uuid.lower()
    return inventory.by_name.get(node.metadata.name) or inventory.by_uuid.get(uuid)


def _absent(inventory: Inventory, *, tombstone: bool = False) -> InstanceAnswer:
    """Return the answer for a machine that the inventory does not name, or says is gone.

    An inventory that is not the newest proves neither that a machine is absent nor that it is gone.
    """
    if inventory.stale:
        which = "that it says are gone may be back" if tombstone else "that it lacks may exist"
        return CloudError(f"the inventory has a mistake, so machines {which}: {inventory.stale}")
    return NotFound(tombstone=tombstone)


def _not_ours(node: Node) -> InvalidRequest | None:
    if not node.spec.provider_id or machine_id(node.spec.provider_id) is not None:
        return None
    return InvalidRequest(f"spec.providerID {node.spec.provider_id!r} is not of {SCHEME}")


def machine_id(provider_id: str) -> str | None:
    """Return the machine that a provider id of this cloud names; None for any other text. Pure."""
    found = provider_id.removeprefix(SCHEME)
    return found if provider_id.startswith(SCHEME) and found.strip(" /") else None


def _matched(node: Node, machine: Machine) -> InstanceAnswer:
    uuid = node.status.node_info.system_uuid
    if uuid and machine.system_uuid and uuid.lower() != machine.system_uuid.lower():
        return IdentityConflict(
            f"machine {machine.machine_id} has the system UUID {machine.system_uuid}, the Node's"
            f" machine {uuid}: it is another machine, or the inventory is wrong"
        )
    addresses = [
        *(NodeAddress("InternalIP", address) for address in machine.addresses),
        *(NodeAddress("ExternalIP", address) for address in machine.external_addresses),
        NodeAddress("Hostname", machine.hostname or machine.name),
    ]
    is_told = bool(machine.addresses or machine.external_addresses)
    return Instance(
        provider_id=f"{SCHEME}{machine.machine_id}",
        name=machine.name,
        instance_type=machine.type,
        zone=machine.zone,
        region=machine.region,
        addresses=tuple(dict.fromkeys(addresses)) if is_told else addresses_of(node),
        additional_labels=machine.labels,
        state=_STATES[machine.state],
        self_reported=not is_told,
    )
