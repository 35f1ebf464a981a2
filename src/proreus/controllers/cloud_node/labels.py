"""Compute the labels a Node gets from the cloud: instance type, zone, region, additional ones.

Zone and region are set when the node is initialised and never changed afterwards, because
volumes depend on them; the instance type is repaired. The deprecated beta keys follow the stable
ones (in the Go framework it is the other way round, so that edits of stable keys are lost).
Additional labels never replace another's; the annotation `proreus/additional-labels` lists the
keys that are ours, so that they can be repaired and removed.
"""

import re
from collections.abc import Mapping

import msgspec

from proreus.cloudprovider.instances import Instance
from proreus.kube.objects import (
    LABEL_INSTANCE_TYPE,
    LABEL_INSTANCE_TYPE_BETA,
    LABEL_REGION,
    LABEL_REGION_BETA,
    LABEL_ZONE,
    LABEL_ZONE_BETA,
    Node,
)

ANNOTATION_OURS = "proreus/additional-labels"
"""The additional labels that Proreus set on the node, comma-separated.

Only these it changes and removes.
"""

_BETA = {
    LABEL_INSTANCE_TYPE: LABEL_INSTANCE_TYPE_BETA,
    LABEL_ZONE: LABEL_ZONE_BETA,
    LABEL_REGION: LABEL_REGION_BETA,
}
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_DOMAIN = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*"
_KEY = re.compile(rf"(?:(?=[^/]{{1,253}}/){_DOMAIN}/)?{_NAME}")
_VALUE = re.compile(rf"(?:{_NAME})?")


class LabelChange(msgspec.Struct, frozen=True):
    """The labels and annotations to write, by key; None removes.

    `rejected` names the cloud's labels that the API server would refuse; one of them in a patch
    would keep the whole node from being initialised.
    """

    labels: Mapping[str, str | None]
    annotations: Mapping[str, str | None]
    rejected: tuple[str, ...]


def reserved(key: str) -> bool:
    """Tell whether the key is in kubernetes.io or k8s.io, where no cloud may set labels."""
    domain, slash, _ = key.partition("/")
    return bool(slash) and f".{domain}".endswith((".kubernetes.io", ".k8s.io"))


def valid(key: str, value: str) -> bool:
    """Tell whether the API server accepts the label."""
    return bool(_KEY.fullmatch(key) and _VALUE.fullmatch(value))


def initial(node: Node, instance: Instance) -> LabelChange:
    """Return the labels at initialisation: the cloud's values replace those on the node."""
    labels: dict[str, str | None] = {}
    rejected: list[str] = []
    for key, value in _facts(instance).items():
        if valid(key, value):
            labels |= {key: value, _BETA[key]: value}
        else:
            rejected.append(f"{key}={value}")
    return _with_additional(node, instance, labels, tuple(rejected))


def refreshed(node: Node, instance: Instance) -> LabelChange:
    """Return the labels at a refresh: type and additional labels; zone and region stay."""
    labels: dict[str, str | None] = {}
    type_ = instance.instance_type
    if type_ and valid(LABEL_INSTANCE_TYPE, type_):
        labels[LABEL_INSTANCE_TYPE] = type_
    return _with_additional(node, instance, labels, ())


def mirrored(labels: Mapping[str, str]) -> Mapping[str, str | None]:
    """Return the changes that make the beta labels equal to the stable ones.

    Where only the beta key is left, the stable one is restored from it.
    """
    changes: dict[str, str | None] = {}
    for stable, beta in _BETA.items():
        if beta not in labels:
            continue
        if stable not in labels:
            changes[stable] = labels[beta]
        elif labels[stable] != labels[beta]:
            changes[beta] = labels[stable]
    return changes


def topology_difference(node: Node, instance: Instance) -> str:
    """Describe how zone and region differ from the cloud's; "" if they do not."""
    labels = {**node.metadata.labels, **mirrored(node.metadata.labels)}
    cloud = {LABEL_ZONE: instance.zone, LABEL_REGION: instance.region}
    return "; ".join(
        f'label {key} is "{labels.get(key, "")}", but the cloud says "{value}"'
        for key, value in cloud.items()
        if value and labels.get(key) != value
    )


def _facts(instance: Instance) -> Mapping[str, str]:
    facts = {
        LABEL_INSTANCE_TYPE: instance.instance_type,
        LABEL_ZONE: instance.zone,
        LABEL_REGION: instance.region,
    }
    return {key: value for key, value in facts.items() if value}


def _with_additional(
    node: Node, instance: Instance, labels: dict[str, str | None], rejected: tuple[str, ...]
) -> LabelChange:
    """Add the additional labels, and the list of those that are ours, to `labels`."""
    present = node.metadata.labels
    listed = node.metadata.annotations.get(ANNOTATION_OURS, "")
    # A node may edit its own annotations: a reserved key in it is not ours, whatever it says.
    ours = {key for key in listed.split(",") if key and not reserved(key)}
    offered = {k: v for k, v in instance.additional_labels.items() if not reserved(k)}
    desired = {k: v for k, v in offered.items() if valid(k, v) and (k in ours or k not in present)}
    labels |= dict.fromkeys(sorted(ours - desired.keys()))
    labels |= desired
    known = {k: v for k, v in {**present, **labels}.items() if v is not None}
    labels |= mirrored(known)
    bad = tuple(f"{k}={v}" for k, v in offered.items() if not valid(k, v))
    return LabelChange(labels, {ANNOTATION_OURS: ",".join(sorted(desired)) or None}, rejected + bad)
