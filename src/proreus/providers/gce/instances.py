"""The capability `Instances` of the provider `gce`."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from proreus.cloudprovider.errors import CloudError, IdentityConflict, InvalidRequest
from proreus.cloudprovider.instances import Instance, InstanceAnswer, NotFound, Ownership
from proreus.cloudprovider.listers import Lister
from proreus.cloudprovider.lookups import ask_all, foreign_id
from proreus.kube.objects import KubeObject, Node
from proreus.providers.gce.machines import Described, instance
from proreus.providers.gce.names import (
    Machine,
    instance_name,
    is_instance_name,
    machine,
    ownership,
    parsed,
)
from proreus.providers.gce.place import Place
from proreus.providers.gce.reading import Reader
from proreus.providers.gce.renamed import Renamed

BATCH: Final = 1000
"""Nodes of one `describe`: two pages, if the project has no other instances."""


class GCEInstances:
    """The instances of a project."""

    def __init__(self, reader: Reader, place: Place, nodes: Lister[KubeObject]) -> None:
        """Keep the reader of instances, the place of the cluster, and all nodes."""
        self._reader = reader
        self._renamed = Renamed(reader, nodes)
        self._place = place

    @property
    def batch_size(self) -> int:
        """The most nodes that one `describe` takes."""
        return BATCH

    def owns(self, node: Node) -> Ownership:
        """Tell whether a node's instance is in the project, by its provider id."""
        return ownership(node, self._place.project)

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Look nodes up by zone and name in the provider id, or by name in the managed zones."""
        answers: dict[str, InstanceAnswer] = {}
        keys: dict[str, Machine] = {}
        names: dict[str, str] = {}
        for node in nodes:
            name = node.metadata.name
            try:
                key = self._key(node)
            except InvalidRequest as error:
                answers[name] = error
                continue
            if key is not None:
                keys[name] = key
            elif is_instance_name(instance_name(name)):
                names[name] = instance_name(name)
            else:
                answers[name] = NotFound()
        by_key, by_name = await ask_all(
            (set(keys.values()), self._by_key), (set(names.values()), self._by_name)
        )
        known = {node.metadata.name: node.spec.provider_id for node in nodes}
        for name, key in keys.items():
            found = by_key if isinstance(by_key, CloudError) else by_key[key]
            answers[name] = self._answer(
                [found] if isinstance(found, Described) else found, known[name]
            )
        for name, instance_ in names.items():
            found = by_name if isinstance(by_name, CloudError) else by_name[instance_]
            answers[name] = self._answer(found, "")
        return answers

    async def _by_key(self, asked: Collection[str]) -> Mapping[str, Any]:
        found = await self._reader.by_key({Machine(one) for one in asked})
        renamed = await self._renamed.among(found)
        return {str(key): one for key, one in {**found, **renamed}.items()}

    async def _by_name(self, asked: Collection[str]) -> Mapping[str, Any]:
        found = await self._reader.by_name(asked, self._place.zones)
        keys: dict[Machine, Described | None] = {}
        for name, some in found.items():
            if not isinstance(some, CloudError):
                absent = () if some else (machine(zone, name) for zone in self._place.zones)
                keys |= {**dict.fromkeys(absent), **{one.key: one for one in some}}
        renamed = await self._renamed.among(keys)
        return {**found, **{key.name: one for key, one in renamed.items()}}

    def _key(self, node: Node) -> Machine | None:
        """Return the instance that a node's provider id names; None if it has none.

        Raises:
            InvalidRequest: The provider id is another project's, or cannot be read.
        """
        id_ = node.spec.provider_id
        if not id_:
            return None
        found = parsed(id_)
        if found is None:
            raise InvalidRequest(foreign_id(id_, "Compute Engine", "gce://PROJECT/ZONE/INSTANCE"))
        if found[0] != self._place.project:
            raise InvalidRequest(
                f"spec.providerID {id_!r} names another project than {self._place.project!r}: the"
                " manager of that project takes care of this node; if it should be this one,"
                " correct project-id in [Global]"
            )
        return found[1]

    def _answer(self, found: list[Described] | CloudError | None, known_as: str) -> InstanceAnswer:
        if isinstance(found, CloudError):
            return found
        if not found:
            return NotFound()
        if len(found) > 1:
            zones = ", ".join(sorted(one.key.zone for one in found))
            return IdentityConflict(
                f"there are several instances of this node's name, in the zones {zones}: rename or"
                " delete all but one"
            )
        return self._instance(found[0], known_as)

    def _instance(self, described: Described, known_as: str) -> Instance:
        return instance(
            described,
            project=self._place.project,
            stack_type=self._place.stack_type,
            known_as=known_as,
        )
