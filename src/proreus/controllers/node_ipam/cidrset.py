"""Track which blocks of the cluster CIDRs are taken, and by whom. Pure.

A block that is released is taken again only after all others (next fit, as Go), so that what
still remembers a lost node does not meet a new one in its place.
"""

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network
from typing import Final, Protocol

import msgspec

from proreus.controllers.networks import Network, is_in_any, is_within, network

_MOST_HOLDERS: Final = 255
"""The number of holders from which on a block stays taken for good."""


class Range(msgspec.Struct, frozen=True):
    """A cluster CIDR, and the prefix length of the block that each node gets from it."""

    cluster: Network
    mask: int

    @property
    def size(self) -> int:
        """The number of per-node blocks in the cluster CIDR."""
        return 1 << (self.mask - self.cluster.prefixlen)


class Meter(Protocol):
    """A listener to what happens to the blocks of a cluster CIDR."""

    def changed(self, delta: int) -> None:
        """Note that `delta` blocks were taken, or, below zero, became free."""

    def tried(self, count: int) -> None:
        """Note that a block was found after checking `count` blocks."""


class _NoMeter:
    def changed(self, delta: int) -> None:
        """Ignore the change."""

    def tried(self, count: int) -> None:
        """Ignore how many blocks a search has tried."""


class CidrSet:
    """The blocks of one cluster CIDR. Each counts its holders, and is free without any."""

    def __init__(self, cluster_range: Range, meter: Meter | None = None) -> None:
        """Start with all blocks free; each takes one byte."""
        self.cluster = cluster_range.cluster
        self.mask = cluster_range.mask
        self.size = cluster_range.size
        self._meter = meter or _NoMeter()
        self._shift = cluster_range.cluster.max_prefixlen - cluster_range.mask
        self._first = int(cluster_range.cluster.network_address)
        self._holders = bytearray(self.size)
        self._next = 0

    def take(self) -> Network | None:
        """Take the next free block, or return None if all are taken."""
        index = self._holders.find(0, self._next)
        if index < 0:
            index = self._holders.find(0, 0, self._next)
        if index < 0:
            return None
        self._meter.tried((index - self._next) % self.size + 1)
        self._next = (index + 1) % self.size
        self._holders[index] = 1
        self._meter.changed(1)
        address = self._first + (index << self._shift)
        if isinstance(self.cluster, IPv4Network):
            return IPv4Network((address, self.mask))
        return IPv6Network((address, self.mask))

    def hold(self, net: Network) -> bool:
        """Add a holder to every block that `net` touches; tell whether all were free."""
        new, blocks = 0, self._blocks(net)
        for index in blocks:
            new += self._holders[index] == 0
            self._holders[index] = min(self._holders[index] + 1, _MOST_HOLDERS)
        if new:
            self._meter.changed(new)
        return new == len(blocks)

    def release(self, net: Network) -> bool:
        """Remove a holder from every block that `net` touches; tell whether one is free now."""
        freed = 0
        for index in self._blocks(net):
            if 0 < self._holders[index] < _MOST_HOLDERS:
                self._holders[index] -= 1
                freed += self._holders[index] == 0
        if freed:
            self._meter.changed(-freed)
        return freed > 0

    def is_shared(self, net: Network) -> bool:
        """Tell whether a block that `net` touches has several holders."""
        return any(self._holders[index] > 1 for index in self._blocks(net))

    def _blocks(self, net: Network) -> range:
        """Return the blocks that `net` touches: a part of one, several, or more than all."""
        if is_within(self.cluster, net):
            return range(self.size)
        if not is_within(net, self.cluster):
            return range(0)
        first = (int(net.network_address) - self._first) >> self._shift
        last = (int(net.broadcast_address) - self._first) >> self._shift
        return range(first, last + 1)


class Claim(msgspec.Struct, frozen=True):
    """The CIDRs that a node should not hold.

    Attributes:
        outside: The CIDRs that are in no cluster CIDR, or that cannot be read.
        shared: The CIDRs of which a block has another holder.
    """

    outside: tuple[str, ...]
    shared: tuple[str, ...]


class Reservation(msgspec.Struct, frozen=True):
    """The blocks reserved for a node whose CIDRs the cache does not show yet.

    `is_unsure` says that the blocks may have been written, so that only the cache can tell.
    """

    blocks: tuple[Network, ...]
    is_unsure: bool = False


class Blocks:
    """The blocks of all cluster CIDRs: held by nodes or Services, or reserved for a write."""

    def __init__(
        self,
        ranges: Sequence[Range],
        services: Iterable[Network] = (),
        meters: Mapping[Network, Meter] = {},
    ) -> None:
        """Start with only the blocks taken that the Services' CIDRs overlap."""
        self._sets = [CidrSet(cidr_set, meters.get(cidr_set.cluster)) for cidr_set in ranges]
        self._reserved: dict[str, Reservation] = {}
        for net in services:
            for cidr_set in self._sets:
                cidr_set.hold(net)

    def inherit(self, reserved: Mapping[str, tuple[Network, ...]]) -> None:
        """Take over what a predecessor has `reserved`.

        Its writes may be under way, or not in the cache yet: only the cache can tell.
        """
        for uid, blocks in reserved.items():
            self._reserved[uid] = Reservation(blocks, is_unsure=True)
            for block in blocks:
                self._hold(block)

    @property
    def reserved(self) -> Mapping[str, tuple[Network, ...]]:
        """The blocks that are reserved for a write, by the uid of the node."""
        return {uid: one.blocks for uid, one in self._reserved.items()}

    @property
    def clusters(self) -> tuple[Network, ...]:
        """The cluster CIDRs."""
        return tuple(cidr_set.cluster for cidr_set in self._sets)

    def hold(self, uid: str, cidrs: Sequence[str]) -> Claim:
        """Note that the node with this uid has these CIDRs, and end its reservation."""
        outside, shared = [], []
        mine = self._reserved.get(uid, Reservation(()))
        for cidr in cidrs:
            net = network(cidr)
            if net is None or not is_in_any(net, self.clusters):
                outside.append(cidr)
            if net is not None and not self._hold(net) and net not in mine.blocks:
                shared.append(cidr)
        self.forget(uid)
        return Claim(tuple(outside), tuple(shared))

    def are_shared(self, cidrs: Iterable[str]) -> bool:
        """Tell whether somebody else holds a block that these CIDRs of a node touch."""
        nets = [net for cidr in cidrs if (net := network(cidr)) is not None]
        return any(cidr_set.is_shared(net) for cidr_set in self._sets for net in nets)

    def release(self, cidrs: Iterable[str]) -> bool:
        """Note that a node no longer holds these CIDRs; tell whether a block became free."""
        return self._release(net for cidr in cidrs if (net := network(cidr)) is not None)

    def reserve(self, uid: str) -> tuple[Network, ...] | Network:
        """Reserve a block of each cluster CIDR, or return the cluster CIDR that has none left.

        The node gets the same blocks until `hold`, `forget` or `refused`. If one family has none
        left, none of the other is kept.
        """
        if uid in self._reserved:
            return self._reserved[uid].blocks
        taken: list[Network] = []
        for cidr_set in self._sets:
            block = cidr_set.take()
            if block is None:
                self._release(taken)
                return cidr_set.cluster
            taken.append(block)
        self._reserved[uid] = Reservation(tuple(taken))
        return tuple(taken)

    def unsure(self, uid: str) -> None:
        """Record that nobody knows whether the last write of the reserved blocks took effect."""
        if uid in self._reserved:
            self._reserved[uid] = Reservation(self._reserved[uid].blocks, is_unsure=True)

    def refused(self, uid: str) -> bool:
        """Note that the last write failed: free what no other write can have given the node.

        Returns whether a block has become free.
        """
        if uid in self._reserved and self._reserved[uid].is_unsure:
            return False
        return self.forget(uid)

    def forget(self, uid: str) -> bool:
        """Drop the node's reservation; tell whether a block became free."""
        gone = self._reserved.pop(uid, None)
        return gone is not None and self._release(gone.blocks)

    def _hold(self, net: Network) -> bool:
        were_free = [cidr_set.hold(net) for cidr_set in self._sets]
        return all(were_free)

    def _release(self, nets: Iterable[Network]) -> bool:
        became_free = [cidr_set.release(net) for net in nets for cidr_set in self._sets]
        return any(became_free)
