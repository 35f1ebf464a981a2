"""Tell which addresses, and places with addresses, something else of the cluster has.

Nodes lead what goes to a load balancer's address to its Service, also if a node, a pod, the API
server or a router has that address, of which Neutron knows nothing in the load balancer's network:
networks apart may have the same addresses, such as those of several clusters in one project, and
not everything in a network has a port.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from proreus.cloudprovider.addresses import parsed_address, parsed_network, plain_address
from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.listers import Lister
from proreus.cloudprovider.load_balancers import Host, LoadBalancerRef
from proreus.cloudprovider.lookups import most_first, some_of
from proreus.cloudprovider.ownership import cluster_ips
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.routes import node_of_pods, pods_by_cidr
from proreus.kube.objects import KubeObject, Node, Service, key
from proreus.providers.nova.machines import Described, id_of
from proreus.providers.openstack.api import Api
from proreus.providers.openstack.hops import answers_for, asks_at, leads_to, same, subnets_of
from proreus.providers.openstack.names import foreign_project, machine_of, nodes_by_server, parsed
from proreus.providers.openstack.octavia import owners
from proreus.providers.openstack.reading import MOST_IDS, Reader

Listers = Mapping[str, Lister[Any]]
_SUBPORT: Final = "trunk:subport"
_OF_MACHINES: Final = ("compute:", "baremetal:", _SUBPORT)
"""How Neutron's words begin for what has the port of a machine."""
_OF_NETWORKS: Final = "network:"
"""How they begin for routers, DHCP and floating IPs, which networks have at equal addresses."""
_TAKEN: Final = ("already allocated", "is in use")
"""Neutron's words for an address that something has, since Newton and before."""


async def lookalike(reader: Reader, listers: Listers, place: Described) -> str:
    """Return why nodes would take addresses of a place for others of the cluster's, or "".

    Args:
        reader: The reader of subnets, and of nodes' ports.
        listers: The Nodes and Services.
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
        if others := await _others(reader, listers, subnet):
            return (
                f"its addresses are those of {others}: nodes would take the load balancer's for one"
                " there: give a place with other addresses"
            )
    return ""


async def held(
    reader: Reader,
    nodes: Iterable[KubeObject],
    network: str,
    addresses: Collection[str],
    shown: Collection[str],
) -> str:
    """Return why no load balancer may have one of these addresses in a network; "" if it may.

    Neutron keeps no address for allowed address pairs, by which machines take turns in a virtual
    one, such as a control plane's, nor for a router or a name server that is none of its own, nor
    for a node that is no server, such as bare metal beside OpenStack, or for pods. Some keep it by
    a port that nothing has. Who shows an address has been given it: the Service may itself be the
    name server, and any kubelet can claim it for its Node.

    Args:
        reader: The reader of ports and subnets.
        nodes: All Nodes.
        network: The network; "" if it is not known.
        addresses: The addresses that a Service asks for.
        shown: The addresses in the Service's status.

    Raises:
        CloudError: Neutron gives no usable answer.
    """
    if not network:
        return ""
    new = set(addresses).difference(shown)
    why = f"it is {others}" if (others := _beside(new, nodes)) else ""
    if new and not why:
        why = _known_to_nodes(*await _homes(reader, nodes), new)
    if why:
        return f"{why}: give another one"
    subnets = await reader.subnets("network_id", [network])
    for port in await reader.ports("network_id", [network]):
        if answers_for(port, addresses) or answers_for(port, new, subnets):
            text = "among its allowed address pairs"
            return f"port {id_of(port)} has it {text}: give another one"
    for subnet in subnets:
        if leads_to(subnet, addresses):
            text = "by which its machines reach other networks"
            return f"it is that of a router of subnet {id_of(subnet)}, {text}: give another one"
        if asks_at(subnet, new):
            return f"it is that of a name server of subnet {id_of(subnet)}: give another one"
    return ""


async def rival(api: Api, reader: Reader, ref: LoadBalancerRef, network: str, address: str) -> str:
    """Return which machine or load balancer of others has an address in a network; "" for none.

    Neutron gives an address that a load balancer has left to whoever comes next.

    Args:
        api: The client of Octavia.
        reader: The reader of ports.
        ref: The Service that had the address: what is its own, or may be, is none of others.
        network: The network; "" if it is not known.
        address: The address.

    Raises:
        CloudError: Neutron or Octavia gives no usable answer.
    """
    if not network:
        return ""
    for port in await reader.ports("network_id", [network], more=("device_owner",)):
        addresses = (str(one["ip_address"]) for one in port.get("fixed_ips") or ())
        if _is_machines(port) and any(same(one, address) for one in addresses):
            return f"port {id_of(port)} of a machine has it: give another one"
    query = {"vip_address": plain_address(address)}
    found = await api.listed(
        "octavia", "loadbalancer_list", "lbaas/loadbalancers", "loadbalancers", query
    )
    for one in found:
        is_own = owners.is_used_by(one, ref) or owners.may_be_used_by(one, ref)
        if str(one.get("vip_network_id")) == network and not is_own:
            return f"load balancer {id_of(one)} has it: give another one"
    return ""


def is_taken(error: CloudError | None, addresses: Collection[str]) -> bool:
    """Tell whether Neutron has refused one of these addresses, as something has it already.

    It says so of what it does not show, too, such as another project's machine in a shared network.

    Args:
        error: The error of what was asked for, with Octavia's or Neutron's text.
        addresses: The addresses, in the one form in which they are compared.
    """
    if not isinstance(error, Refused) or not any(words in error.text for words in _TAKEN):
        return False
    named = {plain_address(word.strip(".,")) for word in error.text.split()}
    return not named.isdisjoint(addresses)


def are_few(there: int, hosts: Sequence[Host], nodes: Iterable[KubeObject]) -> bool:
    """Tell whether at most half of a Service's hosts, or of all servers, tell its subnet.

    Where these are, who chooses them decides (node-selector), and a kubelet names any server.

    Args:
        there: How many hosts are in the subnet, of the first `MOST_IDS`.
        hosts: The hosts.
        nodes: The Nodes.
    """
    return 2 * there <= min(len(hosts), MOST_IDS) or 2 * len(hosts) <= len(_servers(nodes))


def _servers(nodes: Iterable[KubeObject]) -> set[tuple[str, str] | None]:
    return {parsed(one.spec.provider_id) for one in nodes if isinstance(one, Node)} - {None}


def is_in_use(port: Described) -> bool:
    """Tell whether something has a port; of one in a trunk Neutron names no device."""
    return bool(port.get("device_id")) or port.get("device_owner") == _SUBPORT


async def _others(reader: Reader, listers: Listers, subnet: Described) -> str:
    """Return what of the cluster has addresses of a subnet elsewhere; "" if nothing has.

    Nodes in another subnet, pods or Services. Where nodes are in it, and fewer in each other, it is
    the cluster's own; but a kubelet names any server, so one Node of several proves nothing.
    """
    nodes, cidr = listers["nodes"].all(), str(subnet.get("cidr") or "")
    asked = some_of(sorted(_addresses_in(cidr, nodes).items()), MOST_IDS)
    found = await reader.subnets_of(dict(asked)) if asked else {}
    here = {server for server, place in found.items() if place == id_of(subnet)}
    elsewhere = most_first(found[server] for server in found.keys() - here)
    if elsewhere and [*found.values()].count(elsewhere[0]) >= len(here):
        return f"subnet {elsewhere[0]}, too, where nodes are"
    if len(here) > 1 or (here and len(_servers(nodes)) == 1):
        return ""
    nodes = [one for one in nodes if not (isinstance(one, Node) and _is_of(one, here))]
    return _inside(cidr, nodes, listers["services"].all())


def _is_of(node: Node, servers: Collection[str]) -> bool:
    return machine_of(node.spec.provider_id) in servers


def _addresses_in(cidr: str, nodes: Iterable[KubeObject]) -> dict[str, str]:
    """Return an address of each Node that has one in a network, by the id of its server."""
    within = parsed_network(cidr)
    return {
        id_[1]: one.address
        for node in nodes
        if isinstance(node, Node) and (id_ := parsed(node.spec.provider_id)) is not None
        for one in node.status.addresses
        if (address := parsed_address(one.address)) is not None
        if within is not None and address in within
    }


def _inside(cidr: str, nodes: Iterable[KubeObject], services: Iterable[KubeObject]) -> str:
    """Return which pods or Services of the cluster have addresses of a network; "" for none."""
    within = parsed_network(cidr)
    if within is None:
        return ""
    if node := node_of_pods(within, pods_by_cidr(nodes)):
        return f"pods of the node {node}"
    for one in services:
        ips = map(parsed_address, cluster_ips(one) if isinstance(one, Service) else ())
        if any(ip is not None and ip in within for ip in ips):
            return f"Services, too, such as {key(one)}"
    return ""


def _beside(addresses: Collection[str], nodes: Iterable[KubeObject]) -> str:
    """Return what has one of these addresses that Neutron does not know of; "" for nothing.

    A Node that has no server here, or pods.
    """
    nodes = tuple(nodes)
    found = (_inside(one, nodes, ()) for one in addresses)
    return node_beside(addresses, nodes) or next((f"one of {pods}" for pods in found if pods), "")


def node_beside(addresses: Collection[str], nodes: Iterable[KubeObject]) -> str:
    """Return which Node without a server here has one of these addresses; "" for none.

    Of servers Neutron knows the addresses itself.

    Args:
        addresses: The addresses.
        nodes: All Nodes.
    """
    found = (one for one in _having(addresses, nodes) if parsed(one.spec.provider_id) is None)
    return next((f"an address of the node {one.metadata.name}" for one in found), "")


async def ports_at(
    reader: Reader,
    address: str,
    network: str,
    led: Collection[str],
    nodes: Iterable[KubeObject],
    *,
    project: str,
) -> tuple[str, str]:
    """Return which node's server has an address, and which port elsewhere; "" each for none.

    That is a machine's, or keeps the address for several, or is a load balancer's: of a port that
    a driver of Octavia has made, such as OVN's, Neutron need not tell what has it.

    Args:
        reader: The reader of ports.
        address: The address.
        network: The network in which nobody else can have it; "" where there is none.
        led: The ports to which other floating IPs lead that have the address.
        nodes: All Nodes: who says that it has the address is asked about.
        project: The project: nodes do not reach all that the role `admin` is shown.

    Raises:
        CloudError: Neutron gives no usable answer.
    """
    servers = {machine_of(one.spec.provider_id) for one in _having((address,), nodes)} - {None}
    ports, subnets = await _homes(reader, nodes) if network else ((), ())
    if why := _known_to_nodes(ports, subnets, (address,)):
        return why, ""
    homes = set(map(id_of, subnets))
    of_other, more = "", ("device_owner",)
    at_floating = await reader.ports("id", led, more)
    fixed = await reader.ports("fixed_ips", {f"ip_address={address}"}, more)
    for port in (*fixed, *at_floating):
        is_nodes = str(port["device_id"]) in servers or port.get("device_owner") == _SUBPORT
        if servers and is_nodes:
            return f"port {id_of(port)} of a node's server has it", ""
        is_there = str(port.get("network_id")) != network or id_of(port) in led
        if is_there and not homes.isdisjoint(subnets_of((port,))):
            return f"port {id_of(port)} in a subnet of the nodes has it", ""
        is_there = is_there and not foreign_project(port, project)
        if is_there and not str(port.get("device_owner") or "").startswith(_OF_NETWORKS):
            of_other = f"port {id_of(port)} in another network has it"
    return "", of_other


async def _homes(
    reader: Reader, nodes: Iterable[KubeObject]
) -> tuple[Sequence[Described], Sequence[Described]]:
    """Return the ports of nodes' servers, or of some by chance, and the subnets of these."""
    wires = (await reader.wires(some_of(sorted(nodes_by_server(nodes)), MOST_IDS))).values()
    ports = [port for one in wires for port in (*one.ports, *(port for _, port in one.trunked))]
    return ports, await reader.subnets("id", subnets_of(ports))


def _known_to_nodes(
    ports: Iterable[Described], subnets: Iterable[Described], addresses: Collection[str]
) -> str:
    """Return why nodes mean others by one of these addresses, wherever something has it; or "".

    Args:
        ports: The ports of nodes' servers.
        subnets: The subnets in which these are.
        addresses: The addresses.
    """
    for port in ports:
        if answers_for(port, addresses):
            return f"port {id_of(port)} of a node's server has it among its allowed address pairs"
    for subnet in subnets:
        if asks_at(subnet, addresses):
            return f"it is that of a name server of subnet {id_of(subnet)}, where nodes are"
    return ""


def _is_machines(port: Described) -> bool:
    return str(port.get("device_owner") or "").startswith(_OF_MACHINES)


def _having(addresses: Collection[str], nodes: Iterable[KubeObject]) -> Iterator[Node]:
    wanted = {parsed_address(one) for one in addresses} - {None}
    for node in nodes if wanted else ():
        if isinstance(node, Node):
            known = (parsed_address(one.address) for one in node.status.addresses)
            if not wanted.isdisjoint(known):
                yield node
