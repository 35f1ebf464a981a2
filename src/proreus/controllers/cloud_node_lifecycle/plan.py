"""Which nodes to delete, and which to taint as shut down.

    questions ─► (the controller asks) ─► looks ─► plan ─► Pass ─► (deletes and patches)

A Node goes only if it is not Ready, is this cloud's, has a provider id, was initialised (or is
older than the start-up grace), and the cloud has said often enough that there is no such machine
(`evidence`), while not too many nodes look gone at once (`breaker`). Everything is a value: also
the seconds until a pending node may go.
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
from proreus.controllers.cloud_node_lifecycle.breaker import Breaker, judge, proven, release
from proreus.controllers.cloud_node_lifecycle.evidence import (
    Evidence,
    Witnesses,
    observe,
    witnessed,
)
from proreus.controllers.cloud_node_lifecycle.policy import Policy
from proreus.controllers.cloud_node_lifecycle.questions import (
    KnownFor,
    Look,
    Owns,
    always,
    candidates,
    is_ready,
)
from proreus.controllers.events import PlannedEvent
from proreus.kube import patch
from proreus.kube.objects import (
    TAINT_AUTOSCALER,
    TAINT_SHUTDOWN,
    Node,
    Taint,
    has_taint,
)
from proreus.kube.patch import Patch

Key = tuple[str, str]
"""A Node's uid and provider id: what is known of one machine says nothing of another."""

_SHUTDOWN = Taint(key=TAINT_SHUTDOWN, effect="NoSchedule")


class Keep(msgspec.Struct, frozen=True):
    """Nothing speaks for the node's absence."""


class Wait(msgspec.Struct, frozen=True):
    """The node looks gone, but stays for now: until `until` at the earliest, if that is known."""

    until: float | None
    reason: str
    is_held: bool = False


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


class Memory(msgspec.Struct, frozen=True):
    """What one pass hands to the next."""

    evidence: Mapping[Key, Evidence] = {}
    breaker: Breaker = Breaker()


class Pass(msgspec.Struct, frozen=True):
    """What to do now.

    Attributes:
        delete: Nodes to delete.
        taints: Patches that set or remove the shutdown taint, with their nodes.
        waiting: Nodes that look gone, but not surely yet, by name.
        held: Nodes that the breaker holds back, by name.
        alarm: The Warning when the breaker trips; None before and after.
        memory: For the next pass.
        next_look: When the first verdict can change by time alone; None if none can.
        suspects: The nodes that look gone and that the breaker counts; the alarm is about them.
    """

    delete: tuple[Deletion, ...]
    taints: tuple[tuple[Node, Patch], ...]
    waiting: Mapping[str, Wait]
    held: Mapping[str, Wait]
    alarm: PlannedEvent | None
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


class _Answer(msgspec.Struct, frozen=True):
    """What the cloud said of one candidate."""

    answer: InstanceAnswer
    began: float
    ended: float | None
    witnesses: Witnesses

    @property
    def is_absence(self) -> bool:
        return isinstance(self.answer, NotFound) and self.witnesses is not Witnesses.ABSENT


def plan(
    nodes: Sequence[Node],
    looks: Sequence[Look],
    memory: Memory,
    policy: Policy,
    owns: Owns,
    *,
    now: datetime,
    at: float,
    known_for: KnownFor = always,
) -> Pass:
    """Decide for the whole fleet.

    Args:
        nodes: The newest objects; what was asked about others than these counts for nothing.
        looks: The answers of this pass. Only a node about which one of them says `NotFound`
            is deleted, whatever was known before.
        memory: What the pass before handed over.
        policy: The numbers.
        owns: Whether a node is this cloud's.
        now: Wall-clock time, for the age of nodes.
        at: The time on the clock of the observations.
        known_for: For how many seconds a node has surely been there.
    """
    open_ = {_key(node): node for node in candidates(nodes, now, owns, policy, known_for)}
    answers = _answers(open_, looks, policy)
    evidence = _evidence(open_, answers, memory, policy)
    suspects = {
        key[0]: known for key, known in evidence.items() if not _is_exempt(open_[key], known)
    }
    breaker = memory.breaker
    if suspects or breaker != Breaker():
        others = sum(owns(node) is Ownership.YES for node in nodes) - len(suspects)
        disturbed = _is_disturbed(nodes, looks, answers, policy, memory)
        breaker = judge(breaker, suspects, others, at, policy, disturbed=disturbed)
    waits: dict[str, Wait] = {}
    delete: list[Deletion] = []
    counted = dict(breaker.deletions)
    for key, node in open_.items():
        found = _ruling(node, evidence.get(key), answers.get(key), breaker, policy)
        if isinstance(found, Wait):
            waits[node.metadata.name] = found
        elif isinstance(found, Delete):
            delete.append(Deletion(node, found.reason))
            if key[0] in suspects and not proven(breaker, evidence[key], policy):
                counted.setdefault(key[0], at)
    return Pass(
        delete=tuple(delete),
        taints=_taints(nodes, answers, owns),
        waiting={name: wait for name, wait in waits.items() if not wait.is_held},
        held={name: wait for name, wait in waits.items() if wait.is_held},
        alarm=_alarm(memory.breaker, breaker, suspects, policy),
        memory=Memory(evidence, Breaker(counted, breaker.since)),
        next_look=min(
            (w.until for w in waits.values() if w.until is not None and w.until > at), default=None
        ),
        suspects=tuple(node for key, node in open_.items() if key[0] in suspects),
    )


def verdict(evidence: Evidence | None, policy: Policy) -> Verdict:
    """What the evidence against one node is good for, by itself."""
    if evidence is None:
        return Keep()
    if evidence.tombstone:
        return Delete("the cloud shows its instance as terminated")
    if evidence.confirmations >= policy.confirmations:
        return Delete("it does not exist in the cloud provider")
    if evidence.said is not None and evidence.said.length >= policy.hold:
        return Delete(f"the cloud has not known its instance for {policy.hold:g} s")
    missing = policy.confirmations - evidence.confirmations
    times: list[float] = []
    if evidence.confirmations:
        times.append(evidence.counted + missing * policy.confirmation_interval)
    if evidence.said is not None:
        times.append(evidence.said.first + policy.hold)
    reason = f"{missing} more answers must say that its instance is gone, with witnesses present"
    return Wait(min(times, default=None), reason)


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


def _ruling(
    node: Node, evidence: Evidence | None, answer: _Answer | None, breaker: Breaker, policy: Policy
) -> Verdict:
    """The verdict, put off while this pass's answer does not bear it out or the breaker holds."""
    found = verdict(evidence, policy)
    if evidence is None or not isinstance(found, Delete):
        return found
    if answer is None or not answer.is_absence:
        return Wait(None, "the cloud has to say once more that its instance is gone")
    is_held = breaker.since is not None and not _is_exempt(node, evidence)
    if is_held and not proven(breaker, evidence, policy):
        until = release(breaker, evidence, policy)
        return Wait(until, "too many nodes look gone at once", is_held=True)
    return found


def _answers(
    open_: Mapping[Key, Node], looks: Iterable[Look], policy: Policy
) -> Mapping[Key, _Answer]:
    answers: dict[Key, _Answer] = {}
    for look in looks:
        worth = _worth(look, policy)
        for node in look.question.candidates:
            seen = look.observations.get(node.metadata.name)
            if seen is not None and _key(node) in open_:
                answers[_key(node)] = _Answer(seen.answer, seen.began, seen.ended, worth)
    return answers


def _worth(look: Look, policy: Policy) -> Witnesses:
    seen = (look.observations.get(node.metadata.name) for node in look.question.witnesses)
    return witnessed((s.answer if s else None for s in seen), needed=policy.witnesses > 0)


def _evidence(
    open_: Mapping[Key, Node],
    answers: Mapping[Key, _Answer],
    memory: Memory,
    policy: Policy,
) -> Mapping[Key, Evidence]:
    """The evidence after this pass; that against nodes no longer in question is forgotten."""
    evidence: dict[Key, Evidence] = {}
    for key in open_:
        known = memory.evidence.get(key)
        if key in answers:
            a = answers[key]
            known = observe(
                known,
                a.answer,
                a.began,
                a.witnesses,
                policy.confirmation_interval,
                ended=a.ended,
            )
        if known is not None:
            evidence[key] = known
    return evidence


def _is_disturbed(
    nodes: Iterable[Node],
    looks: Iterable[Look],
    answers: Mapping[Key, _Answer],
    policy: Policy,
    memory: Memory,
) -> bool:
    """Whether the cloud missed a witness, or a node that looked gone is there after all."""
    if any(_worth(look, policy) is Witnesses.ABSENT for look in looks):
        return True
    return any(
        is_ready(node) or (key in answers and isinstance(answers[key].answer, Instance))
        for node in nodes
        if (key := _key(node)) in memory.evidence
    )


def _taints(
    nodes: Iterable[Node],
    answers: Mapping[Key, _Answer],
    owns: Owns,
) -> tuple[tuple[Node, Patch], ...]:
    patches: list[tuple[Node, Patch]] = []
    for node in nodes:
        key = _key(node)
        is_back = (
            is_ready(node)
            and has_taint(node, TAINT_SHUTDOWN)
            and node.metadata.deletion_timestamp is None
            and owns(node) is not Ownership.NO
        )
        if not is_back and key not in answers:
            continue
        wanted = shutdown(node, answers[key].answer if key in answers else None)
        if wanted is not None:
            patches.append((node, wanted))
    return tuple(patches)


def _alarm(
    before: Breaker, after: Breaker, suspects: Mapping[str, Evidence], policy: Policy
) -> PlannedEvent | None:
    if before.since is not None or after.since is None:
        return None
    return PlannedEvent(
        "Warning",
        "NodeDeletionHeld",
        f"{len(suspects)} nodes look gone at once, so none is deleted until the cloud has said "
        f"so for {policy.hold:g} s; --node-deletion-resume deletes them now",
    )


def _is_exempt(node: Node, evidence: Evidence) -> bool:
    """Whether the breaker neither counts nor holds the node: its going is surely no mistake."""
    return evidence.tombstone or has_taint(node, TAINT_AUTOSCALER)


def _is_shutdown(taint: Taint) -> bool:
    return (taint.key, taint.effect) == (_SHUTDOWN.key, _SHUTDOWN.effect)


def _key(node: Node) -> Key:
    return node.metadata.uid, node.spec.provider_id
