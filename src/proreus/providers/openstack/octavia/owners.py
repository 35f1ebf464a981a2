"""Whose a load balancer is: its name and its tags. Pure.

One that was made for a Service has one tag with cluster and Service, `proreus/made-for`, as long as
it lives, also after that Service has left it to others. A Service that uses one that was not made
for it has `proreus/shared-by` there. Our marks are tags beside these, to find it by. Those of
former versions named cluster and Service apart, so where two clusters have tags they prove nothing
of the other's Services. All have the official manager's tag, too, which is the name that a load
balancer of the Service has; by it that manager knows its own parts when a cluster goes back to it.
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
from proreus.providers.openstack.machines import Described

OFFICIAL: Final = "kube_service_"
"""What official names and tags begin with."""
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
    """The official name; with a family that of the load balancer for a Service's second one."""
    return _name(ref, ref.cluster.name, f"_{family.lower()}" if family else "")


def _name(ref: LoadBalancerRef, cluster: str, end: str = "") -> str:
    return cut(f"{OFFICIAL}{cluster}_{ref.namespace}_{ref.service_name}", LONGEST, end)


def service_tag(uid: str) -> str:
    """The tag by which a Service's are found."""
    return f"{MARK_SERVICE_UID}={uid}"


def cluster_tag(uid: str) -> str:
    """The tag on everything of a cluster."""
    return f"{MARK_CLUSTER_UID}={uid}"


def made_tag(ref: LoadBalancerRef) -> str:
    """The tag that proves for whom it was made."""
    return f"{MADE}={one_value(ref)}"


def shared_tag(ref: LoadBalancerRef) -> str:
    """The tag that proves that a Service uses it."""
    return f"{SHARED}={one_value(ref)}"


def search(ref: LoadBalancerRef) -> str:
    """The tags of which all that a Service uses have one, as Octavia takes them."""
    tags = (service_tag(ref.uid), made_tag(ref), shared_tag(ref), _former_shared_tag(ref))
    return ",".join(tags)


def _former_shared_tag(ref: LoadBalancerRef) -> str:
    return f"{SHARED}={ref.key}/{ref.uid}"


def of_marks(marks: Mapping[str, str]) -> tuple[str, ...]:
    """Our marks as tags, which have no values and no commas."""
    return TAGS.write(marks)


def of_parts(marks: Mapping[str, str], ref: LoadBalancerRef) -> tuple[str, ...]:
    """The tags of what is made for a Service."""
    return (*of_marks(marks), made_tag(ref), name_of(ref))


def of_sharer(marks: Mapping[str, str], ref: LoadBalancerRef) -> tuple[str, ...]:
    """The tags of a Service on a load balancer that was not made for it."""
    about = {key: marks[key] for key in (MARK_CLUSTER, MARK_CLUSTER_UID) if key in marks}
    return (*of_marks(about), name_of(ref), shared_tag(ref))


def record_of(described: Described, cluster_uid: str, service_uid: str) -> str:
    """What a Service has recorded on it; "" without a record, or with several."""
    prefix = f"{cluster_uid}/{service_uid}/"
    found = [one for one in values(described, MARK_FINGERPRINT) if one.startswith(prefix)]
    return found[0].removeprefix(prefix) if len(found) == 1 else ""


def recorded(tags: Iterable[str], ref: LoadBalancerRef, record: str) -> list[str]:
    """The tags with another record of the Service in them; with none if that is ""."""
    prefix = f"{MARK_FINGERPRINT}={ref.cluster.uid}/{ref.uid}/"
    others = [tag for tag in tags if not tag.startswith(prefix)]
    return [*others, f"{prefix}{record}"] if record else others


def values(described: Described, key: str) -> list[str]:
    """The values of our tags with that key."""
    return TAGS.values(tags_of(described), key)


def tags_of(described: Described) -> list[str]:
    """The tags of something."""
    return [str(tag) for tag in described.get("tags") or () if tag]


def own_names(described: Described, ref: LoadBalancerRef) -> frozenset[str]:
    """The official tags of a Service, by every name that its cluster has had.

    Where another cluster has marks, too, nobody can tell whose names they are.
    """
    known = set(values(described, MARK_CLUSTER_UID))
    former = values(described, MARK_CLUSTER) if known <= {ref.cluster.uid} else ()
    return frozenset(_name(ref, one) for one in (ref.cluster.name, *former))


def mine(described: Described, ref: LoadBalancerRef) -> frozenset[str]:
    """The tags that tell a part of it to be the Service's."""
    return own_names(described, ref) | {service_tag(ref.uid), made_tag(ref)}


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
    if values(described, MADE):
        return made_tag(ref) in tags
    if service_tag(ref.uid) in tags:
        return _is_of(described, ref)
    # A Service that has left one to others has taken its tag away. Old managers set none.
    has_tag = name_of(ref) in tags or not sharers(described)
    return has_tag and is_named_for(described, ref) and not values(described, MARK_SERVICE_UID)


def is_used_by(described: Described, ref: LoadBalancerRef) -> bool:
    """Whether our tags prove that the Service uses it, made for it or not.

    One that was made for it and that nobody uses any more is its own to delete, though it left it.
    """
    tags = tags_of(described)
    is_left = service_tag(ref.uid) not in tags and sharers(described) > 0
    if is_made_for(described, ref) and not is_left:
        return True
    is_former = _former_shared_tag(ref) in tags and cluster_tag(ref.cluster.uid) in tags
    return shared_tag(ref) in tags or (is_former and _is_of(described, ref))


def _is_of(described: Described, ref: LoadBalancerRef) -> bool:
    """Whether a former mark with the Service's uid means the Service of this cluster.

    A cluster that was restored from a backup has Services of the same uids. Where there are tags of
    several clusters, one of which this is, the Service must be there: then the uid is its own.
    """
    clusters = set(values(described, MARK_CLUSTER_UID))
    if clusters <= {ref.cluster.uid}:
        return True
    return ref.cluster.uid in clusters and ref.service is not None


def may_be_used_by(described: Described, ref: LoadBalancerRef) -> bool:
    """Whether the official manager may have made it for that Service, or let it use it.

    A cluster that was restored from a backup has the names of the first.
    """
    if is_of_another_cluster(described, ref.cluster):
        return False
    if is_named_for(described, ref):
        return is_made_for(described, ref)
    return is_named_by(described, ref)


def is_named_by(described: Described, ref: LoadBalancerRef) -> bool:
    """Whether it has the Service's official tag, as far as anybody can tell.

    Of several clusters of one name any Service of that key has it, under an official manager.
    """
    return name_of(ref) in tags_of(described) and not _strangers_named_alike(described, ref)


def is_made_in(described: Described, cluster: ClusterIdentity) -> bool:
    """Whether it was made for a Service of the cluster, which may be gone."""
    if made := values(described, MADE):
        return all(read_one_value(one).cluster_uid == cluster.uid for one in made)
    if set(values(described, MARK_CLUSTER_UID)) - {cluster.uid}:
        return False
    prefixes = tuple(
        f"{OFFICIAL}{one}_" for one in {cluster.name, *values(described, MARK_CLUSTER)}
    )
    return str(described.get("name") or "").startswith(prefixes)


def is_of_another_cluster(described: Described, cluster: ClusterIdentity) -> bool:
    """Whether it has marks, and none of this cluster."""
    known = values(described, MARK_CLUSTER_UID)
    return bool(known) and cluster.uid not in known


def makers(described: Described) -> tuple[Owner, ...]:
    """For whom it was made, by the best marks that it has; () if it bears nobody's."""
    if made := values(described, MADE):
        return tuple(read_one_value(one) for one in made)
    if marked := marked_for(described):
        return marked
    name = str(described.get("name") or "")
    if found := _OFFICIAL_NAME.fullmatch(name):
        return (
            Owner(cluster=found["cluster"], namespace=found["namespace"], service=found["name"]),
        )
    return (Owner(service_uid=name),) if _IN_TREE_NAME.fullmatch(name) else ()


def marked_for(described: Described) -> tuple[Owner, ...]:
    """Whom our marks name, one tag for each; operators may put them on anything.

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
    """Whom our marks on a network, a subnet or a port name; there that of a cluster suffices."""
    clusters = values(described, MARK_CLUSTER_UID)
    return marked_for(described) or tuple(Owner(cluster_uid=one) for one in clusters)


def _is_former(value: str) -> bool:
    """Whether the value of `SHARED` is without the cluster, as of former versions."""
    return not read_one_value(f"/{value}").cluster_uid


def others(
    described: Described, parts: Iterable[Described], ref: LoadBalancerRef
) -> frozenset[str]:
    """The tags of other Services that use it, and of other clusters.

    Args:
        described: The load balancer.
        parts: Its listeners: who lost the tag on the load balancer still has them.
        ref: The Service that is not meant.
    """
    tags = {tag for one in (described, *parts) for tag in tags_of(one)}
    keys = (MARK_SERVICE_UID, MARK_CLUSTER_UID, SHARED)
    users = {tag for tag in tags if tag.startswith((OFFICIAL, *(f"{key}=" for key in keys)))}
    own = {cluster_tag(ref.cluster.uid), shared_tag(ref), _former_shared_tag(ref)}
    return frozenset(users - mine(described, ref) - own)


def users(described: Described, cluster: ClusterIdentity) -> list[Owner]:
    """The Services of a cluster that use it, as far as they have our tags, or left it last.

    Of a load balancer that nobody uses any more it is the Service that it was made for.
    """
    # Marks of former versions do not say whose they are where two clusters have some.
    is_alone = set(values(described, MARK_CLUSTER_UID)) == {cluster.uid}
    shared = values(described, SHARED)
    found = [read_one_value(one) for one in shared if not _is_former(one)]
    if is_alone:
        found += [read_one_value(f"{cluster.uid}/{one}") for one in shared if _is_former(one)]
    if values(described, MADE) or is_alone:
        uids = values(described, MARK_SERVICE_UID)
        made = (one for one in makers(described) if one.service_uid and one.namespace)
        found += [one for one in made if one.service_uid in uids or not sharers(described)]
    return [one for one in found if one.cluster_uid == cluster.uid]


def sharers(described: Described) -> int:
    """How many Services use it."""
    return sum(tag.startswith(OFFICIAL) for tag in tags_of(described))


def with_tags(described: Described, wanted: Iterable[str], ref: LoadBalancerRef) -> list[str]:
    """The tags that it is to have: those that are there, and the wanted ones.

    A tag by a former name of the cluster goes, and one of a former version.
    """
    former = (own_names(described, ref) - {name_of(ref)}) | {_former_shared_tag(ref)}
    there = [tag for tag in tags_of(described) if tag not in former]
    return [*there, *(tag for tag in wanted if tag not in there)]


def without(described: Described, ref: LoadBalancerRef) -> list[str]:
    """The tags that are left when a Service leaves it.

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
    is_there = any(read_one_value(one).cluster_uid == ref.cluster.uid for one in (*made, *shared))
    is_unclear = any(map(_is_former, shared)) or (values(rest, MARK_SERVICE_UID) and not made)
    if is_there or is_unclear:
        return left
    left = [tag for tag in left if tag != cluster_tag(ref.cluster.uid)]
    names = {f"{MARK_CLUSTER}={ref.cluster.name}"}
    if not values({"tags": left}, MARK_CLUSTER_UID):
        names |= {tag for tag in left if tag.startswith(f"{MARK_CLUSTER}=")}
    return [tag for tag in left if tag not in names]


def _strangers_named_alike(described: Described, ref: LoadBalancerRef) -> bool:
    """Whether a Service of another cluster has the same official tag there."""
    marks = (read_one_value(one) for key in (MADE, SHARED) for one in values(described, key))
    return any(one.key == ref.key and one.cluster_uid != ref.cluster.uid for one in marks)
