"""Remember what all calls have shown of each node's machine, and which of that is notable."""

from collections.abc import Collection
from typing import Final

import msgspec

from proreus.cloudprovider.instances import Instance, InstanceState, NotFound
from proreus.containment.batches import Observation, key
from proreus.kube.objects import Node


class Sighting(msgspec.Struct, frozen=True):
    """A summary of what all calls have shown of a node's machine; times as in `Observation`.

    Attributes:
        shown: The start of the last call that showed the machine; None if none ever did.
        missing: The start of the first call after `shown` that did not find the machine; None if
            the last call found it.
        until: The end of the last call that showed the machine: it may have existed until then.
        tombstone: The start of the first call after `shown` that showed the machine as terminated.
        off: The start of the first call in a row, that of all calls, that showed the machine as
            powered off; None if the last one said otherwise.
        ran: The start of the last call that showed the machine as running; None if none ever did.
    """

    shown: float | None = None
    missing: float | None = None
    until: float | None = None
    tombstone: float | None = None
    off: float | None = None
    ran: float | None = None

    @property
    def is_running(self) -> bool:
        """Whether the last answer showed the machine, and as running."""
        return self.ran is not None and self.ran == self.shown and not self.is_lost

    @property
    def is_lost(self) -> bool:
        """Whether an answer has said that the machine is not there, and none since that it is."""
        return self.missing is not None or self.tombstone is not None

    def is_after(self, began: float) -> bool:
        """Tell whether the cloud may have had the machine after the time `began`."""
        return max(self.shown or 0.0, self.until or 0.0) > began


_NEVER: Final = Sighting()


class Sightings:
    """A memory of the sightings of all nodes' machines, each of one provider id."""

    def __init__(self) -> None:
        """Start empty."""
        self._sightings: dict[str, tuple[str, Sighting]] = {}
        # By uid. Few, so that who looks for them need not look at all nodes.
        self._notable: dict[str, str] = {}

    @property
    def notable(self) -> Collection[str]:
        """The names of all nodes whose machine is lost (`is_lost`), or shown as powered off."""
        return self._notable.values()

    def of(self, node: Node) -> Sighting:
        """Return what all calls have shown of the node's machine."""
        provider_id, sighting = self._sightings.get(node.metadata.uid, ("", _NEVER))
        return sighting if provider_id == node.spec.provider_id else _NEVER

    def note(self, node: Node, observation: Observation) -> None:
        """Add the newest answer, which is no error."""
        self._put(node, _newest(self.of(node), observation))

    def note_late(self, node: Node, observation: Observation, newest: Observation) -> None:
        """Add an answer of a call that began before that of the newest one."""
        self._put(node, _late(self.of(node), observation, newest))

    def forget(self, uid: str) -> None:
        """Drop the sighting of the Node with that uid."""
        self._sightings.pop(uid, None)
        self._notable.pop(uid, None)

    def _put(self, node: Node, sighting: Sighting) -> None:
        uid, provider_id = key(node)
        self._sightings[uid] = (provider_id, sighting)
        if sighting.is_lost or sighting.off is not None:
            self._notable[uid] = node.metadata.name
        else:
            self._notable.pop(uid, None)


def _newest(before: Sighting, observation: Observation) -> Sighting:
    """Add one more answer that is no error to a sighting."""
    if isinstance(observation.answer, Instance):
        off = None
        if _is_off(observation.answer):
            off = observation.began if before.off is None else before.off
        until, ran = _until(before, observation), _ran(before, observation, observation.answer)
        return Sighting(shown=observation.began, until=until, off=off, ran=ran)
    if isinstance(observation.answer, NotFound) and observation.answer.tombstone:
        first = observation.began if before.tombstone is None else before.tombstone
        return Sighting(before.shown, until=before.until, tombstone=first, ran=before.ran)
    missing = observation.began if before.missing is None else before.missing
    return msgspec.structs.replace(before, missing=missing, off=None)


def _late(before: Sighting, observation: Observation, newest: Observation) -> Sighting:
    """Add an answer of a call that began before that of `newest`, which has come already."""
    if not isinstance(observation.answer, Instance):
        return before
    began, missing = observation.began, before.missing
    if missing is not None and missing < began:
        missing = newest.began
    shown = max(before.shown or began, began)
    off = before.off if _is_off(observation.answer) else None
    until, ran = _until(before, observation), _ran(before, observation, observation.answer)
    return msgspec.structs.replace(
        before, shown=shown, missing=missing, until=until, off=off, ran=ran
    )


def _is_off(answer: Instance) -> bool:
    return answer.powered_off and answer.state is InstanceState.STOPPED


def _ran(before: Sighting, observation: Observation, answer: Instance) -> float | None:
    if answer.state is not InstanceState.RUNNING:
        return before.ran
    return max(before.ran or observation.began, observation.began)


def _until(before: Sighting, observation: Observation) -> float:
    ended = observation.began if observation.ended is None else observation.ended
    return max(ended, before.until or ended)
