"""An API server in memory, with what a cloud-controller-manager uses of the Kubernetes API.

For numbers that etcd has no room for on a small machine (100,000 nodes), and for histories on a
virtual clock. It passes the same tests of the client as a real kube-apiserver, and shows what
that shows: one version for all objects, lists in pages of one version, watches with bookmarks and
410, the four kinds of patch with their errors, finalizers, status subresources.

    store       objects, versions, history                  no I/O
    patches     JSON Patch, merge patch, strategic merge    pure
    rules       defaults and validation by kind             pure
    faults      failures to inject
    server      HTTP
    kubeconfig  how to reach it

`python -m proreus.testing.memory` serves it from a process of its own.

There is no authentication, no authorization and no admission beyond the default.
"""

from proreus.testing.memory.faults import Fault, FaultMode
from proreus.testing.memory.server import LoggedRequest, MemoryApiServer
from proreus.testing.memory.store import Store

__all__ = ["Fault", "FaultMode", "LoggedRequest", "MemoryApiServer", "Store"]
