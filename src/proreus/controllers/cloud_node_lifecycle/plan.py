"""Which nodes to delete, and which to taint as shut down.

    questions ─► (the controller asks) ─► looks ─► plan ─► Pass ─► (deletes and patches)

A Node goes only if it is not Ready, is this cloud's, has a provider id, was initialised (or is
older than the start-up grace), and the cloud has said often enough that there is no such machine
(`evidence`), in answers that did not lack Ready nodes of the same scope (`witnesses`), while not
too many nodes of the scope look gone at once (`breaker`). Everything is a value: also the seconds
until a pending node may go.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from proreus.cloudprovider.instances import (
    Instance,
    InstanceAnswer,
    InstanceState,
    NotFound,
    Ownership,
)
from proreus.controllers.cloud_node_lifecycle.alarms import Alarm, alarms_of, due, named
from proreus.controllers.cloud_node_lifecycle.breaker import pace, proven, release
from proreus.controllers.cloud_node_lifecycle.evidence import Evidence
from proreus.controllers.cloud_node_lifecycle.memory import (
    Alert,
    Memory,
    Scope,
    ScopeMemory,
    Wait,
)
from proreus.controllers.cloud_node_lifecycle.policy import Policy
from proreus.controllers.cloud_node_lifecycle.questions import (
    Known,
    Look,
    Rules,
    able,
    candidates,
    is_ready,
    key,
)
from proreus.controllers.cloud_node_lifecycle.scopes import (
    ANNOTATION_UNKNOWN,
    Answer,
    Findings,
    Fleet,
    find,
    is_exempt,
    is_marked,
    is_sworn,
)
from proreus.controllers.cloud_node_lifecycle.witnesses import Key, was_shown
from proreus.controllers.events import PlannedEvent
from proreus.kube import patch
from proreus.kube.objects import TAINT_SHUTDOWN, Node, Taint, has_taint
from proreus.kube.patch import Patch

_SHUTDOWN = Taint(key=TAINT_SHUTDOWN, effect="NoSchedule")


class Keep(msgspec.Struct, frozen=True):
    """Nothing speaks for the node's absence."""


class Delete(msgspec.Struct, frozen=True):
    """The node's machine is surely gone; `reason` says why, for the event."""

    reason: str


Verdict = Keep | Wait | Delete


class Deletion(msgspec.Struct, frozen=True):
    """A Node to delete, with its uid and resourceVersion as preconditions, and why."""

    node: Node
    reason: str

    @property
    def event(self) -> PlannedEvent:
        """The event to record when it is deleted; the Go framework's but for the reason."""
        text = f"Deleting node {self.node.metadata.name} because {self.reason}"
        return PlannedEvent("Normal", "DeletingNode", text)


class Pass(msgspec.Struct, frozen=True):
    """What to do now.

    Attributes:
        delete: Nodes to delete.
        taints: Patches that set or remove the shutdown taint, with their nodes.
        marks: Patches that say on a node, or no longer say, that the cloud does not know it.
        waiting: Nodes that look gone, but not surely yet, by name.
        held: Nodes that look gone and stay until something else changes, by name.
        unknown: The Ready nodes whose machine the cloud does not know, by name; True if it is a
            witness no more.
        alarms: What is to be told of nodes now.
        memory: For the next pass.
        next_look: When the first verdict can change by time alone; None if none can.
        suspects: The nodes that look gone and that the breaker counts.
    """

    delete: tuple[Deletion, ...]
    taints: tuple[tuple[Node, Patch], ...]
    marks: tuple[tuple[Node, Patch], ...]
    waiting: Mapping[str, Wait]
    held: Mapping[str, Wait]
    unknown: Mapping[str, bool]
    alarms: tuple[Alarm, ...]
    memory: Memory
    next_look: float | None
    suspects: tuple[Node, ...] = ()

    def countdown(self, at: float) -> Mapping[str, float | None]:
        """Seconds until each pending node may go at the earliest; None where nobody can say."""
        pending = {**self.waiting, **self.held}
        return {
            name: None if wait.until is None else max(0.0, wait.until - at)
            for name, wait in pending.items()
        }


class _Decided(msgspec.Struct):
    """What is decided scope by scope."""

    delete: list[Deletion] = msgspec.field(default_factory=list)
    marks: list[tuple[Node, Patch]] = msgspec.field(default_factory=list)
    waits: dict[str, Wait] = msgspec.field(default_factory=dict)
    unknown: dict[str, bool] = msgspec.field(default_factory=dict)
    alarms: list[Alarm] = msgspec.field(default_factory=list)
    answers: dict[Key, Answer] = msgspec.field(default_factory=dict)
    suspects: list[Node] = msgspec.field(default_factory=list)
    scopes: dict[Scope, ScopeMemory] = msgspec.field(default_factory=dict)


def plan(
    nodes: Sequence[Node],
    looks: Sequence[Look],
    memory: Memory,
    policy: Policy,
    known: Known,
    *,
    now: datetime,
    at: float,
) -> Pass:
    """Decide for the whole cluster.

    Args:
        nodes: All of them, as they are after the cloud was asked; what was asked about others
            than these counts for nothing.
        looks: The answers of this pass. Only a node about which one of them says `NotFound`
            is deleted, whatever was known before.
        memory: What the pass before handed over.
        policy: The numbers.
        known: What is known without asking.
        now: Wall-clock time, for the age of nodes.
        at: The time on the clock of the observations.
    """
    decided, rules = _Decided(), Rules(policy, known, at)
    for fleet in _fleets(nodes, memory, policy, known, now):
        before = memory.scopes.get(fleet.scope, ScopeMemory())
        mine = [look for look in looks if look.question.scope == fleet.scope]
        found = find(fleet, mine, before, rules)
        _decide(decided, fleet, found, rules)
        decided.alarms += alarms_of(fleet, found, decided.waits, policy)
    alarms, told = due(decided.alarms, memory.told, at)
    waits = decided.waits
    return Pass(
        delete=tuple(decided.delete),
        taints=_taints(nodes, decided.answers, known),
        marks=tuple(decided.marks),
        waiting={name: wait for name, wait in waits.items() if wait.hold is None},
        held={name: wait for name, wait in waits.items() if wait.hold is not None},
        unknown=decided.unknown,
        alarms=alarms,
        memory=Memory(decided.scopes, told),
        next_look=min(
            (w.until for w in waits.values() if w.until is not None and w.until > at), default=None
        ),
        suspects=tuple(decided.suspects),
    )


def verdict(evidence: Evidence | None, policy: Policy) -> Verdict:
    """What the evidence against one node is good for, by itself."""
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


def shutdown(node: Node, answer: InstanceAnswer | None) -> Patch | None:
    """The patch that sets the shutdown taint on a stopped node, or removes it from a running one.

    A Ready node has none, whatever the cloud says. None if there is nothing to do.
    """
    state = answer.state if isinstance(answer, Instance) else InstanceState.UNKNOWN
    others = tuple(taint for taint in node.spec.taints if not _is_shutdown(taint))
    is_tainted = len(others) < len(node.spec.taints)
    if is_ready(node) or state is InstanceState.RUNNING:
        wanted = others
    elif state is InstanceState.STOPPED and not is_tainted:
        wanted = (*others, _SHUTDOWN)
    else:
        return None
    return patch.json_patch(node.metadata.uid, patch.taints(node.spec.taints, wanted)) or None


def _fleets(
    nodes: Sequence[Node], memory: Memory, policy: Policy, known: Known, now: datetime
) -> Iterable[Fleet]:
    """The nodes by scope; none while no node is in question and the cloud knows all others."""
    in_question = candidates(nodes, now, known.owns, policy, known.known_for)
    is_quiet = not in_question and not memory.scopes
    if is_quiet and not any(
        is_marked(node) or known.seen(node).missing is not None for node in nodes
    ):
        return
    open_: dict[Scope, dict[Key, Node]] = {}
    for node in in_question:
        open_.setdefault(known.scope(node), {})[key(node)] = node
    those = able(nodes, known)
    totals: dict[Scope, int] = {}
    for node in nodes:
        if known.owns(node) is Ownership.YES:
            scope = known.scope(node)
            totals[scope] = totals.get(scope, 0) + 1
    for scope in dict.fromkeys((*open_, *those)):
        yield Fleet(
            scope,
            open_.get(scope, {}),
            {key(node): node for node in those.get(scope, ())},
            totals.get(scope, 0),
        )


def _decide(decided: _Decided, fleet: Fleet, found: Findings, rules: Rules) -> None:
    """Decide for the nodes of one scope."""
    policy, at = rules.policy, rules.at
    breaker = found.memory.breaker
    counted, released = dict(breaker.deletions), dict(breaker.released)
    most = pace(fleet.total, policy)
    for of, node in fleet.open.items():
        evidence = found.memory.evidence.get(of)
        ruling = _ruling(fleet, of, found, rules)
        if isinstance(ruling, Delete) and evidence is not None and of[0] in found.suspects:
            if not proven(breaker, evidence, policy):
                counted.setdefault(of[0], at)
            elif of[0] in released or policy.resume or len(released) < most:
                released.setdefault(of[0], at)
            else:
                until = min(released.values()) + policy.release_interval
                text = "many nodes that look gone were held, and go one after another"
                ruling = Wait(until, text, Alert.BREAKER)
        if isinstance(ruling, Wait):
            decided.waits[node.metadata.name] = ruling
        elif isinstance(ruling, Delete):
            decided.delete.append(Deletion(node, ruling.reason))
    after = msgspec.structs.replace(breaker, deletions=counted, released=released)
    memory = msgspec.structs.replace(found.memory, breaker=after)
    if memory != ScopeMemory():
        decided.scopes[fleet.scope] = memory
    decided.answers.update(found.answers)
    decided.suspects += [node for of, node in fleet.open.items() if of[0] in found.suspects]
    if policy.witnesses:
        decided.marks += _marks(fleet, found)
    for of in found.standing.missing:
        decided.unknown[fleet.able[of].metadata.name] = of in found.standing.aside


def _ruling(fleet: Fleet, of: Key, found: Findings, rules: Rules) -> Verdict:
    """The verdict, put off while this pass's answer does not bear it out or something holds it."""
    node, evidence, policy = fleet.open[of], found.memory.evidence.get(of), rules.policy
    ruling = verdict(evidence, policy)
    if evidence is None:
        return ruling
    hold = _hold(fleet, node, evidence, found, rules)
    if hold is not None or not isinstance(ruling, Delete):
        return hold or ruling
    answer = found.answers.get(of)
    if answer is None or not isinstance(answer.says, NotFound):
        return Wait(None, "the cloud has to say once more that its instance is gone")
    breaker = found.memory.breaker
    is_held = breaker.since is not None and not is_exempt(node, evidence)
    if is_held and not proven(breaker, evidence, policy):
        until = release(breaker, evidence, policy)
        return Wait(until, "too many nodes look gone at once", Alert.BREAKER)
    return ruling


_NO_SCOPE = "the provider does not say which credentials, endpoint or listing it belongs to"
_NO_WITNESS = "no Ready node vouches for what the cloud says"


def _hold(
    fleet: Fleet, node: Node, evidence: Evidence, found: Findings, rules: Rules
) -> Wait | None:
    """What keeps a node from going however often the cloud says that its machine is gone."""
    if fleet.scope is None:
        return Wait(None, _NO_SCOPE, Alert.NO_SCOPE)
    if not rules.policy.witnesses or evidence.tombstone or is_sworn(node):
        return None
    found_out = _doubt(fleet, node, found, rules)
    return None if found_out is None else Wait(None, found_out[1], found_out[0])


def _doubt(fleet: Fleet, node: Node, found: Findings, rules: Rules) -> tuple[Alert, str] | None:
    """Why answers about a node prove nothing, and what that is called."""
    standing = found.standing
    if key(node) in found.memory.strange:
        return Alert.STRANGE, "the cloud did not know its instance even while the node was Ready"
    if standing.against:
        these = "these Ready nodes" if len(standing.against) > 1 else "a Ready node"
        more = ", more than may be set aside" if standing.is_over else ""
        lacked = named(fleet, standing.against)
        return Alert.WITNESS_MISSING, f"the cloud does not know {these} either{more}: {lacked}"
    if not fleet.able.keys() - standing.aside:
        return Alert.NO_WITNESS, _NO_WITNESS
    if not was_shown(rules.known.seen(node).shown, standing):
        aside = named(fleet, standing.aside)
        text = "the cloud has not shown its instance to this manager while it did not know"
        return Alert.NOT_SHOWN, f"{text} {aside}"
    return None


def _marks(fleet: Fleet, found: Findings) -> Iterable[tuple[Node, Patch]]:
    """What is to be written on Ready nodes that the cloud does not know, or knows again."""
    for of, node in (*fleet.able.items(), *fleet.open.items()):
        is_wanted = of in (found.memory.strange if is_marked(node) else found.lasting)
        if is_wanted is not is_marked(node):
            wanted = {ANNOTATION_UNKNOWN: "true" if is_wanted else None}
            given = patch.annotations(node.metadata.annotations, wanted)
            yield node, patch.json_patch(node.metadata.uid, given)


def _taints(
    nodes: Iterable[Node],
    answers: Mapping[Key, Answer],
    known: Known,
) -> tuple[tuple[Node, Patch], ...]:
    patches: list[tuple[Node, Patch]] = []
    for node in nodes:
        answer = answers.get(key(node))
        is_back = (
            is_ready(node)
            and has_taint(node, TAINT_SHUTDOWN)
            and node.metadata.deletion_timestamp is None
            and known.owns(node) is not Ownership.NO
        )
        if not is_back and answer is None:
            continue
        wanted = shutdown(node, None if answer is None else answer.says)
        if wanted is not None:
            patches.append((node, wanted))
    return tuple(patches)


def _is_shutdown(taint: Taint) -> bool:
    return (taint.key, taint.effect) == (_SHUTDOWN.key, _SHUTDOWN.effect)
