"""Describe instances of the simulated cloud: one bulk read for a batch of nodes."""

from collections.abc import Iterable, Mapping, Sequence

from proreus.cloudprovider.errors import IdentityConflict, InvalidRequest
from proreus.cloudprovider.instances import (
    Instance,
    InstanceAnswer,
    InstanceState,
    NotFound,
    Ownership,
)
from proreus.kube.objects import Node, NodeAddress
from proreus.providers.simulated.api import Api, Machine, Machines
from proreus.providers.simulated.ids import instance_id, provider_id

_STOPPED = "stopped"
_TERMINATED = "terminated"
_STATES = {
    "running": InstanceState.RUNNING,
    _STOPPED: InstanceState.STOPPED,
    "suspended": InstanceState.STOPPED,
    "terminating": InstanceState.TERMINATING,
}


class SimulatedInstances:
    """The capability `Instances` of the provider `simulated`."""

    def __init__(self, api: Api, region: str, batch_size: int) -> None:
        """Keep the client of the cloud, `batch_size` nodes a call."""
        self._api = api
        self._region = region
        self._batch_size = batch_size

    @property
    def batch_size(self) -> int:
        """The most nodes that one `describe` takes."""
        return self._batch_size

    def owns(self, node: Node) -> Ownership:
        """Tell whether a node is of this region, by its provider id; unknown without one."""
        if not node.spec.provider_id:
            return Ownership.UNKNOWN
        mine = instance_id(self._region, node.spec.provider_id) is not None
        return Ownership.YES if mine else Ownership.NO

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Read a batch at once: by id, and by name for nodes without provider id."""
        ids, names = set(), set()
        for node in nodes:
            id_ = instance_id(self._region, node.spec.provider_id)
            if id_ is not None:
                ids.add(id_)
            elif not node.spec.provider_id:
                names.add(node.metadata.name)
        machines = Machines()
        if ids or names:
            machines = await self._api.batch_get(sorted(ids), sorted(names))
        read = Read(machines)
        found = {node.metadata.name: answer(node, read, self._region) for node in nodes}
        return {name: given for name, given in found.items() if given is not None}


class Read:
    """The answer to a bulk read, indexed so that a batch costs no more than its nodes."""

    def __init__(self, machines: Machines) -> None:
        """Index the answer."""
        self.by_id = {instance.id: instance for instance in machines.instances}
        self.by_name: dict[str, list[Machine]] = {}
        for instance in machines.instances:
            self.by_name.setdefault(instance.name, []).append(instance)
        self.missing_ids = frozenset(machines.missing_ids)
        self.missing_names = frozenset(machines.missing_names)


def answer(node: Node, read: Read, region: str) -> InstanceAnswer | None:
    """Return a bulk read's answer about one node; None if it has none. Pure."""
    if not node.spec.provider_id:
        return _by_name(node, read)
    id_ = instance_id(region, node.spec.provider_id)
    if id_ is None:
        return InvalidRequest(
            f"spec.providerID {node.spec.provider_id!r} is not of {provider_id(region, '')}"
        )
    machine = read.by_id.get(id_)
    if machine is None:
        return NotFound() if id_ in read.missing_ids else None
    if machine.state == _TERMINATED:
        return NotFound(tombstone=True)
    return _matched(node, machine)


def _by_name(node: Node, read: Read) -> InstanceAnswer | None:
    name = node.metadata.name
    alike = read.by_name.get(name, [])
    live = [one for one in alike if one.state != _TERMINATED]
    if not live:
        # A tombstone of that name may be of another machine: it proves nothing about this one.
        return NotFound() if alike or name in read.missing_names else None
    same = [one for one in live if _same_machine(node, one)]
    if len(live) > 1 and len(same) != 1:
        return IdentityConflict(f"{len(live)} instances are named {name}: {_ids(live)}")
    return _matched(node, same[0] if same else live[0])


def _matched(node: Node, machine: Machine) -> InstanceAnswer:
    uuid = node.status.node_info.system_uuid
    if uuid and machine.system_uuid and not _same_machine(node, machine):
        return IdentityConflict(
            f"instance {machine.id} has the system UUID {machine.system_uuid}, the Node's"
            f" machine {uuid}: it is another machine"
        )
    return Instance(
        provider_id=provider_id(machine.region, machine.id),
        name=machine.name,
        instance_type=machine.type,
        zone=machine.zone,
        region=machine.region,
        addresses=tuple(
            NodeAddress(address.type, address.address) for address in machine.addresses
        ),
        additional_labels=machine.labels,
        state=_STATES.get(machine.state, InstanceState.UNKNOWN),
        powered_off=machine.state == _STOPPED,
    )


def _same_machine(node: Node, machine: Machine) -> bool:
    uuid = node.status.node_info.system_uuid
    return bool(uuid) and uuid.casefold() == machine.system_uuid.casefold()


def _ids(machines: Iterable[Machine]) -> str:
    return ", ".join(sorted(machine.id for machine in machines))
