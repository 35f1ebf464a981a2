"""Read and write static routes, and tell whose they are. Pure.

The id, the name and the tags are those of the official manager, and one tag more holds the
cluster's UID, by which a route is known to be ours.
"""

from collections.abc import Iterable
from ipaddress import ip_network
from typing import Final

import msgspec

from proreus.cloudprovider.addresses import family_of
from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.identity import MARK_CLUSTER, MARK_CLUSTER_UID, ClusterIdentity
from proreus.cloudprovider.routes import Route, network_of
from proreus.kube.objects import Node
from proreus.providers.vsphere.nsxt.balancing.documents import with_tags
from proreus.providers.vsphere.nsxt.balancing.parts import tags_of
from proreus.providers.vsphere.nsxt.operations import Document

CLUSTER_SCOPE: Final = "vsphere.k8s.io/cluster-name"
NODE_SCOPE: Final = "vsphere.k8s.io/node-name"
"""Scopes of the official manager's tags."""
_LONGEST_NAME: Final = 255


class StaticRoute(msgspec.Struct, frozen=True):
    """A static route.

    Attributes:
        id: Its id.
        network: Its destination, a CIDR.
        hops: The addresses to which it leads.
        cluster: The value of the official tag with the cluster's name, or "".
        cluster_uid: The UID of the cluster that our mark names, or "".
        document: The route as NSX-T describes it.
    """

    id: str
    network: str
    hops: tuple[str, ...]
    cluster: str = ""
    cluster_uid: str = ""
    document: Document = {}


def read_route(document: Document) -> StaticRoute:
    """Read a static route."""
    tags = tags_of(document)
    hops = (str(one.get("ip_address") or "") for one in document.get("next_hops") or ())
    return StaticRoute(
        id=str(document["id"]),
        network=str(document.get("network") or ""),
        hops=tuple(filter(None, hops)),
        cluster=tags.get(CLUSTER_SCOPE, ""),
        cluster_uid=tags.get(MARK_CLUSTER_UID, ""),
        document=document,
    )


def is_ours(route: StaticRoute, cluster: ClusterIdentity) -> bool:
    """Tell whether our mark says that a route was made for this cluster."""
    return bool(route.cluster_uid) and route.cluster_uid == cluster.uid


def is_adoptable(route: StaticRoute, cluster: ClusterIdentity, nodes: Iterable[Node]) -> bool:
    """Tell whether the official manager has made a route for this cluster.

    The official manager knows a cluster by its name alone; the UID of one of the cluster's nodes in
    the id proves it.
    """
    uids = {one.metadata.uid for one in nodes} - {""}
    is_official = not route.cluster_uid and route.cluster == cluster.name
    return is_official and route.id.partition("_")[0] in uids


def as_route(route: StaticRoute) -> Route:
    """Return a static route as the framework knows routes.

    For a route that leads to several addresses, or to none, the target is not known.
    """
    target = route.hops[0] if len(route.hops) == 1 else None
    return Route(route.id, route.network, target)


def leads_to(one: StaticRoute, route: Route) -> bool:
    """Tell whether a static route is a route as it was listed."""
    is_same = network_of(one.network) == network_of(route.destination)
    return is_same and as_route(one).target == route.target


def route_id(node: Node, destination: str) -> str:
    """Return the official id of a node's route."""
    return f"{node.metadata.uid}_{destination}".replace("/", "_")


def route_document(
    cluster: ClusterIdentity, node: Node, destination: str, found: StaticRoute | None
) -> Document:
    """Return the document that makes a node's route, or changes the existing one.

    Raises:
        InvalidRequest: The node has no address of the destination's family.
    """
    tags = {
        CLUSTER_SCOPE: cluster.name,
        NODE_SCOPE: node.metadata.name,
        MARK_CLUSTER: cluster.name,
        MARK_CLUSTER_UID: cluster.uid,
    }
    hop = _hop(node, destination)
    made = {
        "display_name": f"{cluster.name}_{node.metadata.name}_{destination}"[:_LONGEST_NAME],
        "next_hops": [{"ip_address": hop}],
    }
    if found is None:
        return {"network": destination, **made, "tags": with_tags({}, tags)}
    document = dict(found.document)
    if found.hops != (hop,):
        document |= made
    if not tags.items() <= tags_of(document).items():
        document["tags"] = with_tags(document, tags)
    return document


def _hop(node: Node, destination: str) -> str:
    """Return the address of a node to which its route leads: as officially, internal ones first."""
    family = f"IPv{ip_network(destination, strict=False).version}"
    for type_ in ("InternalIP", "ExternalIP"):
        for one in node.status.addresses:
            if one.type == type_ and family_of(one.address) == family:
                return one.address
    raise InvalidRequest(
        f"the node has no {family} address, to which its pod CIDR {destination} could be routed"
    )
