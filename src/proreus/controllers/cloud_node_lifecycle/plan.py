"""Decide which nodes to delete, to taint as shut down, and to take out of service.

    questions ─► (the controller asks) ─► replies ─► plan ─► Pass ─► (deletes and patches)

A Node goes only if it is not Ready, is this cloud's, has a provider id, was initialised (or is
older than the start-up grace), and the cloud has said often enough that there is no such machine
(`evidence`), in answers that did not lack Ready nodes of the same scope (`witnesses`), while not
too many nodes of the scope look gone at once (`breaker`). Everything is a value: also the seconds
until a pending node may go.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from types import MappingProxyType
from typing import Final

import msgspec

from proreus.cloudprovider.instances import InstanceAnswer, NotFound, Ownership
from proreus.controllers.cloud_node_lifecycle.alarms import Alarm, alarms_of, due, named
from proreus.controllers.cloud_node_lifecycle.breaker import Gate, pace, proven, release
from proreus.controllers.cloud_node_lifecycle.declared import is_believed_gone, refuted
from proreus.controllers.cloud_node_lifecycle.evidence import Evidence
from proreus.controllers.cloud_node_lifecycle.memory import (
    Alert,
    Memory,
    Scope,
    ScopeMemory,
    Wait,
)
from proreus.controllers.cloud_node_lifecycle.out_of_service import held_in_service, ruling_on_power
from proreus.controllers.cloud_node_lifecycle.outlasting import outlasting_marks
from proreus.controllers.cloud_node_lifecycle.outlived import (
    is_marked_outlived,
    outlived,
    outlived_marks,
)
from proreus.controllers.cloud_node_lifecycle.policy import Policy
from proreus.controllers.cloud_node_lifecycle.questions import (
    Known,
    Reply,
    Rules,
    candidates,
    eligible_witnesses,
    is_apart,
    key_of,
)
from proreus.controllers.cloud_node_lifecycle.scopes import (
    ANNOTATION_UNKNOWN,
    Answer,
    Findings,
    Fleet,
    is_exempt,
    is_marked,
    weigh,
)
from proreus.controllers.cloud_node_lifecycle.taints import (
    is_marked_out_of_service,
    out_of_service,
    returned,
    shutdowns,
)
from proreus.controllers.cloud_node_lifecycle.witnesses import Key, was_shown
from proreus.controllers.events import PlannedEvent
from proreus.kube import patch
from proreus.kube.objects import TAINT_OUT_OF_SERVICE, Node, has_taint
from proreus.kube.patch import Patch

_MOST_MARKS: Final = 100
"""How many marks one pass writes in a scope at most, one after another."""


class Keep(msgspec.Struct, frozen=True):
    """The decision to keep the node: there is no evidence of its absence."""


class Delete(msgspec.Struct, frozen=True):
    """The decision to delete the node: its machine is surely gone; `reason` is for the event."""

    reason: str


Verdict = Keep | Wait | Delete


class Deletion(msgspec.Struct, frozen=True):
    """The step to delete a Node, with its uid and resourceVersion as preconditions."""

    node: Node
    reason: str

    @property
    def event(self) -> PlannedEvent:
        """The event of the deletion; the Go framework's but for the reason."""
        text = f"Deleting node {self.node.metadata.name} because {self.reason}"
        return PlannedEvent("Normal", "DeletingNode", text)


class Pass(msgspec.Struct, frozen=True):
    """The result of one pass: what to do now, and what to remember.

    Attributes:
        delete: Nodes to delete.
        taints: Patches that set or remove the shutdown taint, with their nodes.
        marks: Patches that add to a node, or remove from it, a mark of what the cloud says wrongly
            of it.
        refuted: Patches that remove an operator's declaration that a machine is gone, where it is
            not.
        waiting: The nodes that look gone, but not surely yet, by name.
        held: The nodes that look gone and stay until something else changes, by name.
        unknown: The Ready nodes whose machine the cloud does not know, by name; True if the node is
            no longer a witness.
        alarms: The alarms about nodes to raise now.
        memory: The memory for the next pass.
        next_look: When the first verdict can change by time alone; None if none can change so.
        suspects: The nodes that look gone and that the breaker counts.
        out_of_service: Patches that take nodes out of service: their machines are powered off.
        in_service: Patches that put nodes back in service.
        powered_off: The nodes whose machines are powered off, but not surely yet, by name.
    """

    delete: tuple[Deletion, ...]
    taints: tuple[tuple[Node, Patch], ...]
    marks: tuple[tuple[Node, Patch], ...]
    refuted: tuple[tuple[Node, Patch], ...]
    waiting: Mapping[str, Wait]
    held: Mapping[str, Wait]
    unknown: Mapping[str, bool]
    alarms: tuple[Alarm, ...]
    memory: Memory
    next_look: float | None
    suspects: tuple[Node, ...] = ()
    out_of_service: tuple[tuple[Node, Patch], ...] = ()
    in_service: tuple[tuple[Node, Patch], ...] = ()
    powered_off: Mapping[str, Wait] = {}

    def countdown(self, at: float) -> Mapping[str, float | None]:
        """Return the seconds until each pending node may go; None where nobody knows."""
        pending = {**self.waiting, **self.held}
        return {
            name: None if wait.until is None else max(0.0, wait.until - at)
            for name, wait in pending.items()
        }


class _Decided(msgspec.Struct):
    """The decisions so far, scope by scope."""

    delete: list[Deletion] = msgspec.field(default_factory=list)
    marks: list[tuple[Node, Patch]] = msgspec.field(default_factory=list)
    waits: dict[str, Wait] = msgspec.field(default_factory=dict)
    unknown: dict[str, bool] = msgspec.field(default_factory=dict)
    alarms: list[Alarm] = msgspec.field(default_factory=list)
    answers: dict[Key, Answer] = msgspec.field(default_factory=dict)
    suspects: list[Node] = msgspec.field(default_factory=list)
    out_of_service: list[tuple[Node, Patch]] = msgspec.field(default_factory=list)
    powered_off: dict[str, Wait] = msgspec.field(default_factory=dict)
    scopes: dict[Scope, ScopeMemory] = msgspec.field(default_factory=dict)


def plan(
    nodes: Sequence[Node],
    replies: Sequence[Reply],
    memory: Memory,
    policy: Policy,
    known: Known,
    *,
    now: datetime,
    at: float,
    returning: Mapping[str, InstanceAnswer] = MappingProxyType({}),
) -> Pass:
    """Decide for all nodes of the cluster.

    Args:
        nodes: All nodes of the cluster, as they are after the cloud was asked; answers about other
            nodes count for nothing.
        replies: The answers of this pass. Only a node about which one of them says `NotFound`
            is deleted, whatever was known before.
        memory: The memory that the pass before handed over.
        policy: The settings: shares, counts and durations.
        known: The facts about each node that are known without asking the cloud.
        now: Wall-clock time, for the age of nodes.
        at: The time on the clock of the observations.
        returning: The answers about nodes that may be put back in service, by name.
    """
    decided, rules = _Decided(), Rules(policy, known, at)
    memory = msgspec.structs.replace(memory, outlived=outlived(nodes, memory.outlived, rules))
    for fleet in _fleets(nodes, memory, policy, known, now):
        before = memory.scopes.get(fleet.scope, ScopeMemory())
        mine = [reply for reply in replies if reply.question.scope == fleet.scope]
        findings = weigh(fleet, mine, before, rules)
        _decide(decided, fleet, findings, rules)
        decided.alarms += alarms_of(fleet, findings, decided.waits, policy)
        decided.alarms += held_in_service(fleet, decided.powered_off)
    alarms, reported = due(decided.alarms, memory.reported, at)
    waits = decided.waits
    marked = {node.metadata.uid for node, _ in decided.marks}
    rest = [node for node in nodes if node.metadata.uid not in marked]
    more = (*outlived_marks(rest, memory.outlived, rules), *outlasting_marks(rest, rules))
    return Pass(
        delete=tuple(decided.delete),
        taints=shutdowns(nodes, decided.answers, known),
        marks=(*decided.marks, *more),
        refuted=refuted(nodes, rules),
        waiting={name: wait for name, wait in waits.items() if wait.hold is None},
        held={name: wait for name, wait in waits.items() if wait.hold is not None},
        unknown=decided.unknown,
        alarms=alarms,
        memory=Memory(decided.scopes, reported, memory.outlived),
        next_look=min(
            (w.until for w in waits.values() if w.until is not None and w.until > at), default=None
        ),
        suspects=tuple(decided.suspects),
        out_of_service=tuple(decided.out_of_service),
        in_service=returned(nodes, returning, memory.outlived),
        powered_off=decided.powered_off,
    )


def verdict(evidence: Evidence | None, policy: Policy) -> Verdict:
    """Decide what the evidence means for one node, without regard to others."""
    if evidence is None:
        return Keep()
    if evidence.tombstone:
        return Delete("the cloud shows its instance as terminated")
    if evidence.confirmations >= policy.confirmations:
        return Delete("it does not exist in the cloud provider")
    missing = policy.confirmations - evidence.confirmations
    until = None
    if evidence.confirmations:
        until = evidence.counted + missing * policy.confirmation_interval
    return Wait(
        until, f"{missing} more answers must say that its instance is gone, with witnesses present"
    )


def _fleets(
    nodes: Sequence[Node], memory: Memory, policy: Policy, known: Known, now: datetime
) -> Iterable[Fleet]:
    """Group the nodes by scope; no groups while no node is in question or unknown to the cloud."""
    in_question = candidates(nodes, now, known.owns, policy, known.known_for)
    marked = {
        key_of(node): node
        for node in nodes
        if is_marked(node) and known.owns(node) is not Ownership.NO
    }
    is_quiet = not in_question and not memory.scopes and not marked
    if is_quiet and all(known.sighting(node).missing is None for node in nodes):
        return
    open_: dict[Scope, dict[Key, Node]] = {}
    for node in in_question:
        open_.setdefault(known.scope(node), {})[key_of(node)] = node
    eligible = eligible_witnesses(nodes, known)
    totals: dict[Scope, int] = {}
    for node in nodes:
        if known.owns(node) is Ownership.YES:
            scope = known.scope(node)
            totals[scope] = totals.get(scope, 0) + 1
    all_ = {key_of(node): node for node in nodes} if memory.scopes or marked else {}
    apart: dict[Scope, dict[Key, Node]] = {}
    for node in nodes:
        if is_apart(node, known, policy):
            apart.setdefault(known.scope(node), {})[key_of(node)] = node
    for scope in dict.fromkeys((*open_, *eligible, *apart, *memory.scopes)):
        asked = open_.get(scope, {})
        witnesses = {key_of(node): node for node in eligible.get(scope, ())}
        before = memory.scopes.get(scope, ScopeMemory())
        remembered = {key for key, node in marked.items() if known.scope(node) == scope}
        remembered |= (before.strange.keys() | before.missing.keys()) & all_.keys()
        beside = {k: one for k, one in apart.get(scope, {}).items() if k not in before.missing}
        others = asked.keys() | witnesses.keys() | beside.keys()
        rest = {key: all_[key] for key in remembered - others}
        total = totals.get(scope, 0)
        yield Fleet(scope, asked, witnesses, rest, beside, total, memory.outlived)


def _decide(decided: _Decided, fleet: Fleet, findings: Findings, rules: Rules) -> None:
    """Decide for the nodes of one scope."""
    policy, at = rules.policy, rules.at
    gate = Gate(findings.memory.breaker, pace(fleet.total, policy), policy, at)
    for key, node in fleet.open.items():
        evidence = findings.memory.evidence.get(key)
        ruling = _ruling(fleet, key, findings, rules)
        if isinstance(ruling, Delete) and evidence is not None and key[0] in findings.suspects:
            ruling = _paced(gate.opens(key[0], evidence), "deleted") or ruling
        if isinstance(ruling, Wait):
            decided.waits[node.metadata.name] = ruling
        elif isinstance(ruling, Delete):
            decided.delete.append(Deletion(node, ruling.reason))
    _decide_power(decided, fleet, findings, rules, gate)
    memory = msgspec.structs.replace(findings.memory, breaker=gate.breaker)
    if memory != ScopeMemory(judged=memory.judged):
        decided.scopes[fleet.scope] = memory
    decided.answers.update(findings.answers)
    decided.suspects += [node for key, node in fleet.open.items() if key[0] in findings.suspects]
    if policy.witnesses:
        decided.marks += islice(_marks(fleet, findings), _MOST_MARKS)
    for key in findings.standing.missing:
        decided.unknown[fleet.node(key).metadata.name] = key in findings.standing.aside


def _decide_power(
    decided: _Decided, fleet: Fleet, findings: Findings, rules: Rules, gate: Gate
) -> None:
    """Decide which nodes of one scope go out of service."""
    for key, evidence in findings.off.evidence.items():
        node = fleet.open[key]
        if has_taint(node, TAINT_OUT_OF_SERVICE) or is_marked_out_of_service(node):
            continue
        wait = ruling_on_power(fleet, key, findings, rules) or _paced(
            gate.opens(key[0], evidence), "marked"
        )
        if wait is None:
            decided.out_of_service.append((node, out_of_service(node)))
        else:
            decided.powered_off[node.metadata.name] = wait


def _paced(until: float | None, what: str) -> Wait | None:
    if until is None:
        return None
    return Wait(until, f"many nodes were held and are now {what} a few at a time", Alert.BREAKER)


def _ruling(fleet: Fleet, key: Key, findings: Findings, rules: Rules) -> Verdict:
    """Return the verdict, or a wait if this pass's answer does not confirm it or a hold applies."""
    node, evidence, policy = fleet.open[key], findings.memory.evidence.get(key), rules.policy
    ruling = verdict(evidence, policy)
    if evidence is None:
        return ruling
    hold = _hold(fleet, node, evidence, findings, rules)
    if hold is not None or not isinstance(ruling, Delete):
        return hold or ruling
    answer = findings.answers.get(key)
    if answer is None or not isinstance(answer.value, NotFound):
        return Wait(None, "the cloud has to say once more that its instance is gone")
    breaker = findings.memory.breaker
    is_held = breaker.since is not None and not is_exempt(node, evidence, rules)
    if is_held and not proven(breaker, evidence, policy):
        until = release(breaker, evidence, policy)
        return Wait(until, "too many nodes look gone at once", Alert.BREAKER)
    return ruling


_NO_SCOPE = "the provider does not say which credentials, endpoint or listing it belongs to"
_OUTLIVED = (
    "the node has another machine by now: it was Ready long after the cloud showed its instance as"
    " terminated, or its kubelet reports another UUID than while the cloud knew the instance"
)
_NO_WITNESS = "no Ready node vouches for what the cloud says"


def _hold(
    fleet: Fleet, node: Node, evidence: Evidence, findings: Findings, rules: Rules
) -> Wait | None:
    """Return the wait that more answers alone will not end, if there is one."""
    if fleet.scope is None:
        return Wait(None, _NO_SCOPE, Alert.NO_SCOPE)
    if not rules.policy.witnesses:
        return None
    has_word = is_believed_gone(node, rules)  # from before the mark it is about the former machine
    if key_of(node) in fleet.outlived and not (has_word and is_marked_outlived(node)):
        return Wait(None, _OUTLIVED, Alert.OUTLIVED)
    if has_word or evidence.tombstone:
        return None
    doubt = _doubt(fleet, node, findings, rules)
    return None if doubt is None else Wait(None, doubt[1], doubt[0])


def _doubt(fleet: Fleet, node: Node, findings: Findings, rules: Rules) -> tuple[Alert, str] | None:
    """Return why answers about a node prove nothing, as alert and text."""
    standing = findings.standing
    if key_of(node) in findings.memory.strange:
        return Alert.STRANGE, "the cloud did not know its instance even while the node was Ready"
    if standing.against:
        these = "these Ready nodes" if len(standing.against) > 1 else "a Ready node"
        more = ", more than may be set aside" if standing.is_over else ""
        lacked = named(fleet, standing.against)
        return Alert.WITNESS_MISSING, f"the cloud does not know {these} either{more}: {lacked}"
    if not fleet.eligible.keys() - standing.aside:
        return Alert.NO_WITNESS, _NO_WITNESS
    if not was_shown(rules.known.sighting(node).shown, findings.lost.values()):
        lost = named(fleet, findings.lost)
        text = "the cloud has not shown its instance to this manager while it did not know"
        return Alert.NOT_SHOWN, f"{text} {lost}"
    return None


def _marks(fleet: Fleet, findings: Findings) -> Iterable[tuple[Node, Patch]]:
    """Make the patches that mark Ready nodes unknown to the cloud, or remove the mark."""
    unknown = findings.memory.strange.keys() | findings.standing.missing.keys()
    for key, node in fleet.nodes.items():
        is_wanted = key in (unknown if is_marked(node) else findings.lasting)
        if is_wanted is not is_marked(node):
            wanted = {ANNOTATION_UNKNOWN: "true" if is_wanted else None}
            given = patch.annotations(node.metadata.annotations, wanted)
            yield node, patch.json_patch(node.metadata.uid, given)
