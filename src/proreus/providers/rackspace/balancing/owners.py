"""Tell to whom a Cloud Load Balancer belongs, by its metadata and its name. Pure.

One that we make has the UIDs of Service and cluster in its metadata from the start, and its name
holds the Service's UID.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from proreus.cloudprovider.identity import marks
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.mark_forms import owner_of
from proreus.cloudprovider.names import default_load_balancer_name
from proreus.cloudprovider.ownership import Verdict, verdict
from proreus.kube.objects import KubeObject
from proreus.providers.rackspace.balancing.parts import Key

LONGEST: Final = 256
"""Characters of a value of metadata."""
_NAME: Final = re.compile(r"a[0-9a-f]{31}-(tcp|udp)-\d+")


def name_of(ref: LoadBalancerRef, key: Key) -> str:
    """Return the name of the load balancer for a port."""
    return f"{ref.name}-{key[0]}-{key[1]}"


def has_our_form(name: str) -> bool:
    """Tell whether a load balancer's name has the form of ours, so that it is worth a request.

    That is one with a UID, which nobody gives by hand.
    One that somebody has renamed is found when its Service is ensured, and named again.
    """
    return _NAME.fullmatch(name) is not None


def of_none(
    listed: Iterable[Mapping[str, Any]], services: Iterable[KubeObject]
) -> Iterator[Mapping[str, Any]]:
    """Return the load balancers whose names are of no Service of the cluster.

    They were made by hand, or for another cluster, whose names have the form of ours.
    """
    known = {default_load_balancer_name(one.metadata.uid) for one in services}
    for one in listed:
        name = str(one.get("name", ""))
        if not has_our_form(name) or name.partition("-")[0] not in known:
            yield one


def service_marks(ref: LoadBalancerRef) -> Mapping[str, str]:
    """Return the metadata that mark an object as a Service's; a value that is too long is cut."""
    of = marks(ref.cluster, ref.key, ref.uid)
    return {key: value[:LONGEST] for key, value in of.items() if value}


def is_ours(metadata: Mapping[str, str], name: str, ref: LoadBalancerRef) -> bool:
    """Tell whether a load balancer is the Service's, to be changed and deleted with it."""
    owner = owner_of(metadata)
    owners = () if owner is None else (owner,)
    return verdict(ref, owners=owners, texts=(name,)).is_ours


def is_marked(metadata: Mapping[str, str], ref: LoadBalancerRef) -> bool:
    """Tell whether the metadata of a load balancer name an owner."""
    owner = owner_of(metadata)
    return owner is not None and verdict(ref, owners=(owner,)) is Verdict.MARKED
