"""A real etcd and kube-apiserver on loopback, for tests and demonstrations.

No root and no container runtime are needed, and, once the two programs are in the cache, no
network. Where the programs come from is told in `proreus.testing.controlplane.assets`.
"""

from proreus.testing.controlplane.assets import (
    KUBERNETES_VERSION,
    OLDEST_VERSION,
    VERSION_VARIABLE,
    Assets,
    ensure_assets,
    kubernetes_version,
)
from proreus.testing.controlplane.errors import ControlPlaneError
from proreus.testing.controlplane.plane import ControlPlane

__all__ = [
    "KUBERNETES_VERSION",
    "OLDEST_VERSION",
    "VERSION_VARIABLE",
    "Assets",
    "ControlPlane",
    "ControlPlaneError",
    "ensure_assets",
    "kubernetes_version",
]
