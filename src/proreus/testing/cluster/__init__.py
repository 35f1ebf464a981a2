"""A real Kubernetes cluster on one Linux machine: no Docker, no virtual machines.

etcd, kube-apiserver, kube-controller-manager, kube-scheduler and CoreDNS run on a gateway;
containerd, kubelet and kube-proxy on nodes; all are namespaces of this machine, and end together.
`python -m proreus.testing.cluster` makes one, `docs/guides/real-cluster.md` shows how.
"""

from proreus.testing.cluster.cluster import Cluster, Settings, directory_of, find, remove
from proreus.testing.cluster.errors import ClusterError
from proreus.testing.cluster.manager import start_manager
from proreus.testing.cluster.programs import ensure_programs, why_not

__all__ = [
    "Cluster",
    "ClusterError",
    "Settings",
    "directory_of",
    "ensure_programs",
    "find",
    "remove",
    "start_manager",
    "why_not",
]
