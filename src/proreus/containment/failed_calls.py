"""Log calls for machines that fail: one line for all nodes that were asked about."""

from collections.abc import Iterable, Mapping

from proreus.cloudprovider.errors import CloudError
from proreus.containment.batches import Observation
from proreus.kube.messages import some_of
from proreus.kube.objects import Node
from proreus.runtime import klog

log = klog.logger(__name__)


class FailedCalls:
    """A log of nodes for which a call failed: once, until one succeeds or fails in another way."""

    def __init__(self) -> None:
        """Begin without a failed call."""
        self._logged: dict[str, type[CloudError]] = {}

    def note(self, nodes: Iterable[Node], observed: Mapping[str, Observation]) -> None:
        """Compare observations, by the node's name, with what was logged; log what is new."""
        new: dict[type[CloudError], tuple[CloudError, list[str]]] = {}
        for node in nodes:
            name, uid = node.metadata.name, node.metadata.uid
            answer = observed[name].answer
            if not observed[name].refused or not isinstance(answer, CloudError):
                self._logged.pop(uid, None)
            elif self._logged.get(uid) is not type(answer):
                self._logged[uid] = type(answer)
                new.setdefault(type(answer), (answer, []))[1].append(name)
        for error, names in new.values():
            klog.warning(log, "Describing instances failed", nodes=some_of(names), err=error)

    def forget(self, uid: str) -> None:
        """Drop what was logged about the Node with this uid."""
        self._logged.pop(uid, None)
