"""The section `bgp` of the cloud-config: to which routers addresses are announced, and how.

    bgp:
      as: 64512
      peers:
        rack-1: {address: 192.0.2.1, as: 64513, bfd-profile: fast}
      bfd-profiles:
        fast: {receive-interval: 300ms, transmit-interval: 300ms, detect-multiplier: 3}
      advertisements:
        default: {pools: [default], communities: [no-export]}

Names follow MetalLB's BGPPeer, BGPAdvertisement, BFDProfile and Community.
"""

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from itertools import combinations
from typing import Final

from proreus.cloudprovider.config import ConfigSection
from proreus.cloudprovider.selectors import Selector
from proreus.providers.local.addresses import Pool
from proreus.providers.local.bgp import prefixes
from proreus.providers.local.bgp.communities import Community, parse_community

_HIGHEST_AS: Final = 2**32 - 1
_AS_TRANS: Final = 23456
_HIGHEST_PORT: Final = 65535
_HIGHEST_PREFERENCE: Final = 2**32 - 1
_SHORTEST_HOLD: Final = 3
_LONGEST: Final = 65535
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_SECOND: Final = timedelta(seconds=1)
_MILLISECOND: Final = timedelta(milliseconds=1)
_BITS: Final = {4: 32, 6: 128}


class OnShutdown(StrEnum):
    """What a speaker that ends does with what it announces."""

    WITHDRAW = "withdraw"
    KEEP = "keep"


def _wrong_as(name: str, number: int) -> Iterator[str]:
    if not 1 <= number < _HIGHEST_AS or number in {_AS_TRANS, 65535}:
        yield f"{name}: {number} is not an AS number, give one such as 64512"


def _wrong_time(
    name: str, given: timedelta, unit: timedelta, least: int, most: int
) -> Iterator[str]:
    shown = "s" if unit == _SECOND else "ms"
    if given % unit or not least * unit <= given <= most * unit:
        yield f"{name}: give a whole number from {least}{shown} to {most}{shown}"


class Peer(ConfigSection, frozen=True, kw_only=True):
    """Section `peers`, by name: a router to which nodes have a session.

    Attributes:
        address: Its IP address.
        as_: The AS of the router; the nodes' own AS makes the session internal (iBGP).
        port: Its TCP port.
        password_file: The file with the password of TCP MD5 (RFC 2385), such as one of a Secret
            that the pod mounts. "": none.
        hold_time: How long a session may be silent before it ends (RFC 4271); the shorter time of
            both ends counts.
        keepalive_time: The time between two keepalive messages. 0s: a third of `hold_time`.
        connect_time: The time between two tries to connect. 0s: FRR's own default.
        ebgp_multihop: Whether the router, of another AS than ours, may be beyond the nodes'
            network.
        bfd_profile: The profile of BFD for the session. "": no BFD.
        graceful_restart: Whether the router is to keep our routes while FRR restarts (RFC 4724).
        node_selectors: The labels of the nodes that have the session; a node needs to match one
            selector. None: all nodes.
    """

    address: str
    as_: int
    port: int = 179
    password_file: str = ""
    hold_time: timedelta = timedelta(seconds=90)
    keepalive_time: timedelta = timedelta(0)
    connect_time: timedelta = timedelta(0)
    ebgp_multihop: bool = False
    bfd_profile: str = ""
    graceful_restart: bool = False
    node_selectors: tuple[Selector, ...] = ()

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        try:
            found = ipaddress.ip_address(self.address)
        except ValueError:
            yield f"address: {self.address!r} is not an IP address, give one such as 192.0.2.1"
        else:
            if found.is_multicast or found.is_loopback or found.is_unspecified:
                yield f"address: {found} can be no router's"
            if found.is_link_local:
                yield f"address: {found} is link-local: give one that names no interface"
        yield from _wrong_as("as", self.as_)
        if not 1 <= self.port <= _HIGHEST_PORT:
            yield f"port: {self.port} is not a port, give 1 to {_HIGHEST_PORT}"
        yield from _wrong_time("hold-time", self.hold_time, _SECOND, _SHORTEST_HOLD, _LONGEST)
        yield from _wrong_time("keepalive-time", self.keepalive_time, _SECOND, 0, _LONGEST)
        yield from _wrong_time("connect-time", self.connect_time, _SECOND, 0, _LONGEST)
        if self.keepalive_time * 3 > self.hold_time:
            yield "keepalive-time: must be at most a third of hold-time"

    @property
    def host(self) -> str:
        """The address in the form that FRR shows."""
        return str(ipaddress.ip_address(self.address))


class BFDProfile(ConfigSection, frozen=True, kw_only=True):
    """Section `bfd-profiles`, by name: how quickly a dead peer is noticed (RFC 5880).

    Attributes:
        receive_interval: The shortest interval at which nodes accept packets.
        transmit_interval: The shortest interval at which nodes send packets.
        detect_multiplier: How many packets must be missing until the peer counts as dead.
        minimum_ttl: The least TTL of packets from a peer that is several hops away (RFC 5883).
        passive_mode: Whether nodes wait for the peer to begin.
    """

    receive_interval: timedelta = timedelta(milliseconds=300)
    transmit_interval: timedelta = timedelta(milliseconds=300)
    detect_multiplier: int = 3
    minimum_ttl: int = 254
    passive_mode: bool = False

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        for name, given in (
            ("receive-interval", self.receive_interval),
            ("transmit-interval", self.transmit_interval),
        ):
            yield from _wrong_time(name, given, _MILLISECOND, 10, 60000)
        if not 2 <= self.detect_multiplier <= 255:  # noqa: PLR2004 - FRR's limits
            yield "detect-multiplier: give 2 to 255"
        if not 1 <= self.minimum_ttl <= 254:  # noqa: PLR2004 - FRR's limits
            yield "minimum-ttl: give 1 to 254"


class Advertisement(ConfigSection, frozen=True, kw_only=True):
    """Section `advertisements`, by name: how addresses are announced.

    Attributes:
        pools: The pools whose addresses are announced so. None: all pools.
        aggregation_length: The prefix length of IPv4 routes: 32 announces each address by itself.
        aggregation_length_v6: The prefix length of IPv6 routes: 128 announces each address by
            itself.
        local_preference: The LOCAL_PREF of the routes, which peers of our own AS see. None: the
            peers' own default.
        communities: The communities of the routes: numbers, or names of `communities`.
        peers: The peers that the routes are announced to. None: all peers.
        node_selectors: The labels of the nodes that announce so; a node needs to match one
            selector. None: all nodes.
    """

    pools: tuple[str, ...] = ()
    aggregation_length: int = 32
    aggregation_length_v6: int = 128
    local_preference: int | None = None
    communities: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    node_selectors: tuple[Selector, ...] = ()

    def problems(self) -> Iterator[str]:
        """Report values that the fields' types let through but that are wrong."""
        if not 1 <= self.aggregation_length <= _BITS[4]:
            yield "aggregation-length: give 1 to 32"
        if not 1 <= self.aggregation_length_v6 <= _BITS[6]:
            yield "aggregation-length-v6: give 1 to 128"
        if not 0 <= (self.local_preference or 0) <= _HIGHEST_PREFERENCE:
            yield f"local-preference: give 0 to {_HIGHEST_PREFERENCE}"

    def length(self, version: int) -> int:
        """Return the length of prefixes of an IP version."""
        return self.aggregation_length if version == 4 else self.aggregation_length_v6  # noqa: PLR2004


class BGP(ConfigSection, frozen=True, kw_only=True):
    """Section `bgp`: BGP from nodes, if there are peers.

    Attributes:
        as_: The AS number of the nodes.
        peers: The routers, by name.
        bfd_profiles: The profiles of BFD, by name.
        communities: Names of one's own for communities.
        advertisements: The advertisements, by name: how addresses are announced. None: each address
            to all peers.
        on_shutdown: What becomes of the routes when a speaker ends. `withdraw`: another node gets
            the traffic at once. `keep`: the routes stay, as long as FRR runs.
    """

    as_: int = 0
    peers: Mapping[str, Peer] = {}
    bfd_profiles: Mapping[str, BFDProfile] = {}
    communities: Mapping[str, str] = {}
    advertisements: Mapping[str, Advertisement] = {}
    on_shutdown: OnShutdown = OnShutdown.WITHDRAW

    def problems(self) -> Iterator[str]:
        """Report what is wrong within the section; of pools `problems_with_pools` does."""
        if not self.peers:
            if self.as_ or self.advertisements:
                yield "peers: give one, or take the section out"
            return
        yield from _wrong_as("as", self.as_)
        yield from self._wrong_names()
        yield from self._wrong_peers()
        for name, text in self.communities.items():
            try:
                parse_community(text)
            except ValueError as error:
                yield f"communities {name}: {error}"
        for name, one in self.advertisements.items():
            yield from (f"advertisements {name} {text}" for text in self._wrong(one))

    def _wrong_names(self) -> Iterator[str]:
        for section, names in (("peers", self.peers), ("bfd-profiles", self.bfd_profiles)):
            for name in names:
                if not _NAME.fullmatch(name):
                    yield f"{section} {name!r}: name it with a-z, 0-9 and -, up to 40"

    def _wrong_peers(self) -> Iterator[str]:
        seen: dict[str, str] = {}
        for name, peer in self.peers.items():
            if (other := seen.setdefault(peer.host, name)) != name:
                yield f"peers {name} address: {peer.host} is that of {other}, too"
            if peer.bfd_profile and peer.bfd_profile not in self.bfd_profiles:
                known = ", ".join(self.bfd_profiles) or "none"
                yield f"peers {name} bfd-profile: {peer.bfd_profile!r} is not there, but {known}"
            if peer.ebgp_multihop and peer.as_ == self.as_:
                yield f"peers {name} ebgp-multihop: take it out, the peer has our own AS"

    def _wrong(self, one: Advertisement) -> Iterator[str]:
        for name in one.peers:
            if name not in self.peers:
                yield f"peers: {name!r} is not there, but {', '.join(self.peers)}"
        for text in one.communities:
            try:
                self.community(text)
            except ValueError as error:
                yield f"communities: {error}"
        if one.local_preference is not None and not any(
            peer.as_ == self.as_ for name, peer in self.peers.items() if reaches(one, name)
        ):
            yield "local-preference: take it out, no peer of it has our own AS"

    def community(self, text: str) -> Community:
        """Return the community that a text or one of our own names stands for.

        Raises:
            ValueError: The text is neither a community nor one of these names.
        """
        return parse_community(self.communities.get(text, text))

    @property
    def announcing(self) -> Mapping[str, Advertisement]:
        """The advertisements; without any, one that announces everything."""
        return self.advertisements or {"default": Advertisement()}


def reaches(one: Advertisement, peer: str) -> bool:
    """Tell whether an advertisement goes to the peer of that name."""
    return not one.peers or peer in one.peers


def selects(selectors: Sequence[Selector], labels: Mapping[str, str]) -> bool:
    """Tell whether any selector matches; none at all matches everything."""
    return not selectors or any(one.matches(labels) for one in selectors)


def problems_with_pools(bgp: BGP, pools: Sequence[Pool]) -> Iterator[str]:
    """Report what is wrong with a section `bgp`, given the pools."""
    if not bgp.peers:
        return
    names = [pool.name for pool in pools]
    for name, one in bgp.announcing.items():
        for pool in one.pools:
            if pool not in names:
                known = ", ".join(names) or "none"
                yield f"advertisements {name} pools: {pool!r} is not there, but {known}"
        for pool_ in pools_of(one, pools):
            yield from (f"advertisements {name} {text}" for text in _straying(one, pool_))
    for (name, one), (other, two) in combinations(bgp.announcing.items(), 2):
        if _contradict(bgp, one, two, pools):
            yield (
                f"advertisements {name}, {other} local-preference: is different for the same"
                " prefixes and peers; give both the same"
            )


def pools_of(one: Advertisement, pools: Sequence[Pool]) -> tuple[Pool, ...]:
    """Return the pools of an advertisement."""
    return tuple(pool for pool in pools if not one.pools or pool.name in one.pools)


def _straying(one: Advertisement, pool: Pool) -> Iterator[str]:
    for version, key in ((4, "aggregation-length"), (6, "aggregation-length-v6")):
        found = prefixes.strays(pool, version, one.length(version))
        if found is not None:
            yield (
                f"{key}: {found} holds addresses that are not of the pool {pool.name}, to which"
                " routers would send traffic here, too: give a longer one, or the pool all of them"
            )


def _contradict(bgp: BGP, one: Advertisement, two: Advertisement, pools: Sequence[Pool]) -> bool:
    """Tell whether one prefix would have two preferences at a peer, by the same nodes.

    Where nodes are selected in other ways, some may be in both: there the highest preference
    counts.
    """
    if one.local_preference == two.local_preference or one.node_selectors != two.node_selectors:
        return False
    if not any(
        peer.as_ == bgp.as_ and reaches(one, name) and reaches(two, name)
        for name, peer in bgp.peers.items()
    ):
        return False
    both = [pool for pool in pools_of(one, pools) if pool in pools_of(two, pools)]
    return any(
        prefixes.runs(pool, version) and one.length(version) == two.length(version)
        for pool in both
        for version in _BITS
    )
