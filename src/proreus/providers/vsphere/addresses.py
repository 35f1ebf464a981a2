"""Select a Node's addresses among those of its machine, as the official manager does. Pure."""

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from proreus.cloudprovider.addresses import parsed_address
from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.kube.objects import NodeAddress
from proreus.providers.vsphere.config import IPV4, Network, Nodes, networks
from proreus.providers.vsphere.machines import Machine, described, static_addresses


class Rules(msgspec.Struct, frozen=True):
    """The rules that select addresses of one type.

    Attributes:
        subnets: The CIDRs to search in this order: the first that contains an address of the
            machine decides.
        network: The name of the network whose addresses are taken where no subnet decides.
        excluded: The CIDRs whose addresses are never taken.
    """

    subnets: tuple[Network, ...]
    network: str
    excluded: tuple[Network, ...]


class Selection(msgspec.Struct, frozen=True):
    """The rules of section [Nodes]."""

    internal: Rules
    external: Rules


class _Candidate(msgspec.Struct, frozen=True):
    ip: ipaddress.IPv4Address | ipaddress.IPv6Address
    text: str
    network: str


def selection(nodes: Nodes) -> Selection:
    """Return the rules of section [Nodes]."""
    return Selection(
        Rules(
            networks(nodes.internal_network_subnet_cidr),
            nodes.internal_vm_network_name,
            networks(nodes.exclude_internal_network_subnet_cidr),
        ),
        Rules(
            networks(nodes.external_network_subnet_cidr),
            nodes.external_vm_network_name,
            networks(nodes.exclude_external_network_subnet_cidr),
        ),
    )


def addresses(
    machine: Machine, rules: Selection, families: Sequence[str]
) -> tuple[NodeAddress, ...]:
    """Return host name and addresses of a machine: for each family an internal and an external one.

    Raises:
        CloudError: The machine's tools report nothing yet.
        InvalidRequest: The rules select no address.
    """
    if not machine.host_name or not machine.nics:
        what = "host name" if not machine.host_name else "network cards"
        raise CloudError(f"{described(machine)} reports no {what} yet: do VMware Tools run in it?")
    _check_networks(machine, rules)
    candidates = _sorted(machine)
    found = [NodeAddress("Hostname", machine.host_name)]
    for family in families:
        of_family = [one for one in candidates if (one.ip.version == 4) == (family == IPV4)]  # noqa: PLR2004 - IP
        internal, external = _selected(of_family, rules)
        if internal is None and external is None:
            raise InvalidRequest(
                f"{described(machine)} has no {family} address for its Node: look at ip-family and"
                " section [Nodes] of the cloud-config"
            )
        if internal is not None:
            found.append(NodeAddress("InternalIP", internal.text))
        if external is not None:
            found.append(NodeAddress("ExternalIP", external.text))
    return tuple(dict.fromkeys(found))


def _check_networks(machine: Machine, rules: Selection) -> None:
    """Refuse a machine that is in neither of two networks that are named."""
    wanted = {rules.internal.network.lower(), rules.external.network.lower()}
    if "" not in wanted and wanted.isdisjoint(nic.network.lower() for nic in machine.nics):
        raise InvalidRequest(
            f"{described(machine)} is in neither network that section [Nodes] names:"
            f" {rules.internal.network}, {rules.external.network}"
        )


def _sorted(machine: Machine) -> list[_Candidate]:
    """Return all addresses that others can reach, those that are set statically first."""
    found = list(_usable(machine))
    static = {text: at for at, text in enumerate(static_addresses(machine.metadata))}
    return sorted(found, key=lambda one: static.get(one.text, len(static)))


def _usable(machine: Machine) -> Iterator[_Candidate]:
    for nic in machine.nics:
        for text in nic.addresses:
            ip = parsed_address(text)
            if ip is None or ip.is_unspecified or ip.is_loopback or ip.is_link_local:
                continue
            if not (ip.is_multicast and _is_of_link(ip)):
                yield _Candidate(ip, text, nic.network)


def _is_of_link(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Tell whether a multicast address stays on the link."""
    return any(ip in network for network in _LINK_MULTICAST if network.version == ip.version)


_LINK_MULTICAST = (ipaddress.ip_network("224.0.0.0/24"), ipaddress.ip_network("ff02::/16"))


def _selected(
    candidates: Sequence[_Candidate], rules: Selection
) -> tuple[_Candidate | None, _Candidate | None]:
    """Return the internal and the external address; the first of each if no rule finds any."""
    internal = _allowed(candidates, rules.internal.excluded)
    external = _allowed(candidates, rules.external.excluded)
    found = _matching(internal, rules.internal), _matching(external, rules.external)
    if found == (None, None):
        return _first(internal, lambda _: True), _first(external, lambda _: True)
    return found


def _allowed(candidates: Iterable[_Candidate], excluded: Sequence[Network]) -> list[_Candidate]:
    return [one for one in candidates if not any(_is_in(one, network) for network in excluded)]


def _matching(candidates: Sequence[_Candidate], rules: Rules) -> _Candidate | None:
    for subnet in rules.subnets:
        for one in candidates:
            if _is_in(one, subnet):
                return one
    name = rules.network.lower()
    return _first(candidates, lambda one: one.network.lower() == name) if name else None


def _first(
    candidates: Iterable[_Candidate], fits: Callable[[_Candidate], bool]
) -> _Candidate | None:
    return next(filter(fits, candidates), None)


def _is_in(one: _Candidate, network: Network) -> bool:
    return one.ip.version == network.version and one.ip in network
