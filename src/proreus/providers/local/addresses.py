"""Ranges of IP addresses, and the pools that are made of them. Pure."""

import ipaddress
from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import msgspec

from proreus.cloudprovider.names import without_zone
from proreus.cloudprovider.selectors import Selector

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Hop = tuple[int, str]
"""The number of the interface by which an address is reached, and the router there, or ""."""

_FAMILY: Final = MappingProxyType({4: "IPv4", 6: "IPv6"})
IP_TYPES: Final = ("InternalIP", "ExternalIP")
"""The types of a node's addresses that are IP addresses."""
_BUGGY: Final = frozenset({0, 255})


class AddressRange(msgspec.Struct, frozen=True):
    """A range of addresses from `first` to `last`, both of one family."""

    first: Address
    last: Address


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """A named set of addresses; see `PoolConfig` for the fields, and `ServiceAllocation`."""

    name: str
    ranges: tuple[AddressRange, ...]
    auto_assign: bool = True
    avoid_buggy_ips: bool = False
    namespaces: frozenset[str] = frozenset()
    namespace_selectors: tuple[Selector, ...] = ()
    service_selectors: tuple[Selector, ...] = ()
    share_across_namespaces: bool = False


def parse_range(text: str) -> AddressRange:
    """Parse a CIDR, a range `first-last`, or one address.

    Raises:
        ValueError: The text has another form, or holds addresses that no load balancer can have;
            with the remedy.
    """
    first, dash, last = (part.strip() for part in text.partition("-"))
    if dash:
        ends = parse(first), parse(last)
        if ends[0] is None or ends[1] is None or ends[0].version != ends[1].version:
            raise ValueError(f"{text!r} is not a range such as 192.0.2.10-192.0.2.20")
        found = AddressRange(ends[0], ends[1])
        if int(found.first) > int(found.last):
            raise ValueError(f"{text!r} ends before it begins")
    else:
        found = _parse_network(first)
    for end in (found.first, found.last):
        if end.is_multicast or end.is_loopback or end.is_unspecified or end.is_link_local:
            raise ValueError(
                f"{text!r} holds {end}: leave out multicast, loopback, link-local and unspecified"
                " addresses"
            )
    return found


def _parse_network(text: str) -> AddressRange:
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        problem = f"{text!r} is not a CIDR such as 192.0.2.0/27"
        if "host bits" in str(error):
            inside = ipaddress.ip_interface(text)
            problem = f"{text!r} has host bits: write {inside.network} or {inside.ip}"
        raise ValueError(problem) from None
    return AddressRange(network.network_address, network.broadcast_address)


def overlaps(pools: Sequence[Pool]) -> list[str]:
    """Return a sentence for each range that has an address in common with one before it."""
    every = [(pool.name, one) for pool in pools for one in pool.ranges]
    every.sort(key=lambda each: (each[1].first.version, int(each[1].first), int(each[1].last)))
    found = []
    reaching = every[:1]
    for name, one in every[1:]:
        other, before = reaching[-1]
        same_family = before.first.version == one.first.version
        if same_family and int(one.first) <= int(before.last):
            who = f"{other} overlaps itself" if other == name else f"{other} and {name} overlap"
            found.append(f"{who}: {range_text(before)} and {range_text(one)}")
        if not same_family or int(one.last) > int(before.last):
            reaching.append((name, one))
    return found


def contains(pool: Pool, address: Address) -> bool:
    """Tell whether a pool can give an address."""
    return not _is_buggy(pool, address) and any(
        one.first.version == address.version and int(one.first) <= int(address) <= int(one.last)
        for one in pool.ranges
    )


def size(pool: Pool) -> int:
    """Count the addresses that the pool can give."""
    return sum(int(one.last) - int(one.first) + 1 - _buggy_count(pool, one) for one in pool.ranges)


@lru_cache(maxsize=65536)
def parse(text: str) -> Address | None:
    """Parse an address; return None if the text is no address.

    One with a zone is none here: see `without_zone`.
    """
    try:
        return ipaddress.ip_address(without_zone(text))
    except ValueError:
        return None


def addresses(pool: Pool, family: str) -> Iterator[Address]:
    """Return the addresses that a pool can give, of "IPv4" or "IPv6", in order."""
    for one in pool.ranges:
        if family_of(one.first) == family:
            yield from (each for each in _each(one) if not _is_buggy(pool, each))


def family_of(address: Address) -> str:
    """Return the family of an address in Kubernetes' word: "IPv4" or "IPv6"."""
    return _FAMILY[address.version]


def _each(one: AddressRange) -> Iterator[Address]:
    kind = type(one.first)
    return (kind(number) for number in range(int(one.first), int(one.last) + 1))


def _is_buggy(pool: Pool, address: Address) -> bool:
    return pool.avoid_buggy_ips and address.version == 4 and int(address) % 256 in _BUGGY  # noqa: PLR2004


def _buggy_count(pool: Pool, one: AddressRange) -> int:
    if not pool.avoid_buggy_ips or one.first.version != 4:  # noqa: PLR2004
        return 0
    first, last = int(one.first), int(one.last)
    return sum((last - each) // 256 - (first - 1 - each) // 256 for each in _BUGGY)


def range_text(one: AddressRange) -> str:
    """Format a range for people."""
    return str(one.first) if one.first == one.last else f"{one.first}-{one.last}"
