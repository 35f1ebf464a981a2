"""Recognise another controller that taints silent nodes and evicts pods, by what it writes. Pure.

kube-controller-manager usually does both. No lease shows it: that it runs does not mean that these
controllers do. Their writes are in the managed fields of a Node: who set the Ready condition to
Unknown, which no kubelet does, and who added a NoExecute taint of the node lifecycle; and pods that
somebody else evicts have the condition `DisruptionTarget`.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

import msgspec

from proreus.controllers.node_lifecycle.taints import EXECUTING
from proreus.kube.pods import FieldsOwner, Pulse

OURS: Final = "proreus"
"""What the API server makes of our user agent."""
RECENT: Final = 600.0
"""Seconds for which a write counts, also one from before the start."""
_OPERATORS: Final = "kubectl"
_READY: Final = 'k:{"type":"Ready"}'


class Rivals(msgspec.Struct, frozen=True):
    """A memory of others' writes.

    Attributes:
        seen: When each writer wrote last, by name.
        nodes: The nodes that are still as another writer has left them, by uid, with its name.
    """

    seen: Mapping[str, float] = {}
    nodes: Mapping[str, str] = {}

    def active(self, at: float) -> tuple[str, ...]:
        """Return the names of the writers that are at work."""
        recent = {name for name, last in self.seen.items() if at - last < RECENT}
        return tuple(sorted(recent | set(self.nodes.values())))


def noticed(
    rivals: Rivals, old: Pulse | None, new: Pulse | None, now: datetime, at: float
) -> Rivals:
    """Add the writers that a change of a Node shows."""
    uid = (new or old or Pulse()).metadata.uid
    rest = {key: name for key, name in rivals.nodes.items() if key != uid}
    if new is None or not marks(new):
        return Rivals(rivals.seen, rest)
    known = rivals.nodes.get(uid)
    if known is not None:
        rest[uid] = known
    if old is not None and old.metadata.uid == uid:
        fresh = marks(new) - marks(old)
    else:
        fresh = marks(new)
        now_ = now.timestamp()
        if not any(now_ - _moment(one) < RECENT for mark in fresh for one in _owners(new, mark)):
            return Rivals(rivals.seen, rest)
    writers = {writer for mark in fresh if (writer := _writer(new, mark))}
    seen = {**rivals.seen, **dict.fromkeys(writers, at)}
    return Rivals(
        seen, {**rest, **dict.fromkeys((uid,) if writers else (), min(writers, default=""))}
    )


def evicted(rivals: Rivals, at: float) -> Rivals:
    """Add that somebody else evicts a pod."""
    return Rivals({**rivals.seen, "another taint manager": at}, rivals.nodes)


def marks(pulse: Pulse) -> frozenset[str]:
    """Return what only a controller of this kind writes: the Ready condition, and taints' keys."""
    ready = pulse.ready
    found = {"Ready"} if ready is not None and ready.status == "Unknown" else set[str]()
    found |= {one.key for one in pulse.spec.taints if one.effect == "NoExecute"} & EXECUTING
    return frozenset(found)


def _writer(pulse: Pulse, mark: str) -> str:
    """Return the name of the last writer of a mark; "" if it is we, an operator or nobody."""
    owners = list(_owners(pulse, mark))
    last = max(map(_moment, owners), default=0.0)
    names = {one.manager for one in owners if _moment(one) == last}
    if not names or OURS in names or any(name.startswith(_OPERATORS) for name in names):
        return ""
    return min(names)


def _owners(pulse: Pulse, mark: str) -> Iterator[FieldsOwner]:
    entries: Iterable[FieldsOwner] = pulse.metadata.managed_fields
    for one in entries:
        if mark == "Ready":
            if _READY in one.fields.status.conditions:
                yield one
        elif one.fields.spec.taints is not None:
            yield one


def _moment(owner: FieldsOwner) -> float:
    return 0.0 if owner.time is None else owner.time.timestamp()
