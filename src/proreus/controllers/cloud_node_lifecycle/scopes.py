"""What a pass finds out about one scope: whom the cloud does not know, and which answers prove it.

Pure. What follows for each node is decided in `plan`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf

import msgspec

from proreus.cloudprovider.instances import Instance, InstanceAnswer, NotFound
from proreus.containment.inventory import Observation
from proreus.controllers.cloud_node_lifecycle.breaker import Breaker, judge
from proreus.controllers.cloud_node_lifecycle.evidence import Evidence, doubted, heard, proved
from proreus.controllers.cloud_node_lifecycle.memory import Scope, ScopeMemory
from proreus.controllers.cloud_node_lifecycle.policy import Policy
from proreus.controllers.cloud_node_lifecycle.questions import Known, Look, Rules, key
from proreus.controllers.cloud_node_lifecycle.witnesses import (
    Key,
    Panel,
    Standing,
    View,
    Word,
    follow,
    is_sound,
    lasting,
    settle,
    stand,
    strangers,
)
from proreus.kube.objects import TAINT_AUTOSCALER, Node, has_taint

ANNOTATION_GONE = "proreus.io/machine-gone"
"""An operator's word, "true": the Node goes if the cloud says so, whatever witnesses say."""


ANNOTATION_UNKNOWN = "proreus.io/unknown-to-cloud"
"""Written on a Ready node that the cloud does not know, and taken away when it does.

Without it, after a restart, a silent kubelet would make such a node look like one that is gone.
"""


class Fleet(msgspec.Struct, frozen=True):
    """The nodes of one scope.

    Attributes:
        scope: Its name; None if the provider does not say it.
        open: The nodes in question.
        able: Those that can be witnesses.
        total: How many nodes of this cloud there are.
    """

    scope: Scope
    open: Mapping[Key, Node] = {}
    able: Mapping[Key, Node] = {}
    total: int = 0


class Answer(msgspec.Struct, frozen=True):
    """What the cloud said last of one node in question, and of the witnesses in that answer."""

    seen: Observation
    panel: Panel
    decides: bool

    @property
    def says(self) -> InstanceAnswer:
        """The answer itself."""
        return self.seen.answer

    @property
    def ended(self) -> float:
        """When the call ended."""
        return _ended(self.seen)


class Findings(msgspec.Struct, frozen=True):
    """Of one scope in one pass.

    Attributes:
        answers: What was said of the nodes in question.
        suspects: Those that the breaker counts, by uid: answers that are whole lacked them.
        standing: The Ready nodes that the cloud does not know.
        lasting: Those of them that are to be marked, for a manager that starts later.
        memory: For the next pass, but for the deletions of this one.
    """

    answers: Mapping[Key, Answer]
    suspects: Mapping[str, Evidence]
    standing: Standing
    lasting: frozenset[Key]
    memory: ScopeMemory


def find(fleet: Fleet, looks: Sequence[Look], memory: ScopeMemory, rules: Rules) -> Findings:
    """Weigh the answers of a pass about one scope."""
    policy, known, at = rules.policy, rules.known, rules.at
    answers = _answers(fleet, looks)
    words = [*_words(fleet, looks), *_rumours(fleet, memory, known)]
    shown = {of: s for of, node in fleet.able.items() if (s := known.seen(node).shown) is not None}
    missing, returned = follow(memory.missing, fleet.able, words, shown)
    standing = stand(missing, len(fleet.able), at, policy)
    healed = min((memory.missing[of].first for of in returned & memory.missing.keys()), default=inf)
    since = {**strangers(missing, len(fleet.able), at, policy), **memory.strange}
    strange = dict(_strange(fleet, since, known, healed - policy.aside_after))
    evidence = {
        of: after
        for of in fleet.open
        if (after := _after(memory.evidence.get(of), answers.get(of))) is not None
    }
    is_wrong = bool(policy.witnesses and (standing.against or returned))
    views = () if is_wrong else (*memory.views, *_views(answers, standing, policy))
    proofs, waiting = settle(views, standing)
    if is_wrong:
        evidence |= {
            of: doubted(found) for of, found in evidence.items() if not is_sworn(fleet.open[of])
        }
    for view in (*proofs, *_sworn(fleet, answers)):
        for of in view.absent & evidence.keys():
            decides = view.decides or not policy.witnesses
            evidence[of] = proved(evidence[of], view.began, view.ended, policy, decides=decides)
    suspects = {
        of[0]: found
        for of, found in evidence.items()
        if found.proved is not None and not is_exempt(fleet.open[of], found)
    }
    breaker = memory.breaker
    if suspects or breaker != Breaker():
        disturbed = is_wrong or _is_contradicted(fleet, answers, memory)
        others = fleet.total - len(suspects)
        breaker = judge(breaker, suspects, others, at, policy, disturbed=disturbed)
    return Findings(
        answers,
        suspects,
        standing,
        lasting(missing, strange, len(fleet.able), policy),
        ScopeMemory(evidence, missing, strange, waiting, breaker),
    )


def is_exempt(node: Node, evidence: Evidence) -> bool:
    """Whether the breaker neither counts nor holds the node: its going is surely no mistake."""
    return evidence.tombstone or has_taint(node, TAINT_AUTOSCALER) or is_sworn(node)


def is_marked(node: Node) -> bool:
    """Whether the cloud did not know the machine while the node was Ready."""
    return ANNOTATION_UNKNOWN in node.metadata.annotations


def is_sworn(node: Node) -> bool:
    """Whether an operator has said that the machine is gone."""
    return node.metadata.annotations.get(ANNOTATION_GONE) == "true"


def _strange(
    fleet: Fleet, since: Mapping[Key, float], known: Known, healed: float
) -> Iterator[tuple[Key, float]]:
    """The strange nodes, of which `since` may have some that are none any more.

    One is none any more when the cloud shows its machine; and when other nodes return that were
    missed together with it, from `healed` on: what hid all of them has ended, and it may have died
    meanwhile. A mark goes on where the machine was never shown.
    """
    for of, node in (*fleet.able.items(), *fleet.open.items()):
        seen = known.seen(node)
        if seen.shown is None and is_marked(node):
            yield of, since.get(of, -inf)
        elif seen.shown is None or seen.missing is not None:
            first = since.get(of)
            if first is not None and first < healed:
                yield of, first


def _after(evidence: Evidence | None, answer: Answer | None) -> Evidence | None:
    return evidence if answer is None else heard(evidence, answer.says)


def _answers(fleet: Fleet, looks: Iterable[Look]) -> Mapping[Key, Answer]:
    answers: dict[Key, Answer] = {}
    for look in looks:
        for node in look.question.candidates:
            said = look.observations.get(node.metadata.name)
            if said and key(node) in fleet.open:
                seen = said[-1]
                panel = _panel(look, seen)
                answers[key(node)] = Answer(seen, panel, look.question.decides)
    return answers


def _panel(look: Look, of: Observation) -> Panel:
    """What was said of the witnesses in that very call, or else before and after it."""
    shown: set[Key] = set()
    absent: set[Key] = set()
    asked = 0
    ended = _ended(of)
    for node in look.question.witnesses:
        said = look.observations.get(node.metadata.name, ())
        near = [one for one in said if one.call == of.call]
        if not near:
            before = [one for one in said if _ended(one) <= of.began]
            after = [one for one in said if one.began >= ended and one not in before[-1:]]
            near = [before[-1], after[0]] if before and after else []
        if any(isinstance(one.answer, NotFound) and one.answer.tombstone for one in near):
            continue
        asked += 1
        if any(_is_absent(one) for one in near):
            absent.add(key(node))
        elif near and all(_is_shown(one) for one in near):
            shown.add(key(node))
    return Panel(frozenset(shown), frozenset(absent), asked)


def _words(fleet: Fleet, looks: Iterable[Look]) -> Iterator[Word]:
    """What was said of witnesses in this pass."""
    for look in looks:
        said = {
            key(node): look.observations.get(node.metadata.name, ())
            for node in look.question.witnesses
        }
        shown = {of for of, those in said.items() if any(_is_shown(one) for one in those)}
        absent = {of for of, those in said.items() if any(_is_absent(one) for one in those)}
        panel = Panel(frozenset(shown - absent), frozenset(absent), len(said))
        for of, those in said.items():
            for one in those:
                if of in fleet.able and (_is_shown(one) or _is_absent(one)):
                    yield Word(of, one.began, _is_shown(one), is_sound=is_sound(panel))


def _rumours(fleet: Fleet, memory: ScopeMemory, known: Known) -> Iterator[Word]:
    """What other calls have shown of them."""
    for of, node in fleet.able.items():
        seen = known.seen(node)
        if seen.missing is not None:
            yield Word(of, seen.missing, shown=False)
        elif seen.shown is not None and of in memory.missing:
            yield Word(of, seen.shown, shown=True)


def _views(answers: Mapping[Key, Answer], standing: Standing, policy: Policy) -> Iterator[View]:
    """The answers that lack nodes in question, if they show enough to be proofs."""
    groups: dict[tuple[float, float, Panel, bool], set[Key]] = {}
    for of, answer in answers.items():
        if _is_absent(answer.seen):
            panel = answer.panel.without(standing.aside)
            group = (answer.seen.began, answer.ended, panel, answer.decides)
            groups.setdefault(group, set()).add(of)
    for (began, ended, panel, decides), absent in groups.items():
        if not policy.witnesses or (panel.shown and panel.is_majority):
            yield View(began, ended, frozenset(absent), panel.absent, decides)


def _sworn(fleet: Fleet, answers: Mapping[Key, Answer]) -> Iterator[View]:
    """The answers about nodes for which an operator's word stands in for witnesses."""
    for of, answer in answers.items():
        if _is_absent(answer.seen) and is_sworn(fleet.open[of]):
            yield View(answer.seen.began, answer.ended, frozenset({of}), decides=True)


def _is_contradicted(fleet: Fleet, answers: Mapping[Key, Answer], memory: ScopeMemory) -> bool:
    """Whether a node whose absence was proved is there after all."""
    return any(
        of in fleet.able or (of in answers and _is_shown(answers[of].seen))
        for of, known in memory.evidence.items()
        if known.proved is not None
    )


def _ended(seen: Observation) -> float:
    return seen.began if seen.ended is None else seen.ended


def _is_shown(seen: Observation) -> bool:
    return isinstance(seen.answer, Instance)


def _is_absent(seen: Observation) -> bool:
    return isinstance(seen.answer, NotFound) and not seen.answer.tombstone
