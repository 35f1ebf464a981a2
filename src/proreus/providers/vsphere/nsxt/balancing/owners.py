"""Tell to whom objects of NSX-T belong, by their tags. Pure.

All that is made bears the official manager's tags and beside them our marks, each as a tag with the
mark's name as its scope. So either manager knows what the other one has made; and what only bears
official tags, which hold no UIDs, is the Service's if its address is in the Service's status.
"""

from collections.abc import Iterable, Mapping

from proreus.cloudprovider.addresses import plain_address
from proreus.cloudprovider.identity import MARK_CLUSTER_UID, ClusterIdentity, marks
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.mark_forms import owner_of
from proreus.cloudprovider.ownership import (
    Owner,
    Standing,
    Verdict,
    shown_addresses,
    shown_by_others,
    standing,
    verdict,
)
from proreus.kube.objects import KubeObject, Service, key
from proreus.providers.vsphere.nsxt.balancing.parts import tags_of
from proreus.providers.vsphere.nsxt.operations import Document

_OWNER, _CLUSTER, _SERVICE = "owner", "cluster", "service"
"""Scopes of the official manager's tags."""


def service_tags(ref: LoadBalancerRef, owner: str, more: Mapping[str, str]) -> dict[str, str]:
    """Return the tags of all that is made for a Service.

    Args:
        ref: The Service.
        owner: The official tag `owner`.
        more: The additional tags of the cloud-config.
    """
    official = {**more, _OWNER: owner, _CLUSTER: ref.cluster.name, _SERVICE: ref.key}
    return {**official, **marks(ref.cluster, ref.key, ref.uid)}


def scopes(more: Mapping[str, str]) -> frozenset[str]:
    """Return the scopes of the tags that `service_tags` returns."""
    return frozenset((*more, _OWNER, _CLUSTER, _SERVICE, *marks(ClusterIdentity("", ""), "", "")))


def cluster_tags(cluster: ClusterIdentity, owner: str, more: Mapping[str, str]) -> dict[str, str]:
    """Return the tags of objects that are made for the whole cluster."""
    own = {key: value for key, value in marks(cluster, "", "").items() if value}
    return {**more, _OWNER: owner, _CLUSTER: cluster.name, **own}


def verdict_of(
    document: Document, ref: LoadBalancerRef, owner: str, addresses: Iterable[str]
) -> Verdict:
    """Return how an object is related to a Service.

    Args:
        document: The object as NSX-T describes it.
        ref: The Service.
        owner: The official tag `owner` of this cluster.
        addresses: The addresses at which clients reach it.
    """
    tags = tags_of(document)
    ours = owner_of(tags)
    return verdict(
        ref,
        owners=() if ours is None else (ours,),
        official=_official(tags, owner),
        addresses=[one for one in addresses if one],
    )


def _official(tags: Mapping[str, str], owner: str) -> list[Owner]:
    """Return the owner that the official manager's tags name, if they name one."""
    if tags.get(_OWNER) != owner or not tags.get(_CLUSTER):
        return []
    return [_named(tags)]


def others_with(
    address: str,
    ref: LoadBalancerRef,
    services: Iterable[KubeObject],
    servers: Iterable[Document],
) -> list[Owner]:
    """Return the other namespaces' Services, and other clusters', that have an address.

    By their status, or else by their virtual servers.

    Args:
        address: The address; "" for none.
        ref: The Service.
        services: All Services of the cluster.
        servers: Virtual servers that are not the Service's, in the network of the address.
    """
    services = tuple(services)
    found = shown_by_others(address, ref, services)
    return found or _at_servers(address, ref, services, servers)


def _at_servers(
    address: str,
    ref: LoadBalancerRef,
    services: Iterable[KubeObject],
    servers: Iterable[Document],
) -> list[Owner]:
    """Return those whose virtual servers are at an address that the Service's status lacks.

    What bears official tags alone may be of a cluster of the same name, unless a Service of the
    name here shows the address.
    """
    wanted = plain_address(address)
    if not wanted or wanted in {plain_address(point.ip) for point in ref.last_ingress}:
        return []
    there = [tags_of(one) for one in servers if _is_at(one, wanted)]
    shown = _showing(wanted, services) if there else set()
    found = ((owner_of(tags), _named(tags)) for tags in there)
    return [
        ours or named
        for ours, named in found
        if standing(ours or named, ref) is Standing.FOREIGN
        or (not ours and named.key and named.key not in shown - {ref.key})
    ]


def _showing(address: str, services: Iterable[KubeObject]) -> set[str]:
    """Return the keys of the Services whose statuses show an address."""
    return {
        key(one)
        for one in services
        if isinstance(one, Service) and address in map(plain_address, shown_addresses(one))
    }


def _is_at(server: Document, address: str) -> bool:
    return plain_address(str(server.get("ip_address") or "")) == address


def _named(tags: Mapping[str, str]) -> Owner:
    """Return the owner that official tags name, whoever has written them."""
    namespace, _, service = tags.get(_SERVICE, "").partition("/")
    return Owner("", tags.get(_CLUSTER, ""), namespace, service)


def is_of_cluster(document: Document, cluster: ClusterIdentity) -> bool:
    """Tell whether our marks say that an object is this cluster's."""
    return tags_of(document).get(MARK_CLUSTER_UID) == cluster.uid


def is_adoptable_service(document: Document, cluster: ClusterIdentity, owner: str) -> bool:
    """Tell whether a load balancer service was made officially for a cluster of this name.

    It may be another cluster's of the same name. That cluster then goes on to use it as one that
    somebody else has made, and it is not deleted while that cluster does.
    """
    tags = tags_of(document)
    is_marked = bool(tags.get(MARK_CLUSTER_UID))
    return not is_marked and (tags.get(_OWNER), tags.get(_CLUSTER)) == (owner, cluster.name)
