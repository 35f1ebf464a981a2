"""Choose whom to ask about: the nodes that may have lost their machine, and witnesses for them."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from proreus.cloudprovider.instances import Ownership
from proreus.containment.inventory import Observation, Sighting
from proreus.controllers.cloud_node_lifecycle.breaker import release
from proreus.controllers.cloud_node_lifecycle.evidence import Evidence, is_last, may_count
from proreus.controllers.cloud_node_lifecycle.memory import Memory, Scope, ScopeMemory
from proreus.controllers.cloud_node_lifecycle.policy import Policy
from proreus.controllers.cloud_node_lifecycle.witnesses import Key
from proreus.kube.objects import (
    TAINT_AUTOSCALER,
    TAINT_OUT_OF_SERVICE,
    TAINT_UNINITIALIZED,
    Node,
    has_taint,
    is_ready,
)

Owns = Callable[[Node], Ownership]


KnownFor = Callable[[Node], float]
"""A function that gives the seconds for which a node has surely been known."""


def always(_: Node) -> float:
    """Return infinity as the time for which a node is known: each counts as old enough."""
    return math.inf


def never(_: Node) -> float:
    """Return minus infinity as the time until which a node was Ready: none was seen so."""
    return -math.inf


def _never_ready(_node: Node, _since: float) -> float:
    return 0.0


def _not_yet(_: Node) -> float:
    return 0.0


def _one_scope(_: Node) -> Scope:
    return ""


def _no_sighting(_: Node) -> Sighting:
    return Sighting()


class Known(msgspec.Struct, frozen=True):
    """What is known of a node without asking the cloud.

    Attributes:
        owns: Whether the node's machine is of this cloud.
        scope: The scope whose credential or listing shows the node's machine.
        sighting: The summary of what all calls until now have shown of the machine.
        known_for: For how many seconds, at least, the Node has existed.
        declared_for: For how many seconds, at least, an operator has declared its machine gone.
        ready_until: When the Node was seen to be Ready last, for one that is not Ready now.
        ready_for: For how many seconds, in all, the Node was Ready after a time.
        taken_over: Since when the kubelet of another machine than before reports for the Node; inf
            if none does.
    """

    owns: Owns
    scope: Callable[[Node], Scope] = _one_scope
    sighting: Callable[[Node], Sighting] = _no_sighting
    known_for: KnownFor = always
    declared_for: KnownFor = _not_yet
    ready_until: Callable[[Node], float] = never
    ready_for: Callable[[Node, float], float] = _never_ready
    taken_over: Callable[[Node], float] = always

    def was_there(self, node: Node, began: float) -> bool:
        """Tell whether the node's machine was there after `began`: shown, or the Node Ready."""
        return self.sighting(node).is_after(began) or self.ready_until(node) > began


class Rules(msgspec.Struct, frozen=True):
    """The inputs of a pass's decisions: the policy, known facts, and the observations' time."""

    policy: Policy
    known: Known
    at: float


class Question(msgspec.Struct, frozen=True):
    """The nodes of one scope to ask about at once: those in question, and witnesses.

    Attributes:
        candidates: The nodes in question.
        witnesses: The witnesses: nodes whose machines surely exist.
        scope: The scope of all these nodes.
        due: The names of the candidates whose absence would count now.
        decides: Whether there are enough witnesses for the answer to decide.
        due_off: The names of the candidates for which an answer "powered off" would count now.
    """

    candidates: tuple[Node, ...]
    witnesses: tuple[Node, ...]
    scope: Scope = ""
    due: frozenset[str] = frozenset()
    decides: bool = False
    due_off: frozenset[str] = frozenset()


class Reply(msgspec.Struct, frozen=True):
    """A question and its observations by node name; a name left out means unknown.

    All answers are to be of calls that began after the question was made: a witness from an
    older call proves nothing about this one. Witnesses that were asked before and after the
    candidates have two.
    """

    question: Question
    observations: Mapping[str, Sequence[Observation]]

    def beside(self, witness: Node, observation: Observation) -> Sequence[Observation]:
        """Return the answers about a witness in the call of `observation`, or calls around it.

        Return the last answer before it and the first after it, if both exist; else none.
        """
        observations = self.observations.get(witness.metadata.name, ())
        near = [one for one in observations if one.call == observation.call]
        if near:
            return near
        before = [one for one in observations if ended(one) <= observation.began]
        after = [
            one
            for one in observations
            if one.began >= ended(observation) and one not in before[-1:]
        ]
        return [before[-1], after[0]] if before and after else ()


def candidates(
    nodes: Iterable[Node],
    now: datetime,
    owns: Owns,
    policy: Policy,
    known_for: KnownFor = always,
) -> tuple[Node, ...]:
    """Return the nodes that may have lost their machine and may be deleted for it."""
    return tuple(
        node
        for node in nodes
        if not is_ready(node)
        and node.metadata.deletion_timestamp is None
        and _is_old_enough(node, now, policy, known_for)
        and may_be_ours(node, owns(node), policy)
    )


def can_witness(node: Node, owns: Owns) -> bool:
    """Tell whether the node can be a witness: it is Ready, so its machine surely exists."""
    return (
        is_ready(node)
        and bool(node.spec.provider_id)
        and node.metadata.deletion_timestamp is None
        and not has_taint(node, TAINT_UNINITIALIZED)
        and not has_taint(node, TAINT_AUTOSCALER)
        and owns(node) is Ownership.YES
    )


def is_apart(node: Node, known: Known, policy: Policy) -> bool:
    """Tell whether a Ready node that can be no witness is unknown to the cloud.

    Because of a taint, or since it has no provider id. It may have another machine than it says, or
    one that is about to be removed; but that machine runs, so the cloud's word that there is none
    says nothing, also once the node is silent.
    """
    return (
        is_ready(node)
        and bool(node.spec.provider_id or policy.delete_by_name)
        and node.metadata.deletion_timestamp is None
        and (needs_age(node) or has_taint(node, TAINT_AUTOSCALER))
        and known.sighting(node).missing is not None
        and may_be_ours(node, known.owns(node), policy)
    )


def eligible_witnesses(nodes: Iterable[Node], known: Known) -> Mapping[Scope, list[Node]]:
    """Return the nodes that can be witnesses, by scope and in the order of names."""
    by_scope: dict[Scope, list[Node]] = {}
    for node in nodes:
        if can_witness(node, known.owns):
            by_scope.setdefault(known.scope(node), []).append(node)
    by_scope.pop(None, None)
    for group in by_scope.values():
        group.sort(key=lambda node: node.metadata.name)
    return by_scope


def witnesses(eligible: Sequence[Node], count: int, turn: int) -> tuple[Node, ...]:
    """Pick up to `count` eligible nodes, others each `turn`.

    The witnesses lie far from one another: half a page is a half in the order of names, too.
    """
    picked = min(count, len(eligible))
    return tuple(
        eligible[(turn + i * len(eligible) // picked) % len(eligible)] for i in range(picked)
    )


def questions(
    nodes: Sequence[Node],
    now: datetime,
    known: Known,
    policy: Policy,
    memory: Memory,
    *,
    batch_size: int,
    turn: int,
    at: float,
) -> tuple[Question, ...]:
    """Make the questions: every candidate once, with witnesses of its scope in each batch.

    There are few witnesses, among them the nodes that the cloud did not know last. An answer that
    may decide has as many as `Policy.jury`. They take at most half of a full batch. Where a batch
    has no room for them there is one question for each scope that takes several calls.
    """
    in_question = candidates(nodes, now, known.owns, policy, known.known_for)
    if not in_question:
        return ()
    by_scope: dict[Scope, list[Node]] = {}
    for node in in_question:
        by_scope.setdefault(known.scope(node), []).append(node)
    eligible = eligible_witnesses(nodes, known) if policy.witnesses else {}
    return tuple(
        question
        for scope, of_scope in by_scope.items()
        for question in _of_scope(
            scope,
            of_scope,
            eligible.get(scope, ()),
            memory.scopes.get(scope, ScopeMemory()),
            policy,
            batch_size=batch_size,
            turn=turn,
            at=at,
        )
    )


def _of_scope(
    scope: Scope,
    in_question: Sequence[Node],
    eligible: Sequence[Node],
    memory: ScopeMemory,
    policy: Policy,
    *,
    batch_size: int,
    turn: int,
    at: float,
) -> Iterator[Question]:
    doubtful = memory.missing.keys() | memory.awake
    missing = [node for node in eligible if key_of(node) in doubtful]
    others = [node for node in eligible if key_of(node) not in doubtful]
    due = frozenset(
        node.metadata.name for node in in_question if _is_due(memory, key_of(node), policy, at)
    )
    off = off_policy(policy)
    due_off = frozenset(
        node.metadata.name
        for node in in_question
        if policy.out_of_service_grace is not None
        and not has_taint(node, TAINT_OUT_OF_SERVICE)
        and may_count(memory.off.get(key_of(node)), at, off)
    )
    decides = any(
        (name in due and _may_decide(memory, key_of(node), policy, at))
        or (name in due_off and _may_decide_off(memory.off.get(key_of(node)), off))
        for node in in_question
        for name in (node.metadata.name,)
    )
    room = max(batch_size // 2, batch_size - len(in_question))
    lacks_room = decides and room < min(policy.jury, len(eligible))
    is_small = lacks_room or batch_size < 2 * max(policy.witnesses, 1)
    most = len(eligible) if is_small else room
    few = len(missing) if is_small else min(len(missing), (most - 1) // 2)
    wanted = max(policy.witnesses, few + 1)
    if decides:
        wanted = max(wanted, policy.jury - few)
    count = min(wanted, most - few, len(others))
    size = len(in_question) if is_small else batch_size - few - count
    chunks = [
        tuple(in_question[start : start + size]) for start in range(0, len(in_question), size)
    ]
    for index, chunk in enumerate(chunks):
        step = turn * len(chunks) + index
        picked = witnesses(missing, few, step) + witnesses(others, count, step)
        yield Question(chunk, picked, scope, due, decides=decides, due_off=due_off)


def _is_due(memory: ScopeMemory, key: Key, policy: Policy, at: float) -> bool:
    """Tell whether the next answer `NotFound` would count."""
    evidence = memory.evidence.get(key)
    if evidence is not None and evidence.confirmations >= policy.confirmations:
        return _is_released(memory, evidence, policy, at)
    return may_count(evidence, at, policy)


def _may_decide(memory: ScopeMemory, key: Key, policy: Policy, at: float) -> bool:
    """Tell whether the next answer `NotFound` could delete the node."""
    evidence = memory.evidence.get(key)
    if evidence is not None and evidence.confirmations >= policy.confirmations:
        return _is_released(memory, evidence, policy, at)
    return is_last(evidence, policy)


def off_policy(policy: Policy) -> Policy:
    """Return the numbers for machines that are powered off.

    One answer is never enough: a taint that is wrong costs data, and no cloud shows a tombstone.
    """
    return msgspec.structs.replace(policy, confirmations=max(2, policy.confirmations))


def _may_decide_off(evidence: Evidence | None, policy: Policy) -> bool:
    """Tell whether the next answer "powered off" could bring the taint."""
    return evidence is not None and evidence.confirmations >= policy.confirmations - 1


def _is_released(memory: ScopeMemory, evidence: Evidence, policy: Policy, at: float) -> bool:
    until = release(memory.breaker, evidence, policy)
    return memory.breaker.since is None or (until is not None and at >= until)


def ended(observation: Observation) -> float:
    """Return when a call ended; when it began, if nobody knows."""
    return observation.began if observation.ended is None else observation.ended


def key_of(node: Node) -> Key:
    """Return the key of a node's evidence."""
    return node.metadata.uid, node.spec.provider_id


def may_be_ours(node: Node, ownership: Ownership, policy: Policy) -> bool:
    """Tell whether the node can be this cloud's; without a provider id no cloud can say so."""
    is_by_name = policy.delete_by_name and not node.spec.provider_id
    return ownership is Ownership.YES or (is_by_name and ownership is Ownership.UNKNOWN)


def needs_age(node: Node) -> bool:
    """Tell whether only the node's age shows that the cloud must know its machine by now."""
    return not node.spec.provider_id or has_taint(node, TAINT_UNINITIALIZED)


def _is_old_enough(node: Node, now: datetime, policy: Policy, known_for: KnownFor) -> bool:
    """Tell whether the cloud must know the node's machine by now, and can be asked."""
    if not needs_age(node):
        return True
    created = node.metadata.creation_timestamp
    if created is None or not (node.spec.provider_id or policy.delete_by_name):
        return False
    return min((now - created).total_seconds(), known_for(node)) >= policy.startup_grace
