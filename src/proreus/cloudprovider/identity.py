"""Identify a cluster, and name the marks that prove to whom a cloud object belongs.

What counts as proof, and in which order, `ownership.verdict` says; the forms in which clouds keep
marks are in `mark_forms`.
"""

from collections.abc import Mapping

import msgspec

MARK_CLUSTER = "proreus/cluster"
"""Mark on cloud objects: the value of `--cluster-name`."""
MARK_CLUSTER_UID = "proreus/cluster-uid"
"""Mark on cloud objects: the UID of the namespace kube-system."""
MARK_SERVICE = "proreus/service"
"""Mark on cloud objects: namespace and name of the Service."""
MARK_SERVICE_UID = "proreus/service-uid"
"""Mark on cloud objects: the UID of the Service, the proof of ownership."""
MARK_FINGERPRINT = "proreus/fingerprint"
"""Mark on load balancers: a digest of what they were made from (`recorded`). It proves nothing."""


class ClusterIdentity(msgspec.Struct, frozen=True):
    """The identity of a cluster: `--cluster-name` and the UID of the namespace kube-system."""

    name: str
    uid: str


class OwnedObject(msgspec.Struct, frozen=True):
    """A cloud object that carries this cluster's marks.

    `kind` is the cloud's word for it, `id` its identifier there, `service_uid` the UID of the
    Service it was made for, or "" if it is shared, `fingerprint` what the provider made it from
    (compared with what is desired to find drift), or "". `addresses` are the IP addresses and host
    names that the Service's status is to show, beside a fingerprint. A fingerprint is `recorded` if
    it does not follow from what the cloud shows now, but is what the last `ensure` has left there:
    such a Service is ensured each day all the same.
    """

    kind: str
    id: str
    service: str = ""
    service_uid: str = ""
    fingerprint: str = ""
    addresses: tuple[str, ...] = ()
    recorded: bool = False


def marks(cluster: ClusterIdentity, service: str, service_uid: str) -> Mapping[str, str]:
    """Return the ownership marks of an object made for a Service (`service` is namespace/name)."""
    return {
        MARK_CLUSTER: cluster.name,
        MARK_CLUSTER_UID: cluster.uid,
        MARK_SERVICE: service,
        MARK_SERVICE_UID: service_uid,
    }
