"""Cloud objects that carry this cluster's marks and have no Service any more. Pure.

They come of steps that a cloud cannot make safe, of a finalizer that somebody took away while no
manager ran, or of a Service that was restored with another UID.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from proreus.cloudprovider.identity import (
    ClusterIdentity,
    OwnedObject,
    default_load_balancer_name,
)
from proreus.cloudprovider.load_balancers import LoadBalancerRef


class Leak(msgspec.Struct, frozen=True):
    """An object that was left over, and when that was first seen."""

    object: OwnedObject
    since: datetime


def leaks(
    owned: Iterable[OwnedObject],
    present: Collection[str],
    known: Iterable[Leak],
    now: datetime,
) -> tuple[Leak, ...]:
    """What is left over among the objects that the cloud lists.

    Args:
        owned: All that carries the cluster's marks.
        present: UIDs of the Services there are, and of those whose load balancers are known.
        known: What was left over before.
        now: The time of a leak that is new.
    """
    since = {(one.object.kind, one.object.id): one.since for one in known}
    return tuple(
        Leak(one, since.get((one.kind, one.id), now))
        for one in owned
        if one.service_uid and one.service_uid not in present
    )


def due(
    found: Iterable[Leak], cluster: ClusterIdentity, now: datetime, grace: float
) -> Mapping[str, LoadBalancerRef]:
    """The load balancers to delete, by the key of the Service they were made for.

    `grace` are the seconds that they must have been seen as left over; 0 deletes none.
    """
    if grace <= 0:
        return {}
    refs: dict[str, LoadBalancerRef] = {}
    for leak in found:
        namespace, slash, name = leak.object.service.partition("/")
        if slash and now - leak.since >= timedelta(seconds=grace):
            uid = leak.object.service_uid
            refs[leak.object.service] = LoadBalancerRef(
                cluster, namespace, name, uid, default_load_balancer_name(uid)
            )
    return refs
