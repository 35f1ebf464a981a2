"""Convert Nova's and Neutron's descriptions of a server to Kubernetes' terms. Pure."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from proreus.cloudprovider.addresses import family_of, parsed_address
from proreus.cloudprovider.instances import Instance
from proreus.cloudprovider.names import LABEL_VALUE
from proreus.kube.objects import NodeAddress
from proreus.providers.nova.machines import Described, id_of, is_powered_off, state_of
from proreus.providers.openstack.config import Networking
from proreus.providers.openstack.names import provider_id


class Wires(msgspec.Struct, frozen=True):
    """The ports of a server, and those of its trunks.

    Attributes:
        ports: The ports of the server.
        trunked: The subports of trunks on these ports, each with the name of its network.
    """

    ports: Sequence[Described] = ()
    trunked: Sequence[tuple[str, Described]] = ()


def instance(
    server: Described,
    wires: Wires,
    networking: Networking,
    *,
    region: str,
    type_: str,
    known_as: str,
    regional: bool,
) -> Instance:
    """Make the framework's `Instance` from the description of a server.

    Args:
        server: The server as Nova describes it.
        wires: The server's ports as Neutron describes them.
        networking: The settings that say which addresses are wanted.
        region: The region, or "".
        type_: The instance type.
        known_as: The Node's provider id, "" if it has none; one server's id may be written in
            several forms.
        regional: Whether a new provider id names the region.
    """
    return Instance(
        provider_id=known_as or provider_id(id_of(server), region if regional else ""),
        name=str(server.get("name", "")),
        instance_type=type_,
        zone=LABEL_VALUE.clean(str(server.get("OS-EXT-AZ:availability_zone") or "")),
        region=region,
        addresses=addresses(server, wires, networking),
        state=state_of(server),
        powered_off=is_powered_off(server),
    )


def addresses(server: Described, wires: Wires, networking: Networking) -> tuple[NodeAddress, ...]:
    """Return all addresses of a server, as the official manager orders and sorts them.

    The fixed addresses of ports come first, then the access addresses and the host name that the
    server's metadata may name. Nova's view of the networks, by their names, adds floating
    addresses, makes those of public networks external, and drops those of networks that are not
    wanted.
    """
    found = [*_of_ports(wires.ports), *_of_server(server)]
    public = frozenset(filter(None, networking.public_network_name))
    internal = frozenset(filter(None, networking.internal_network_name))
    for network, kind, text in _of_networks(server, wires.trunked):
        is_floating = kind == "floating"
        if is_floating or network in public:
            if not is_floating:
                found = [one for one in found if one.address != text]
            found.append(NodeAddress("ExternalIP", text))
        elif internal and network not in internal:
            found = [one for one in found if one.address != text]
        else:
            found.append(NodeAddress("InternalIP", text))
    if networking.ipv6_support_disabled:
        found = [one for one in found if not _is_ipv6(one.address)]
    return _sorted(dict.fromkeys(found), networking)


def _of_ports(ports: Iterable[Described]) -> Iterator[NodeAddress]:
    for port in ports:
        if port.get("status") == "ACTIVE":
            for fixed in port.get("fixed_ips") or ():
                yield NodeAddress("InternalIP", str(fixed["ip_address"]))


def _of_server(server: Described) -> Iterator[NodeAddress]:
    for field in ("accessIPv4", "accessIPv6"):
        if server.get(field):
            yield NodeAddress("ExternalIP", str(server[field]))
    if name := (server.get("metadata") or {}).get("hostname"):
        yield NodeAddress("Hostname", str(name))


def _of_networks(
    server: Described, trunked: Iterable[tuple[str, Described]]
) -> list[tuple[str, str, str]]:
    """Yield network, kind and address by the names of the networks."""
    found = [
        (str(network), str(one.get("OS-EXT-IPS:type", "")), str(one["addr"]))
        for network, of_network in (server.get("addresses") or {}).items()
        for one in of_network
    ]
    found += [
        (network, "fixed", str(fixed["ip_address"]))
        for network, port in trunked
        for fixed in port.get("fixed_ips") or ()
    ]
    return sorted(found, key=lambda one: one[0])


def _sorted(found: Iterable[NodeAddress], networking: Networking) -> tuple[NodeAddress, ...]:
    """Sort addresses by the configured order of networks, then by their value.

    Addresses of other networks keep their order, after them.
    """
    order = networking.sort_order

    def place(one: NodeAddress) -> tuple[int, bytes]:
        ip = parsed_address(one.address)
        if ip is not None:
            for index, network in enumerate(order):
                if ip in network:
                    return index, ip.packed
        return len(order), b""

    return tuple(sorted(found, key=place))


def _is_ipv6(text: str) -> bool:
    return family_of(text) == "IPv6"
