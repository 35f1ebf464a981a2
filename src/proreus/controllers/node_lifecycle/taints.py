"""Decide which taints of the node lifecycle a node should have. Pure."""

from datetime import UTC, datetime
from typing import Final

from proreus.kube import patch
from proreus.kube.objects import Node, Taint, condition
from proreus.kube.patch import Op, Patch

NOT_READY: Final = "node.kubernetes.io/not-ready"
"""The kubelet says that the node is not Ready."""
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
"""The kubelet says nothing."""
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
"""The node is cordoned: `spec.unschedulable`."""
EXECUTING: Final = frozenset({NOT_READY, UNREACHABLE})
"""The keys of the taints with the effect NoExecute."""

_BY_CONDITION: Final = (
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
)
_MIRRORING: Final = frozenset({UNSCHEDULABLE, *(key for _, _, key in _BY_CONDITION)})


def no_schedule(node: Node) -> tuple[Taint, ...]:
    """Return the taints with those of the effect NoSchedule as conditions and cordon say."""
    wanted = [
        key
        for type_, status, key in _BY_CONDITION
        if (found := condition(node.status.conditions, type_)) and found.status == status
    ]
    if node.spec.unschedulable:
        wanted.append(UNSCHEDULABLE)
    kept = tuple(one for one in node.spec.taints if not _is(one, "NoSchedule", _MIRRORING))
    present = {one.key: one for one in node.spec.taints if _is(one, "NoSchedule", _MIRRORING)}
    return (*kept, *(present.get(key, Taint(key, "NoSchedule")) for key in wanted))


def wanted_key(node: Node) -> str:
    """Return the key of the NoExecute taint that fits the Ready condition; "" if none does."""
    ready = condition(node.status.conditions, "Ready")
    keys = {"False": NOT_READY, "Unknown": UNREACHABLE}
    return "" if ready is None else keys.get(ready.status, "")


def executing(node: Node) -> frozenset[str]:
    """Return the keys of the NoExecute taints of the node lifecycle that the node has."""
    return frozenset(one.key for one in node.spec.taints if _is(one, "NoExecute", EXECUTING))


def no_execute(node: Node, key: str, now: datetime) -> tuple[Taint, ...]:
    """Return the taints with this one as the only one of the effect NoExecute; "" is none."""
    kept = [
        one for one in node.spec.taints if not _is(one, "NoExecute", EXECUTING) or (one.key == key)
    ]
    if key and key not in executing(node):
        added = now.astimezone(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")
        kept.append(Taint(key, "NoExecute", time_added=added))
    return tuple(kept)


def edit(node: Node, wanted: tuple[Taint, ...]) -> Patch | None:
    """Make the patch to these taints; it applies to this version of the node only.

    If anything about the node has changed, such as its conditions, the API server writes nothing.
    """
    ops = patch.taints(node.spec.taints, wanted)
    if not ops:
        return None
    version = Op("test", "/metadata/resourceVersion", node.metadata.resource_version)
    return patch.json_patch(node.metadata.uid, (version, *ops))


def _is(taint: Taint, effect: str, keys: frozenset[str]) -> bool:
    return taint.effect == effect and taint.key in keys
