"""Tell for whom a place of load balancers is reserved, by its tags or by those of what it is in."""

from collections.abc import Awaitable, Callable

from proreus.cloudprovider.ownership import Owner
from proreus.providers.nova.machines import Described
from proreus.providers.openstack.octavia.owners import reserved_for

Find = Callable[[str, str], Awaitable[Described | None]]
"""Reads an object by the annotation that could name it, and its id."""

_INSIDE = ("subnet-id", "member-subnet-id", "port-id")
"""The annotations that name what is in a network."""


async def reserved_at(annotation: str, described: Described, find: Find) -> tuple[Owner, ...]:
    """Return for whom a place is reserved: the closest marks count.

    Whoever reserves a network for a namespace need not mark all that is in it, and what is in it
    may be meant for another one.

    Args:
        annotation: The annotation that names the place, without its prefix.
        described: The place as Neutron describes it.
        find: Reads what the place is in.

    Raises:
        CloudError: Neutron gives no usable answer.
    """
    found = reserved_for(described)
    if found or annotation not in _INSIDE:
        return found
    around = [("subnet-id", str(one["subnet_id"])) for one in described.get("fixed_ips") or ()]
    around.append(("network-id", str(described.get("network_id") or "")))
    for name, id_ in around:
        if id_ and (found := reserved_for(await find(name, id_) or {})):
            break
    return found
