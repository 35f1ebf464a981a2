"""Decide when a pod leaves a node with NoExecute taints: by its tolerations. Pure."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from math import inf
from typing import Final

import msgspec

from proreus.controllers.node_lifecycle.taints import EXECUTING, wanted_key
from proreus.kube.objects import Condition, Node, Taint, condition
from proreus.kube.pods import Pod, Toleration

REASON: Final = "DeletionByTaintManager"
"""The reason of the condition `DisruptionTarget` of a pod that is evicted."""
TARGET: Final = "DisruptionTarget"
"""The condition of a pod that is about to be deleted."""

AGAIN: Final = 5.0
"""Seconds after which an eviction is tried again."""

_NUMBER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_MOST: Final = 2**63


class Eviction(msgspec.Struct, frozen=True):
    """When a pod was first seen on a tainted node, and when it leaves, on one clock."""

    since: float
    due: float


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Tell whether a toleration matches a taint, as the API defines it."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return toleration.value == taint.value
        case "Lt":
            return _is_less(taint.value, toleration.value)
        case "Gt":
            return _is_less(toleration.value, taint.value)
    return False


def _is_less(one: str, other: str) -> bool:
    """Compare two values as numbers of 64 bits (KEP-5471); False if either is not a number."""
    if not _NUMBER.fullmatch(one) or not _NUMBER.fullmatch(other):
        return False
    return -_MOST <= int(one) < int(other) < _MOST


def patience(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> float | None:
    """Return the seconds that a pod may stay with these NoExecute taints; None: for ever.

    All taints must be tolerated, else it is 0; then the shortest of the tolerations that match
    counts.
    """
    used: list[Toleration] = []
    for taint in taints:
        matching = next((one for one in tolerations if tolerates(one, taint)), None)
        if matching is None:
            return 0.0
        used.append(matching)
    seconds = [one.toleration_seconds for one in used if one.toleration_seconds is not None]
    return float(max(0, min(seconds))) if seconds else None


def schedule(
    pods: Iterable[tuple[Pod, Sequence[Taint]]], before: Mapping[str, Eviction], at: float
) -> Mapping[str, Eviction]:
    """Return when each pod leaves, by uid, of those that must.

    Args:
        pods: The pods on tainted nodes, with the nodes' NoExecute taints.
        before: The schedule before. The time of a pod counts from when it was first in the
            schedule, even if taints have changed since.
        at: The time.
    """
    scheduled: dict[str, Eviction] = {}
    for pod, taints in pods:
        seconds = patience(taints, pod.spec.tolerations)
        if seconds is None or pod.metadata.deletion_timestamp is not None:
            continue
        known = before.get(pod.metadata.uid)
        since = at if known is None else known.since
        scheduled[pod.metadata.uid] = Eviction(since, since + seconds)
    return scheduled


def overdue(
    pods: Iterable[tuple[Pod, Sequence[Taint]]],
    scheduled: Mapping[str, Eviction],
    tried: Mapping[str, float],
    at: float,
) -> tuple[Pod, ...]:
    """Return the pods that leave now; of those that were `tried`, by uid, some seconds later."""
    return tuple(
        pod
        for pod, _ in pods
        if (found := scheduled.get(pod.metadata.uid)) is not None
        and found.due <= at
        and at - tried.get(pod.metadata.uid, -inf) >= AGAIN
    )


def confirmed(
    pods: Iterable[Pod],
    nodes: Mapping[str, Node],
    scheduled: Mapping[str, Eviction],
    at: float,
    *,
    stopped: bool,
) -> tuple[tuple[Pod, ...], tuple[str, ...]]:
    """Return the pods that still leave by the nodes as read anew, and the uids of the others.

    Args:
        pods: The pods that are due to leave by the cached state.
        nodes: The pods' nodes as read anew, by name; a pod stays whose node could not be read, or
            is gone.
        scheduled: The time since when each pod has been on a tainted node, by uid.
        at: The time.
        stopped: Whether all zones are disrupted.
    """
    leaving: list[Pod] = []
    staying: list[str] = []
    for pod in pods:
        node = nodes.get(pod.spec.node_name)
        taints = () if node is None else counting(node, stopped=stopped)
        seconds = patience(taints, pod.spec.tolerations)
        if seconds is not None and scheduled[pod.metadata.uid].since + seconds <= at:
            leaving.append(pod)
        else:
            staying.append(pod.metadata.uid)
    return tuple(leaving), tuple(staying)


def is_by_others(old: Pod | None, new: Pod, ours: Collection[str]) -> bool:
    """Tell whether somebody else has begun to evict a pod; `ours` are the uids of our own."""
    is_new = old is not None and is_target(new) and not is_target(old)
    return is_new and new.metadata.uid not in ours


def executing(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """Return the taints with the effect NoExecute."""
    return tuple(one for one in taints if one.effect == "NoExecute")


def counting(node: Node, *, stopped: bool) -> tuple[Taint, ...]:
    """Return the NoExecute taints of a node by which pods leave it now.

    Taints of the node lifecycle do not count while the node is Ready, or all zones are disrupted:
    they are about to be removed.
    """
    is_health = frozenset[str]() if wanted_key(node) and not stopped else EXECUTING
    return tuple(one for one in executing(node.spec.taints) if one.key not in is_health)


def is_target(pod: Pod) -> bool:
    """Tell whether a controller of this kind is evicting the pod."""
    found = condition(pod.status.conditions, TARGET)
    return found is not None and found.reason == REASON


def target(now: datetime) -> Condition:
    """Return the condition that says why a pod is deleted."""
    text = "Taint manager: deleting due to NoExecute taint"
    return Condition(TARGET, "True", REASON, text, now)


def not_ready(now: datetime) -> Condition:
    """Return the Ready condition of a pod of whose node nobody reports."""
    return Condition("Ready", "False", "", "", now)


def is_counted_ready(pod: Pod) -> bool:
    """Tell whether a pod counts as Ready, though nobody reports of its node."""
    found = condition(pod.status.conditions, "Ready")
    return found is not None and found.status == "True"
