"""Make the names and descriptions of the parts of load balancers: the official ones. Pure.

All but what Services share is named after the Service's uid, which proves whose it is.
"""

import hashlib
import re
from typing import Final

from proreus.cloudprovider.ownership import Owner

_SERVICE: Final = re.compile(r'"kubernetes\.io/service-name":\s*"([^"/]+)/([^"/]+)"')
_AFFINITIES: Final = {True: "ClientIP", False: "None"}


def firewall(name: str) -> str:
    """Return the name of the firewall rule that lets clients in."""
    return f"k8s-fw-{name}"


def shared_check(cluster_id: str) -> str:
    """Return the name of the health check that asks nodes, shared by load balancers."""
    return f"k8s-{cluster_id}-node"


def udp_rule(name: str) -> str:
    """Return the name of the second forwarding rule of a target pool, which is for UDP."""
    return f"{name}-udp"


def external_check_firewall(name: str, cluster_id: str, *, shared: bool) -> str:
    """Return the name of the firewall rule for the health checks of target pools."""
    return f"{shared_check(cluster_id) if shared else f'k8s-{name}'}-http-hc"


def internal_check_firewall(name: str, cluster_id: str, *, shared: bool) -> str:
    """Return the name of the firewall rule for the health checks of backend services."""
    return f"{shared_check(cluster_id) if shared else name}-hc"


def instance_group(cluster_id: str) -> str:
    """Return the name of the instance group of nodes, in each zone."""
    return f"k8s-ig--{cluster_id}"


def shared_service(cluster_id: str, protocol: str, *, affinity: bool) -> str:
    """Return the name of a backend service that internal Services share."""
    digest = hashlib.sha1(_AFFINITIES[affinity].encode(), usedforsecurity=False).hexdigest()[:16]
    return f"k8s-{cluster_id}-internal-{protocol.lower()}-nmv1-{digest}"


def described(service: str) -> str:
    """Return the description of a part that is made for a Service (namespace/name)."""
    return f'{{"kubernetes.io/service-name":"{service}"}}'


def described_with_address(service: str, address: str) -> str:
    """Return the description of a firewall rule for a Service."""
    return f'{{"kubernetes.io/service-name":"{service}", "kubernetes.io/service-ip":"{address}"}}'


def described_for_cluster(cluster_id: str) -> str:
    """Return the description of the firewall rule for the shared health check of nodes."""
    return f'{{"kubernetes.io/cluster-id":"{cluster_id}"}}'


def owner_in(description: str) -> Owner | None:
    """Return the Service that a description names; None if it names none."""
    found = _SERVICE.search(description)
    return Owner(namespace=found[1], service=found[2]) if found else None
