"""Write the configuration that FRR should have on a node. Pure.

A line stands with the lines that it is within: `("router bgp 64512", "bgp router-id 192.0.2.11")`.
All of them are in the form in which FRR shows them, so that what it has can be compared
(`changes`). What a line means: https://docs.frrouting.org/en/latest/bgp.html

Policies depend on the cloud-config alone. An address that comes or goes is one line, `network`,
and has its attributes from the first announcement on.
"""

import hashlib
import ipaddress
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from proreus.kube.objects import Node
from proreus.providers.local.addresses import Address, Pool, contains, parse
from proreus.providers.local.bgp import communities, prefixes
from proreus.providers.local.bgp.config import (
    BGP,
    Advertisement,
    BFDProfile,
    Peer,
    pools_of,
    reaches,
    selects,
)
from proreus.providers.local.bgp.prefixes import Network

Line = tuple[str, ...]
"""A line of a configuration, after the lines that it is within."""

MARK: Final = "proreus"
"""How names begin that we give things in FRR, and descriptions of our neighbors."""
ANNOUNCED: Final = f"{MARK}-announced"
"""The route map of every network that we announce, which lets all of it pass."""
REFUSED: Final = f"{MARK}-refused"
"""The route map for what peers announce to us: nothing of it is taken."""
MULTIHOP: Final = 255

_FAMILIES: Final = (("ip", 4), ("ipv6", 6))
_STEP: Final = 10


class Desired(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of each daemon of FRR, in the order in which it is to be made.

    `held` are the peers that are neither changed nor removed, as their password cannot be read.
    """

    bgpd: tuple[Line, ...]
    bfdd: tuple[Line, ...] = ()
    zebra: tuple[Line, ...] = ()
    held: frozenset[str] = frozenset()


class _Class(msgspec.Struct, frozen=True):
    """The attributes that prefixes have at a peer."""

    local_preference: int | None
    communities: frozenset[communities.Community]


def desired(
    bgp: BGP,
    pools: Sequence[Pool],
    node: Node | None,
    announced: Collection[Address],
    passwords: Mapping[str, str | None],
) -> Desired:
    """Return the configuration for a node; without a Node it announces nothing.

    Args:
        bgp: The section `bgp` of the cloud-config; without peers nothing is desired.
        pools: The pools of the cloud-config.
        node: The node on which FRR runs.
        announced: The addresses that the node serves.
        passwords: The passwords by peer, for peers that have one; None for a password that cannot
            be read.
    """
    if not bgp.peers:
        return Desired(bgpd=())
    labels = node.metadata.labels if node is not None else {}
    peers = {
        name: peer
        for name, peer in bgp.peers.items()
        if node is not None and selects(peer.node_selectors, labels)
    }
    advertisements = [one for one in bgp.announcing.values() if selects(one.node_selectors, labels)]
    made = {name: peer for name, peer in peers.items() if passwords.get(name, "") is not None}
    held = frozenset(peer.host for name, peer in peers.items() if name not in made)
    router = f"router bgp {bgp.as_}"
    lines: list[Line] = [(f"route-map {ANNOUNCED} permit 1",), (f"route-map {REFUSED} deny 1",)]
    for name in peers:
        lines += _policy(name, _classes(bgp, name, advertisements, pools))
    lines += [(router,), *((router, text) for text in _globals(node))]
    lines += [(router, *line) for line in _networks(advertisements, pools, announced)]
    versions = _versions(node)
    for name, peer in made.items():
        lines += [
            (router, f"neighbor {peer.host} {text}")
            for text in _neighbor(bgp, name, peer, passwords.get(name) or "")
        ]
        told = _versions_told(name, advertisements, pools)
        lines += [(router, *line) for line in _families(name, peer, told & versions)]
    return Desired(
        bgpd=tuple(dict.fromkeys(lines)),
        bfdd=tuple(_bfd(bgp, peers.values())),
        zebra=(("ip nht resolve-via-default",), ("ipv6 nht resolve-via-default",)),
        held=held,
    )


def announcements(
    advertisements: Iterable[Advertisement], pools: Sequence[Pool], announced: Collection[Address]
) -> tuple[Network, ...]:
    """Return the prefixes that announce these addresses, in order."""
    found = {
        prefixes.prefix(address, one.length(address.version))
        for one in advertisements
        for pool in pools_of(one, pools)
        for address in announced
        if contains(pool, address)
    }
    return tuple(
        sorted(found, key=lambda one: (one.version, int(one.network_address), one.prefixlen))
    )


def router_id(node: Node) -> str:
    """Return the node's first IPv4 address, else a number of its name's.

    FRR's own choice may be the address of a bridge that all nodes have.
    """
    for one in _addresses(node):
        if one.version == 4:  # noqa: PLR2004
            return str(one)
    digest = hashlib.sha256(node.metadata.name.encode()).digest()
    return str(ipaddress.IPv4Address(int.from_bytes(digest[:4]) % (2**32 - 2**24 - 1) + 2**24))


def _addresses(node: Node) -> Iterator[Address]:
    for one in node.status.addresses:
        if one.type == "InternalIP" and (address := parse(one.address)) is not None:
            yield address


def _versions(node: Node | None) -> frozenset[int]:
    """Return the versions of IP in which the node can be a next hop."""
    return frozenset(one.version for one in _addresses(node)) if node is not None else frozenset()


def _globals(node: Node | None) -> Iterator[str]:
    if node is not None:
        yield f"bgp router-id {router_id(node)}"
    yield "no bgp default ipv4-unicast"
    yield "bgp graceful-restart preserve-fw-state"
    yield "no bgp network import-check"
    # In a session's first second, FRR announces, but forgets what is withdrawn meanwhile:
    # `group_announce_route_walkcb` skips peers whose coalesce timer runs.
    yield "coalesce-time 0"


def _classes(
    bgp: BGP, peer: str, advertisements: Iterable[Advertisement], pools: Sequence[Pool]
) -> Mapping[_Class, Sequence[tuple[Pool, int, int]]]:
    """Return what a peer is told, by its attributes: pools, versions and lengths of prefixes."""
    told: dict[tuple[str, int, int], list[Advertisement]] = {}
    by_name = {pool.name: pool for pool in pools}
    for one in advertisements:
        for pool in pools_of(one, pools) if reaches(one, peer) else ():
            for _, version in _FAMILIES:
                if prefixes.runs(pool, version):
                    told.setdefault((pool.name, version, one.length(version)), []).append(one)
    found: dict[_Class, list[tuple[Pool, int, int]]] = {}
    is_internal = bgp.peers[peer].as_ == bgp.as_
    for (name, version, length), several in told.items():
        preferences = [one.local_preference for one in several if one.local_preference is not None]
        key = _Class(
            max(preferences) if preferences and is_internal else None,
            frozenset(bgp.community(text) for one in several for text in one.communities),
        )
        found.setdefault(key, []).append((by_name[name], version, length))
    return found


def _policy(peer: str, classes: Mapping[_Class, Sequence[tuple[Pool, int, int]]]) -> Iterator[Line]:
    """Return the route map for what a peer is told, and the lists of prefixes that it matches.

    A list is named by what is in it: other prefixes are another list, so that there is never half
    of one, and FRR, which ignores an entry that is in the list already, takes them all.
    """
    name = f"{MARK}-{peer}"
    number = 0
    for attributes, told in classes.items():
        for word, version in _FAMILIES:
            entries = [
                piece
                for pool, its_version, length in told
                if its_version == version
                for piece in _entries(pool, version, length)
            ]
            if not entries:
                continue
            number += _STEP
            listed = f"{MARK}-{_digest(entries)}"
            for place, text in enumerate(entries, 1):
                yield (f"{word} prefix-list {listed} seq {place} permit {text}",)
            entry = f"route-map {name} permit {number}"
            yield (entry,)
            yield (entry, f"match {word} address prefix-list {listed}")
            if text := communities.standard(attributes.communities):
                yield (entry, f"set community {text}")
            if text := communities.large(attributes.communities):
                yield (entry, f"set large-community {text}")
            if attributes.local_preference is not None:
                yield (entry, f"set local-preference {attributes.local_preference}")
    if not number:
        yield (f"route-map {name} deny {_STEP}",)


def _digest(entries: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(entries).encode()).hexdigest()[:12]


def _entries(pool: Pool, version: int, length: int) -> Iterator[str]:
    longest = length == (32 if version == 4 else 128)  # noqa: PLR2004
    for network, is_exact in prefixes.pieces(pool, version, length):
        if is_exact:
            yield str(network)
        else:
            yield f"{network} ge {length}" + ("" if longest else f" le {length}")


def _networks(
    advertisements: Iterable[Advertisement], pools: Sequence[Pool], announced: Collection[Address]
) -> Iterator[Line]:
    for network in announcements(advertisements, pools, announced):
        family = f"address-family ipv{network.version} unicast"
        yield (family, f"network {network} route-map {ANNOUNCED}")


def _neighbor(bgp: BGP, name: str, peer: Peer, password: str) -> Iterator[str]:
    yield f"remote-as {peer.as_}"
    yield f"description {MARK} {name}"
    if peer.bfd_profile:
        yield "bfd"
        yield f"bfd profile {MARK}-{peer.bfd_profile}"
    if password:
        yield f"password {password}"
    if peer.port != 179:  # noqa: PLR2004 - which FRR does not show
        yield f"port {peer.port}"
    if peer.ebgp_multihop and peer.as_ != bgp.as_:
        yield f"ebgp-multihop {MULTIHOP}"
    hold = int(peer.hold_time.total_seconds())
    yield f"timers {int(peer.keepalive_time.total_seconds()) or max(1, hold // 3)} {hold}"
    if peer.connect_time:
        yield f"timers connect {int(peer.connect_time.total_seconds())}"
    if peer.graceful_restart:
        yield "graceful-restart"


def _versions_told(
    peer: str, advertisements: Iterable[Advertisement], pools: Sequence[Pool]
) -> frozenset[int]:
    """Return the versions of IP of the prefixes that a peer may be told."""
    return frozenset(
        version
        for one in advertisements
        if reaches(one, peer)
        for pool in pools_of(one, pools)
        for _, version in _FAMILIES
        if prefixes.runs(pool, version)
    )


def _families(name: str, peer: Peer, versions: frozenset[int]) -> Iterator[Line]:
    """Return what a neighbor has in each family; a session needs one at least."""
    own = ipaddress.ip_address(peer.host).version
    for version in sorted(versions or {own}):
        family = f"address-family ipv{version} unicast"
        yield (family, f"neighbor {peer.host} activate")
        yield (family, f"neighbor {peer.host} route-map {REFUSED} in")
        yield (family, f"neighbor {peer.host} route-map {MARK}-{name} out")


def _bfd(bgp: BGP, peers: Iterable[Peer]) -> Iterator[Line]:
    for name in sorted({peer.bfd_profile for peer in peers if peer.bfd_profile}):
        profile = ("bfd", f"profile {MARK}-{name}")
        yield profile
        yield from ((*profile, text) for text in _profile(bgp.bfd_profiles[name]))


def _profile(profile: BFDProfile) -> Iterator[str]:
    """Return the lines of a profile; FRR does not show those that are as by default."""
    default = BFDProfile()
    if profile.detect_multiplier != default.detect_multiplier:
        yield f"detect-multiplier {profile.detect_multiplier}"
    for word in ("transmit", "receive"):
        given = getattr(profile, f"{word}_interval")
        if given != getattr(default, f"{word}_interval"):
            yield f"{word}-interval {round(given.total_seconds() * 1000)}"
    if profile.minimum_ttl != default.minimum_ttl:
        yield f"minimum-ttl {profile.minimum_ttl}"
    if profile.passive_mode:
        yield "passive-mode"
