"""Ask for a machine by its id, too, before none is said to have the name of its Node.

Clouds let machines be renamed, some of them only while they are off, and a list by name may leave
one out. So of a Node without a provider id that no machine has its name proves nothing as long as
the machine is there that had it when this process looked last, unless that is another Node's now.
"""

from collections.abc import Mapping, Sequence

import msgspec

from proreus.cloudprovider.errors import CloudError, IdentityConflict
from proreus.cloudprovider.instances import Instance, InstanceAnswer, Instances, NotFound
from proreus.cloudprovider.lookups import attempt
from proreus.kube.objects import Node


class Renames:
    """A memory of which machines nodes have, by which those are found that have another name."""

    def __init__(self, instances: Instances) -> None:
        """Ask `instances`; no machine is known yet."""
        self._instances = instances
        self._ids: dict[str, str] = {}
        self._holders: dict[str, str] = {}
        """By provider id: the uid of the Node for which the machine was shown, until it is not."""

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Look nodes up, and once more by their ids those that are found by their names no more.

        Raises:
            CloudError: The whole batch failed.
        """
        answers = await self._instances.describe(nodes)
        for node in nodes:
            self._note(node.metadata.uid, answers.get(node.metadata.name))
        lost = [
            msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, provider_id=id_))
            for node in nodes
            if not node.spec.provider_id
            and isinstance(answers.get(node.metadata.name), NotFound)
            and (id_ := self._id_of(node.metadata.uid))
        ]
        if not lost:
            return answers
        found = await attempt(self._instances.describe, lost)
        if isinstance(found, CloudError):
            return {**answers, **{node.metadata.name: found for node in lost}}
        return {**answers, **{one.metadata.name: _settled(one, found) for one in lost}}

    def forget(self, uid: str) -> None:
        """Drop all records of the Node with that uid."""
        self._let_go(uid)
        self._ids.pop(uid, None)

    def _note(self, uid: str, answer: object) -> None:
        if isinstance(answer, NotFound):  # so another Node of the machine may have it again
            self._let_go(uid)
        elif isinstance(answer, Instance) and answer.provider_id:
            self.forget(uid)
            self._ids[uid] = answer.provider_id
            self._holders[answer.provider_id] = uid

    def _id_of(self, uid: str) -> str:
        """Return the id of the machine that was a Node's last; "" if it is another Node's now."""
        id_ = self._ids.get(uid, "")
        return id_ if self._holders.get(id_, uid) == uid else ""

    def _let_go(self, uid: str) -> None:
        id_ = self._ids.get(uid, "")
        if self._holders.get(id_) == uid:
            del self._holders[id_]


def _settled(node: Node, found: Mapping[str, InstanceAnswer]) -> InstanceAnswer:
    """Return the answer about a Node of whose name there is no machine, by its machine's id."""
    id_ = node.spec.provider_id
    answer = found.get(node.metadata.name)
    if isinstance(answer, NotFound):
        return NotFound()  # A name proves nothing about which machine it was: no tombstone.
    if not isinstance(answer, Instance):
        return answer or CloudError(f"the cloud does not say whether {id_} is there")
    return IdentityConflict(
        f"the cloud finds no machine by the Node's name, but {id_}, which it found before, is"
        f" there, called {answer.name}: give the kubelet --provider-id, and delete the Node, so"
        " that it is made anew; or only delete it, if it has no machine any more"
    )
