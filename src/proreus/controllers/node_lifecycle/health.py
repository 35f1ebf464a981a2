"""Decide which conditions a node gets that has been silent for too long. Pure."""

from datetime import datetime
from typing import Final

from proreus.controllers.node_lifecycle.policy import Policy
from proreus.kube.objects import Condition, Node, condition
from proreus.kube.pods import NodeLease, Pulse

SILENT: Final = "NodeStatusUnknown"
"""The reason of the conditions of a node whose kubelet does not report any more."""
NEVER: Final = "NodeStatusNeverUpdated"
"""The reason of the conditions of a node whose kubelet has never reported them."""

_TYPES: Final = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
_TEXTS: Final = {
    SILENT: "Kubelet stopped posting node status.",
    NEVER: "Kubelet never posted node status.",
}


def is_silent(node: Node, since: float, at: float, policy: Policy) -> bool:
    """Tell whether the node has been silent for too long, at the time `at`, since `since`."""
    has_reported = condition(node.status.conditions, "Ready") is not None
    grace = policy.grace if has_reported else policy.startup_grace
    return at - since > grace + policy.courtesy


def unknown(node: Node, now: datetime) -> tuple[Condition, ...]:
    """Return the conditions to write to a silent node; none if it has them.

    The condition NetworkUnavailable is left alone: another controller owns it.
    """
    changed = []
    for type_ in _TYPES:
        found = condition(node.status.conditions, type_)
        if found is None or found.status != "Unknown":
            reason = NEVER if found is None else SILENT
            changed.append(Condition(type_, "Unknown", reason, _TEXTS[reason], now))
    return tuple(changed)


def has_reported(old: Pulse | None, new: Pulse) -> bool:
    """Tell whether the kubelet has written a status between two versions of its Node."""
    before, after = None if old is None else old.ready, new.ready
    if before is None or after is None:
        return before is not after
    return before.last_heartbeat_time != after.last_heartbeat_time


def has_renewed(old: NodeLease | None, new: NodeLease) -> bool:
    """Tell whether the kubelet has renewed its lease between two versions of it."""
    return old is None or (new.spec.renew_time or "") > (old.spec.renew_time or "")
