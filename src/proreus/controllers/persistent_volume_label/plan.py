"""Decide which labels and which node affinity a PersistentVolume gets. Pure.

The rules are those of Kubernetes' own admission plug-in PersistentVolumeLabel (until 1.30), for the
same in-tree sources. A CSI volume is asked about as well if it has no node affinity, which drivers
set for volumes that they have made.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from proreus.cloudprovider import CloudError, InvalidRequest
from proreus.cloudprovider.volumes import BETWEEN_ZONES
from proreus.controllers.events import PlannedEvent
from proreus.kube import patch as patches
from proreus.kube.objects import (
    LABEL_REGION,
    LABEL_REGION_BETA,
    LABEL_ZONE,
    LABEL_ZONE_BETA,
    PersistentVolume,
)
from proreus.kube.patch import Patch

PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
"""The annotation of volumes that a provisioner made, which knows where they are."""
BEING_MADE: Final = "placeholder-for-provisioning"
"""The id that an in-tree plug-in gives to a volume that is still to be made."""

IN_TREE: Final = {
    "awsElasticBlockStore": "volumeID",
    "azureDisk": "diskName",
    "cinder": "volumeID",
    "gcePersistentDisk": "pdName",
    "vsphereVolume": "",
}
"""The sources of clouds' in-tree plug-ins, and the field that may be `BEING_MADE`, if any."""

_GENERATIONS: Final = ((LABEL_ZONE, LABEL_REGION), (LABEL_ZONE_BETA, LABEL_REGION_BETA))
_TWINS: Final = {LABEL_ZONE: LABEL_ZONE_BETA, LABEL_REGION: LABEL_REGION_BETA}

Answer = Mapping[str, str] | CloudError
"""The provider's labels of a volume, empty if it is another cloud's, or why there are none."""


class Place(msgspec.Struct, frozen=True):
    """The labels and the node affinity that a volume is to have; None keeps the present one."""

    labels: Mapping[str, str]
    affinity: Mapping[str, Any] | None


def known(volume: PersistentVolume) -> Mapping[str, str] | None:
    """Return the labels of a volume that are known without the cloud; None if it must be asked.

    Labels of a provisioner count if they are whole. A volume of no cloud has no labels.
    """
    meta = volume.metadata
    if PROVISIONED_BY in meta.annotations:
        for generation in _GENERATIONS:
            found = {key: meta.labels[key] for key in generation if key in meta.labels}
            if len(found) == len(generation):
                return found
    return None if _is_of_a_cloud(volume) else {}


def _is_of_a_cloud(volume: PersistentVolume) -> bool:
    for source, field in IN_TREE.items():
        named = volume.spec.get(source)
        if isinstance(named, Mapping):
            return not field or named.get(field) != BEING_MADE
    return isinstance(volume.spec.get("csi"), Mapping) and not terms(volume)


def terms(volume: PersistentVolume) -> Sequence[Mapping[str, Any]]:
    """Return the terms of the required node affinity; a node must match one of them."""
    required = (volume.spec.get("nodeAffinity") or {}).get("required") or {}
    found: Sequence[Mapping[str, Any]] = required.get("nodeSelectorTerms") or ()
    return found


def desired(volume: PersistentVolume, labels: Mapping[str, str]) -> Place:
    """Decide where a volume with these labels in its cloud may be used.

    The cloud's labels win over others. A beta label that the volume has is kept equal to its
    successor: the scheduler compares both with the node's. The affinity grows in every term, unless
    one of them speaks of the same labels.

    Raises:
        ValueError: A label names an empty zone.
    """
    given = dict(labels)
    given |= {
        beta: labels[key]
        for key, beta in _TWINS.items()
        if key in labels and beta in volume.metadata.labels
    }
    requirements = [
        {"key": key, "operator": "In", "values": _values(key, labels[key])}
        for key in sorted(labels)
    ]
    present = terms(volume) or ({},)
    taken = {one.get("key") for term in present for one in term.get("matchExpressions") or ()}
    if not requirements or taken & labels.keys():
        return Place(given, None)
    grown = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *requirements]}
        for term in present
    ]
    return Place(given, {"required": {"nodeSelectorTerms": grown}})


def _values(key: str, value: str) -> list[str]:
    if key not in {LABEL_ZONE, LABEL_ZONE_BETA}:
        return [value]
    zones = sorted({zone.strip() for zone in value.split(BETWEEN_ZONES)})
    if "" in zones:
        raise ValueError(f"label {key}: {value!r} names an empty zone")
    return zones


def admitted(volume: PersistentVolume, place: Place) -> tuple[Mapping[str, Any], ...]:
    """Return the operations that give a new volume its labels and affinity, for a webhook."""
    found: list[Mapping[str, Any]] = []
    labels = {**volume.metadata.labels, **place.labels}
    if labels != volume.metadata.labels:
        found.append({"op": "add", "path": "/metadata/labels", "value": labels})
    if place.affinity is not None:
        found.append({"op": "add", "path": "/spec/nodeAffinity", "value": place.affinity})
    return tuple(found)


def changed(old: PersistentVolume | None, new: PersistentVolume) -> bool:
    """Tell whether labels or spec of a volume changed; status and annotations do not count."""
    return old is None or (old.metadata.labels, old.spec) != (new.metadata.labels, new.spec)


def relevant(volume: PersistentVolume) -> bool:
    """Tell whether a volume that is there may lack labels or affinity.

    A volume with both is not asked about again: it was labelled when it was made.
    """
    if volume.metadata.deletion_timestamp is not None:
        return False
    labelled = any(key in volume.metadata.labels for pair in _GENERATIONS for key in pair)
    return known(volume) != {} and not (labelled and terms(volume))


def askable(volumes: Sequence[PersistentVolume]) -> tuple[PersistentVolume, ...]:
    """Return the volumes that lack something, and that the cloud must be asked about."""
    return tuple(one for one in volumes if relevant(one) and known(one) is None)


def repaired(volume: PersistentVolume, place: Place) -> Patch:
    """Return the patch that gives an existing volume labels and affinity; false if it has them.

    A volume's node affinity can be set once and never be changed.
    """
    ops = patches.labels(volume.metadata.labels, dict(place.labels))
    if place.affinity is not None and is_open(volume):
        ops += patches.set_once("/spec/nodeAffinity", place.affinity)
    return patches.json_patch(volume.metadata.uid, ops)


def is_open(volume: PersistentVolume) -> bool:
    """Tell whether the node affinity of an existing volume can still be set."""
    return volume.spec.get("nodeAffinity") is None


def refusal(answer: CloudError) -> tuple[str, int]:
    """Return the text and HTTP status for a user whose volume the cloud does not describe.

    A volume that is wrong is forbidden; a cloud that does not answer is worth another try.
    """
    if isinstance(answer, InvalidRequest):
        return f"the volume cannot be labelled: {answer}", 403
    return f"the cloud does not say where the volume is, try again: {answer}", 503


def trouble(error: Exception) -> PlannedEvent:
    """Return the event about an existing volume that cannot be labelled."""
    return PlannedEvent("Warning", "VolumeLabelsUnknown", f"Zone and region are not known: {error}")


def labelled(volume: PersistentVolume, place: Place) -> PlannedEvent:
    """Return the event about an existing volume that has got its labels."""
    where = ", ".join(f"{key}={value}" for key, value in sorted(place.labels.items()))
    if place.affinity is not None and not is_open(volume):
        return PlannedEvent(
            "Warning",
            "NodeAffinityFixed",
            f"The volume is at {where}, but its node affinity, which cannot be changed, does not"
            " say so: pods may be sent to other nodes. Make the PersistentVolume anew",
        )
    return PlannedEvent("Normal", "VolumeLabelled", f"The volume is at {where}")
