"""Define Kubernetes objects as this process reads them: partial, frozen, decoded from JSON.

Only the fields that some decision reads are declared; all others are skipped while parsing,
which makes decoding about ten times cheaper than full models. **A partial object must never be
written back whole**: writes are patches (`kube.patch`). Sequences are tuples, so that an object
taken from a cache cannot be changed by accident.

Field names follow the Kubernetes API in Python's case.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

TAINT_UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
"""A taint set by the kubelet with `--cloud-provider=external`, removed at initialisation."""
TAINT_SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
"""A taint of nodes that are not Ready and whose machine is shut down."""
TAINT_OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""A taint that lets pods and volumes leave a node that is shut down (KEP-2268)."""
TAINT_AUTOSCALER = "ToBeDeletedByClusterAutoscaler"
"""A taint set by the cluster autoscaler on a node that it is removing.

It counts for no breaker and is no load balancer's host.
"""
LABEL_EXCLUDE_LB = "node.kubernetes.io/exclude-from-external-load-balancers"
"""A label that excludes a node from the hosts of load balancers."""
LABEL_HOSTNAME = "kubernetes.io/hostname"
"""The label with the node's host name, set by the kubelet."""
LABEL_INSTANCE_TYPE = "node.kubernetes.io/instance-type"
"""The label with the machine's type, kept equal to the cloud's."""
LABEL_INSTANCE_TYPE_BETA = "beta.kubernetes.io/instance-type"
"""The label's former name, kept equal to the new one."""
LABEL_ZONE = "topology.kubernetes.io/zone"
"""The label with the machine's zone, set at initialisation and never changed."""
LABEL_ZONE_BETA = "failure-domain.beta.kubernetes.io/zone"
"""The label's former name, kept equal to the new one."""
LABEL_REGION = "topology.kubernetes.io/region"
"""The label with the machine's region, set at initialisation and never changed."""
LABEL_REGION_BETA = "failure-domain.beta.kubernetes.io/region"
"""The label's former name, kept equal to the new one."""
ANNOTATION_PROVIDED_NODE_IP = "alpha.kubernetes.io/provided-node-ip"
"""The annotation with the kubelet's `--node-ip`, which must be among the cloud's addresses."""
ANNOTATION_SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
"""The annotation with CIDRs that may connect; `spec.loadBalancerSourceRanges` wins."""
CONDITION_LOAD_BALANCER_READY = "LoadBalancerReady"
"""The condition of a Service that tells how its load balancer is."""
FINALIZER_LOAD_BALANCER = "service.kubernetes.io/load-balancer-cleanup"
"""The finalizer that keeps a Service until its load balancer is gone."""


class ObjectMeta(msgspec.Struct, frozen=True, rename="camel"):
    """`metadata` of any object. `resource_version` compares as an integer (KEP-5504)."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    finalizers: tuple[str, ...] = ()


class Condition(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A condition of a Node or a Service; `status` is "True", "False" or "Unknown"."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class Taint(msgspec.Struct, frozen=True, rename="camel", gc=False, omit_defaults=True):
    """One entry of `spec.taints`; `time_added` is kept because a patch may test the whole entry."""

    key: str
    effect: str
    value: str = ""
    time_added: str = ""


class WholeTaints(tuple[Taint, ...]):
    """The taints of a node of which no field was left out when they were read.

    Only these may be written back as a list (`kube.whole` makes them); of others an entry may have
    a field that `Taint` does not know.
    """

    __slots__ = ()


class NodeAddress(msgspec.Struct, frozen=True, gc=False):
    """An address; type is Hostname, InternalIP, ExternalIP, InternalDNS or ExternalDNS."""

    type: str
    address: str


class NodeSystemInfo(msgspec.Struct, frozen=True, gc=False):
    """The part of `status.nodeInfo` that can find a machine."""

    system_uuid: str = msgspec.field(name="systemUUID", default="")


class NodeSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a Node. `provider_id` is immutable once set."""

    provider_id: str = msgspec.field(name="providerID", default="")
    pod_cidr: str = msgspec.field(name="podCIDR", default="")
    pod_cidrs: tuple[str, ...] = msgspec.field(name="podCIDRs", default=())
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    """`status` of a Node: addresses, conditions and the machine's UUID."""

    addresses: tuple[NodeAddress, ...] = ()
    conditions: tuple[Condition, ...] = ()
    node_info: NodeSystemInfo = NodeSystemInfo()


class Node(msgspec.Struct, frozen=True):
    """A Node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ServicePort(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """One port of a Service; `node_port` is 0 when none is allocated."""

    port: int
    name: str = ""
    protocol: str = "TCP"
    node_port: int = 0
    target_port: int | str = 0
    app_protocol: str | None = None


class ClientIPConfig(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """`timeout_seconds` of ClientIP affinity."""

    timeout_seconds: int | None = None


class SessionAffinityConfig(msgspec.Struct, frozen=True, gc=False):
    """Settings of session affinity."""

    client_ip: ClientIPConfig | None = msgspec.field(name="clientIP", default=None)


class ServiceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a Service."""

    type: str = "ClusterIP"
    ports: tuple[ServicePort, ...] = ()
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    cluster_ips: tuple[str, ...] = msgspec.field(name="clusterIPs", default=())
    ip_families: tuple[str, ...] = ()
    ip_family_policy: str | None = None
    external_ips: tuple[str, ...] = msgspec.field(name="externalIPs", default=())
    external_traffic_policy: str = ""
    health_check_node_port: int = 0
    load_balancer_ip: str = msgspec.field(name="loadBalancerIP", default="")
    load_balancer_class: str | None = None
    load_balancer_source_ranges: tuple[str, ...] = ()
    session_affinity: str = "None"
    session_affinity_config: SessionAffinityConfig | None = None
    allocate_load_balancer_node_ports: bool | None = None


class PortStatus(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """State of one port of a load balancer's ingress point."""

    port: int
    protocol: str
    error: str | None = None


class LoadBalancerIngress(
    msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False
):
    """One ingress point: `ip` with `ip_mode` (VIP or Proxy; KEP-1860), or `hostname`."""

    ip: str = ""
    hostname: str = ""
    ip_mode: str | None = None
    ports: tuple[PortStatus, ...] = ()


IP_MODE_PROXY = "Proxy"
"""The `ip_mode` of an address by which nodes lead nothing to pods past the load balancer."""


def vip_addresses(ingress: Iterable[LoadBalancerIngress]) -> tuple[str, ...]:
    """Return the addresses for which kube-proxy leads a Service's ports to its pods (KEP-1860)."""
    return tuple({one.ip: None for one in ingress if one.ip and one.ip_mode != IP_MODE_PROXY})


class LoadBalancerStatus(msgspec.Struct, frozen=True):
    """`status.loadBalancer` of a Service."""

    ingress: tuple[LoadBalancerIngress, ...] = ()


class ServiceStatus(msgspec.Struct, frozen=True, rename="camel"):
    """`status` of a Service."""

    load_balancer: LoadBalancerStatus = LoadBalancerStatus()
    conditions: tuple[Condition, ...] = ()


class Service(msgspec.Struct, frozen=True):
    """A Service."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()
    status: ServiceStatus = ServiceStatus()


def has_local_traffic(service: Service) -> bool:
    """Tell whether a node leads a Service's clients to its own pods alone."""
    return service.spec.external_traffic_policy == "Local"


class EndpointConditions(msgspec.Struct, frozen=True, gc=False):
    """Readiness of one endpoint; None counts as ready (EndpointSlice API)."""

    ready: bool | None = None
    serving: bool | None = None
    terminating: bool | None = None


class Endpoint(msgspec.Struct, frozen=True, rename="camel"):
    """One endpoint: the pod's addresses and the node it runs on."""

    addresses: tuple[str, ...] = ()
    conditions: EndpointConditions = EndpointConditions()
    node_name: str | None = None


class EndpointPort(msgspec.Struct, frozen=True, gc=False):
    """A port of an EndpointSlice."""

    name: str = ""
    port: int | None = None
    protocol: str = "TCP"


class EndpointSlice(msgspec.Struct, frozen=True, rename="camel"):
    """An EndpointSlice (discovery.k8s.io/v1).

    Lists without elements come as null, which is what Go makes of them.
    """

    metadata: ObjectMeta = ObjectMeta()
    address_type: str = "IPv4"
    endpoints: tuple[Endpoint, ...] | None = None
    ports: tuple[EndpointPort, ...] | None = None


class Secret(msgspec.Struct, frozen=True):
    """A Secret; values stay base64. Its representation hides them."""

    metadata: ObjectMeta = ObjectMeta()
    data: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"Secret({self.metadata.namespace}/{self.metadata.name})"


class ConfigMap(msgspec.Struct, frozen=True):
    """A ConfigMap."""

    metadata: ObjectMeta = ObjectMeta()
    data: Mapping[str, str] = {}


class PersistentVolume(msgspec.Struct, frozen=True):
    """A PersistentVolume; its spec is plain, since each cloud's plugin has fields of its own."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Mapping[str, Any] = {}


class StorageClass(msgspec.Struct, frozen=True, rename="camel"):
    """A StorageClass: whether its claims may grow."""

    metadata: ObjectMeta = ObjectMeta()
    allow_volume_expansion: bool = False


class Namespace(msgspec.Struct, frozen=True):
    """A Namespace; the UID of kube-system identifies the cluster."""

    metadata: ObjectMeta = ObjectMeta()


def only_labels(namespace: Namespace) -> Namespace:
    """Return a namespace with its name, labels and version alone: annotations can be long."""
    meta = namespace.metadata
    kept = ObjectMeta(
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels=meta.labels,
    )
    return Namespace(kept)


class CertificateSigningRequestSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a CertificateSigningRequest: what the API server noted of who asks, and for what.

    It never changes. `request` is a PKCS#10 request in PEM.
    """

    request: bytes = b""
    signer_name: str = ""
    username: str = ""
    groups: tuple[str, ...] = ()
    usages: tuple[str, ...] = ()


class CertificateSigningRequestStatus(msgspec.Struct, frozen=True):
    """`status` of a CertificateSigningRequest: the decisions, and the certificate in base64."""

    conditions: tuple[Condition, ...] = ()
    certificate: str = ""


class CertificateSigningRequest(msgspec.Struct, frozen=True):
    """A CertificateSigningRequest (certificates.k8s.io/v1)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CertificateSigningRequestSpec = CertificateSigningRequestSpec()
    status: CertificateSigningRequestStatus = CertificateSigningRequestStatus()


KubeObject = (
    Node
    | Service
    | EndpointSlice
    | Secret
    | ConfigMap
    | Namespace
    | CertificateSigningRequest
    | PersistentVolume
)


def key(obj: KubeObject) -> str:
    """Return the cache key: `namespace/name`, or `name` for cluster-wide objects."""
    meta = obj.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


_LATE: Final = datetime.max.replace(tzinfo=UTC)


def by_age(node: Node) -> tuple[datetime, str]:
    """Return a key that sorts the oldest node first; two of one second go by name."""
    return node.metadata.creation_timestamp or _LATE, node.metadata.name


def condition(conditions: tuple[Condition, ...], type_: str) -> Condition | None:
    """Return the condition of that type, or None."""
    # Loops, not generators: they run for all nodes every few seconds.
    for found in conditions:
        if found.type == type_:
            return found
    return None


def is_ready(node: Node) -> bool:
    """Tell whether the kubelet reports; a missing condition counts as not Ready."""
    ready = condition(node.status.conditions, "Ready")
    return ready is not None and ready.status == "True"


def has_taint(node: Node, taint_key: str) -> bool:
    """Tell whether any taint has that key, whatever its value and effect (as in Go)."""
    for taint in node.spec.taints:  # noqa: SIM110 - as above
        if taint.key == taint_key:
            return True
    return False
