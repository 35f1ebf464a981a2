"""Define pods and signs of life of kubelets, as far as the eviction of pods reads them.

Partial like `kube.objects`, and apart from them, since few need them: there are many pods, and
what says who wrote which field of a Node is as large as the rest of it.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from proreus.kube.objects import Condition, ObjectMeta, Taint


class Toleration(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One toleration; no `key` means every taint, no `effect` every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a Pod: where it runs, and which taints it tolerates."""

    node_name: str = ""
    tolerations: tuple[Toleration, ...] = ()


class PodStatus(msgspec.Struct, frozen=True):
    """`status` of a Pod."""

    conditions: tuple[Condition, ...] = ()


class Pod(msgspec.Struct, frozen=True):
    """A Pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a Lease."""

    renew_time: str | None = None


class NodeLease(msgspec.Struct, frozen=True):
    """A Lease in kube-node-lease, which a kubelet renews; its name is the node's."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()


class SpecFields(msgspec.Struct, frozen=True):
    """The fields of `spec` that somebody set; None: not this one."""

    taints: Mapping[str, Any] | None = msgspec.field(name="f:taints", default=None)


class StatusFields(msgspec.Struct, frozen=True):
    """The conditions that somebody set, by keys such as `k:{"type":"Ready"}`."""

    conditions: Mapping[str, Any] = msgspec.field(name="f:conditions", default={})


class Fields(msgspec.Struct, frozen=True):
    """The fields that somebody set (FieldsV1)."""

    spec: SpecFields = msgspec.field(name="f:spec", default=SpecFields())
    status: StatusFields = msgspec.field(name="f:status", default=StatusFields())


class FieldsOwner(msgspec.Struct, frozen=True):
    """An entry of `metadata.managedFields`: who set which fields, and when last."""

    manager: str = ""
    time: datetime | None = None
    fields: Fields = msgspec.field(name="fieldsV1", default=Fields())


class PulseMeta(ObjectMeta, frozen=True, rename="camel"):
    """`metadata` of a Node, with who set what."""

    managed_fields: tuple[FieldsOwner, ...] = ()


class PulseCondition(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A condition of a Node, with the time at which it was reported last, if it was."""

    type: str
    status: str
    last_heartbeat_time: str | None = None


class PulseSpec(msgspec.Struct, frozen=True):
    """`spec` of a Node: its taints."""

    taints: tuple[Taint, ...] = ()


class PulseStatus(msgspec.Struct, frozen=True):
    """`status` of a Node: its conditions."""

    conditions: tuple[PulseCondition, ...] = ()


class Pulse(msgspec.Struct, frozen=True):
    """A Node, as far as it shows that its kubelet lives, and who else writes to it."""

    metadata: PulseMeta = PulseMeta()
    spec: PulseSpec = PulseSpec()
    status: PulseStatus = PulseStatus()

    @property
    def ready(self) -> PulseCondition | None:
        """The Ready condition."""
        return next((one for one in self.status.conditions if one.type == "Ready"), None)
