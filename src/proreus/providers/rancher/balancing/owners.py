"""Tell to whom services of Rancher belong, by their descriptions and names. Pure.

A load balancer has the UIDs of Service and cluster in its description; one that the official
manager has made has the Service's UID in its name. An external service is shared by the load
balancers of a cluster: its description names the node in the place of a Service.
"""

import re
from typing import Any, Final

from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.mark_forms import Description
from proreus.cloudprovider.ownership import Owner, Verdict, verdict

_TEXT: Final = Description(1024)
_SERVICE: Final = re.compile(r"Kubernetes Service (\S+) of cluster ")


def description(ref: LoadBalancerRef) -> str:
    """Return the description of a load balancer."""
    return _TEXT.write(f"Kubernetes Service {ref.key} of cluster {ref.cluster.name}", ref)


def node_description(cluster: ClusterIdentity, node: str) -> str:
    """Return the description of a node's external service."""
    ref = LoadBalancerRef(cluster, "", "", node, "")
    return _TEXT.write(f"Kubernetes node of cluster {cluster.name}", ref)


def owner_of(service: dict[str, Any]) -> Owner | None:
    """Return the owner that our marks on a service name."""
    return _TEXT.read(str(service.get("description") or ""))[1]


def verdict_of(service: dict[str, Any], ref: LoadBalancerRef) -> Verdict:
    """Return how a load balancer is related to a Service."""
    owner = owner_of(service)
    named = (str(service.get("name") or ""),)
    return verdict(ref, owners=(owner,) if owner else (), texts=named)


def service_of(service: dict[str, Any]) -> str:
    """Return the Service as namespace/name that the marks on a load balancer name, or ""."""
    found = _SERVICE.match(str(service.get("description") or ""))
    return found[1] if found else ""
