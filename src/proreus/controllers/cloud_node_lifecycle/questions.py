"""Whom to ask about: the nodes that may have lost their machine, and witnesses for them."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from proreus.cloudprovider.instances import Ownership
from proreus.controllers.cloud_node_lifecycle.policy import Policy
from proreus.controllers.inventory import Observation
from proreus.kube.objects import (
    TAINT_AUTOSCALER,
    TAINT_UNINITIALIZED,
    Node,
    condition,
    has_taint,
)

Owns = Callable[[Node], Ownership]

KnownFor = Callable[[Node], float]
"""For how many seconds a node has surely been there, whatever the wall clocks say."""


def always(_: Node) -> float:
    """Any node has been there for ever."""
    return math.inf


class Question(msgspec.Struct, frozen=True):
    """Nodes to ask about in one go: those in question, and witnesses that are surely there."""

    candidates: tuple[Node, ...]
    witnesses: tuple[Node, ...]


class Look(msgspec.Struct, frozen=True):
    """A question and what the cloud said, by node name; a name left out means unknown.

    All answers are to be of calls that began after the question was made: a witness from an
    older call proves nothing about this one.
    """

    question: Question
    observations: Mapping[str, Observation]


def candidates(
    nodes: Iterable[Node],
    now: datetime,
    owns: Owns,
    policy: Policy,
    known_for: KnownFor = always,
) -> tuple[Node, ...]:
    """The nodes that could have lost their machine and may be deleted for it."""
    return tuple(
        node
        for node in nodes
        if not is_ready(node)
        and node.metadata.deletion_timestamp is None
        and _is_old_enough(node, now, policy, known_for)
        and _may_be_ours(node, owns(node), policy)
    )


def able(nodes: Iterable[Node], owns: Owns) -> list[Node]:
    """The nodes whose machine is surely there, by name: who can be a witness."""
    return sorted(
        (
            node
            for node in nodes
            if is_ready(node)
            and node.spec.provider_id
            and node.metadata.deletion_timestamp is None
            and not has_taint(node, TAINT_UNINITIALIZED)
            and not has_taint(node, TAINT_AUTOSCALER)
            and owns(node) is Ownership.YES
        ),
        key=lambda node: node.metadata.name,
    )


def witnesses(able: Sequence[Node], count: int, turn: int) -> tuple[Node, ...]:
    """Up to `count` of those who can be; each `turn` other ones."""
    picked = min(count, len(able))
    return tuple(able[(turn * picked + i) % len(able)] for i in range(picked))


def questions(
    nodes: Sequence[Node],
    now: datetime,
    owns: Owns,
    policy: Policy,
    *,
    batch_size: int,
    turn: int,
    known_for: KnownFor = always,
) -> tuple[Question, ...]:
    """What to ask the cloud: every candidate once, with witnesses in each batch.

    Witnesses take at most half of a batch. With a batch size of 1 there is one question that
    takes several calls.
    """
    asked = candidates(nodes, now, owns, policy, known_for)
    if not asked:
        return ()
    if batch_size == 1:
        return (Question(asked, witnesses(able(nodes, owns), policy.witnesses, turn)),)
    count = min(policy.witnesses, batch_size // 2)
    size = batch_size - count
    chunks = [asked[start : start + size] for start in range(0, len(asked), size)]
    known = able(nodes, owns)
    return tuple(
        Question(chunk, witnesses(known, count, turn * len(chunks) + index))
        for index, chunk in enumerate(chunks)
    )


def is_ready(node: Node) -> bool:
    """Whether the kubelet reports; a missing condition counts as not Ready."""
    ready = condition(node.status.conditions, "Ready")
    return ready is not None and ready.status == "True"


def _may_be_ours(node: Node, ownership: Ownership, policy: Policy) -> bool:
    """Whether the node is this cloud's; without provider id no cloud can say so."""
    is_by_name = policy.delete_by_name and not node.spec.provider_id
    return ownership is Ownership.YES or (is_by_name and ownership is Ownership.UNKNOWN)


def needs_age(node: Node) -> bool:
    """Whether only its age can tell that the node's machine must be known to the cloud by now."""
    return not node.spec.provider_id or has_taint(node, TAINT_UNINITIALIZED)


def _is_old_enough(node: Node, now: datetime, policy: Policy, known_for: KnownFor) -> bool:
    """Whether the node's machine must be known to the cloud by now, and can be asked for."""
    if not needs_age(node):
        return True
    created = node.metadata.creation_timestamp
    if created is None or not (node.spec.provider_id or policy.delete_by_name):
        return False
    return min((now - created).total_seconds(), known_for(node)) >= policy.startup_grace
