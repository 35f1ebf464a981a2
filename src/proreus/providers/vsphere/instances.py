"""Describe virtual machines of one or more vCenters."""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
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
from proreus.cloudprovider.lookups import attempt, each, ownership_by_id, swapped
from proreus.cloudprovider.names import LABEL_VALUE
from proreus.kube.objects import LABEL_REGION, LABEL_ZONE, Node
from proreus.providers.vsphere.addresses import Selection, addresses
from proreus.providers.vsphere.arrivals import Arrivals, Seen, in_indexes
from proreus.providers.vsphere.config import Labels
from proreus.providers.vsphere.inventory import Inventory
from proreus.providers.vsphere.machines import (
    Proof,
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
    Lone,
    Match,
    Replaced,
    Unproven,
    absence,
    alone,
    match,
    remembered,
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
_MOST_GONE: Final = 10_000
"""Nodes whose machines are gone, and of which these are kept in memory."""
LABEL_VCENTER: Final = "vsphere.proreus/vcenter"
"""The label that names a Node's vCenter, where there are several: its provider id does not."""

_Key = tuple[str, str]
"""A Node's name, and the BIOS UUID of its machine, which another Node's may have, too."""


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
        self._arrivals = Arrivals()
        self._seen: dict[_Key, Seen] = {}
        self._former: dict[_Key, tuple[Seen, ...]] = {}
        self._indexed: dict[_Key, tuple[Seen, ...]] = {}
        self._gone: dict[_Key, tuple[Seen, ...]] = {}

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
        seen = self._seen.get(_key(node))
        label = node.metadata.labels.get(LABEL_VCENTER, "")
        named = [name for name in self._places if LABEL_VALUE.clean(name) == label] or [label]
        place = seen.vcenter if seen is not None else ""
        return tuple(filter(None, (place, *(named if len(named) == 1 else ()))))

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Look nodes up: one call for each vCenter, and some for machines that are gone.

        Raises:
            CloudError: No vCenter answers.
        """
        shown = await self._shown()
        at = self._arrivals.note(shown)
        index = Index(shown)
        found = {
            node.metadata.name: match(target(node), index, node.metadata.name, self._told(node))
            for node in nodes
        }
        sure, alone = await self._trusted(nodes, found, shown)
        found |= sure
        gone = {
            _key(node): one.others
            for node in nodes
            if isinstance(one := found[node.metadata.name], Unproven)
        }
        proved = await self._prove(gone)
        zones = await self._zones(nodes, found, shown)
        answers: dict[str, InstanceAnswer] = {}
        for node in nodes:
            one = found[node.metadata.name]
            if isinstance(one, Match):
                answers[node.metadata.name] = self._answer(
                    node, one, zones, at, is_alone=node.metadata.name in alone
                )
            elif isinstance(one, Unproven):
                answers[node.metadata.name] = proved[_key(node)]
            else:
                answers[node.metadata.name] = one
        return answers

    async def _trusted(
        self,
        nodes: Sequence[Node],
        found: Mapping[str, object],
        shown: Mapping[str, Snapshot | CloudError],
    ) -> tuple[Mapping[str, Match | CloudError], Collection[str]]:
        """Return by node the machines that were found by provider ids, if they are no replicas.

        With them goes for which nodes no vCenter knows another one with the UUID.
        """
        unreadable = [
            (name, one)
            for name, snapshot in shown.items()
            if isinstance(snapshot, Snapshot)
            for one in snapshot.machines.values()
            if is_unreadable(one)
        ]
        sure: dict[str, Match | Lone | Replaced | CloudError] = {}
        former: dict[str, tuple[Seen, ...]] = {}
        since = self._arrivals.since
        every = since((), unreadable)
        for node in nodes:
            name, one = node.metadata.name, found[node.metadata.name]
            if parsed(node.spec.provider_id) is not None and isinstance(one, Match):
                former[name] = self._former.get(key := _key(node), ())
                seen = (*former[name], self._seen[key]) if key in self._seen else ()
                sure[name] = trusted(one, name, seen, self._told(node), every)
                if isinstance(sure[name], CloudError):
                    known = (*self._indexed.get(key, ()), Seen(one.vcenter, one.machine.ref))
                    self._indexed[key] = tuple(dict.fromkeys(known))
        others = {name: one for name, one in sure.items() if isinstance(one, Replaced)}
        last = await each(
            others, str, lambda at: self._before([others[at].former], former[at]), _AT_ONCE
        )
        sure |= {
            name: replaced(one, last[name], since((one.former,), unreadable, former[name]))
            for name, one in others.items()
        }
        lone = {name: one for name, one in sure.items() if isinstance(one, Lone)}
        judged = await each(lone, str, lambda name: self._alone(lone[name]), _AT_ONCE)
        answers = {
            name: judged[name] if isinstance(one, Lone) else one
            for name, one in sure.items()
            if not isinstance(one, Replaced)
        }
        return answers, judged.keys()

    async def _alone(self, one: Lone) -> Match | CloudError:
        """Ask the indexes of whole vCenters for other machines with a machine's UUID."""
        known: dict[str, Collection[Ref] | CloudError] = {}
        for name in one.vcenters or self._places:
            indexed = self._places[name].inventory.indexed
            known[name] = await attempt(indexed, one.found.machine.uuid)
        return alone(one, known)

    async def _shown(self) -> dict[str, Snapshot | CloudError]:
        asked = (attempt(place.inventory.current) for place in self._places.values())
        shown = dict(zip(self._places, await asyncio.gather(*asked), strict=True))
        failed = [one for one in shown.values() if isinstance(one, CloudError)]
        if len(failed) == len(shown):
            raise failed[0]
        return shown

    async def _prove(
        self, gone: Mapping[_Key, tuple[str, ...]]
    ) -> dict[_Key, NotFound | CloudError]:
        """Ask each vCenter in other ways about machines that its inventory lacks.

        Where a Node's kubelet reports other UUIDs, of which `gone` tells, no machine with one of
        these must be there either. Of a Node without a provider id that is all there is: it may be
        another cloud's, and about those only the indexes are asked.
        """
        if not gone:
            return {}
        uuids = {uuid for (_, own), others in gone.items() for uuid in (own, *others) if uuid}
        by_listing = any(own for _, own in gone)
        asked = (
            attempt(place.inventory.prove, uuids, by_listing=by_listing)
            for place in self._places.values()
        )
        proofs = dict(zip(self._places, await asyncio.gather(*asked), strict=True))
        lost = [
            (name, one)
            for name, proof in proofs.items()
            if isinstance(proof, Proof)
            for one in proof.unreadable
        ]
        answers: dict[_Key, NotFound | CloudError] = {}
        for key, others in sorted(gone.items()):
            own = key[1]
            known = (*self._once_seen(key), *self._indexed.get(key, ()), *self._gone.get(key, ()))
            former = self._former.get(key, ())
            last = await self._before(known, former)
            first, *rest = (own, *others) if own else others
            every = self._arrivals.since((), lost) if own else []
            new = self._arrivals.since(known, lost, former) if own else []
            answer = absence(first, proofs, last, new)
            of_rest = (
                absence(one, proofs, None, new if one == swapped(own) else every) for one in rest
            )
            failed = (one for one in (*of_rest, answer) if isinstance(one, CloudError))
            answers[key] = next(failed, NotFound())
            if found := in_indexes((first, *rest), proofs):
                self._indexed[key] = found
            if isinstance(answers[key], NotFound):
                self._part_with(key, tuple(dict.fromkeys(known)))
        return answers

    def _once_seen(self, key: _Key) -> tuple[Seen, ...]:
        return (self._seen[key],) if key in self._seen else ()

    def _remember(self, key: _Key, now: Seen) -> None:
        """Keep the machine that is a Node's, and those that were before."""
        before = (*self._former.get(key, ()), *self._once_seen(key))
        others = {(one.vcenter, one.ref): one for one in before}
        others.pop((now.vcenter, now.ref), None)
        self._seen[key] = now
        if others:
            self._former[key] = tuple(others.values())
        else:
            self._former.pop(key, None)

    def _part_with(self, key: _Key, known: tuple[Seen, ...]) -> None:
        """Keep the machines that are gone for the next proof, which asks about each again."""
        self._seen.pop(key, None)
        self._indexed.pop(key, None)
        self._gone.pop(key, None)
        if known:
            self._gone[key] = known
        if len(self._gone) > _MOST_GONE:
            oldest = next(iter(self._gone))
            del self._gone[oldest]
            self._former.pop(oldest, None)

    async def _last(self, *known: Seen) -> str | CloudError | None:
        """Return the UUID that the first of these machines has now which may still be there.

        Of a machine that only an index knew, such as in a datacenter that is not configured, the
        reference tells: while it cannot be read, the index may not know it.
        """
        for one in known:
            if one.vcenter in self._places:
                found = await attempt(self._places[one.vcenter].inventory.uuid_of, one.ref)
                if found is not None:
                    return found
        return None

    async def _before(
        self, known: Iterable[Seen], former: Collection[Seen]
    ) -> str | CloudError | None:
        """Return what `_last` does, also of machines in whose place a copy has run since.

        One of these that has another UUID by now is another machine.
        """
        last = await self._last(*dict.fromkeys(one for one in known if one not in former))
        for one in former if last is None else ():
            found = await self._last(one)
            if found == "" or isinstance(found, CloudError):
                return found
        return last

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
        self,
        node: Node,
        one: Match,
        zones: Mapping[str, Marks | CloudError],
        at: int,
        *,
        is_alone: bool,
    ) -> InstanceAnswer:
        machine, zone = one.machine, zones.get(node.metadata.name, Marks())
        if not machine.uuid:
            return CloudError(f"{described(machine)} shows no BIOS UUID yet")
        name, key = node.metadata.name, (node.metadata.name, machine.uuid)
        self._remember(key, remembered(one, name, self._seen.get(key), at, is_alone=is_alone))
        self._indexed.pop(key, None)
        self._gone.pop(key, None)
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


def _key(node: Node) -> _Key:
    return node.metadata.name, parsed(node.spec.provider_id) or ""


def _known(node: Node) -> Marks | None:
    """Return the zone and region that a Node has, which stay its own while nothing tells."""
    zone, region = (node.metadata.labels.get(label, "") for label in (LABEL_ZONE, LABEL_REGION))
    return Marks(zone, region) if zone and region else None
