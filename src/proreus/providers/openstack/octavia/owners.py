"""Whose a load balancer is: its name and its tags. Pure.

One that was made for a Service has our marks as tags. A Service that uses one that was not made
for it has another tag there, with its name and uid. Both have the official manager's tag, too,
which is the name that a load balancer of the Service has; by it that manager knows its own parts
when a cluster goes back to it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from proreus.cloudprovider.identity import (
    MARK_CLUSTER,
    MARK_CLUSTER_UID,
    MARK_SERVICE,
    MARK_SERVICE_UID,
    ClusterIdentity,
)
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.providers.openstack.machines import Described

OFFICIAL: Final = "kube_service_"
"""What official names and tags begin with."""
SHARED: Final = "proreus/shared-by"
"""The key of the tag of a Service that uses a load balancer which was not made for it."""
LONGEST: Final = 255
"""Characters of a name, and of a tag."""

_OURS = "proreus/"
_FAMILIES = ("ipv4", "ipv6")


def name_of(ref: LoadBalancerRef, family: str = "") -> str:
    """The official name; with a family that of the load balancer for a Service's second one."""
    name = f"{OFFICIAL}{ref.cluster.name}_{ref.namespace}_{ref.service_name}"[:LONGEST]
    return f"{name[: LONGEST - 5]}_{family.lower()}" if family else name


def service_tag(uid: str) -> str:
    """The tag that proves for whom it was made."""
    return f"{MARK_SERVICE_UID}={uid}"


def cluster_tag(uid: str) -> str:
    """The tag on everything of a cluster."""
    return f"{MARK_CLUSTER_UID}={uid}"


def shared_tag(ref: LoadBalancerRef) -> str:
    """The tag that proves that a Service uses it."""
    return f"{SHARED}={ref.key}/{ref.uid}"


def of_marks(marks: Mapping[str, str]) -> tuple[str, ...]:
    """Our marks as tags, which have no values and no commas."""
    return tuple(f"{key}={value}".replace(",", "_") for key, value in sorted(marks.items()))


def of_parts(marks: Mapping[str, str], ref: LoadBalancerRef) -> tuple[str, ...]:
    """The tags of what is made for a Service."""
    return (*of_marks(marks), name_of(ref))


def of_sharer(marks: Mapping[str, str], ref: LoadBalancerRef) -> tuple[str, ...]:
    """The tags of a Service on a load balancer that was not made for it."""
    about = {key: marks[key] for key in (MARK_CLUSTER, MARK_CLUSTER_UID) if key in marks}
    return (*of_parts(about, ref), shared_tag(ref))


def values(described: Described, key: str) -> list[str]:
    """The values of our tags with that key."""
    pairs = (tag.partition("=") for tag in tags_of(described))
    return [value for name, _, value in pairs if name == key]


def tags_of(described: Described) -> list[str]:
    """The tags of something."""
    return [str(tag) for tag in described.get("tags") or () if tag]


def own_names(described: Described, ref: LoadBalancerRef) -> frozenset[str]:
    """The official tags of a Service, by every name that its cluster has had."""
    clusters = values(described, MARK_CLUSTER)
    former = (f"{OFFICIAL}{one}_{ref.namespace}_{ref.service_name}"[:LONGEST] for one in clusters)
    return frozenset({name_of(ref), *former})


def mine(described: Described, ref: LoadBalancerRef) -> frozenset[str]:
    """The tags that tell a part of it to be the Service's."""
    return own_names(described, ref) | {service_tag(ref.uid)}


def is_part_of(part: Described, described: Described, ref: LoadBalancerRef) -> bool:
    """Whether a listener or a pool is the Service's.

    By its tags; what has no official tag by its name, as of managers that knew no tags.
    """
    if is_of_another_cluster(part, ref.cluster):
        return False
    own, tags, name = mine(described, ref), set(tags_of(part)), str(part.get("name") or "")
    if any(tag.startswith(OFFICIAL) for tag in tags) or own & tags:
        return bool(own & tags)
    # Managers inside Kubernetes had the number last, and the Service's uid in the name.
    return any(name.endswith(f"_{one}") for one in own) or f"_{ref.name}_" in name


def is_named_for(described: Described, ref: LoadBalancerRef) -> bool:
    """Whether it has the Service's name, or that of managers inside Kubernetes.

    Anybody can give it that.
    """
    names = {name_of(ref), *(name_of(ref, family) for family in _FAMILIES), ref.name}
    return str(described.get("name")) in names


def is_made_for(described: Described, ref: LoadBalancerRef) -> bool:
    """Whether it was made for that Service; else it is somebody's that the Service uses."""
    tags = tags_of(described)
    if service_tag(ref.uid) in tags:
        return True
    # A Service that has left one to others has taken its tag away. Old managers set none.
    has_tag = name_of(ref) in tags or not sharers(described)
    return has_tag and is_named_for(described, ref) and not values(described, MARK_SERVICE_UID)


def may_be_used_by(described: Described, ref: LoadBalancerRef) -> bool:
    """Whether the official manager may have made it for that Service, or let it use it.

    A cluster that was restored from a backup has the names of the first.
    """
    if is_named_for(described, ref):
        return is_made_for(described, ref) and not is_of_another_cluster(described, ref.cluster)
    return name_of(ref) in tags_of(described)


def is_made_in(described: Described, cluster: ClusterIdentity) -> bool:
    """Whether it was made for a Service of the cluster, which may be gone."""
    prefixes = tuple(
        f"{OFFICIAL}{one}_" for one in {cluster.name, *values(described, MARK_CLUSTER)}
    )
    is_ours = not is_of_another_cluster(described, cluster)
    return is_ours and str(described.get("name") or "").startswith(prefixes)


def is_of_another_cluster(described: Described, cluster: ClusterIdentity) -> bool:
    """Whether it has marks, and none of this cluster."""
    known = values(described, MARK_CLUSTER_UID)
    return bool(known) and cluster.uid not in known


def others(
    described: Described, parts: Iterable[Described], ref: LoadBalancerRef
) -> frozenset[str]:
    """The tags of other Services that use it.

    Args:
        described: The load balancer.
        parts: Its listeners: who lost the tag on the load balancer still has them.
        ref: The Service that is not meant.
    """
    tags = {tag for one in (described, *parts) for tag in tags_of(one)}
    users = {
        tag for tag in tags if tag.startswith((OFFICIAL, f"{MARK_SERVICE_UID}=", f"{SHARED}="))
    }
    return frozenset(users - mine(described, ref) - {shared_tag(ref)})


def users(described: Described) -> list[tuple[str, str]]:
    """The Services that use it, as far as they have our tags: namespace/name, and uid."""
    made = zip(values(described, MARK_SERVICE), values(described, MARK_SERVICE_UID), strict=False)
    shared = (value.rpartition("/") for value in values(described, SHARED))
    return [*made, *((service, uid) for service, _, uid in shared)]


def sharers(described: Described) -> int:
    """How many Services use it."""
    return sum(tag.startswith(OFFICIAL) for tag in tags_of(described))


def with_tags(described: Described, wanted: Iterable[str], ref: LoadBalancerRef) -> list[str]:
    """The tags that it is to have: those that are there, and the wanted ones.

    A tag by a former name of the cluster goes.
    """
    former = own_names(described, ref) - {name_of(ref)}
    there = [tag for tag in tags_of(described) if tag not in former]
    return [*there, *(tag for tag in wanted if tag not in there)]


def without(described: Described, ref: LoadBalancerRef) -> list[str]:
    """The tags that are left when a Service leaves it; of ours none, if nobody else uses it."""
    gone = {*mine(described, ref), shared_tag(ref), f"{MARK_SERVICE}={ref.key}"}
    left = [tag for tag in tags_of(described) if tag not in gone]
    if others(described, (), ref):
        return left
    return [tag for tag in left if not tag.startswith(_OURS)]
