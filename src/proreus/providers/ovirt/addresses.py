"""Select a Node's addresses among those that its machine's guest reports. Pure."""

import ipaddress
import re
from collections.abc import Iterable, Iterator

import msgspec

from proreus.cloudprovider.addresses import parsed_address
from proreus.cloudprovider.errors import CloudError
from proreus.kube.objects import NodeAddress
from proreus.providers.ovirt.config import Addresses, Network, Order, networks
from proreus.providers.ovirt.machines import Machine, described

_DIGITS = re.compile(r"(\d+)")


class Selection(msgspec.Struct, frozen=True):
    """The rules of section [Addresses]."""

    order: Order
    external: tuple[Network, ...] = ()
    excluded: tuple[Network, ...] = ()


def selection(section: Addresses) -> Selection:
    """Return the rules of section [Addresses]."""
    return Selection(section.order, networks(section.external), networks(section.excluded))


def addresses(machine: Machine, rules: Selection) -> tuple[NodeAddress, ...]:
    """Return the addresses of a machine.

    The addresses are those of its network cards, nic1 before nic2 and nic10, as the guest has them:
    so a bridge of containers gives none.

    Raises:
        CloudError: The machine has no address.
    """
    own = _allowed(_of_nics(machine), rules)
    match rules.order:
        case Order.IN_TREE:
            every = (text for device in machine.devices for text in device.addresses)
            found = [
                NodeAddress(type_, text)
                for text in list(_allowed(every, rules))[:1]
                for type_ in ("InternalIP", "ExternalIP")
            ]
        case Order.EXTERNAL:
            found = [NodeAddress("ExternalIP", text) for text in own]
        case Order.ALL:
            both = [(_is_in(text, rules.external), text) for text in own]
            found = [NodeAddress("ExternalIP" if out else "InternalIP", ip) for out, ip in both]
    if not found:
        raise CloudError(
            f"{described(machine)} reports no address yet: does the guest agent run in it, and is"
            " one of its network cards connected?"
        )
    return tuple(dict.fromkeys(found))


def _of_nics(machine: Machine) -> Iterator[str]:
    """Return the addresses of the devices that have the MAC address of a network card."""
    for nic in sorted(machine.nics, key=lambda one: _natural(one.name)):
        for device in machine.devices:
            if device.mac == nic.mac:
                yield from device.addresses


def _natural(name: str) -> list[tuple[int, str]]:
    """Return the sort key that puts nic2 before nic10."""
    parts = _DIGITS.split(name)
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts]


def _allowed(texts: Iterable[str], rules: Selection) -> Iterator[str]:
    """Return the addresses that others can reach, without those that are excluded."""
    for text in texts:
        ip = parsed_address(text)
        if ip is None:
            continue
        is_of_host = ip.is_unspecified or ip.is_loopback or ip.is_link_local or ip.is_multicast
        if not is_of_host and not _is_in(str(ip), rules.excluded):
            yield str(ip)


def _is_in(text: str, known: Iterable[Network]) -> bool:
    ip = ipaddress.ip_address(text)
    return any(ip.version == network.version and ip in network for network in known)
