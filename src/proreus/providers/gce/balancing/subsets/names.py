"""Make the official names and descriptions of load balancers with a subset of nodes. Pure.

They are those of the controller that officially makes such load balancers (ingress-gce,
`pkg/utils/namer/l4_namer.go`). They hold digests of the cluster's uid and of the Service's
namespace and name, not the Service's uid, so a name alone does not prove whose a part is: the
labels of the forwarding rule do. Digests are short, and one of them is cut: whoever tries names for
a minute finds one for which a part is called as another namespace's Service's. So a part is none of
the Service's if its description names another one.
"""

import hashlib
import json
import string
from typing import Final

import msgspec

from proreus.cloudprovider.load_balancers import LoadBalancerRef

PREFIX: Final = "k8s2"
PROTOCOLS: Final = ("tcp", "udp", "l3")
"""The words for protocols in names of forwarding rules; the last one stands for all protocols."""

_LONGEST: Final = 63
_COMBINED: Final = 39
"""The most letters that namespace and name have together in a name."""
_HASH: Final = 8
_LETTERS: Final = string.digits + string.ascii_lowercase
_SHARED: Final = (
    "This resource is shared by all L4 {} Services using ExternalTrafficPolicy: Cluster."
)


class SubsetNames(msgspec.Struct, frozen=True):
    """The names of the parts of one load balancer with a subset of nodes.

    Attributes:
        service: The Service, as namespace/name.
        own: The name of the backend service, the groups of endpoints, the firewall rule for clients
            and the own health check.
        own_check_firewall: The name of the firewall rule for the own health check.
        shared_check: The name of the health check of nodes, which all such load balancers share.
        shared_check_firewall: The name of the firewall rule for the shared health check.
        rules: The name of the forwarding rule, by the word for its protocol.
    """

    service: str
    own: str
    own_check_firewall: str
    shared_check: str
    shared_check_firewall: str
    rules: dict[str, str]


def names_of(ref: LoadBalancerRef) -> SubsetNames:
    """Return the names of the parts of a Service's load balancer."""
    namespace, name = ref.namespace, ref.service_name
    cluster = content_hash(ref.cluster.uid)
    digest = content_hash(f"{cluster};{namespace};{name}")
    own = _joined(cluster, namespace, name, digest, _COMBINED)
    shared = f"{PREFIX}-{cluster}-l4-shared-hc"
    return SubsetNames(
        service=ref.key,
        own=own,
        own_check_firewall=f"{own[: _LONGEST - 3]}-fw",
        shared_check=shared,
        shared_check_firewall=f"{shared}-fw",
        rules={
            word: _joined(f"{word}-{cluster}", namespace, name, digest, _COMBINED - len(word) - 1)
            for word in PROTOCOLS
        },
    )


def _joined(before: str, namespace: str, name: str, digest: str, most: int) -> str:
    return "-".join((PREFIX, before, *trimmed(most, namespace, name), digest))


def content_hash(text: str) -> str:
    """Return eight letters and digits for a text."""
    digest = hashlib.sha256(text.encode()).digest()[:_HASH]
    return "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest)


def trimmed(most: int, *fields: str) -> tuple[str, ...]:
    """Return fields cut to so many letters together, long ones more than short ones."""
    total = sum(map(len, fields))
    if total <= most:
        return fields
    excess = total - most
    lengths = [len(field) - len(field) * excess // total - 1 for field in fields]
    for index in range(most - sum(lengths)):
        lengths[index] += 1
    return tuple(field[:length] for field, length in zip(fields, lengths, strict=True))


def described(service: str) -> str:
    """Return the description of a part that is made for a Service (namespace/name)."""
    return _text(service)


def described_as_shared(kind: str = "") -> str:
    """Return the description of the shared health check ("ILB"), or of its firewall rule ("")."""
    return _text("", **{"networking.gke.io/resource-description": _SHARED.format(kind)})


def described_group(ref: LoadBalancerRef) -> str:
    """Return the description of a group of endpoints."""
    fields = {
        "cluster-uid": ref.cluster.uid,
        "namespace": ref.namespace,
        "service-name": ref.service_name,
    }
    return json.dumps(fields, separators=(",", ":"))


def is_others(description: str, service: str) -> bool:
    """Tell whether the description of a part names another Service (namespace/name)."""
    try:
        fields = json.loads(description)
    except ValueError:
        return False
    if not isinstance(fields, dict):
        return False
    keys = ("networking.gke.io/service-name", "kubernetes.io/service-name")
    named = [str(fields[key]) for key in keys if key in fields]
    if {"namespace", "service-name"} <= fields.keys():  # so groups of endpoints say it
        named.append(f"{fields['namespace']}/{fields['service-name']}")
    return any(one not in {"", service} for one in named)


def _text(service: str, **more: str) -> str:
    fields = {"networking.gke.io/service-name": service, "networking.gke.io/api-version": "ga"}
    return json.dumps({**fields, **more}, separators=(",", ":"))
