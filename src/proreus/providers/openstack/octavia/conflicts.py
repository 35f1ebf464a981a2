"""Tell places for load balancers from others with the same addresses, where nodes are.

Networks apart may have the same addresses, such as those of several clusters in one project. Nodes
lead what goes to a load balancer's address to its Service, also if another node has that address in
their own network, or the API server; or a pod, or a Service inside the cluster.
"""

from proreus.providers.nova.machines import Described, id_of
from proreus.providers.openstack.reading import Reader


async def lookalike(reader: Reader, place: Described) -> str:
    """Return why nodes would take addresses of a place for those of their own network, or "".

    Args:
        reader: The reader of subnets, and of nodes' ports.
        place: A network, a subnet or a port, as Neutron describes it.

    Raises:
        CloudError: Neutron gives no usable answer.
    """
    if "fixed_ips" in place:
        ids = {str(one["subnet_id"]) for one in place["fixed_ips"] or ()}
        subnets = await reader.subnets("id", ids)
    elif "cidr" in place:
        subnets = [place]
    else:
        subnets = await reader.subnets("network_id", {id_of(place)})
    for subnet in subnets:
        if own := await reader.lookalike(subnet):
            return (
                f"its addresses are those of {own}: nodes would take the load balancer's for one"
                " there: give a place with other addresses"
            )
    return ""
