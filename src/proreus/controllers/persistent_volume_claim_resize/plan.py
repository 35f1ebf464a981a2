"""Decide whether a PersistentVolumeClaim may grow. Pure.

The rules and messages are those of Kubernetes' own admission plug-in PersistentVolumeClaimResize.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from proreus.kube.objects import StorageClass
from proreus.kube.quantities import quantity

CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
"""The annotation that names a claim's class, before `spec.storageClassName`."""
BOUND: Final = "Bound"

NOT_BOUND: Final = "Only bound persistent volume claims can be expanded"
NOT_EXPANDABLE: Final = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc"
    " must support resize"
)

Claim = Mapping[str, Any]
"""A PersistentVolumeClaim as the API server shows it to webhooks."""


def grows(old: Claim, new: Claim) -> bool:
    """Tell whether more storage is asked for; whether it may be less, the API server judges."""
    return _size(new) > _size(old)


def class_to_ask(old: Claim, new: Claim) -> str:
    """Return the name of the class that must allow a claim to grow; "" if no class can."""
    name = _class_name(new)
    return name if name == _class_name(old) else ""


def refusal(old: Claim, new: Claim, found: StorageClass | None) -> str:
    """Return why the change of a claim is refused, or "".

    Args:
        old: The claim as it is.
        new: The claim as it is to be.
        found: The class that `class_to_ask` names; None if it does not exist.
    """
    if not grows(old, new):
        return ""
    if _part(old, "status").get("phase") != BOUND:
        return NOT_BOUND
    return "" if found is not None and found.allow_volume_expansion else NOT_EXPANDABLE


def _size(claim: Claim) -> Decimal:
    requests = _part(_part(_part(claim, "spec"), "resources"), "requests")
    return quantity(str(requests.get("storage") or "0"))


def _class_name(claim: Claim) -> str:
    annotations = _part(_part(claim, "metadata"), "annotations")
    if CLASS_ANNOTATION in annotations:
        return str(annotations[CLASS_ANNOTATION])
    return str(_part(claim, "spec").get("storageClassName") or "")


def _part(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return of.get(name) or {}
