"""Find cloud objects that carry this cluster's marks and have no Service any more. Pure.

Leaks come of steps that a cloud cannot make safe, of a finalizer that somebody took away while no
manager ran, or of a Service that was restored with another UID.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

import msgspec

from proreus.cloudprovider.identity import ClusterIdentity, OwnedObject
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.names import default_load_balancer_name


class Leak(msgspec.Struct, frozen=True):
    """A cloud object whose Service is gone, and when that was first seen.

    `since` is for people; `at` is the same in seconds of a clock that does not jump.
    """

    object: OwnedObject
    since: datetime
    at: float


def leaks(
    owned: Iterable[OwnedObject],
    present: Collection[str],
    known: Iterable[Leak],
    now: datetime,
    at: float,
) -> tuple[Leak, ...]:
    """Find the leaks among the objects that the cloud lists.

    Args:
        owned: The cloud objects with the cluster's marks.
        present: The UIDs of the Services that exist, and of those whose load balancers are known.
        known: The leaks that were known before.
        now: The time to note for a new leak.
        at: The current time on a clock that does not jump.
    """
    first = {(item.object.kind, item.object.id): (item.since, item.at) for item in known}
    return tuple(
        Leak(item, *first.get((item.kind, item.id), (now, at)))
        for item in owned
        if item.service_uid and item.service_uid not in present
    )


def due(
    leaks_: Iterable[Leak], cluster: ClusterIdentity, at: float, grace: float
) -> Mapping[str, LoadBalancerRef]:
    """Return the load balancers to delete, each by a key of its own.

    There may be a Service again that has the former one's name: its load balancer must not wait
    for what cannot be deleted. `grace` are the seconds for which leaks must have been seen as
    such; 0 deletes none.
    """
    if grace <= 0:
        return {}
    refs: dict[str, LoadBalancerRef] = {}
    for leak in leaks_:
        namespace, slash, name = leak.object.service.partition("/")
        if slash and at - leak.at >= grace:
            uid = leak.object.service_uid
            refs[f"{leak.object.service}/{uid}"] = LoadBalancerRef(
                cluster, namespace, name, uid, default_load_balancer_name(uid)
            )
    return refs
