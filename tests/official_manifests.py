"""How official manifests start their managers: facts, each with the place that it is from.

Read in July and August 2026. Charts are rendered with their default values; what a kubelet or an
installer fills in ($(CLUSTER_NAME), a template's value) is filled in. Other projects' tables are
named where they are what most people run: kops, kube-up, HyperShift.
"""

from typing import Any, Final, NamedTuple

CLOUD_CONFIG: Final = "{cloud-config}"
"""Stands for the path of the cloud-config."""
KUBECONFIG: Final = "{kubeconfig}"


class Start(NamedTuple):
    """One container of one manifest.

    `command` is "" where the image's entrypoint runs.
    """

    cloud: str
    source: str
    command: str
    args: tuple[str, ...]


_AWS = "kubernetes/cloud-provider-aws/"
_OPENSTACK = "kubernetes/cloud-provider-openstack/"
_GCP = "kubernetes/cloud-provider-gcp/"
_AZURE = "kubernetes-sigs/cloud-provider-azure/"
_VSPHERE = "kubernetes/cloud-provider-vsphere/"
_KOPS = "kubernetes/kops/"
_BAIDU = "baidu/cloud-provider-baiducloud/"
_OCCM = "/bin/openstack-cloud-controller-manager"

STARTS: Final = (
    Start(
        "aws", _AWS + "charts/aws-cloud-controller-manager/values.yaml", "",
        ("--v=2", "--cloud-provider=aws"),
    ),
    Start(
        "aws", _AWS + "examples/existing-cluster/base/aws-cloud-controller-manager-daemonset.yaml", "",
        ("--v=2", "--cloud-provider=aws", "--use-service-account-credentials=true",
         "--configure-cloud-routes=false"),
    ),
    Start(
        "aws", _AWS + "examples/existing-cluster/overlays/superset-role", "",
        ("--v=2", "--cloud-provider=aws", "--use-service-account-credentials=false",
         "--configure-cloud-routes=false"),
    ),
    Start(
        "aws", _KOPS + "tests/integration/update_cluster/minimal/data", "",
        ("--allocate-node-cidrs=true", "--cluster-cidr=100.96.0.0/11",
         "--cluster-name=minimal.example.com", "--configure-cloud-routes=false",
         "--leader-elect=true", "--v=2", "--cloud-provider=aws",
         "--use-service-account-credentials=true", f"--cloud-config={CLOUD_CONFIG}"),
    ),
    Start(
        "aws", "openshift/hypershift/control-plane-operator",
        "/bin/aws-cloud-controller-manager",
        ("--cloud-provider=aws", "--use-service-account-credentials=false",
         f"--kubeconfig={KUBECONFIG}", f"--cloud-config={CLOUD_CONFIG}",
         "--configure-cloud-routes=false", "--leader-elect=true",
         "--leader-elect-lease-duration=137s", "--leader-elect-renew-deadline=107s",
         "--leader-elect-retry-period=26s",
         "--leader-elect-resource-namespace=openshift-cloud-controller-manager",
         f"--authentication-kubeconfig={KUBECONFIG}", f"--authorization-kubeconfig={KUBECONFIG}"),
    ),
    Start(
        "openstack", _OPENSTACK + "charts/openstack-cloud-controller-manager", "",
        (_OCCM, "--v=2", f"--cloud-config={CLOUD_CONFIG}", "--cluster-name=kubernetes",
         "--cloud-provider=openstack", "--use-service-account-credentials=false",
         "--controllers=cloud-node,cloud-node-lifecycle,route,service", "--bind-address=127.0.0.1"),
    ),
    Start(
        "openstack", _OPENSTACK + "manifests/controller-manager/openstack-cloud-controller-manager-ds.yaml", "",
        (_OCCM, "--v=1", "--cluster-name=kubernetes", f"--cloud-config={CLOUD_CONFIG}",
         "--cloud-provider=openstack", "--use-service-account-credentials=false",
         "--bind-address=127.0.0.1"),
    ),
    Start(
        "openstack", _OPENSTACK + "manifests/controller-manager/openstack-cloud-controller-manager-pod.yaml", "",
        (_OCCM, "--v=1", "--cluster-name=kubernetes", f"--cloud-config={CLOUD_CONFIG}",
         "--cloud-provider=openstack", "--use-service-account-credentials=true",
         "--bind-address=127.0.0.1"),
    ),
    Start(
        "openstack", _OPENSTACK + "pkg/openstack/openstack.go: AddExtraFlags", _OCCM,
        ("--cloud-provider=openstack", f"--cloud-config={CLOUD_CONFIG}",
         "--user-agent=cluster/abc-123", "--user-agent", "team/a b"),
    ),
    Start(
        "gce", _GCP + "deploy/cloud-controller-manager.manifest, kubernetes/kubernetes/cluster/gce/gci/configure-helper.sh", "",
        ("--log-file=/var/log/cloud-controller-manager.log", "--also-stdout=false",
         "--redirect-stderr=true", "/cloud-controller-manager", "--v=4",
         f"--cloud-config={CLOUD_CONFIG}", "--secure-port=10258",
         "--use-service-account-credentials", "--cloud-provider=gce", "--concurrent-node-syncs=10",
         f"--kubeconfig={KUBECONFIG}", f"--authorization-kubeconfig={KUBECONFIG}",
         f"--authentication-kubeconfig={KUBECONFIG}", "--cluster-name=e2e", "--cluster-cidr=10.64.0.0/14",
         "--concurrent-service-syncs=5", "--allocate-node-cidrs=true",
         "--cidr-allocator-type=CloudAllocator", "--configure-cloud-routes=false",
         "--feature-gates=A=true,B=false", "--controllers=*"),
    ),
    Start(
        "gce", "kubernetes/kubernetes/cluster/gce/manifests/cloud-controller-manager.manifest",
        "/cloud-controller-manager",
        ("--log-file=/var/log/cloud-controller-manager.log", "--logtostderr=false", "--v=4",
         f"--cloud-config={CLOUD_CONFIG}", "--secure-port=10258",
         "--use-service-account-credentials", "--cloud-provider=gce"),
    ),
    Start(
        "gce", _GCP + "docs/ccm-manual.md", "/usr/local/bin/cloud-controller-manager",
        (f"--kubeconfig={KUBECONFIG}", f"--authentication-kubeconfig={KUBECONFIG}",
         f"--authorization-kubeconfig={KUBECONFIG}", "--cloud-provider=gce",
         "--allocate-node-cidrs=true", "--cluster-cidr=10.4.0.0/14",
         "--cluster-name=kops-k8s-local", "--configure-cloud-routes=true", "--leader-elect=true",
         "--use-service-account-credentials=true", "--v=2"),
    ),
    Start(
        "gce", _KOPS + "tests/integration/update_cluster/minimal_gce/data",
        "/usr/local/bin/cloud-controller-manager",
        ("--allocate-node-cidrs=true", "--cidr-allocator-type=CloudAllocator",
         "--cluster-cidr=100.96.0.0/11", "--cluster-name=minimal-gce-example-com",
         "--controllers=*", "--leader-elect=true", "--v=2", "--cloud-provider=gce",
         "--use-service-account-credentials=true", f"--cloud-config={CLOUD_CONFIG}"),
    ),
    Start(
        "gce", _GCP + "cmd/cloud-controller-manager/main.go", "/cloud-controller-manager",
        ("--cloud-provider=gce", "--enable-multi-project", "--enable-rbs-default-l4-netlb=true",
         "--enable-l4-lb-annotations", "--enable-multi-networking=false"),
    ),
    Start(
        "azure", _AZURE + "helm/cloud-provider-azure", "cloud-controller-manager",
        ("--allocate-node-cidrs=true", f"--cloud-config={CLOUD_CONFIG}", "--cloud-provider=azure",
         "--cluster-cidr=10.244.0.0/16", "--cluster-name=kubernetes",
         "--configure-cloud-routes=true", "--controllers=*,-cloud-node", "--leader-elect=true",
         "--route-reconciliation-period=10s", "--v=2"),
    ),
    Start(
        "azure", _AZURE + "examples/out-of-tree/cloud-controller-manager.yaml", "cloud-controller-manager",
        ("--allocate-node-cidrs=true", f"--cloud-config={CLOUD_CONFIG}", "--cloud-provider=azure",
         "--cluster-cidr=10.244.0.0/16", "--cluster-name=k8s", "--controllers=*,-cloud-node",
         "--configure-cloud-routes=true", "--leader-elect=true",
         "--route-reconciliation-period=10s", "--v=4", "--secure-port=10267"),
    ),
    Start(
        "azure", _KOPS + "upup/models/cloudup/resources/addons/azure-cloud-controller.addons.k8s.io",
        "cloud-controller-manager",
        ("--allocate-node-cidrs=false", "--cloud-config=",
         "--cloud-config-secret-name=azure-cloud-provider", "--cloud-provider=azure",
         "--cluster-cidr=100.96.0.0/11", "--cluster-name=c", "--configure-cloud-routes=false",
         "--controllers=*,-cloud-node", "--enable-dynamic-reloading=true", "--leader-elect=true",
         "--route-reconciliation-period=10s", "--secure-port=10268", "--v=2"),
    ),
    Start(
        "vsphere", _VSPHERE + "charts/vsphere-cpi", "",
        ("--cloud-provider=vsphere", "--v=2", f"--cloud-config={CLOUD_CONFIG}"),
    ),
    Start(
        "vsphere", _VSPHERE + "manifests/controller-manager/vsphere-cloud-controller-manager-pod.yaml",
        "/bin/vsphere-cloud-controller-manager",
        ("--v=2", f"--cloud-config={CLOUD_CONFIG}", "--cloud-provider=vsphere"),
    ),
    Start(
        "cce", _BAIDU + "docs/example-manifests/cce-cloud-controller-manager-deployment.yaml", "",
        ("/usr/local/bin/cce-cloud-controller-manager", "--v=4", "--logtostderr=true",
         f"--cloud-config={CLOUD_CONFIG}", "--cloud-provider=cce", f"--kubeconfig={KUBECONFIG}",
         "--allocate-node-cidrs=true", "--cluster-cidr=172.16.0.0/16", "--cluster-name=kubernetes",
         "--route-reconciliation-period=50s"),
    ),
)  # fmt: skip

_OF_ALL: Final = {
    "endpoints": ("create", "get", "list", "watch", "update"),
    "events": ("create", "patch", "update"),
    "nodes": ("*",),
    "nodes/status": ("patch",),
    "services": ("list", "patch", "update", "watch"),
    "serviceaccounts/token": ("create",),
}
_RIGHTS: Final = {
    # charts/aws-cloud-controller-manager/values.yaml: clusterRoleRules
    "aws": {
        **_OF_ALL,
        "services/status": ("list", "patch", "update", "watch"),
        "serviceaccounts": ("create",),
        "persistentvolumes": ("get", "list", "update", "watch"),
        "coordination.k8s.io/leases": ("create", "get", "list", "watch", "update"),
        "authentication.k8s.io/tokenreviews": ("create",),
        "authorization.k8s.io/subjectaccessreviews": ("create",),
    },
    # manifests/controller-manager/cloud-controller-manager-roles.yaml, and the same in the chart
    "openstack": {
        **_OF_ALL,
        "services/status": ("patch",),
        "serviceaccounts": ("create", "get"),
        "persistentvolumes": ("*",),
        "coordination.k8s.io/leases": ("get", "create", "update"),
        "configmaps": ("get", "list", "watch"),
        "secrets": ("list", "get", "watch"),
    },
}


def rules(cloud: str) -> list[dict[str, Any]]:
    """The official ClusterRole `system:cloud-controller-manager`, as in a manifest."""
    found = []
    for resource, verbs in _RIGHTS[cloud].items():
        group, slash, rest = resource.partition("/")
        group, resource = (group, rest) if slash and "." in group else ("", resource)
        found.append({"apiGroups": [group], "resources": [resource], "verbs": list(verbs)})
    return found
