"""Weigh the answers of a pass about one scope: which nodes look gone, and which answers prove it.

Pure. What follows for each node is decided in `plan`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf

import msgspec

from proreus.cloudprovider.instances import Instance, InstanceAnswer, NotFound
from proreus.containment.inventory import Observation
from proreus.controllers.cloud_node_lifecycle.breaker import Breaker, judge
from proreus.controllers.cloud_node_lifecycle.declared import is_believed_gone
from proreus.controllers.cloud_node_lifecycle.evidence import Evidence, doubted, proved, updated
from proreus.controllers.cloud_node_lifecycle.memory import Scope, ScopeMemory
from proreus.controllers.cloud_node_lifecycle.policy import Policy
from proreus.controllers.cloud_node_lifecycle.powered_off import PoweredOff, is_off, powered_off
from proreus.controllers.cloud_node_lifecycle.questions import (
    Known,
    Reply,
    Rules,
    ended,
    key_of,
)
from proreus.controllers.cloud_node_lifecycle.unnoticed import unnoticed
from proreus.controllers.cloud_node_lifecycle.witnesses import (
    Ending,
    Key,
    Missing,
    Panel,
    Standing,
    View,
    WitnessAnswer,
    endings_of,
    follow,
    is_sound,
    lasting,
    settle,
    stand,
    strangers,
    was_shown,
)
from proreus.kube.objects import TAINT_AUTOSCALER, Node, has_taint, is_ready

ANNOTATION_UNKNOWN = "proreus.io/unknown-to-cloud"
"""Set on a Ready node that the cloud does not know, and removed when it does.

Without it, after a restart, a silent kubelet would make such a node look like one that is gone.
"""


class Fleet(msgspec.Struct, frozen=True):
    """The nodes of one scope.

    Attributes:
        scope: The name of the scope; None if the provider does not say it.
        open: The nodes in question.
        eligible: The nodes that can be witnesses.
        rest: The nodes that are neither in question nor witnesses, because of a taint or a failed
            hook of the provider, and of which something is remembered.
        apart: The Ready nodes that can be no witnesses (`is_apart`), and that the cloud does not
            know: they say nothing of its answers, but those about them prove nothing.
        total: The number of this cloud's nodes.
        outlived: The nodes that have outlived their instance, in all scopes.
    """

    scope: Scope
    open: Mapping[Key, Node] = {}
    eligible: Mapping[Key, Node] = {}
    rest: Mapping[Key, Node] = {}
    apart: Mapping[Key, Node] = {}
    total: int = 0
    outlived: frozenset[Key] = frozenset()

    @property
    def nodes(self) -> Mapping[Key, Node]:
        """All nodes of the scope."""
        return {**self.eligible, **self.open, **self.rest, **self.apart}

    def node(self, key: Key) -> Node:
        """Return one of the nodes."""
        found = self.eligible.get(key) or self.open.get(key) or self.rest.get(key)
        return found or self.apart[key]

    @property
    def ready(self) -> Mapping[Key, Node]:
        """The Ready nodes, whether they can be witnesses or not: their machines run."""
        rest = {key: node for key, node in self.rest.items() if is_ready(node)}
        return {**self.eligible, **rest}


class Answer(msgspec.Struct, frozen=True):
    """The cloud's last answer about a node in question, and about its witnesses."""

    observation: Observation
    panel: Panel
    decides: bool

    @property
    def value(self) -> InstanceAnswer:
        """The cloud's answer about the machine."""
        return self.observation.answer

    @property
    def ended(self) -> float:
        """The time at which the call ended."""
        return ended(self.observation)


class Findings(msgspec.Struct, frozen=True):
    """The findings about one scope in one pass.

    Attributes:
        answers: The answers about the nodes in question.
        suspects: The evidence against the nodes that the breaker counts, by uid: each was absent
            from a complete answer.
        standing: The Ready nodes that the cloud does not know, and what they mean.
        off: The evidence of machines being powered off.
        lost: The nodes set aside as witnesses, and the strange nodes, each with the time since when
            the cloud has not known it; None if the cloud never showed it.
        lasting: The nodes that are to be marked as unknown to the cloud, for a manager that starts
            later.
        memory: The memory for the next pass, without the deletions of this pass.
    """

    answers: Mapping[Key, Answer]
    suspects: Mapping[str, Evidence]
    standing: Standing
    off: PoweredOff
    lost: Mapping[Key, float | None]
    lasting: frozenset[Key]
    memory: ScopeMemory


def weigh(fleet: Fleet, replies: Sequence[Reply], memory: ScopeMemory, rules: Rules) -> Findings:
    """Weigh the answers of a pass about one scope."""
    policy, known, at = rules.policy, rules.known, rules.at
    answers, ready = _answers(fleet, replies, known), fleet.ready
    witness_answers = [*_witness_answers(ready, replies), *_other_sightings(ready, memory, known)]
    shown = {key: s for key, node in ready.items() if (s := known.sighting(node).shown) is not None}
    missing, returned = follow(memory.missing, ready, witness_answers, shown)
    standing = stand(missing, len(fleet.eligible), at, policy)
    endings = endings_of(
        memory.endings, memory.missing, returned, at, policy, strange=memory.strange
    )
    apart, silent = _apart(fleet, known), unnoticed(fleet.open, memory, rules)
    # Who is known for strange already keeps no other from becoming so.
    late = {key: row for key, row in silent.items() if key not in memory.strange}
    named = {key: row for key, row in apart.items() if not key[1]}
    kinds = (missing, late, {key: apart[key] for key in apart.keys() - named.keys()}, named)
    new = [strangers(rows, len(fleet.eligible), at, policy) for rows in kinds]
    since = {key: first for found in (*new, memory.strange) for key, first in found.items()}
    strange = dict(_strange(fleet, since, known, endings))
    evidence = {
        key: after
        for key, node in fleet.open.items()
        if (after := _after(memory.evidence.get(key), answers.get(key), node, known)) is not None
    }
    is_wrong = bool(policy.witnesses and (standing.against or returned))
    left = [first for key, first in memory.strange.items() if key not in strange]
    before = () if left else _valid(memory.views, fleet, answers, known)
    views = () if is_wrong else (*before, *_views(answers, standing, policy))
    proofs, waiting = settle(views, standing)
    if is_wrong or left:
        doubtful = [inf] if is_wrong else left
        evidence |= dict(_doubted(evidence, fleet, rules, doubtful))
    for view in (*proofs, *_declared_gone(fleet, answers, rules)):
        for key in view.absent & evidence.keys():
            decides = view.decides or not policy.witnesses
            evidence[key] = proved(evidence[key], view.began, view.ended, policy, decides=decides)
    suspects = {
        key[0]: entry
        for key, entry in evidence.items()
        if entry.proved is not None and not is_exempt(fleet.open[key], entry, rules)
    }
    off = powered_off(fleet.open, ready, replies, memory, rules, is_wrong=is_wrong)
    suspects |= off.suspects(fleet.open)
    breaker = memory.breaker
    if suspects or breaker != Breaker():
        disturbed = is_wrong or _is_contradicted(fleet, answers, memory)
        others = fleet.total - len(suspects)
        breaker = judge(breaker, suspects, others, at, policy, disturbed=disturbed)
    beside, judged = {**silent, **apart}, dict.fromkeys(fleet.open, at)
    return Findings(
        answers,
        suspects,
        standing,
        off,
        _lost(fleet, standing, strange, known),
        lasting({**missing, **beside}, strange, len(fleet.eligible) + len(beside), policy),
        ScopeMemory(evidence, missing, strange, endings, waiting, breaker, *off.kept, judged),
    )


def is_exempt(node: Node, evidence: Evidence, rules: Rules) -> bool:
    """Tell whether the breaker ignores the node, because its deletion is surely no mistake."""
    is_certain = evidence.tombstone or has_taint(node, TAINT_AUTOSCALER)
    return is_certain or is_believed_gone(node, rules)


def is_marked(node: Node) -> bool:
    """Tell whether the node has our annotation: the cloud did not know it while it was Ready."""
    return ANNOTATION_UNKNOWN in node.metadata.annotations


def _apart(fleet: Fleet, known: Known) -> Mapping[Key, Missing]:
    """Return since when the cloud has not known Ready nodes that can be no witnesses."""
    seen = {key: known.sighting(node) for key, node in fleet.apart.items()}
    return {
        key: Missing(one.missing, one.missing, shown=one.shown)
        for key, one in seen.items()
        if one.missing is not None
    }


def _strange(
    fleet: Fleet, since: Mapping[Key, float], known: Known, endings: Iterable[Ending]
) -> Iterator[tuple[Key, float]]:
    """Select the nodes of `since` that the cloud still does not know, with their times.

    A node is no longer strange when the cloud shows its machine; or when other nodes return that
    were missing together with it: what hid all of them has ended, and its machine may have died
    meanwhile. A mark lasts until the machine is shown.
    """
    healed = min((ending.since for ending in endings), default=inf)
    for key, node in fleet.nodes.items():
        sighting = known.sighting(node)
        if sighting.shown is None and is_marked(node):
            yield key, since.get(key, -inf)
        elif sighting.shown is None or sighting.missing is not None:
            first = since.get(key)
            if first is not None and first < healed:
                yield key, first


def _doubted(
    evidence: Mapping[Key, Evidence], fleet: Fleet, rules: Rules, lost: Collection[float]
) -> Iterator[tuple[Key, Evidence]]:
    """Drop what answers have proved that lacked other machines from `lost` on, wrongly it seems.

    Strange nodes that have left do not explain why the cloud did not know them while they were
    Ready: only nodes that it has shown since then were surely not hidden together with them.
    """
    for key, entry in evidence.items():
        node = fleet.open[key]
        was_there = was_shown(rules.known.sighting(node).shown, lost)
        if not was_there and not is_believed_gone(node, rules):
            yield key, doubted(entry)


def _lost(
    fleet: Fleet, standing: Standing, strange: Mapping[Key, float], known: Known
) -> Mapping[Key, float | None]:
    aside = {key: standing.missing[key].first for key in standing.aside}
    return {
        key: None if known.sighting(fleet.node(key)).shown is None else first
        for key, first in {**aside, **strange}.items()
        if key[1] or key not in fleet.apart  # A list by name says nothing of look-ups by ids.
    }


def _after(
    evidence: Evidence | None, answer: Answer | None, node: Node, known: Known
) -> Evidence | None:
    """Update the evidence by the answer; drop what is from before the machine was there."""
    sighting = known.sighting(node)
    proofs = evidence.proved if evidence is not None else None
    if evidence is not None and proofs is not None and known.was_there(node, proofs.first):
        evidence = doubted(evidence)
    if evidence is not None and sighting.shown is not None and sighting.tombstone is None:
        evidence = msgspec.structs.replace(evidence, tombstone=False)
    return evidence if answer is None else updated(evidence, answer.value)


def _valid(
    views: Iterable[View], fleet: Fleet, answers: Mapping[Key, Answer], known: Known
) -> Iterator[View]:
    """Return the views without nodes whose machine was there later: shown, or the node Ready."""
    shown = {key for key, answer in answers.items() if _is_shown(answer.observation)}
    rest = {key: node for key, node in fleet.open.items() if key not in shown}
    for view in views:
        absent = (k for k in view.absent & rest.keys() if not known.was_there(rest[k], view.began))
        yield msgspec.structs.replace(view, absent=frozenset(absent))


def _answers(fleet: Fleet, replies: Iterable[Reply], known: Known) -> Mapping[Key, Answer]:
    """Return the last answer about each node in question.

    One that lacks a machine counts for nothing if a later call has shown it already, or if the Node
    was Ready meanwhile.
    """
    answers: dict[Key, Answer] = {}
    for reply in replies:
        for node in reply.question.candidates:
            observations = reply.observations.get(node.metadata.name)
            if observations and key_of(node) in fleet.open:
                observation = observations[-1]
                began, is_lacking = observation.began, isinstance(observation.answer, NotFound)
                if is_lacking and known.sighting(node).is_after(began):
                    continue
                if _is_absent(observation) and known.was_there(node, began):
                    continue
                panel = _panel(reply, observation)
                answers[key_of(node)] = Answer(observation, panel, reply.question.decides)
    return answers


def _panel(reply: Reply, observation: Observation) -> Panel:
    """Sum up the witnesses' answers in the call of `observation`, or else in calls around it."""
    shown: set[Key] = set()
    absent: set[Key] = set()
    asked = 0
    for node in reply.question.witnesses:
        near = reply.beside(node, observation)
        if any(isinstance(one.answer, NotFound) and one.answer.tombstone for one in near):
            continue
        asked += 1
        if any(_is_absent(one) for one in near):
            absent.add(key_of(node))
        elif near and all(_vouches(one) for one in near):
            shown.add(key_of(node))
    return Panel(frozenset(shown), frozenset(absent), asked)


def _witness_answers(ready: Collection[Key], replies: Iterable[Reply]) -> Iterator[WitnessAnswer]:
    """Return what the replies of this pass say about the Ready nodes that were witnesses."""
    for reply in replies:
        observations = {
            key_of(node): reply.observations.get(node.metadata.name, ())
            for node in reply.question.witnesses
        }
        shown = {key for key, those in observations.items() if any(_vouches(one) for one in those)}
        absent = {
            key for key, those in observations.items() if any(_is_absent(one) for one in those)
        }
        panel = Panel(frozenset(shown - absent), frozenset(absent), len(observations))
        for key, those in observations.items():
            for one in those:
                if key in ready and (_is_shown(one) or _is_absent(one)):
                    yield WitnessAnswer(key, one.began, _is_shown(one), is_sound=is_sound(panel))


def _other_sightings(
    ready: Mapping[Key, Node], memory: ScopeMemory, known: Known
) -> Iterator[WitnessAnswer]:
    """Return what calls outside this pass have shown of Ready nodes."""
    for key, node in ready.items():
        sighting = known.sighting(node)
        if sighting.missing is not None:
            yield WitnessAnswer(key, sighting.missing, shown=False)
        elif sighting.shown is not None and key in memory.missing:
            yield WitnessAnswer(key, sighting.shown, shown=True)


def _views(answers: Mapping[Key, Answer], standing: Standing, policy: Policy) -> Iterator[View]:
    """Return the answers that lack nodes in question but show enough witnesses to be proofs."""
    groups: dict[tuple[float, float, Panel, bool], set[Key]] = {}
    for key, answer in answers.items():
        if _is_absent(answer.observation):
            panel = answer.panel.without(standing.aside)
            group = (answer.observation.began, answer.ended, panel, answer.decides)
            groups.setdefault(group, set()).add(key)
    for (began, end, panel, decides), absent in groups.items():
        if not policy.witnesses or (panel.shown and panel.is_majority):
            yield View(began, end, frozenset(absent), panel.absent, decides)


def _declared_gone(fleet: Fleet, answers: Mapping[Key, Answer], rules: Rules) -> Iterator[View]:
    """Return the answers about nodes that operators declared gone, which need no witnesses."""
    for key, answer in answers.items():
        node = fleet.open[key]
        if _is_absent(answer.observation) and is_believed_gone(node, rules):
            yield View(answer.observation.began, answer.ended, frozenset({key}), decides=True)


def _is_contradicted(fleet: Fleet, answers: Mapping[Key, Answer], memory: ScopeMemory) -> bool:
    """Tell whether a node whose absence was proved exists after all."""
    return any(
        key in fleet.eligible or (key in answers and _is_shown(answers[key].observation))
        for key, known in memory.evidence.items()
        if known.proved is not None
    )


def _is_shown(observation: Observation) -> bool:
    return isinstance(observation.answer, Instance)


def _vouches(observation: Observation) -> bool:
    """Tell whether an answer shows a Ready node's machine: one that is off is a copy, or dying."""
    return _is_shown(observation) and not is_off(observation)


def _is_absent(observation: Observation) -> bool:
    return isinstance(observation.answer, NotFound) and not observation.answer.tombstone
