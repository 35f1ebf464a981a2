"""Make patches from differences. Pure: nothing is sent here.

Two forms are used, each for what it can do safely:

* **JSON Patch** (RFC 6902) for labels, annotations, taints, finalizers and fields set once. Every
  operation that relies on what the cache holds comes after a `test` of it, and the whole patch
  after a test of the uid. If anything has changed meanwhile nothing is written, and the API
  server's answer is `Conflict`.
* **Strategic merge** for status, because it merges conditions by type. The uid stands in the
  patch and is compared by the API server.

A strategic merge costs the API server less than a JSON Patch. So what is to differ on a Node
(`node_edit`) is made in both forms: the merge goes with the version that it was made from
(`at_version`), and where somebody else was quicker the JSON Patch takes its place
(`runtime.writes`).

A patch is false when there is nothing to write.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

import msgspec

from proreus.kube.objects import (
    CertificateSigningRequest,
    Condition,
    LoadBalancerStatus,
    Node,
    NodeAddress,
    Taint,
    WholeTaints,
)


class PatchType(StrEnum):
    """The kinds of patches; the values are their content types."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


class Patch(msgspec.Struct, frozen=True):
    """A patch; `body` is encoded as JSON. False when there is nothing to write."""

    type: PatchType
    body: Any

    def __bool__(self) -> bool:
        return bool(self.body)


class Edit(msgspec.Struct, frozen=True):
    """A change of a Node in two forms; false when there is nothing to write.

    `tested` is right whatever others have written meanwhile: what it relies on is tested. `merge`
    has the same effect on `version`, from which it was made, and may go with that one only
    (`at_version`), or with one that is known to differ in the status alone; it is false where there
    is no such form.
    """

    tested: Patch
    merge: Patch
    version: str

    def __bool__(self) -> bool:
        return bool(self.tested)


NO_MERGE: Final = Patch(PatchType.STRATEGIC, {})
"""The merge of an edit that has none."""


class Op(msgspec.Struct, frozen=True):
    """One operation of a JSON Patch; `path` is a JSON Pointer (RFC 6901)."""

    op: str
    path: str
    value: Any = msgspec.UNSET


def labels(current: Mapping[str, str], desired: Mapping[str, str | None]) -> list[Op]:
    """Set the labels that differ from `desired`; a desired value of None removes the label."""
    return _entries("/metadata/labels", current, desired)


def annotations(current: Mapping[str, str], desired: Mapping[str, str | None]) -> list[Op]:
    """Set the annotations that differ from `desired`; a desired value of None removes one."""
    return _entries("/metadata/annotations", current, desired)


def taints(current: tuple[Taint, ...], desired: tuple[Taint, ...]) -> list[Op]:
    """Remove the taints that are not desired and append those that are new.

    Only single entries are touched, so that taints which others set meanwhile stay, as do fields
    that we do not know. A taint is identified by key, value and effect.
    """
    if not current:
        return _set_whole("/spec/taints", None, _bodies(desired)) if desired else []
    kept = {_identity(taint) for taint in desired}
    present = {_identity(taint) for taint in current}
    ops: list[Op] = []
    for index in reversed(range(len(current))):  # so that the indexes before it stay right
        if _identity(current[index]) not in kept:
            pointer = f"/spec/taints/{index}"
            ops.append(Op("test", f"{pointer}/key", current[index].key))
            ops.append(Op("test", f"{pointer}/effect", current[index].effect))
            ops.append(Op("test", f"{pointer}/value", current[index].value or None))
            ops.append(Op("remove", pointer))
    new = tuple(taint for taint in desired if _identity(taint) not in present)
    return ops + [Op("add", "/spec/taints/-", body) for body in _bodies(new)]


def finalizers(current: tuple[str, ...], desired: tuple[str, ...]) -> list[Op]:
    """Set the list of finalizers if it is still `current`."""
    if current == desired:
        return []
    return _set_whole("/metadata/finalizers", list(current) or None, list(desired))


def set_once(pointer: str, value: Any) -> list[Op]:
    """Set a field that is not set yet, such as `/spec/providerID`; its parent must be there."""
    return _set_whole(pointer, None, value)


def json_patch(uid: str, ops: Sequence[Op]) -> Patch:
    """Join operations into one JSON Patch that tests the uid; a false one without operations."""
    guard = [Op("test", "/metadata/uid", uid)] if ops else []
    return Patch(PatchType.JSON, [*guard, *ops])


def node_edit(
    node: Node,
    *,
    new_labels: Mapping[str, str | None] = MappingProxyType({}),
    new_annotations: Mapping[str, str | None] = MappingProxyType({}),
    provider_id: str = "",
    new_taints: tuple[Taint, ...] | None = None,
) -> Edit:
    """Make the edit that sets what differs on `node`; a label or annotation of None is removed.

    The provider id is set only if the node has none; taints stay if none are given. Where an entry
    of the taints may have fields that are not known there is no merge, since that would set the
    list as a whole.
    """
    meta, spec = node.metadata, node.spec
    ops = labels(meta.labels, new_labels) + annotations(meta.annotations, new_annotations)
    merged_spec: dict[str, Any] = {}
    if provider_id and not spec.provider_id:
        ops += set_once("/spec/providerID", provider_id)
        merged_spec["providerID"] = provider_id
    may_merge = True
    if new_taints is not None and (taint_ops := taints(spec.taints, new_taints)):
        ops += taint_ops
        merged_spec["taints"] = _bodies(_merged_taints(spec.taints, new_taints))
        may_merge = isinstance(spec.taints, WholeTaints) or not spec.taints
    maps = {
        "labels": _changed(meta.labels, new_labels),
        "annotations": _changed(meta.annotations, new_annotations),
    }
    metadata = {name: changed for name, changed in maps.items() if changed}
    merge = _strategic({"uid": meta.uid}, metadata, "spec", merged_spec)
    tested = json_patch(meta.uid, ops)
    return Edit(tested, merge if may_merge else NO_MERGE, meta.resource_version)


def at_version(patch: Patch, resource_version: str) -> Patch:
    """Return the strategic merge so that it applies to that version of the object only."""
    metadata = {**patch.body["metadata"], "resourceVersion": resource_version}
    return Patch(patch.type, {**patch.body, "metadata": metadata})


def status(
    uid: str,
    *,
    addresses: tuple[NodeAddress, ...] | None = None,
    conditions: tuple[Condition, ...] | None = None,
    load_balancer: LoadBalancerStatus | None = None,
) -> Patch:
    """Make a patch for nodes/status or services/status; fields that are None stay as they are.

    Addresses and ingress points are replaced as a whole. The API would merge addresses by type,
    which loses one of two with the same type. Conditions are merged by type: those not given stay.
    """
    body = _status(addresses, conditions, load_balancer, removed_conditions=())
    return _strategic({"uid": uid}, {}, "status", body)


def approval(request: CertificateSigningRequest, approved: Condition) -> Patch:
    """Make a JSON Patch for certificatesigningrequests/approval that adds a condition.

    Other conditions stay. The API server refuses Approved beside Denied, whoever comes first.
    """
    body, place = _condition(approved), "/status/conditions"
    if request.status.conditions:
        return json_patch(request.metadata.uid, [Op("add", f"{place}/-", body)])
    return json_patch(request.metadata.uid, _set_whole(place, None, [body]))


def service_status(
    uid: str,
    resource_version: str,
    *,
    added_finalizers: tuple[str, ...] = (),
    removed_finalizers: tuple[str, ...] = (),
    conditions: tuple[Condition, ...] | None = None,
    removed_conditions: tuple[str, ...] = (),
    load_balancer: LoadBalancerStatus | None = None,
) -> Patch:
    """Make one patch for services/status, which takes finalizers too, but no other metadata.

    The patch applies to exactly the version it was made from. Finalizers and conditions (by type)
    that are not named stay.
    """
    metadata: dict[str, Any] = {}
    if added_finalizers:
        metadata["finalizers"] = list(added_finalizers)
    if removed_finalizers:
        metadata["$deleteFromPrimitiveList/finalizers"] = list(removed_finalizers)
    body = _status(None, conditions, load_balancer, removed_conditions)
    identity = {"uid": uid, "resourceVersion": resource_version}
    return _strategic(identity, metadata, "status", body)


def addresses_alone(status: Patch) -> Patch | None:
    """Return what a patch for services/status says of addresses, if anything, for any version."""
    found = status.body.get("status", {}).get("loadBalancer")
    if found is None:
        return None
    identity = {"uid": status.body["metadata"]["uid"]}
    return _strategic(identity, {}, "status", {"loadBalancer": found})


def _strategic(
    identity: Mapping[str, str], metadata: Mapping[str, Any], part: str, values: Mapping[str, Any]
) -> Patch:
    """Make a merge of metadata and one part, `spec` or `status`; false if both are empty."""
    body: dict[str, Any] = {}
    if metadata or values:
        body["metadata"] = {**identity, **metadata}
    if values:
        body[part] = values
    return Patch(PatchType.STRATEGIC, body)


def _status(
    addresses: tuple[NodeAddress, ...] | None,
    conditions: tuple[Condition, ...] | None,
    load_balancer: LoadBalancerStatus | None,
    removed_conditions: tuple[str, ...],
) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if addresses is not None:
        body["addresses"] = [{"$patch": "replace"}, *_bodies(addresses)]
    if conditions or removed_conditions:
        removed = [{"$patch": "delete", "type": type_} for type_ in removed_conditions]
        body["conditions"] = [*removed, *map(_condition, conditions or ())]
    if load_balancer is not None:
        body["loadBalancer"] = msgspec.to_builtins(load_balancer)
    return body


def _condition(condition: Condition) -> dict[str, Any]:
    """Encode a condition: the API keeps whole seconds of UTC; null removes a field."""
    body: dict[str, Any] = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
    }
    if condition.last_transition_time is not None:
        moment = condition.last_transition_time.astimezone(UTC).replace(microsecond=0)
        body["lastTransitionTime"] = moment
    return body


def _entries(
    parent: str, current: Mapping[str, str], desired: Mapping[str, str | None]
) -> list[Op]:
    changed = _changed(current, desired)
    if not changed:
        return []
    if not current:
        # The API server leaves an empty map out, and a path below it would not be there.
        return _set_whole(parent, None, changed)
    ops: list[Op] = []
    for key, value in changed.items():
        pointer = f"{parent}/{_escaped(key)}"
        ops.append(Op("test", pointer, current.get(key)))
        ops.append(Op("remove", pointer) if value is None else Op("add", pointer, value))
    return ops


def _changed(
    current: Mapping[str, str], desired: Mapping[str, str | None]
) -> dict[str, str | None]:
    return {key: value for key, value in desired.items() if current.get(key) != value}


def _merged_taints(current: tuple[Taint, ...], desired: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """Return the list that the operations of `taints` leave."""
    kept, present = set(map(_identity, desired)), set(map(_identity, current))
    return (
        *(taint for taint in current if _identity(taint) in kept),
        *(taint for taint in desired if _identity(taint) not in present),
    )


def _set_whole(pointer: str, current: Any, desired: Any) -> list[Op]:
    """Make the operations that set a field from its present value; None means it is absent."""
    return [Op("test", pointer, current), Op("add", pointer, desired)]


def _bodies(entries: Sequence[Taint] | Sequence[NodeAddress]) -> list[Any]:
    return [msgspec.to_builtins(entry) for entry in entries]


def _identity(taint: Taint) -> tuple[str, str, str]:
    return (taint.key, taint.value, taint.effect)


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
