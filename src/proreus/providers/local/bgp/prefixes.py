"""Compute the prefixes that announce the addresses of a pool. Pure.

An aggregate is announced as a whole, so it must hold nothing but addresses of its pool: a router
would send us traffic for the rest, too.
"""

import ipaddress
from collections.abc import Iterator
from typing import Any

from proreus.providers.local.addresses import Address, AddressRange, Pool

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def prefix(address: Address, length: int) -> Network:
    """Return the prefix of that length that holds the address."""
    return ipaddress.ip_network((address, length), strict=False)


def runs(pool: Pool, version: int) -> tuple[AddressRange, ...]:
    """Return the pool's ranges of a version in order; what adjoins is one."""
    ranges = sorted(
        (one for one in pool.ranges if one.first.version == version),
        key=lambda one: int(one.first),
    )
    found: list[AddressRange] = []
    for one in ranges:
        if found and int(found[-1].last) + 1 == int(one.first):
            found[-1] = AddressRange(found[-1].first, one.last)
        else:
            found.append(one)
    return tuple(found)


def strays(pool: Pool, version: int, length: int) -> Network | None:
    """Return a prefix of that length with addresses of the pool and of others, or None.

    Only addresses at the ends of a run can be such.
    """
    for run in runs(pool, version):
        for end in (run.first, run.last):
            found = prefix(end, length)
            first, last = found.network_address, found.broadcast_address
            if int(first) < int(run.first) or int(last) > int(run.last):
                return found
    return None


def pieces(pool: Pool, version: int, length: int) -> Iterator[tuple[Network, bool]]:
    """Return the networks that hold all prefixes of that length, and whether each is one itself.

    The pool must have no `strays`.
    """
    for run in runs(pool, version):
        for network in _summary(run.first, run.last):
            yield network, network.prefixlen == length


def _summary(first: Any, last: Any) -> Iterator[Network]:
    """Return the networks of a run; both ends are of one version."""
    return ipaddress.summarize_address_range(first, last)
