"""Decide what to do about a node's pod CIDRs. Pure.

| node | cloud | `RangeAllocator` | `IPAMFromCloud` | `IPAMFromCluster` |
|---|---|---|---|---|
| none | none | allocate | wait for the cloud | allocate |
| none | some | allocate | write the cloud's | wrong mode |
| some | none | | wrong mode | assign the node's |
| some | same | | | |
| some | other | | mismatch | mismatch |

A range allocator does not ask the cloud. What the node has is never changed: the API server takes
pod CIDRs once.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from proreus.controllers.events import PlannedEvent
from proreus.controllers.networks import (
    Network,
    cluster_cidrs,
    is_in_any,
    network,
    overlap,
    pod_cidrs,
)
from proreus.controllers.node_ipam.cidrset import Claim, Range
from proreus.kube import patch as patches
from proreus.kube.errors import RefusedByGate, ServerError, StatusError, Unreachable
from proreus.kube.messages import scrub
from proreus.kube.objects import Condition, Node, by_age, condition
from proreus.kube.patch import Patch

CONDITION: Final = "PodCIDRsAllocated"
ALLOCATED: Final = "PodCIDRsAllocated"

DEFAULT_MASKS: Final = {4: 24, 6: 64}
MOST_BITS: Final = {4: 24, 6: 16}
"""The most blocks of one cluster CIDR, as a power of two; Go limits IPv6 only."""


class Mode(StrEnum):
    """The sources of pod CIDRs: the values of `--cidr-allocator-type`."""

    RANGE = "RangeAllocator"
    FROM_CLOUD = "IPAMFromCloud"
    FROM_CLUSTER = "IPAMFromCluster"

    @property
    def asks_cloud(self) -> bool:
        """Whether the provider's `pod_cidrs` are needed."""
        return self is not Mode.RANGE


class Reason(StrEnum):
    """Reasons of events and of the condition; Go's where it has one."""

    NOT_AVAILABLE = "CIDRNotAvailable"
    """No block is free, or the cloud has given none yet; it is tried again when that changes."""
    ASSIGNMENT_FAILED = "CIDRAssignmentFailed"
    """The blocks could not be written, or given to the cloud; it is tried again."""
    MISMATCH = "CloudCIDRAllocatorMismatch"
    """Node and cloud have different blocks; neither is changed."""
    INVALID_MODE = "CloudCIDRAllocatorInvalidMode"
    """The cloud has no blocks for this machine in this mode: see `--cidr-allocator-type`."""
    INVALID = "CloudCIDRAllocatorInvalidPodCIDR"
    """The cloud has given something that is not one block of each family."""
    OUTSIDE = "CIDROutsideClusterCIDR"
    """A block of the node is not in `--cluster-cidr`."""
    SHARED = "CIDRNotUnique"
    """A block of the node overlaps another node's or a Service's."""


class Allocate(msgspec.Struct, frozen=True):
    """The step to give the node a block of each cluster CIDR."""


class Write(msgspec.Struct, frozen=True):
    """The step to write the cloud's blocks to the node."""

    cidrs: tuple[str, ...]


class Assign(msgspec.Struct, frozen=True):
    """The step to give the node's blocks to its instance in the cloud."""

    cidrs: tuple[str, ...]


class Trouble(msgspec.Struct, frozen=True):
    """The reason why the node cannot get its pod CIDRs."""

    reason: Reason
    message: str


class Settled(msgspec.Struct, frozen=True):
    """The decision to do nothing."""


Decision = Allocate | Write | Assign | Trouble | Settled
InCloud = tuple[str, ...] | None
"""The blocks that the cloud says the node has; None: it gave no answer."""


def ranges(
    mode: Mode, clusters: Sequence[str], *, size: int = 0, size_v4: int = 0, size_v6: int = 0
) -> tuple[tuple[Range, ...], tuple[str, ...]]:
    """Return the cluster CIDRs with their blocks' prefix lengths, and problems with the flags.

    The sizes are those of `--node-cidr-mask-size`, `-ipv4` and `-ipv6`; 0 is the default. The rules
    are Go's. Where the cloud allocates, there are neither networks nor problems.
    """
    if mode is Mode.FROM_CLOUD:
        return (), ()
    networks, problem = cluster_cidrs(clusters)
    if problem or not networks:
        return (), (f"--cluster-cidr: {problem or 'must be given to allocate node CIDRs from'}",)
    sizes = {4: size_v4, 6: size_v6}
    problems = _misused(networks, size, sizes)
    block_ranges = []
    for net in networks:
        family = net.version
        given = sizes[family] or (size if len(networks) == 1 else 0)
        flag = f"-ipv{family}" if sizes[family] or not given else ""
        block_range = Range(net, given or DEFAULT_MASKS[family])
        problems += [f"--node-cidr-mask-size{flag}: {text}" for text in _unfit(block_range)]
        block_ranges.append(block_range)
    return tuple(block_ranges), tuple(problems)


def _misused(networks: Sequence[Network], size: int, sizes: dict[int, int]) -> list[str]:
    """Return the problems with flags that do not fit the networks or one another."""
    problems = []
    if size and len(networks) > 1:
        problems.append(
            "--node-cidr-mask-size: cannot be used with two cluster CIDRs; "
            "give --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6"
        )
    elif size and any(sizes.values()):
        problems.append(
            "--node-cidr-mask-size: cannot be combined with --node-cidr-mask-size-ipv4 or -ipv6"
        )
    families = {net.version for net in networks}
    return problems + [
        f"--node-cidr-mask-size-ipv{family}: --cluster-cidr has no IPv{family}"
        for family, given in sizes.items()
        if given and family not in families
    ]


def _unfit(block_range: Range) -> list[str]:
    net, family = block_range.cluster, block_range.cluster.version
    if not net.prefixlen <= block_range.mask <= net.max_prefixlen:
        return [f"{block_range.mask} must be from {net.prefixlen} ({net}) to {net.max_prefixlen}"]
    if block_range.mask - net.prefixlen > MOST_BITS[family]:
        most = net.prefixlen + MOST_BITS[family]
        return [f"{block_range.mask} makes too many blocks of {net}; give at most {most}"]
    return []


def relevant(old: Node | None, new: Node) -> bool:
    """Tell whether a change of a node can change the decision about it."""
    return old is None or _read(old) != _read(new)


def has_other_cidrs(old: Node | None, new: Node | None) -> bool:
    """Tell whether two states of a node hold different blocks."""
    before, after = (
        None if node is None else (node.metadata.uid, pod_cidrs(node)) for node in (old, new)
    )
    return before != after


def is_askable(node: Node) -> bool:
    """Tell whether the cloud can be asked: the machine is known, the node not being deleted."""
    return bool(node.spec.provider_id) and node.metadata.deletion_timestamp is None


def has_assigned(node: Node) -> bool:
    """Tell whether blocks may have been given to the node's instance in the cloud."""
    return bool(node.spec.provider_id and pod_cidrs(node))


def unassignable(node: Node, nodes: Iterable[Node], clusters: Sequence[Network]) -> Trouble | None:
    """Return why a node's instance must not get the node's blocks; None if it may.

    A kubelet may write any pod CIDR and provider id on its own new Node. So no block is assigned
    that is not the cluster's, nor one to which an older node has a right.
    """
    nets = {net: text for text in pod_cidrs(node) if (net := network(text)) is not None}
    outside = [text for net, text in nets.items() if not is_in_any(net, clusters)]
    if outside:
        known = ", ".join(map(str, clusters))
        text = f"The node's pod CIDR {outside[0]} is not in --cluster-cidr ({known})"
        return Trouble(Reason.OUTSIDE, text)
    for other in nodes:
        if other.metadata.uid == node.metadata.uid or by_age(other) > by_age(node):
            continue
        for held in pod_cidrs(other):
            theirs = network(held)
            if theirs is not None and any(overlap(net, theirs) for net in nets):
                text = f"The node {other.metadata.name} has the pod CIDR {held}, and is older"
                return Trouble(Reason.SHARED, text)
    return None


def releasable(node: Node, nodes: Iterable[Node], clusters: Sequence[Network]) -> tuple[str, ...]:
    """Return the blocks that a deleted node's instance has to give back.

    Blocks are left out that another Node says it has on the same instance: the machine's new Node,
    or that of a living machine which the one that is gone has claimed. So are those that are not
    the cluster's: the instance that a Node names may be another cluster's.
    """
    others = (one for one in nodes if one.spec.provider_id == node.spec.provider_id)
    held = {
        network(cidr)
        for one in others
        if one.metadata.uid != node.metadata.uid
        for cidr in pod_cidrs(one)
    }
    return tuple(
        cidr
        for cidr in pod_cidrs(node)
        if (net := network(cidr)) is not None and net not in held and is_in_any(net, clusters)
    )


def decide(mode: Mode, node: Node, in_cloud: InCloud | Exception) -> Decision:
    """Decide for a node; `in_cloud` counts only where the mode asks the cloud."""
    if node.metadata.deletion_timestamp is not None:
        return Settled()
    if not mode.asks_cloud:
        return Settled() if pod_cidrs(node) else Allocate()
    if not is_askable(node):
        return Settled()
    if isinstance(in_cloud, Exception):
        return Trouble(Reason.NOT_AVAILABLE, scrub(f"The call to the cloud failed: {in_cloud}"))
    if in_cloud is None:
        return Trouble(Reason.NOT_AVAILABLE, "The cloud does not say which pod CIDRs it has given")
    return _compare(mode, node, in_cloud)


def _compare(mode: Mode, node: Node, in_cloud: tuple[str, ...]) -> Decision:
    """Compare the node's CIDRs with the cloud's, as in the table of the module."""
    has, given = pod_cidrs(node), ", ".join(in_cloud)
    networks, problem = cluster_cidrs(in_cloud)
    if problem:
        return Trouble(Reason.INVALID, scrub(f"The cloud has given {given}: {problem}"))
    if has and networks:
        if set(networks) == {network(text) for text in has}:
            return Settled()
        text = f"The node has {', '.join(has)}, the cloud has given {given}"
        return Trouble(Reason.MISMATCH, text)
    if mode is Mode.FROM_CLOUD:
        return _from_cloud(has, networks)
    return _from_cluster(has, networks)


def _from_cloud(has: tuple[str, ...], networks: tuple[Network, ...]) -> Decision:
    """Decide when the cloud allocates and at most one side has CIDRs."""
    if has:
        text = f"The node has the pod CIDRs {', '.join(has)}, which the cloud has not given"
        return Trouble(Reason.INVALID_MODE, text)
    if networks:
        return Write(tuple(map(str, networks)))
    return Trouble(Reason.NOT_AVAILABLE, "The cloud has given the node no pod CIDRs yet")


def _from_cluster(has: tuple[str, ...], networks: tuple[Network, ...]) -> Decision:
    """Decide when the cluster allocates and at most one side has CIDRs."""
    if has:
        return Assign(has)
    if networks:
        given = ", ".join(map(str, networks))
        text = f"The cloud has given {given} by itself, which {Mode.FROM_CLUSTER} does not allow"
        return Trouble(Reason.INVALID_MODE, text)
    return Allocate()


def exhausted(cluster: Network) -> Trouble:
    """Return the trouble that no block of this cluster CIDR is left."""
    text = f"All node CIDRs of {cluster} are taken; the node gets one when another node is deleted"
    return Trouble(Reason.NOT_AVAILABLE, text)


def not_assigned(error: Exception) -> Trouble:
    """Return the trouble that the CIDRs could not be written to the node or the cloud."""
    return Trouble(Reason.ASSIGNMENT_FAILED, scrub(f"The pod CIDRs were not assigned: {error}"))


def may_have_written(error: Exception) -> bool:
    """Tell whether a write with this error may have taken effect."""
    if isinstance(error, Unreachable):
        return error.sent
    return not isinstance(error, StatusError | RefusedByGate) or isinstance(error, ServerError)


def write(node: Node, cidrs: Sequence[str]) -> Patch:
    """Make the PATCH that gives a node its pod CIDRs, if it has none and is still the same node."""
    return patches.json_patch(
        node.metadata.uid,
        [
            *patches.set_once("/spec/podCIDR", cidrs[0]),
            *patches.set_once("/spec/podCIDRs", list(cidrs)),
        ],
    )


def condition_patch(node: Node, trouble: Trouble | None, now: datetime) -> Patch | None:
    """Make the PATCH of the condition, with or without trouble; None if it is right already.

    Without trouble, a node that never had any has no condition.
    """
    current = condition(node.status.conditions, CONDITION)
    if trouble is not None:
        new = Condition(CONDITION, "False", trouble.reason, trouble.message, now)
    elif current is not None and pod_cidrs(node):
        new = Condition(CONDITION, "True", ALLOCATED, "The node has its pod CIDRs", now)
    else:
        return None
    if current is not None and (current.status, current.reason) == (new.status, new.reason):
        return None
    if current is not None and current.status == new.status:
        new = msgspec.structs.replace(new, last_transition_time=current.last_transition_time)
    return patches.status(node.metadata.uid, conditions=(new,))


def event(trouble: Trouble) -> PlannedEvent:
    """Make the event of the trouble."""
    return PlannedEvent("Warning", trouble.reason, trouble.message)


def claim_events(claim: Claim, clusters: Sequence[Network]) -> tuple[PlannedEvent, ...]:
    """Make the events about CIDRs that a node has and should not have."""
    known = ", ".join(map(str, clusters))
    outside = [
        Trouble(Reason.OUTSIDE, f"The node's pod CIDR {cidr} is not in --cluster-cidr ({known})")
        for cidr in claim.outside
    ]
    shared = [
        Trouble(Reason.SHARED, f"The node's pod CIDR {cidr} overlaps another node's or a Service's")
        for cidr in claim.shared
    ]
    return tuple(map(event, outside + shared))


def _read(node: Node) -> tuple[object, ...]:
    meta = node.metadata
    return meta.uid, meta.deletion_timestamp, node.spec.provider_id, pod_cidrs(node)
