"""Describe virtual machines of one or more vCenters."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.instances import (
    Instance,
    InstanceAnswer,
    InstanceState,
    NotFound,
    Ownership,
)
from proreus.cloudprovider.lookups import attempt, each, ownership_by_id
from proreus.cloudprovider.names import LABEL_VALUE
from proreus.kube.objects import LABEL_REGION, LABEL_ZONE, Node
from proreus.providers.vsphere.addresses import Selection, addresses
from proreus.providers.vsphere.config import Labels
from proreus.providers.vsphere.inventory import Inventory
from proreus.providers.vsphere.machines import (
    Snapshot,
    described,
    is_powered_off,
    is_unreadable,
    state_of,
    type_of,
)
from proreus.providers.vsphere.names import parsed, provider_id, target
from proreus.providers.vsphere.plan import (
    Index,
    Match,
    Replaced,
    Unproven,
    absence,
    match,
    replaced,
    trusted,
    vcenter_of,
)
from proreus.providers.vsphere.soap import Ref
from proreus.providers.vsphere.tags import AGE, FRESH, Tags
from proreus.providers.vsphere.zones import Marks, zone_of

BATCH: Final = 1000
"""Nodes in one `describe`: it costs the same however many there are."""
_AT_ONCE: Final = 4
LABEL_VCENTER: Final = "vsphere.proreus/vcenter"
"""The label that names a Node's vCenter, where there are several: its provider id does not."""


class Place(msgspec.Struct, frozen=True):
    """A vCenter: its inventory, its tags if zones are wanted, its IP families."""

    inventory: Inventory
    tags: Tags | None
    families: tuple[str, ...]


class VSphereInstances:
    """The capability `Instances` of the provider `vsphere`."""

    def __init__(self, places: Mapping[str, Place], rules: Selection, labels: Labels) -> None:
        """Keep the vCenters, and the rules for addresses and zones.

        Args:
            places: The readers of the vCenters, by the vCenters' names.
            rules: The rules that select addresses.
            labels: The categories of tags that name zones and regions.
        """
        self._places = places
        self._rules = rules
        self._labels = labels
        self._seen: dict[str, tuple[str, Ref]] = {}

    @property
    def batch_size(self) -> int:
        """The most nodes that one `describe` takes."""
        return BATCH

    def owns(self, node: Node) -> Ownership:
        """Tell by the form of its provider id whether a node is of vSphere; ids name no vCenter."""
        return ownership_by_id(node, parsed)

    def scope(self, node: Node) -> str:
        """Return the vCenter that has a node's machine: each has a credential of its own.

        Raises:
            CloudError: There are several vCenters, and nothing tells which one has it.
        """
        return vcenter_of(tuple(self._places), self._told(node))

    def _told(self, node: Node) -> tuple[str, ...]:
        """Return where a node's machine was seen last, and the vCenter that its label names.

        A label has 63 letters, and not all: a label that fits several vCenters' names tells
        nothing. One that fits none is told as it is: it names a vCenter that is not in the
        cloud-config, perhaps not any more, and its machine may live there.
        """
        seen, _ = self._seen.get(parsed(node.spec.provider_id) or "", ("", None))
        label = node.metadata.labels.get(LABEL_VCENTER, "")
        named = [name for name in self._places if LABEL_VALUE.clean(name) == label] or [label]
        return tuple(filter(None, (seen, *(named if len(named) == 1 else ()))))

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Look nodes up: one call for each vCenter, and some for machines that are gone.

        Raises:
            CloudError: No vCenter answers.
        """
        shown = await self._shown()
        index = Index(shown)
        found = {
            node.metadata.name: match(target(node), index, node.metadata.name, self._told(node))
            for node in nodes
        }
        found |= await self._trusted(nodes, found, shown)
        gone = {one.uuid for one in found.values() if isinstance(one, Unproven)}
        proved = await self._prove(gone)
        zones = await self._zones(nodes, found, shown)
        answers: dict[str, InstanceAnswer] = {}
        for node in nodes:
            one = found[node.metadata.name]
            if isinstance(one, Match):
                answers[node.metadata.name] = self._answer(node, one, zones)
            elif isinstance(one, Unproven):
                answers[node.metadata.name] = proved[one.uuid]
            else:
                answers[node.metadata.name] = one
        return answers

    async def _trusted(
        self,
        nodes: Sequence[Node],
        found: Mapping[str, object],
        shown: Mapping[str, Snapshot | CloudError],
    ) -> Mapping[str, Match | CloudError]:
        """Return by node the machines that were found by provider ids, if they are no replicas."""
        unreadable = [
            (name, one.name)
            for name, snapshot in shown.items()
            if isinstance(snapshot, Snapshot)
            for one in snapshot.machines.values()
            if is_unreadable(one)
        ]
        sure: dict[str, Match | Replaced | CloudError] = {}
        for node in nodes:
            one, uuid = found[node.metadata.name], parsed(node.spec.provider_id)
            if uuid is not None and isinstance(one, Match):
                seen, told = self._seen.get(uuid), self._told(node)
                sure[node.metadata.name] = trusted(one, node.metadata.name, seen, told, unreadable)
        others = {one.found.machine.uuid for one in sure.values() if isinstance(one, Replaced)}
        last = await each(others, str, self._last, _AT_ONCE)
        return {
            name: replaced(one, last[one.found.machine.uuid]) if isinstance(one, Replaced) else one
            for name, one in sure.items()
        }

    async def _shown(self) -> dict[str, Snapshot | CloudError]:
        asked = (attempt(place.inventory.current) for place in self._places.values())
        shown = dict(zip(self._places, await asyncio.gather(*asked), strict=True))
        failed = [one for one in shown.values() if isinstance(one, CloudError)]
        if len(failed) == len(shown):
            raise failed[0]
        return shown

    async def _prove(self, uuids: Collection[str]) -> dict[str, NotFound | CloudError]:
        """Ask each vCenter in other ways about machines that its inventory lacks."""
        if not uuids:
            return {}
        asked = (attempt(place.inventory.prove, uuids) for place in self._places.values())
        proofs = dict(zip(self._places, await asyncio.gather(*asked), strict=True))
        answers = {}
        for uuid in sorted(uuids):
            was_seen = uuid in self._seen
            answers[uuid] = absence(uuid, proofs, await self._last(uuid), was_seen=was_seen)
            if isinstance(answers[uuid], NotFound):
                self._seen.pop(uuid, None)
        return answers

    async def _last(self, uuid: str) -> str | CloudError | None:
        """Return the UUID that a machine has now; `uuid` is the one that it had when last seen."""
        name, ref = self._seen.get(uuid, ("", None))
        if ref is None or name not in self._places:
            return None
        return await attempt(self._places[name].inventory.uuid_of, ref)

    async def _zones(
        self,
        nodes: Sequence[Node],
        found: Mapping[str, object],
        shown: Mapping[str, Snapshot | CloudError],
    ) -> Mapping[str, Marks | CloudError]:
        """Return zones and regions by node, where they are looked up."""
        if not self._labels:
            return {}
        matched = {
            node.metadata.name: (node, one)
            for node in nodes
            if isinstance(one := found[node.metadata.name], Match)
        }
        tagged: dict[str, Mapping[Ref, Marks] | CloudError] = {}
        for name, place in self._places.items():
            mine = [node for node, one in matched.values() if one.vcenter == name]
            if place.tags is not None and mine:
                is_waited_for = any(LABEL_ZONE not in node.metadata.labels for node in mine)
                tagged[name] = await attempt(place.tags.marks, FRESH if is_waited_for else AGE)
        zones: dict[str, Marks | CloudError] = {}
        for name, (node, one) in matched.items():
            marks, snapshot = tagged[one.vcenter], shown[one.vcenter]
            zone: Marks | CloudError
            if isinstance(marks, CloudError):
                zone = marks
            else:
                parents = {} if isinstance(snapshot, CloudError) else snapshot.parents
                zone = zone_of(one.machine, parents, marks, self._labels)
            zones[name] = (_known(node) or zone) if isinstance(zone, CloudError) else zone
        return zones

    def _answer(
        self, node: Node, one: Match, zones: Mapping[str, Marks | CloudError]
    ) -> InstanceAnswer:
        machine, zone = one.machine, zones.get(node.metadata.name, Marks())
        if not machine.uuid:
            return CloudError(f"{described(machine)} shows no BIOS UUID yet")
        self._seen[machine.uuid] = (one.vcenter, machine.ref)
        if isinstance(zone, CloudError):
            return zone
        state = state_of(machine)
        try:
            found = addresses(machine, self._rules, self._places[one.vcenter].families)
        except CloudError as error:
            # A machine that is off reports nothing; its Node keeps the addresses that it has.
            if state is InstanceState.RUNNING:
                return error
            found = ()
        label = LABEL_VALUE.clean(one.vcenter)
        return Instance(
            provider_id=node.spec.provider_id or provider_id(machine.uuid),
            name=machine.name,
            instance_type=type_of(machine),
            zone=LABEL_VALUE.clean(zone.zone),
            region=LABEL_VALUE.clean(zone.region),
            addresses=found,
            additional_labels={LABEL_VCENTER: label} if len(self._places) > 1 else {},
            state=state,
            powered_off=is_powered_off(machine),
        )


def _known(node: Node) -> Marks | None:
    """Return the zone and region that a Node has, which stay its own while nothing tells."""
    zone, region = (node.metadata.labels.get(label, "") for label in (LABEL_ZONE, LABEL_REGION))
    return Marks(zone, region) if zone and region else None
