"""A real Kubernetes cluster on one Linux machine: no Docker, no virtual machines.

etcd, kube-apiserver, kube-controller-manager, kube-scheduler and CoreDNS run on a gateway;
containerd, kubelet and kube-proxy on nodes; all are namespaces of this machine, and end together.
`python -m labs.cluster` makes one, `docs/guides/real-cluster.md` shows how.
"""

from labs.cluster.cluster import Cluster, Settings, directory_of, find, remove
from labs.cluster.errors import ClusterError
from labs.cluster.manager import start_manager
from labs.cluster.programs import ensure_built, ensure_programs, why_not

__all__ = [
    "Cluster",
    "ClusterError",
    "Settings",
    "directory_of",
    "ensure_built",
    "ensure_programs",
    "find",
    "remove",
    "start_manager",
    "why_not",
]
