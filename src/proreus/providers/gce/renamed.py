"""Keep Nodes whose instances have been renamed: their provider ids have the former names.

An instance that is stopped can be renamed. Its id stays the same, and names it as its name does:
https://cloud.google.com/compute/docs/instances/rename-instance
"""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Final

from proreus.cloudprovider.errors import CloudError, IdentityConflict
from proreus.cloudprovider.listers import Lister
from proreus.cloudprovider.refused import Refused
from proreus.kube.objects import KubeObject, Node
from proreus.providers.gce.machines import Described
from proreus.providers.gce.names import Machine, is_called, machine, parsed
from proreus.providers.gce.reading import Reader

_MOST: Final = 20_000
"""Instances of which the ids are kept: more than a cluster has nodes."""
_NO_ID: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND})

Found = Mapping[Machine, Described | CloudError | None]
"""The answers about instances, by zone and name."""


class Renamed:
    """A memory of the ids of nodes' instances, by which those are found that have another name."""

    def __init__(self, reader: Reader, nodes: Lister[KubeObject]) -> None:
        """Keep the reader of instances, and all nodes; no id is known yet."""
        self._reader = reader
        self._nodes = nodes
        self._ids: dict[Machine, str] = {}

    async def among(self, found: Found) -> Mapping[Machine, CloudError]:
        """Return which instances are not gone though Google has none of their names, and why."""
        for key, one in found.items():
            if isinstance(one, Described):
                self._ids.pop(key, None)
                self._ids[key] = one.id
        while len(self._ids) > _MOST:
            del self._ids[next(iter(self._ids))]
        lost = {
            key: machine(key.zone, id_)
            for key, one in found.items()
            if one is None and (id_ := self._ids.get(key))
        }
        known = await self._reader.by_id(set(lost.values())) if lost else {}
        answers = {key: problem(key, known[id_], self._nodes.all()) for key, id_ in lost.items()}
        return {key: one for key, one in answers.items() if one is not None}


def problem(
    key: Machine, found: Described | CloudError | None, nodes: Iterable[KubeObject]
) -> CloudError | None:
    """Return why an instance is not gone of which Google does not know the name. Pure.

    Args:
        key: Its zone and former name.
        found: What Google says of its id.
        nodes: All nodes. One that has the new name is the machine's: the former one is left over.
    """
    if isinstance(found, CloudError):
        is_unknown = isinstance(found, Refused) and found.status in _NO_ID
        return None if is_unknown else found
    if found is None:
        return None
    if found.key == key:
        return CloudError(f"the instance {key} has just come: it is asked again")
    if any(isinstance(one, Node) and _is_of(one, found.key) for one in nodes):
        return None
    return IdentityConflict(
        f"the instance {key} has been renamed and is {found.key} by now: delete the Node object and"
        " restart its kubelet, with --provider-id if the Node is to keep its name"
    )


def _is_of(node: Node, key: Machine) -> bool:
    """Tell whether a Node has the name of an instance, and names no other one."""
    named = parsed(node.spec.provider_id)
    return is_called(key, node.metadata.name) and (named is None or named[1] == key)
