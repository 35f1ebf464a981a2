"""Define what the doctor reads, and what it finds. Values only."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from proreus.app.leases import Lease
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.instances import InstanceAnswer, Ownership
from proreus.cloudprovider.load_balancers import HostPolicy
from proreus.controllers.service.intake import AS_GO, Classes
from proreus.kube.objects import (
    CertificateSigningRequest,
    Condition,
    EndpointSlice,
    Node,
    ObjectMeta,
    PersistentVolume,
    Service,
)
from proreus.kube.requests import Resource
from proreus.providers.local.config import LocalConfig


class Toleration(msgspec.Struct, frozen=True):
    """One toleration; no `key` means every taint, no `effect` every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Container(msgspec.Struct, frozen=True):
    """The command line of a container."""

    name: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The part of a pod's spec that can keep it from running, or from a node."""

    service_account_name: str = "default"
    host_network: bool = False
    dns_policy: str = "ClusterFirst"
    tolerations: tuple[Toleration, ...] = ()
    containers: tuple[Container, ...] = ()
    node_name: str = ""
    node_selector: Mapping[str, str] = {}
    affinity: Mapping[str, Any] = {}


class PodTemplate(msgspec.Struct, frozen=True):
    """`spec.template` of a workload."""

    spec: PodSpec = PodSpec()


class WorkloadSpec(msgspec.Struct, frozen=True):
    """`spec` of a Deployment or DaemonSet; a DaemonSet has no `replicas`."""

    template: PodTemplate = PodTemplate()
    replicas: int | None = None


class Workload(msgspec.Struct, frozen=True):
    """A Deployment or DaemonSet; `kind` is filled in after the listing."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    kind: str = ""


class Waiting(msgspec.Struct, frozen=True):
    """The reason why a container does not run."""

    reason: str = ""
    message: str = ""


class ContainerState(msgspec.Struct, frozen=True):
    """`state` of a container."""

    waiting: Waiting | None = None


class ContainerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The status of a container."""

    name: str = ""
    restart_count: int = 0
    state: ContainerState = ContainerState()
    ready: bool = False


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The status of a pod."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(msgspec.Struct, frozen=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", namespaced=True, type=Workload)
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet", namespaced=True, type=Workload)
PODS = Resource("", "v1", "pods", "Pod", namespaced=True, type=Pod)


class Right(msgspec.Struct, frozen=True):
    """The answer whether a user may use a verb on a resource.

    `namespace` "" means all namespaces, `name` "" every object.
    """

    user: str
    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""
    allowed: bool = False


class Held(msgspec.Struct, frozen=True):
    """An event about a node that is held or unknown to the cloud, or a request not approved."""

    name: str
    message: str
    at: datetime


class Speakers(msgspec.Struct, frozen=True):
    """The DaemonSets and pods of BGP speakers."""

    sets: tuple[Workload, ...] = ()
    pods: tuple[Pod, ...] = ()


class Cloud(msgspec.Struct, frozen=True):
    """The provider's answers; there are none if it could not be started because of `error`.

    `answers` and `owns` are by node name; `policies` are by Service key, the error where the
    provider refuses the Service; `volumes` are the labels of volumes that lack some, by name.
    `members` are the clouds where there are several, each with its name in the place of the
    provider's; the other fields then hold what all clouds say. `local` is the cloud-config of the
    provider `local`.
    """

    provider: str
    error: CloudError | None = None
    has_cluster_id: bool = True
    answers: Mapping[str, InstanceAnswer] = {}
    owns: Mapping[str, Ownership] = {}
    policies: Mapping[str, HostPolicy | CloudError] = {}
    volumes: Mapping[str, Mapping[str, str] | CloudError] = {}
    members: tuple["Cloud", ...] = ()
    local: LocalConfig | None = None

    def of(self, about: str) -> str:
        """Return the name of the cloud that an object belongs to; "" if there is only one.

        The object is written as in `Finding.about`.
        """
        kind, _, name = about.partition("/")
        for one in self.members:
            if name in {"node": one.owns, "service": one.policies}.get(kind, {}):
                return one.provider
        return ""


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """The objects and answers that the doctor read.

    What could not be read is None: `unread` then says why. Without a cloud-config `cloud` is
    None. `elects` is whether the manager works only while it holds a lease. `patience` are the
    seconds in which a manager that works has said something of a new node or Service. `volumes`
    are there only where the manager is to label them; `balancers`, the DaemonSets of other load
    balancers, `kube_proxy`, the data of its ConfigMap, and `speakers` only with the provider
    `local`.
    """

    now: datetime
    nodes: tuple[Node, ...] = ()
    services: tuple[Service, ...] = ()
    volumes: tuple[PersistentVolume, ...] = ()
    slices: tuple[EndpointSlice, ...] | None = None
    workloads: tuple[Workload, ...] | None = None
    pods: tuple[Pod, ...] | None = None
    leases: tuple[Lease, ...] | None = None
    rights: tuple[Right, ...] | None = None
    held: tuple[Held, ...] = ()
    unknown: tuple[Held, ...] = ()
    requests: tuple[CertificateSigningRequest, ...] = ()
    not_approved: tuple[Held, ...] = ()
    in_service: tuple[Held, ...] = ()
    balancers: tuple[Workload, ...] = ()
    kube_proxy: Mapping[str, str] | None = None
    speakers: Speakers | None = None
    cloud: Cloud | None = None
    patience: float = 60.0
    unread: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    namespace: str = "kube-system"
    lease_namespace: str = "kube-system"
    elects: bool = True
    classes: Classes = AS_GO
    allow_untagged: bool = False


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong, with evidence and remedy.

    Attributes:
        check: The name of the check, such as `kubelet-not-external`; the same mistake has the same
            name.
        about: The object: `node/worker-1`, `service/default/web`.
        problem: What is wrong, in a sentence.
        evidence: What was observed.
        remedy: What to do, a command or a line where there is one.
        cloud: The name of the object's cloud, where there are several.
    """

    check: str
    about: str
    problem: str
    evidence: str
    remedy: str
    cloud: str = ""


def ago(now: datetime, then: datetime | None) -> float:
    """Return the seconds since `then`; 0 if it is not known."""
    return 0.0 if then is None else (now - then).total_seconds()


def span(seconds: float) -> str:
    """Format a duration for people: "45 s", "12 min", "3 h", "2 d"."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
