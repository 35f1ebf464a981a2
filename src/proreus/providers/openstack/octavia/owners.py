"""Tell by name and tags to whom a load balancer belongs. Pure.

A load balancer that was made for a Service has one tag with cluster and Service,
`proreus/made-for`, as long as it lives, even after that Service has left it to others. A Service
that uses a load balancer that was not made for it adds `proreus/shared-by`. Our marks are tags
beside these, by which the load balancer is found. The tags of former versions named cluster and
Service apart, so where two clusters have tags, these prove nothing about the other's Services. All
load balancers have the official manager's tag, too, which is the name that a load balancer of the
Service has; by it that manager knows its own parts when a cluster goes back to it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from proreus.cloudprovider.identity import (
    MARK_CLUSTER,
    MARK_CLUSTER_UID,
    MARK_FINGERPRINT,
    MARK_SERVICE,
    MARK_SERVICE_UID,
    ClusterIdentity,
)
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.mark_forms import TagList, one_value, read_one_value
from proreus.cloudprovider.names import cut
from proreus.cloudprovider.ownership import Owner
from proreus.providers.nova.machines import Described
from proreus.providers.openstack.octavia.ingresses import ingress_in

OFFICIAL: Final = "kube_service_"
"""The prefix of official names and tags."""
MADE: Final = "proreus/made-for"
"""The key of the tag of the Service that it was made for."""
SHARED: Final = "proreus/shared-by"
"""The key of the tag of a Service that uses a load balancer which was not made for it."""
LONGEST: Final = 255
"""Characters of a name, and of a tag."""
TAGS: Final = TagList(LONGEST)
"""Tags of Octavia, which have no values and no commas."""

_FAMILIES = ("ipv4", "ipv6")
_OFFICIAL_NAME = re.compile(rf"{OFFICIAL}(?P<cluster>.+)_(?P<namespace>[^_]+)_(?P<name>[^_]+)")
_IN_TREE_NAME = re.compile(r"a[0-9a-f]{31}")


def name_of(ref: LoadBalancerRef, family: str = "") -> str:
    """Return the official name of a Service's load balancer.

    `family` is given for the name of the load balancer of a second family.
    """
    return _name(ref, ref.cluster.name, f"_{family.lower()}" if family else "")


def _name(ref: LoadBalancerRef, cluster: str, end: str = "") -> str:
    return cut(f"{OFFICIAL}{cluster}_{ref.namespace}_{ref.service_name}", LONGEST, end)


def service_tag(uid: str) -> str:
    """Return the tag by which the objects of a Service are found."""
    return f"{MARK_SERVICE_UID}={uid}"


def cluster_tag(uid: str) -> str:
    """Return the tag that all objects of a cluster have."""
    return f"{MARK_CLUSTER_UID}={uid}"


def made_tag(ref: LoadBalancerRef) -> str:
    """Return the tag that proves for which Service an object was made."""
    return f"{MADE}={one_value(ref)}"


def shared_tag(ref: LoadBalancerRef) -> str:
    """Return the tag that proves that a Service uses an object."""
    return f"{SHARED}={one_value(ref)}"


def search(ref: LoadBalancerRef) -> str:
    """Return Octavia's filter for all objects that a Service uses: each has one of these tags."""
    tags = (service_tag(ref.uid), made_tag(ref), shared_tag(ref), _former_shared_tag(ref))
    return ",".join(tags)


def _former_shared_tag(ref: LoadBalancerRef) -> str:
    return f"{SHARED}={ref.key}/{ref.uid}"


def of_marks(marks: Mapping[str, str]) -> tuple[str, ...]:
    """Return our marks as tags, which have no values and no commas."""
    return TAGS.write(marks)


def of_parts(marks: Mapping[str, str], ref: LoadBalancerRef) -> tuple[str, ...]:
    """Return the tags of an object that is made for a Service."""
    return (*of_marks(marks), made_tag(ref), name_of(ref))


def of_sharer(marks: Mapping[str, str], ref: LoadBalancerRef) -> tuple[str, ...]:
    """Return the tags that show a Service's use of a load balancer not made for it."""
    about = {key: marks[key] for key in (MARK_CLUSTER, MARK_CLUSTER_UID) if key in marks}
    return (*of_marks(about), name_of(ref), shared_tag(ref))


def record_of(described: Described, cluster_uid: str, service_uid: str) -> str:
    """Return what a Service has recorded on a load balancer.

    Return "" if there is no record, or several.
    """
    prefix = f"{cluster_uid}/{service_uid}/"
    records = values(described, MARK_FINGERPRINT)
    found = [value for value in records if value.startswith(prefix)]
    return found[0].removeprefix(prefix) if len(found) == 1 else ""


def recorded(tags: Iterable[str], ref: LoadBalancerRef, record: str) -> list[str]:
    """Return the tags with the Service's record replaced; without any if the record is ""."""
    prefix = f"{MARK_FINGERPRINT}={ref.cluster.uid}/{ref.uid}/"
    others = [tag for tag in tags if not tag.startswith(prefix)]
    return [*others, f"{prefix}{record}"] if record else others


def values(described: Described, key: str) -> list[str]:
    """Return the values of an object's tags with that key."""
    return TAGS.values(tags_of(described), key)


def tags_of(described: Described) -> list[str]:
    """Return the tags of an object."""
    return [str(tag) for tag in described.get("tags") or () if tag]


def own_names(described: Described, ref: LoadBalancerRef) -> frozenset[str]:
    """Return the official tags of a Service, by every name that its cluster has had.

    Where another cluster has marks, too, nobody can tell whose names they are.
    """
    known = set(values(described, MARK_CLUSTER_UID))
    former = values(described, MARK_CLUSTER) if known <= {ref.cluster.uid} else ()
    return frozenset(_name(ref, name) for name in (ref.cluster.name, *former))


def mine(described: Described, ref: LoadBalancerRef) -> frozenset[str]:
    """Return the tags that make a part of a load balancer the Service's."""
    return own_names(described, ref) | {service_tag(ref.uid), made_tag(ref)}


def is_part_of(part: Described, described: Described, ref: LoadBalancerRef) -> bool:
    """Tell whether a listener or a pool is the Service's.

    The part's tags decide; without an official tag its name does, as managers that knew no tags
    gave it.
    """
    if is_of_another_cluster(part, ref.cluster) or _has_heir(described, ref):
        return False
    own, tags, name = mine(described, ref), set(tags_of(part)), str(part.get("name") or "")
    if any(tag.startswith(OFFICIAL) for tag in tags) or own & tags:
        return bool(own & tags)
    # Managers inside Kubernetes had the number last, and the Service's uid in the name.
    return any(name.endswith(f"_{end}") for end in own) or f"_{ref.name}_" in name


def is_named_for(described: Described, ref: LoadBalancerRef) -> bool:
    """Tell whether a load balancer has the Service's name, also that of in-tree managers.

    A name proves nothing: anybody can give it.
    """
    names = {name_of(ref), *(name_of(ref, family) for family in _FAMILIES), ref.name}
    return str(described.get("name")) in names


def is_made_for(described: Described, ref: LoadBalancerRef) -> bool:
    """Tell whether a load balancer was made for the Service, and is not only used by it."""
    tags = tags_of(described)
    if values(described, MADE):
        return made_tag(ref) in tags
    if service_tag(ref.uid) in tags:
        return _is_of(described, ref)
    # A Service that has left one to others has taken its tag away. Old managers set none.
    has_tag = name_of(ref) in tags or not sharers(described)
    return has_tag and is_named_for(described, ref) and not values(described, MARK_SERVICE_UID)


def is_used_by(described: Described, ref: LoadBalancerRef) -> bool:
    """Tell whether our tags prove that the Service uses a load balancer, made for it or not.

    A load balancer that was made for the Service, and that nobody uses any more, is its own to
    delete, although the Service left it.
    """
    tags = tags_of(described)
    is_left = service_tag(ref.uid) not in tags and sharers(described) > 0
    if is_made_for(described, ref) and not is_left:
        return True
    is_former = _former_shared_tag(ref) in tags and cluster_tag(ref.cluster.uid) in tags
    return shared_tag(ref) in tags or (is_former and _is_of(described, ref))


def is_proven(described: Described, ref: LoadBalancerRef) -> bool:
    """Tell whether tags that name the cluster and the Service prove that it uses an object."""
    tags = set(tags_of(described))
    return bool(tags & {made_tag(ref), shared_tag(ref)}) and is_used_by(described, ref)


def _is_of(described: Described, ref: LoadBalancerRef) -> bool:
    """Tell whether a former mark with the Service's uid means the Service of this cluster.

    A cluster that was restored from a backup has Services of the same uids. Where there are tags of
    several clusters, one of which this is, the Service must be there: then the uid is its own.
    """
    clusters = set(values(described, MARK_CLUSTER_UID))
    if clusters <= {ref.cluster.uid}:
        return True
    return ref.cluster.uid in clusters and ref.service is not None


def may_be_used_by(described: Described, ref: LoadBalancerRef) -> bool:
    """Tell whether the official manager may have given a load balancer to the Service.

    A cluster that was restored from a backup has the names of the first.
    """
    if is_of_another_cluster(described, ref.cluster):
        return False
    if is_named_for(described, ref):
        return is_made_for(described, ref)
    return is_named_by(described, ref)


def is_named_by(described: Described, ref: LoadBalancerRef) -> bool:
    """Tell whether a load balancer has the Service's official tag, and no namesake's.

    With several clusters of one name, an official manager gives this tag to any Service with this
    namespace and name.
    """
    return name_of(ref) in tags_of(described) and not _strangers_named_alike(described, ref)


def is_made_in(described: Described, cluster: ClusterIdentity) -> bool:
    """Tell whether a load balancer was made for a Service of the cluster, which may be gone.

    Without our marks its whole name counts: it may begin as the cluster's do, made by hand, or for
    another cluster.
    """
    if made := values(described, MADE):
        return all(read_one_value(value).cluster_uid == cluster.uid for value in made)
    if set(values(described, MARK_CLUSTER_UID)) - {cluster.uid}:
        return False
    names = {cluster.name, *values(described, MARK_CLUSTER)}
    whole = str(described.get("name") or "")
    texts = {whole, *(whole.removesuffix(f"_{family}") for family in _FAMILIES)}
    found = map(_OFFICIAL_NAME.fullmatch, texts)
    return any(one is not None and one["cluster"] in names for one in found)


def is_of_another_cluster(described: Described, cluster: ClusterIdentity) -> bool:
    """Tell whether an object has marks of clusters, and none of this one."""
    known = values(described, MARK_CLUSTER_UID)
    return bool(known) and cluster.uid not in known


def makers(described: Described) -> tuple[Owner, ...]:
    """Return the owners for whom an object was made, by the best marks it has; () without any."""
    if made := values(described, MADE):
        return tuple(read_one_value(value) for value in made)
    if marked := marked_for(described):
        return marked
    name = str(described.get("name") or "")
    if found := _OFFICIAL_NAME.fullmatch(name):
        return (
            Owner(cluster=found["cluster"], namespace=found["namespace"], service=found["name"]),
        )
    if (ingress := ingress_in(name)) is not None:
        return (ingress,)
    return (Owner(service_uid=name),) if _IN_TREE_NAME.fullmatch(name) else ()


def marked_for(described: Described) -> tuple[Owner, ...]:
    """Return the owners that our marks name, one tag for each; operators may put them on anything.

    Where several clusters are named, any of them may be meant.
    """
    uids, services = values(described, MARK_SERVICE_UID), values(described, MARK_SERVICE)
    clusters = values(described, MARK_CLUSTER_UID)
    if not uids and not services:
        return ()
    namespace, _, service = next(iter(services), "").partition("/")
    return tuple(
        Owner(cluster, "", namespace, service, uid)
        for cluster in clusters or [""]
        for uid in uids or [""]
    )


def reserved_for(described: Described) -> tuple[Owner, ...]:
    """Return the owners that marks on a network, a subnet or a port name, clusters included."""
    clusters = values(described, MARK_CLUSTER_UID)
    return marked_for(described) or tuple(Owner(cluster_uid=uid) for uid in clusters)


def _is_former(value: str) -> bool:
    """Tell whether a value of `SHARED` names no cluster, as of former versions."""
    return not read_one_value(f"/{value}").cluster_uid


def others(
    described: Described, parts: Iterable[Described], ref: LoadBalancerRef
) -> frozenset[str]:
    """Return the tags of other Services and clusters that use a load balancer.

    Args:
        described: The load balancer.
        parts: The load balancer's listeners: a Service that lost its tag on the load balancer still
            has them.
        ref: The Service whose own tags are left out.
    """
    tags = {tag for object_ in (described, *parts) for tag in tags_of(object_)}
    keys = (MARK_SERVICE_UID, MARK_CLUSTER_UID, SHARED)
    users = {tag for tag in tags if tag.startswith((OFFICIAL, *(f"{key}=" for key in keys)))}
    own = {cluster_tag(ref.cluster.uid), shared_tag(ref), _former_shared_tag(ref)}
    return frozenset(users - mine(described, ref) - own)


def users(described: Described, cluster: ClusterIdentity) -> list[Owner]:
    """Return the Services of a cluster that use a load balancer, or were the last to leave it.

    If nobody uses the load balancer any more, it is the Service that it was made for.
    """
    # Marks of former versions do not say whose they are where two clusters have some.
    is_alone = set(values(described, MARK_CLUSTER_UID)) == {cluster.uid}
    shared = values(described, SHARED)
    found = [read_one_value(value) for value in shared if not _is_former(value)]
    if is_alone:
        former = (value for value in shared if _is_former(value))
        found += [read_one_value(f"{cluster.uid}/{value}") for value in former]
    if values(described, MADE) or is_alone:
        uids = values(described, MARK_SERVICE_UID)
        made = (maker for maker in makers(described) if maker.service_uid and maker.namespace)
        found += [maker for maker in made if maker.service_uid in uids or not sharers(described)]
    return [owner for owner in found if owner.cluster_uid == cluster.uid]


def sharers(described: Described) -> int:
    """Return how many Services use a load balancer."""
    return sum(tag.startswith(OFFICIAL) for tag in tags_of(described))


def with_tags(described: Described, desired: Iterable[str], ref: LoadBalancerRef) -> list[str]:
    """Return the tags that a load balancer should have: the observed and the desired ones.

    A tag with a former name of the cluster is dropped, and so is a tag of a former version.
    """
    former = (own_names(described, ref) - {name_of(ref)}) | {_former_shared_tag(ref)}
    kept = [tag for tag in tags_of(described) if tag not in former]
    return [*kept, *(tag for tag in desired if tag not in kept)]


def without(described: Described, ref: LoadBalancerRef) -> list[str]:
    """Return the tags of a load balancer that remain when a Service leaves it.

    The tag of the Service that it was made for stays while others use it. Those of the cluster stay
    as long as there are others of it; those of another cluster always do.
    """
    is_used = bool(others(described, (), ref))
    gone = {shared_tag(ref), _former_shared_tag(ref)}
    if not _strangers_named_alike(described, ref):
        gone |= own_names(described, ref)
    if is_made_for(described, ref):
        gone |= {service_tag(ref.uid), f"{MARK_SERVICE}={ref.key}"}
        gone |= set() if is_used else {made_tag(ref)}
    left = recorded((tag for tag in tags_of(described) if tag not in gone), ref, "")
    rest = {"tags": left}
    made, shared = values(rest, MADE), values(rest, SHARED)
    named = (read_one_value(value) for value in (*made, *shared))
    is_ours = any(owner.cluster_uid == ref.cluster.uid for owner in named)
    is_unclear = any(map(_is_former, shared)) or (values(rest, MARK_SERVICE_UID) and not made)
    if is_ours or is_unclear:
        return left
    left = [tag for tag in left if tag != cluster_tag(ref.cluster.uid)]
    names = {f"{MARK_CLUSTER}={ref.cluster.name}"}
    if not values({"tags": left}, MARK_CLUSTER_UID):
        names |= {tag for tag in left if tag.startswith(f"{MARK_CLUSTER}=")}
    return [tag for tag in left if tag not in names]


def _strangers_named_alike(described: Described, ref: LoadBalancerRef) -> bool:
    """Tell whether another cluster's Service, or the next one, has the same official tag on one."""
    marks = (read_one_value(value) for key in (MADE, SHARED) for value in values(described, key))
    is_there = any(one.key == ref.key and one.cluster_uid != ref.cluster.uid for one in marks)
    return is_there or _has_heir(described, ref)


def _has_heir(described: Described, ref: LoadBalancerRef) -> bool:
    """Tell whether a Service is gone, and the next one of its name shares the load balancer.

    That one has taken over what has the official tag, whatever uids are on it.
    """
    users = map(read_one_value, values(described, SHARED))
    next_ = (one for one in users if one.key == ref.key and one.service_uid != ref.uid)
    return ref.service is None and any(one.cluster_uid == ref.cluster.uid for one in next_)
