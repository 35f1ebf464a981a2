"""Each mistake is named: a cluster that is well, with one thing made wrong."""

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proreus.app.doctor import manager, report
from proreus.app.doctor.diagnosis import diagnose
from proreus.app.doctor.observed import (
    Cloud,
    Container,
    ContainerState,
    ContainerStatus,
    Held,
    Observed,
    Pod,
    PodSpec,
    PodStatus,
    PodTemplate,
    Right,
    Toleration,
    Waiting,
    Workload,
    WorkloadSpec,
)
from proreus.app.doctor.options import DoctorOptions, as_stated
from proreus.app.doctor.rights import needs
from proreus.app.leases import Lease
from proreus.cloudprovider import (
    CloudError,
    ConfigError,
    IdentityConflict,
    Instance,
    InvalidRequest,
    NotFound,
    Ownership,
    RetryAfter,
    Throttled,
    Unauthenticated,
)
from proreus.controllers.kubelet_serving.plan import SIGNER
from proreus.controllers.persistent_volume_label.plan import PROVISIONED_BY
from proreus.controllers.service.intake import Classes
from proreus.kube.objects import (
    ANNOTATION_PROVIDED_NODE_IP,
    FINALIZER_LOAD_BALANCER,
    LABEL_EXCLUDE_LB,
    LABEL_REGION,
    LABEL_ZONE,
    TAINT_AUTOSCALER,
    TAINT_UNINITIALIZED,
    CertificateSigningRequest,
    CertificateSigningRequestSpec,
    CertificateSigningRequestStatus,
    Condition,
    Endpoint,
    EndpointConditions,
    EndpointSlice,
    Node,
    NodeAddress,
    ObjectMeta,
    Service,
    ServiceSpec,
    Taint,
)
from proreus.testing import objects
from proreus.testing.volumes import persistent_volume

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "find-out-what-is-wrong.md"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=1)
READY = Condition("Ready", "True")
SILENT = Condition("Ready", "Unknown")
FINE = Condition(
    "CloudInitialized", "True", "Initialized",
    "the labels, addresses and provider id are those of the machine in the cloud", LONG_AGO,
)  # fmt: skip
ENSURED = Condition("LoadBalancerReady", "True", "Ensured", "Ensured load balancer", LONG_AGO)
TAINT = Taint(TAINT_UNINITIALIZED, "NoSchedule", "true")
ADDRESS = NodeAddress("InternalIP", "192.0.2.1")
HOSTNAME = NodeAddress("Hostname", "one")


def a_node(name: str = "one", *, id_: str | None = None, **fields: Any) -> Node:
    fields.setdefault("creation_timestamp", LONG_AGO)
    fields.setdefault("conditions", (READY, FINE))
    provider_id = f"sim://{name}" if id_ is None else id_
    return objects.node(name, provider_id, addresses=(HOSTNAME, ADDRESS), **fields)


def new(*conditions: Condition, **more: Any) -> Node:
    """A node that is not initialised."""
    return a_node(**{"id_": "", "taints": (TAINT,), **more}, conditions=(READY, *conditions))


def said(reason: str, status: str = "False", type_: str = "CloudInitialized") -> Condition:
    return Condition(type_, status, reason, "the cloud's words", LONG_AGO)


def a_service(*conditions: Condition, address: str = "198.51.100.1", **fields: Any) -> Service:
    fields.setdefault("creation_timestamp", LONG_AGO)
    fields.setdefault("finalizers", (FINALIZER_LOAD_BALANCER,))
    ingress = [address] if address else []
    return objects.service("web", ingress=ingress, conditions=conditions, **fields)


def a_slice(node: str = "one", *, ready: bool = True) -> EndpointSlice:
    return EndpointSlice(
        ObjectMeta(name="web-1", namespace="default", labels={"kubernetes.io/service-name": "web"}),
        endpoints=(Endpoint(("10.0.0.1",), EndpointConditions(ready), node),),
    )


def a_workload(replicas: int | None = 2, **spec: Any) -> Workload:
    given = {
        "service_account_name": "ccm",
        "host_network": True,
        "dns_policy": "Default",
        "tolerations": (Toleration(operator="Exists"),),
        **spec,
    }
    meta = ObjectMeta(name="cloud-controller-manager", namespace="kube-system")
    return Workload(meta, WorkloadSpec(PodTemplate(PodSpec(**given)), replicas), "Deployment")


def a_pod(*conditions: Condition, waiting: str = "", **more: Any) -> Pod:
    state = ContainerState(Waiting(waiting, "words") if waiting else None)
    meta = ObjectMeta(name="ccm-1", namespace="kube-system", **more)
    return Pod(meta, PodSpec(), PodStatus("Running", conditions, (ContainerStatus("c", 3, state),)))


def a_cloud(answer: Any = None, **more: Any) -> Cloud:
    given = {"answers": {"one": answer} if answer is not None else {}, **more}
    return Cloud("sim", **{"owns": {"one": Ownership.YES}, **given})


MACHINE = Instance(provider_id="sim://one", name="one", addresses=(HOSTNAME, ADDRESS))
LEASE = Lease("cloud-controller-manager", "a", NOW, 15.0)
WELL = Observed(
    now=NOW,
    nodes=(a_node(), a_node("two")),
    services=(a_service(ENSURED), Service(spec=ServiceSpec())),
    slices=(a_slice(),),
    workloads=(a_workload(),),
    pods=(a_pod(Condition("PodScheduled", "True")), a_pod(waiting="ContainerCreating")),
    leases=(LEASE,),
    rights=(Right("sa", "", "nodes", "list", allowed=True),),
    cloud=a_cloud(MACHINE),
)


def seen(**different: Any) -> Observed:
    return msgspec.structs.replace(WELL, **different)


def nodes(*given: Node, cloud: Cloud | None = None, **more: Any) -> Observed:
    return seen(nodes=(a_node("two"), *given), cloud=cloud, **more)


def a_daemon_set(called: str, *args: str, **labels: str) -> Workload:
    """Another load balancer's, in the namespace `lb`."""
    names = {"name": "app.kubernetes.io/name", "k3s": "svccontroller.k3s.cattle.io/svcname"}
    meta = ObjectMeta(
        name=called, namespace="lb", labels={names.get(k, k): v for k, v in labels.items()}
    )
    return Workload(
        meta, WorkloadSpec(PodTemplate(PodSpec(containers=(Container(args=args),)))), "DaemonSet"
    )


def proxy(config: str) -> Observed:
    """With this configuration of kube-proxy."""
    return seen(kube_proxy={"config.conf": config})


SPEAKER = a_daemon_set("speaker", name="metallb")


def service(given: Service, **more: Any) -> Observed:
    return seen(services=(given,), **more)


def volumes(
    answer: Any, *, spec: Any = None, cloud: Cloud | None = WELL.cloud, **metadata: Any
) -> Observed:
    """A volume, and what the cloud says of it, if it is asked."""
    metadata.setdefault("creation_timestamp", LONG_AGO)
    source = {"csi": {"driver": "csi.sim", "volumeHandle": "v"}} if spec is None else spec
    if cloud is not None and answer is not None:
        cloud = msgspec.structs.replace(cloud, volumes={"data": answer})
    return seen(volumes=(persistent_volume(source, "data", **metadata),), cloud=cloud)


def fresh(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def a_request(age: float, *decided: str, user: str = "system:node:one") -> Any:
    return CertificateSigningRequest(
        ObjectMeta(f"csr-{age}", creation_timestamp=fresh(age)),
        CertificateSigningRequestSpec(b"", SIGNER, user),
        CertificateSigningRequestStatus(tuple(Condition(type_, "True") for type_ in decided)),
    )


NODE = "node/one"
WEB = "service/default/web"
DEPLOYMENT = "deployment/kube-system/cloud-controller-manager"
CONTROL_PLANE = Taint("node-role.kubernetes.io/control-plane", "NoSchedule")
BOTH = (
    Toleration(TAINT_UNINITIALIZED, "Equal", "true", "NoSchedule"),
    Toleration("node.kubernetes.io/not-ready", "Exists"),
)
GOING: dict[str, Any] = {"deletion_timestamp": fresh(120), "finalizers": (FINALIZER_LOAD_BALANCER,)}

UNREADY = (a_node(conditions=(SILENT, FINE)), a_node("two"))

MISTAKES: dict[str, tuple[Observed, str, str, str]] = {
    # what is wrong: (what is seen, its name, the object, part of the remedy or evidence)
    "kubelet without the flag": (
        nodes(a_node(id_="", conditions=(READY,), annotations={ANNOTATION_PROVIDED_NODE_IP: "192.0.2.9"})),
        "kubelet-not-external", NODE, "--cloud-provider=external"),
    "node name unknown to the cloud": (
        nodes(new(), cloud=a_cloud(NotFound())), "name-mismatch", NODE, "--hostname-override"),
    "node name unknown, as the condition says": (
        nodes(new(said("InstanceNotFound"))), "name-mismatch", NODE, "the cloud's words"),
    "machine gone, node silent": (
        nodes(a_node(conditions=(SILENT, FINE)), cloud=a_cloud(NotFound())),
        "machine-gone", NODE, "--node-deletion-resume"),
    "machine gone, and so its route": (
        nodes(a_node(conditions=(SILENT, FINE, said("NoRouteCreated", "True", "NetworkUnavailable"))),
              cloud=a_cloud(NotFound())), "machine-gone", NODE, "asked just now"),
    "provider id of no machine, node alive": (
        nodes(a_node(), cloud=a_cloud(NotFound())), "machine-unknown", NODE, "correct --provider-id"),
    "a machine that the manager says is unknown": (
        nodes(a_node(), unknown=(Held("one", "the cloud does not know it", NOW),)),
        "machine-unknown", NODE, "the cloud does not know it"),
    "node IP not the cloud's": (
        nodes(new(annotations={ANNOTATION_PROVIDED_NODE_IP: "192.0.2.9"}), cloud=a_cloud(MACHINE)),
        "provided-node-ip", NODE, "192.0.2.9"),
    "node IP unreadable": (
        nodes(new(said("ProvidedNodeIPInvalid"))), "provided-node-ip-invalid", NODE, "--node-ip"),
    "no spec.providerID": (
        nodes(new(), cloud=a_cloud(Instance(provider_id="", addresses=(ADDRESS,)))),
        "provider-id-missing", NODE, "--provider-id"),
    "provider id of another cloud": (
        nodes(a_node(id_="aws:///x"), cloud=a_cloud(owns={"one": Ownership.NO})),
        "provider-id-foreign", NODE, "aws:///x"),
    "two nodes, one machine": (
        nodes(a_node(id_="sim://two")), "provider-id-duplicate", "node/two", "two, one"),
    "provider id of another machine": (
        nodes(a_node(id_="sim://three"), cloud=a_cloud(MACHINE)), "identity-conflict", NODE, "sim://three"),
    "provider id of two clouds": (
        nodes(a_node(), cloud=a_cloud(IdentityConflict("set the label proreus.io/cloud"))),
        "cloud-undecided", NODE, "kubectl label"),
    "machine in any of two clouds": (
        nodes(new(), cloud=a_cloud(CloudError("set the label proreus.io/cloud: no answer"))),
        "cloud-undecided", NODE, "no answer"),
    "cloud throttles": (nodes(new(said("Throttled"))), "cloud-throttled", NODE, "quota"),
    "machine long in the making": (
        nodes(new(), cloud=a_cloud(RetryAfter("not ready", after=5))), "machine-pending", NODE, "not ready"),
    "topology differs": (nodes(a_node(conditions=(said("TopologyDiffers", "True"),))),
                         "topology-differs", NODE, "volumes"),
    "nobody looks at the node": (nodes(new()), "node-unattended", NODE, "24 h"),
    "no route": (
        nodes(a_node(conditions=(said("NoRouteCreated", "True", "NetworkUnavailable"), FINE))),
        "route-missing", NODE, "--cluster-cidr"),
    "no pod CIDR": (
        nodes(a_node(conditions=(said("CIDRNotAvailable", "False", "PodCIDRsAllocated"), FINE))),
        "pod-cidr-missing", NODE, "CIDRNotAvailable"),
    "breaker tripped": (
        nodes(a_node(conditions=(SILENT, FINE)), held=(Held("one", "3 nodes look gone", NOW),)),
        "deletions-held", NODE, "--node-deletion-resume"),
    "no witness": (
        nodes(a_node(conditions=(SILENT, FINE)),
              held=(Held("one", "annotate the node with proreus.io/machine-gone=true", NOW),)),
        "deletion-unproven", NODE, "kubectl annotate node one proreus.io/machine-gone=true"),
    "a serving certificate that nobody approves": (
        seen(requests=(a_request(90),)),
        "serving-certificate-pending", NODE, "kubectl certificate approve csr-90"),
    "a serving certificate that the manager does not approve": (
        seen(requests=(a_request(400, "Denied"), a_request(90)),
             not_approved=(Held("csr-90", "not approved: it asks for 10.0.0.9", NOW),)),
        "serving-certificate-pending", NODE, "it asks for 10.0.0.9"),
    "powered off, and held in service": (
        nodes(a_node(conditions=(SILENT, FINE)),
              in_service=(Held("one", "no Ready node vouches for it", NOW),)),
        "out-of-service-held", NODE, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"),
    "Ready and still out of service": (
        nodes(a_node(taints=(Taint("node.kubernetes.io/out-of-service", "NoExecute"),),
                     annotations={"proreus.io/out-of-service": "true"})),
        "out-of-service-stays", NODE, "node.kubernetes.io/out-of-service-`"),
    "toleration for new nodes": (
        seen(workloads=(a_workload(tolerations=(BOTH[1],)),)), "toleration-missing", DEPLOYMENT, TAINT.key),
    "toleration of the wrong effect": (
        seen(workloads=(a_workload(tolerations=(BOTH[0], Toleration(BOTH[1].key, "Exists", "", "NoExecute"))),)),
        "toleration-missing", DEPLOYMENT, "not-ready"),
    "toleration for control-plane nodes": (
        seen(nodes=(a_node(taints=(CONTROL_PLANE,)),), workloads=(a_workload(tolerations=BOTH),)),
        "toleration-missing", DEPLOYMENT, "control-plane"),
    "pod network": (seen(nodes=UNREADY, workloads=(a_workload(host_network=False),)), "no-host-network", DEPLOYMENT, "hostNetwork"),
    "cluster DNS": (
        seen(workloads=(a_workload(dns_policy="ClusterFirstWithHostNet"),)), "cluster-dns", DEPLOYMENT, "dnsPolicy"),
    "no replicas": (seen(workloads=(a_workload(0),)), "no-replicas", DEPLOYMENT, "--replicas=1"),
    "pod without a node": (
        seen(pods=(a_pod(Condition("PodScheduled", "False", "Unschedulable", "untolerated taint")),)),
        "pod-unschedulable", "pod/kube-system/ccm-1", "untolerated"),
    "pod that crashes": (
        seen(pods=(a_pod(waiting="CrashLoopBackOff"),)), "pod-failing", "pod/kube-system/ccm-1", "3 restarts"),
    "bare pod": (
        seen(nodes=UNREADY, workloads=(), pods=(Pod(a_pod().metadata, PodSpec(tolerations=(Toleration(operator="Exists"),))),)),
        "no-host-network", "pod/kube-system/ccm-1", "hostNetwork"),
    "no lease": (seen(leases=()), "no-leader", "lease/kube-system", "no lease"),
    "released lease": (seen(leases=(Lease("l", "", NOW, 15),)), "no-leader", "lease/kube-system", "holder"),
    "stale lease": (
        seen(leases=(Lease("l", "a", fresh(600), 15),)), "stale-lease", "lease/kube-system/l", "10 min"),
    "rights": (
        seen(rights=(Right("sa", "", "nodes/status", "patch"),)),
        "rights-missing", "user/sa", 'resources: ["nodes/status"], verbs: [patch]'),
    "rights in a namespace": (
        seen(rights=(Right("sa", "x.io", "leases", "get", "kube-system", "one"),)),
        "rights-missing", "user/sa", 'Role in kube-system: - {apiGroups: ["x.io"], resources: ["leases"], resourceNames: ["one"]'),
    "credentials": (seen(cloud=a_cloud(error=Unauthenticated("401"))), "cloud-credentials", "cloud/sim", "401"),
    "cloud-config": (seen(cloud=a_cloud(error=ConfigError(("region: x",)))), "cloud-config", "cloud/sim", "region"),
    "cloud out of reach": (seen(cloud=a_cloud(error=CloudError("no route"))), "cloud-unavailable", "cloud/sim", "no route"),
    "quota, as the cloud says now": (seen(cloud=a_cloud(Throttled("429"))), "cloud-throttled", "cloud/sim", "429"),
    "no cluster id": (seen(cloud=a_cloud(has_cluster_id=False)), "no-cluster-id", "cloud/sim", "--allow-untagged-cloud"),
    "class of nobody": (
        service(a_service(address="", load_balancer_class="x.io/y")), "class-unowned", WEB, "--load-balancer-classes=x.io/y"),
    "no class": (
        service(a_service(address=""), classes=Classes(frozenset({"a.b/c"}), classless=False)), "class-missing", WEB, "a.b/c"),
    "hosts without provider id": (
        service(a_service(ENSURED), nodes=(a_node(id_=""),), cloud=None), "no-hosts", WEB, "no spec.providerID"),
    "hosts excluded": (
        service(a_service(ENSURED), nodes=(a_node(labels={LABEL_EXCLUDE_LB: ""}),)), "no-hosts", WEB, "label"),
    "hosts of the autoscaler": (
        service(a_service(ENSURED), nodes=(a_node(taints=(Taint(TAINT_AUTOSCALER, "NoSchedule"),)),)),
        "no-hosts", WEB, "autoscaler"),
    "hosts being deleted": (
        service(a_service(ENSURED), nodes=tuple(a_node(str(i), deletion_timestamp=NOW) for i in range(6))),
        "no-hosts", WEB, "and 1 more"),
    "no ready pod": (service(a_service(ENSURED), slices=(a_slice(ready=False),)), "no-endpoints", WEB, "kubectl"),
    "local traffic without a target": (
        service(a_service(ENSURED, external_traffic_policy="Local"), slices=(a_slice("three"),)),
        "local-without-hosts", WEB, "three"),
    "source range": (
        service(a_service(ENSURED, load_balancer_source_ranges=("x",))), "unsupported-spec", WEB, "'x'"),
    "refused by the provider": (
        service(a_service(ENSURED), cloud=a_cloud(MACHINE, policies={"default/web": InvalidRequest("annotation a/b")})),
        "unsupported-spec", WEB, "annotation a/b"),
    "refused by the cloud": (
        service(a_service(said("InvalidRequest", type_="LoadBalancerReady"))), "unsupported-spec", WEB, "the cloud's words"),
    "name taken in the cloud": (
        service(a_service(said("IdentityConflict", type_="LoadBalancerReady"))),
        "not-ours", WEB, "rename",
    ),
    "hosts rejected": (
        service(a_service(said("HostsRejected", type_="LoadBalancerReady"))), "hosts-rejected", WEB, LABEL_EXCLUDE_LB),
    "address pool": (
        service(a_service(Condition("LoadBalancerReady", "False", "CloudError", "409 LimitExceeded: the pool is full"))),
        "cloud-limit", WEB, "pool"),
    "cloud error": (
        service(a_service(said("CloudError", type_="LoadBalancerReady"))), "cloud-refuses", WEB, "the cloud's words"),
    "long in the making": (
        service(a_service(said("Provisioning", "Unknown", "LoadBalancerReady"), address="")), "slow-cloud", WEB, "24 h"),
    "nobody looks at the Service": (
        service(a_service(address="")), "service-unattended", WEB, "--controllers"),
    "finalizer after a change of type": (
        service(a_service(type="ClusterIP")), "finalizer-stuck", WEB, "type is ClusterIP"),
    "finalizer of a deleted Service": (
        service(a_service(said("DeleteCloudError", type_="LoadBalancerReady"), **GOING)),
        "finalizer-stuck", WEB, "DeleteCloudError"),
    "MetalLB": (
        seen(balancers=(SPEAKER, SPEAKER)), "metallb-beside", "daemonset/lb/speaker", "--lb-class"),
    "MetalLB by its manifest": (
        seen(balancers=(a_daemon_set("speaker", app="metallb"),)),
        "metallb-beside", "daemonset/lb/speaker", "keep their addresses"),
    "k3s' load balancer": (
        seen(balancers=(a_daemon_set("svclb-web", k3s="web"),)),
        "servicelb-beside", "daemonset/lb/svclb-web", "--disable=servicelb"),
    "nodes answer ARP": (
        proxy("mode: ipvs"), "strict-arp-off", "configmap/kube-system/kube-proxy", "ipvs.strictARP: true"),
    "nodes answer ARP, as kubeadm writes it": (
        proxy("{mode: ipvs, ipvs: {strictARP: false, scheduler: rr}}"),
        "strict-arp-off", "configmap/kube-system/kube-proxy", "restart"),
    "volume without labels": (
        volumes({LABEL_ZONE: "north"}), "volume-not-labelled", "persistentvolume/data", "zone=north"),
    "volume whose labels are not in its affinity": (
        volumes(None, labels={LABEL_ZONE: "a", LABEL_REGION: "b"}, annotations={PROVISIONED_BY: "x"}),
        "volume-not-labelled", "persistentvolume/data", "24 h ago"),
    "volume that is not there": (
        volumes(InvalidRequest("there is no volume v")), "volume-unknown", "persistentvolume/data", "no volume v"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named_with_evidence_and_remedy(mistake: str) -> None:
    what, check, about, part = MISTAKES[mistake]

    diagnosis = diagnose(what)

    assert [(one.check, one.about) for one in diagnosis.findings] == [(check, about)], mistake
    (finding,) = diagnosis.findings
    assert part in f"{finding.problem} {finding.evidence} {finding.remedy}"
    assert "{" not in finding.remedy.replace("- {", "")
    assert diagnosis.exit_code == 1


OF_SPEAKERS = {
    "frr-not-running", "bgp-not-established", "bgp-speaker-not-ready", "bgp-speaker-missing",
    "bgp-peer-without-nodes",
}  # fmt: skip
"""Tried in test_doctor_speakers.py."""


def test_the_guide_lists_every_mistake_that_is_known() -> None:
    rows = [line for line in GUIDE.read_text().splitlines() if line.startswith("| ")]
    listed = {name for row in rows for name in re.findall(r"`([a-z-]+)`", row)}

    assert listed == {check for _, check, _, _ in MISTAKES.values()} | OF_SPEAKERS


WELL_TOO: dict[str, Observed] = {
    "all is well": WELL,
    "nothing is there yet": Observed(now=NOW, elects=False),
    "a node that has just come": nodes(new(creation_timestamp=fresh(5))),
    "a machine in the making": nodes(
        new(said("InstancePending"), creation_timestamp=fresh(5)),
        cloud=a_cloud(RetryAfter("", after=1)),
    ),
    "a node that goes": nodes(a_node(id_="", deletion_timestamp=NOW, conditions=())),
    "a node that is kept by hand": nodes(a_node(id_="")),
    "another manager's finding on the machine": seen(cloud=a_cloud(IdentityConflict("other"))),
    "a deletion held long ago of a node that is back": seen(held=(Held("one", "", NOW),)),
    "a new request for a serving certificate": seen(requests=(a_request(5),)),
    "a request before one that was approved": seen(
        requests=(a_request(400), a_request(90, "Approved"))
    ),
    "a request of nobody's": seen(requests=(a_request(90, user="jane"),)),
    "an unknown node that is gone": seen(unknown=(Held("none", "", NOW),)),
    "a manager on the pod network, while all nodes are well": seen(
        workloads=(a_workload(host_network=False),)
    ),
    "static pods": seen(
        workloads=(), pods=(a_pod(annotations={"kubernetes.io/config.mirror": ""}),)
    ),
    "no election": seen(leases=(), elects=False),
    "untagged by intention": seen(cloud=a_cloud(has_cluster_id=False), allow_untagged=True),
    "a class of another controller": service(a_service(load_balancer_class="x.io/y")),
    "a new Service of another class": service(
        a_service(address="", load_balancer_class="x.io/y", creation_timestamp=fresh(5))
    ),
    "a new Service": service(a_service(address="", creation_timestamp=fresh(5))),
    "a Service in the making": service(
        a_service(Condition("LoadBalancerReady", "Unknown", "Provisioning", "", fresh(5)))
    ),
    "a Service of another implementation": service(
        a_service(said("ImplementedElsewhere", "Unknown", "LoadBalancerReady"))
    ),
    "a Service that goes": service(a_service(**{**GOING, "deletion_timestamp": fresh(5)})),
    "a Service that was balanced": service(a_service(type="ClusterIP", finalizers=())),
    "EndpointSlices may not be read": service(a_service(ENSURED), slices=None),
    "MetalLB with a class": seen(
        balancers=(a_daemon_set("speaker", "--lb-class=metallb", name="metallb"),)
    ),
    "MetalLB for Services without a class": seen(
        balancers=(SPEAKER,), classes=Classes(frozenset({"x.io/ours"}), classless=False)
    ),
    "another mode of kube-proxy": proxy("{mode: nftables, ipvs: {strictARP: false}}"),
    "strict ARP": proxy("{mode: ipvs, ipvs: {strictARP: true}}"),
    "no configuration of kube-proxy": seen(kube_proxy={}),
    "one that is none": proxy("{"),
    "one of another form": proxy("[mode]"),
    "a volume that has just been made": volumes({LABEL_ZONE: "north"}, creation_timestamp=fresh(5)),
    "a volume of another cloud": volumes({}),
    "a volume that the cloud says nothing of now": volumes(CloudError("500")),
    "a volume of no cloud": volumes(None, spec={"hostPath": {"path": "/"}}),
    "a volume without a cloud to ask": volumes({LABEL_ZONE: "north"}, cloud=None),
}


@pytest.mark.parametrize("what", WELL_TOO)
def test_what_is_no_mistake_is_not_named(what: str) -> None:
    diagnosis = diagnose(WELL_TOO[what])

    assert diagnosis.findings == ()
    assert diagnosis.exit_code == 0
    assert "no problem found" in report.as_text(diagnosis)


def test_one_node_or_service_can_be_asked_about() -> None:
    what = seen(
        nodes=(new(), a_node("two", id_="", conditions=())),
        services=(a_service(address=""),),
        cloud=None,
        leases=(),
    )

    def checks(**only: str) -> list[str]:
        return [one.check for one in diagnose(what, **only).findings]

    assert checks() == [
        "no-leader", "node-unattended", "kubelet-not-external", "no-hosts", "service-unattended",
    ]  # fmt: skip
    assert checks(node="two") == ["no-leader", "kubelet-not-external"]
    assert checks(service="web") == checks(service="default/web")
    assert checks(service="web") == ["no-leader", "no-hosts", "service-unattended"]


def test_what_could_not_be_read_is_no_clean_bill() -> None:
    diagnosis = diagnose(seen(unread=("pods: forbidden",), notes=("the cloud was not asked",)))

    assert diagnosis.exit_code == 2
    assert "could not read pods: forbidden" in report.as_text(diagnosis)
    assert "no problem found in what could be read" in report.as_text(diagnosis)
    assert msgspec.json.decode(report.as_json(diagnosis))["notes"] == ["the cloud was not asked"]


def test_the_report_has_a_paragraph_for_each_finding() -> None:
    text = report.as_text(diagnose(seen(leases=())))

    assert "lease/kube-system: no manager leads, so no controller runs [no-leader]" in text
    assert "    seen:   " in text
    assert "    remedy: " in text
    assert text.endswith("1 problem found (2 nodes, 2 Services)")


@pytest.mark.parametrize(
    ("meta", "is_one"),
    [
        (ObjectMeta(name="cloud-controller-manager"), True),
        (ObjectMeta(name="hcloud-cloud-controller-manager-abc"), True),
        (ObjectMeta(name="x", labels={"app.kubernetes.io/name": "cloud-controller-manager"}), True),
        (ObjectMeta(name="x", labels={"k8s-app": "openstack-cloud-controller-manager"}), True),
        (ObjectMeta(name="vsphere-cpi-xyz"), True),
        (ObjectMeta(name="ccm-linode"), True),
        (ObjectMeta(name="kube-controller-manager-a"), False),
        (ObjectMeta(name="coredns", labels={"k8s-app": "kube-dns"}), False),
    ],
)
def test_managers_are_known_by_name_or_label(meta: ObjectMeta, *, is_one: bool) -> None:
    assert manager.is_manager(meta) is is_one


def test_flags_are_read_off_the_manager_where_none_are_given() -> None:
    args = ("--load-balancer-classes=a.b/c", "--leader_elect=false", "--controllers=x", "-v=2")
    spec: dict[str, Any] = {
        "containers": (Container("c", ("ccm", "--classless-load-balancers=maybe"), args),)
    }
    stated = manager.stated_flags(seen(workloads=(a_workload(**spec),)))

    found = as_stated(DoctorOptions(controllers=("service",)), stated)

    assert found.load_balancer_classes == ("a.b/c",)
    assert found.leader_elect is False
    assert found.controllers == ("service",), "what is given wins"
    assert found.classless_load_balancers, "what cannot be read changes nothing"
    assert manager.stated_flags(seen(workloads=(), pods=())) == {}


@pytest.mark.parametrize(
    ("different", "user"),
    [
        ({}, "system:serviceaccount:kube-system:ccm"),
        ({"workloads": ()}, "system:serviceaccount:kube-system:default"),
        ({"workloads": (), "pods": ()}, ""),
    ],
)
def test_rights_are_asked_for_the_managers_account(different: dict[str, Any], user: str) -> None:
    assert manager.service_account(seen(**different)) == user


@pytest.mark.parametrize(
    ("options", "has", "has_not"),
    [
        (
            DoctorOptions(),
            ("nodes", "services/status", "leases", "namespaces"),
            ("endpointslices",),
        ),
        (DoctorOptions(leader_elect=False), ("nodes",), ("leases",)),
        (DoctorOptions(controllers=("cloud-node",)), ("nodes",), ("services/status",)),
    ],
)
def test_the_rights_needed_are_those_of_what_runs(
    options: DoctorOptions, has: tuple[str, ...], has_not: tuple[str, ...]
) -> None:
    found = {need.resource for need in needs(options, frozenset())}

    assert found >= set(has)
    assert not found & set(has_not)
    assert {need.account for need in needs(options, frozenset())} == {"cloud-controller-manager"}


def test_the_rights_needed_are_those_of_the_caches_that_the_provider_needs() -> None:
    options = DoctorOptions()
    found = set(needs(options, frozenset({"endpoint_slices", "namespaces"})))

    more = {(one.resource, one.verb, one.name) for one in found - {*needs(options, frozenset())}}
    assert more == {
        (resource, verb, "")
        for resource in ("endpointslices", "namespaces")
        for verb in ("list", "watch")
    }


def test_controllers_with_accounts_of_their_own_need_rights_of_their_own() -> None:
    found = needs(DoctorOptions(use_service_account_credentials=True), frozenset())

    of_nodes = {(need.resource, need.verb) for need in found if need.account == "node-controller"}
    assert ("nodes/status", "patch") in of_nodes
    main = {need.resource for need in found if need.account == "cloud-controller-manager"}
    assert "nodes/status" not in main
    assert "serviceaccounts/token" in main
