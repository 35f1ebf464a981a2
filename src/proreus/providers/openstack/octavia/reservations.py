"""Tell for whom a place of load balancers is reserved, by its tags or by those of what it is in."""

from collections.abc import Awaitable, Callable, Mapping

from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.ownership import Owner, Tenants, refusal
from proreus.providers.nova.machines import Described, id_of
from proreus.providers.openstack.api import Api
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


async def refused_inside(
    annotation: str, named: Mapping[str, str], ref: LoadBalancerRef, tenants: Tenants, api: Api
) -> str:
    """Return why a Service may not leave the choice of a network's subnet to Octavia; "" if it may.

    Args:
        annotation: The annotation that names a place, without its prefix.
        named: The ids of all places, by the annotations that name them.
        ref: The Service.
        tenants: The section [Tenants] of the cloud-config.
        api: The client of Neutron.

    Raises:
        CloudError: Neutron gives no usable answer.
    """
    if annotation != "network-id" or "subnet-id" in named:
        return ""
    network = named[annotation]
    query = {"network_id": network, "fields": ("id", "tags")}
    for subnet in await api.listed("neutron", "subnet_list", "subnets", "subnets", query):
        if owners := reserved_for(subnet):
            id_ = id_of(subnet)
            if problem := refusal(owners, ref, tenants, (network, id_)):
                return f"Octavia may choose its subnet {id_}, and {problem}: give a subnet-id"
    return ""
