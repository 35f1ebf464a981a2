"""Describe virtual machines of one engine: many in one search, with network cards and devices."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.instances import (
    Instance,
    InstanceAnswer,
    InstanceState,
    Ownership,
)
from proreus.cloudprovider.lookups import attempt, each, in_parts
from proreus.cloudprovider.names import LABEL_VALUE
from proreus.kube.objects import LABEL_INSTANCE_TYPE, LABEL_REGION, LABEL_ZONE, Node
from proreus.providers.ovirt.addresses import Selection, addresses
from proreus.providers.ovirt.engine import Engine
from proreus.providers.ovirt.machines import Machine, described, state_of
from proreus.providers.ovirt.names import ownership, target
from proreus.providers.ovirt.places import Place, Places
from proreus.providers.ovirt.plan import Index, Unproven, gone, match
from proreus.providers.ovirt.searches import IDS

BATCH: Final = 1000
"""Nodes in one `describe`: as many as a few pages show."""
_AT_ONCE: Final = 4

_Named = tuple[Mapping[str, Place], Mapping[str, str]]


class _Labels(msgspec.Struct, frozen=True):
    """The values of a Node's labels that the engine's names make."""

    instance_type: str
    zone: str
    region: str


class OVirtInstances:
    """The capability `Instances` of the provider `ovirt`."""

    def __init__(self, engine: Engine, places: Places, rules: Selection, scheme: str) -> None:
        """Keep the engine's client, and the rules for places and addresses.

        Args:
            engine: The client of the engine, which shows machines.
            places: The names of clusters, data centers and instance types.
            rules: The rules that select addresses.
            scheme: The beginning of the provider ids of new nodes.
        """
        self._engine = engine
        self._places = places
        self._rules = rules
        self._scheme = scheme

    @property
    def batch_size(self) -> int:
        """The most nodes that one `describe` takes."""
        return BATCH

    def owns(self, node: Node) -> Ownership:
        """Tell whether a node is of this cloud, by its provider id."""
        return ownership(node)

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Look nodes up: some by their ids in one search, many in pages of all.

        Raises:
            CloudError: The engine gives no usable answer about the machines that it has.
        """
        targets = {node.metadata.name: target(node) for node in nodes}
        ids = {one.id for one in targets.values()} - {""}
        known: list[Machine] = []
        if any(one.name for one in targets.values()) or len(ids) > IDS:
            known = await self._engine.found()
        # What the search of the cloud-config lacks may be there nevertheless, and so may the
        # machine on which a kubelet runs, if that is another one than its Node says.
        ids |= {uuid for one in targets.values() if one.id for uuid in one.system_uuids}
        by_id = await self._by_id(ids - {one.id for one in known})
        index = Index(known, [one for one in by_id.values() if isinstance(one, Machine)])
        found = {name: match(one, index, self._engine.search) for name, one in targets.items()}
        unproven = [one for one in found.values() if isinstance(one, Unproven)]
        # So may the machine of a Node without a provider id.
        by_id |= await self._others({uuid for one in unproven if not one.id for uuid in one.others})
        missing = {id_ for one in unproven for id_ in (one.id, *one.others)} - {""}
        told = {id_: one for id_, one in by_id.items() if one is not None}
        direct = told | await each(missing - set(told), str, self._engine.machine, _AT_ONCE)
        named = await self._named([one for one in found.values() if isinstance(one, Machine)])
        answers: dict[str, InstanceAnswer] = {}
        for node in nodes:
            one = found[node.metadata.name]
            if isinstance(one, Machine):
                answers[node.metadata.name] = self._answer(node, one, named)
            elif isinstance(one, Unproven):
                answers[node.metadata.name] = gone(one, direct)
            else:
                answers[node.metadata.name] = one
        return answers

    async def _by_id(self, ids: Collection[str]) -> dict[str, Machine | CloudError | None]:
        """Look machines up by their ids; None for those that the searches lack.

        Raises:
            CloudError: All searches failed.
        """
        parts = in_parts(ids, IDS)
        asked = await each(
            range(len(parts)), int, lambda at: self._engine.by_id(parts[at]), _AT_ONCE
        )
        failed = [one for one in asked.values() if isinstance(one, CloudError)]
        if failed and len(failed) == len(parts):
            raise failed[0]
        found: dict[str, Machine | CloudError | None] = {}
        for at, shown in asked.items():
            if isinstance(shown, CloudError):
                found |= dict.fromkeys(parts[at], shown)
            else:
                found |= shown
        return found

    async def _others(self, ids: Collection[str]) -> dict[str, Machine | CloudError | None]:
        """Do as `_by_id`; if all searches fail, that says nothing about the rest of a batch."""
        found = await attempt(self._by_id, ids)
        return dict.fromkeys(ids, found) if isinstance(found, CloudError) else found

    async def _named(self, machines: Sequence[Machine]) -> _Named | CloudError:
        """Return the names of the places that machines are in, or the error of reading them."""
        if not machines:
            return {}, {}
        clusters = {one.cluster for one in machines} - {""}
        types = {one.instance_type for one in machines} - {""}
        return await attempt(self._places.known, clusters, types)

    def _answer(self, node: Node, machine: Machine, named: _Named | CloudError) -> InstanceAnswer:
        labels = _labels(node, machine, named)
        if isinstance(labels, CloudError):
            return labels
        state = state_of(machine)
        try:
            found = addresses(machine, self._rules)
        except CloudError as error:
            # A machine that is off reports nothing; its Node keeps the addresses that it has.
            if state is InstanceState.RUNNING:
                return error
            found = ()
        return Instance(
            provider_id=node.spec.provider_id or f"{self._scheme}{machine.id}",
            name=machine.name,
            instance_type=labels.instance_type,
            zone=labels.zone,
            region=labels.region,
            addresses=found,
            state=state,
        )


def _labels(node: Node, machine: Machine, named: _Named | CloudError) -> _Labels | CloudError:
    """Return type, zone and region of a machine; a Node's own while the engine does not tell."""
    places, types = ({}, {}) if isinstance(named, CloudError) else named
    if machine.cluster in places:
        place = places[machine.cluster]
        return _Labels(
            LABEL_VALUE.clean(types.get(machine.instance_type, "")),
            LABEL_VALUE.clean(place.cluster),
            LABEL_VALUE.clean(place.data_center),
        )
    kept = node.metadata.labels
    zone, region = kept.get(LABEL_ZONE, ""), kept.get(LABEL_REGION, "")
    if zone and region:
        return _Labels(kept.get(LABEL_INSTANCE_TYPE, ""), zone, region)
    if isinstance(named, CloudError):
        return named
    return CloudError(f"{described(machine)} is in a cluster that the engine does not show")
