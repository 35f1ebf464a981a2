"""Describe machines by the inventory, or else by the Node itself.

A provider id is `local://` and what never names another machine: the `id` of the inventory, or the
name. A Node whose machine has got another id, or another system UUID, is another machine
(`IdentityConflict`), so that neither a rename nor a name used again deletes anything. Where
both are new, as of an entry without an id that is renamed, the address tells.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Final

import msgspec

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
    KubeObject,
    Node,
    NodeAddress,
    condition,
)
from proreus.providers.local.addresses import IP_TYPES, Hop, parse
from proreus.providers.local.config import Probing, Unreachable
from proreus.providers.local.inventory import Defaults, Inventory, Machine, MachineState

SCHEME: Final = "local://"

_BATCH: Final = 1000
_WITNESSES: Final = 3
_STATES: Final[Mapping[MachineState, InstanceState]] = {
    MachineState.RUNNING: InstanceState.RUNNING,
    MachineState.STOPPED: InstanceState.STOPPED,
    MachineState.GONE: InstanceState.TERMINATING,
}
_TYPES: Final = ("ExternalIP", "Hostname", "InternalDNS", "ExternalDNS")

Probe = Callable[[Sequence[str]], Awaitable[bool]]
"""Whether a machine with these addresses answers."""
Ways = Callable[[Collection[str]], Awaitable[Mapping[str, Hop]]]
"""The ways by which addresses are reached, without addresses that lead to this machine."""
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
        self._probe = probe
        self._probing = probing
        self._nodes = nodes
        self._ways = ways
        self._failures: dict[str, tuple[Hashable, int]] = {}

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
        if self._probe is not None:
            answers |= await self._probed(self._probe, nodes, answers)
        return answers

    async def _probed(
        self, probe: Probe, nodes: Sequence[Node], answers: Mapping[str, InstanceAnswer]
    ) -> Mapping[str, InstanceAnswer]:
        """Probe the machines of nodes that are not Ready; return their answers.

        Some Ready nodes that are reached by the same ways are asked, too: if none of these
        answers either, our own network or a firewall is in the way, and nothing is said.
        """
        running = {
            node.metadata.name: answer
            for node in nodes
            if isinstance(answer := answers[node.metadata.name], Instance)
            and answer.state is InstanceState.RUNNING
            and _ips(answer)
        }
        suspects = [node for node in nodes if node.metadata.name in running and not _is_ready(node)]
        silent = {node.metadata.name for node in suspects}
        for name in running.keys() - silent:
            self._failures.pop(name, None)
        if not suspects:
            return {}
        ways = await self._ways({address for one in running.values() for address in _ips(one)})
        asked = witnesses([one for name, one in running.items() if name not in silent], ways)
        probed = (*(_ips(running[node.metadata.name]) for node in suspects), *asked.values())
        results = await asyncio.gather(*map(probe, probed))
        proven = {
            way for (way, _), lives in zip(asked, results[len(suspects) :], strict=True) if lives
        }
        return {
            node.metadata.name: self._judged(
                node,
                found := running[node.metadata.name],
                lives=lives,
                is_proof=not proven.isdisjoint(ways.get(one) for one in _ips(found)),
            )
            for node, lives in zip(suspects, results, strict=False)
        }

    def _judged(
        self, node: Node, found: Instance, *, lives: bool, is_proof: bool
    ) -> InstanceAnswer:
        """Count by the Node's name: any kubelet can write another's provider id on its new Node.

        A Node that was Ready meanwhile, also while nobody asked about it, begins a new count.
        """
        name, silence = node.metadata.name, _silence(node)
        if lives:
            self._failures.pop(name, None)
            return found
        if is_proof:
            before, count = self._failures.get(name, (silence, 0))
            count = count + 1 if before == silence else 1
            self._failures[name] = silence, count
            if count >= self._probing.threshold:
                return unreachable(found, self._probing.unreachable)
        return unreachable(found, Unreachable.UNKNOWN)


def witnesses(
    ready: Iterable[Instance], ways: Mapping[str, Hop]
) -> Mapping[tuple[Hop, int], Sequence[str]]:
    """Return the addresses of some machines of Ready nodes by their way, and a number. Pure.

    A Node without addresses in the inventory has those that its kubelet names: one that stays on
    this machine, such as a pod's, answers whatever is wrong with the network of the others.
    """
    found: dict[tuple[Hop, int], Sequence[str]] = {}
    counts: Counter[Hop] = Counter()
    for one in ready:
        by_way: dict[Hop, list[str]] = {}
        for address in _ips(one):
            if (way := ways.get(address)) is not None:
                by_way.setdefault(way, []).append(address)
        for way, several in by_way.items():
            if counts[way] < _WITNESSES:
                found[way, counts[way]] = several
                counts[way] += 1
    return found


def unreachable(found: Instance, meaning: Unreachable) -> InstanceAnswer:
    """Return the answer for a machine that does not answer probes. Pure."""
    if meaning is Unreachable.GONE:
        return NotFound()
    is_stopped = meaning is Unreachable.STOPPED
    state = InstanceState.STOPPED if is_stopped else InstanceState.UNKNOWN
    return msgspec.structs.replace(found, state=state)


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
        return _new(node, inventory)
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
    for heir in _heirs(node, inventory):
        if heir.name not in claims:
            return IdentityConflict(
                f"the Node's machine is {id_}, which the inventory lacks, and {heir.name}"
                f" ({heir.machine_id}) has its address: if that is the same machine, give its"
                f" entry the id {id_}; else say that {id_} is gone (an entry with state: gone)"
            )
    return _absent(inventory)


def _heirs(node: Node, inventory: Inventory) -> Iterable[Machine]:
    """Return the machines that have an address of a Node, and may be its own under another name."""
    uuid = node.status.node_info.system_uuid.lower()
    for one in node.status.addresses:
        address = parse(one.address) if one.type in IP_TYPES else None
        machine = inventory.by_address.get(str(address))
        if machine is not None and uuid in {machine.system_uuid.lower() or uuid, ""}:
            yield machine


def _new(node: Node, inventory: Inventory) -> InstanceAnswer:
    """Return the answer about a Node that has no provider id yet."""
    machine = _by_name(node, inventory)
    if machine is None:
        return _absent(inventory)
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


def _is_ready(node: Node) -> bool:
    ready = condition(node.status.conditions, "Ready")
    return ready is not None and ready.status == "True"


def _silence(node: Node) -> Hashable:
    """Return what is another value once a Node was Ready."""
    ready = condition(node.status.conditions, "Ready")
    return node.metadata.uid, ready.last_transition_time if ready is not None else None


def _ips(found: Instance) -> tuple[str, ...]:
    """Return the addresses to probe: the internal ones if there are any."""
    every = [address for address in found.addresses if is_address(address.address)]
    internal = [one for one in every if one.type == "InternalIP"]
    return tuple(one.address for one in internal or every)
