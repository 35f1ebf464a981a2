"""Weigh answers that machines are powered off: which of them witnesses confirm. Pure.

Such an answer proves something only if it shows most of its witnesses as running, lacks none of
them, and shows none as powered off: a Ready node's machine has power. Where it does not, either a
machine has just lost its power, and its Node will not be Ready in less than a minute; or the cloud
is wrong about power, and nothing is proved until it shows that machine as running. Of that machine
itself nothing is believed until then, also once its kubelet is silent.

Only of a node whose Ready condition is Unknown is the answer believed at all. One that is not Ready
by its kubelet's own word has power.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.instances import Instance, InstanceState, NotFound, Ownership
from proreus.containment.inventory import Observation
from proreus.controllers.cloud_node_lifecycle.evidence import Evidence, doubted, proved
from proreus.controllers.cloud_node_lifecycle.memory import ScopeMemory
from proreus.controllers.cloud_node_lifecycle.outlasting import outlasting
from proreus.controllers.cloud_node_lifecycle.policy import Policy
from proreus.controllers.cloud_node_lifecycle.questions import (
    Known,
    Reply,
    Rules,
    ended,
    off_policy,
)
from proreus.controllers.cloud_node_lifecycle.witnesses import Key
from proreus.kube.objects import (
    TAINT_OUT_OF_SERVICE,
    TAINT_UNINITIALIZED,
    Node,
    condition,
    has_taint,
)


class PoweredOff(msgspec.Struct, frozen=True):
    """The evidence about machines of a scope that are powered off.

    Attributes:
        evidence: The evidence of machines being powered off.
        confirmed: The machines that an answer of this pass proves to be powered off.
        awake: The Ready nodes whose machines the cloud shows as powered off.
        outlasting: The nodes that were Ready for `Policy.outlasting` after the cloud had begun to
            show their machines as powered off, and has not shown them as running since.
    """

    evidence: Mapping[Key, Evidence] = {}
    confirmed: frozenset[Key] = frozenset()
    awake: frozenset[Key] = frozenset()
    outlasting: frozenset[Key] = frozenset()

    @property
    def kept(self) -> tuple[Mapping[Key, Evidence], frozenset[Key], frozenset[Key]]:
        """What the memory of the scope keeps, in its order."""
        return self.evidence, self.awake, self.outlasting

    def suspects(self, open_: Mapping[Key, Node]) -> Mapping[str, Evidence]:
        """Return the evidence that the breaker counts, by uid: of nodes not yet out of service."""
        return {
            key[0]: entry
            for key, entry in self.evidence.items()
            if entry.proved is not None and not has_taint(open_[key], TAINT_OUT_OF_SERVICE)
        }


def powered_off(
    open_: Mapping[Key, Node],
    ready: Mapping[Key, Node],
    replies: Sequence[Reply],
    memory: ScopeMemory,
    rules: Rules,
    *,
    is_wrong: bool,
) -> PoweredOff:
    """Weigh the answers of a pass about the power of a scope's machines.

    Args:
        open_: The nodes in question.
        ready: The Ready nodes.
        replies: The answers.
        memory: The memory that the pass before handed over.
        rules: The settings; nothing is weighed where the taint is never set.
        is_wrong: Whether the answers are known to be wrong, because they lack Ready nodes.
    """
    if rules.policy.out_of_service_grace is None:
        return PoweredOff()
    policy = off_policy(rules.policy)
    awake, is_contradicted = _awake(ready, replies, memory)
    outlasted = outlasting({**open_, **ready}, memory.outlasting, rules)
    evidence = {key: entry for key, entry in memory.off.items() if key in open_}
    if is_wrong or is_contradicted:
        evidence = {key: doubted(entry) for key, entry in evidence.items()}
    confirmed: set[Key] = set()
    last = {
        node.metadata.uid: (reply, observations[-1])
        for reply in replies
        for node in reply.question.candidates
        if (observations := reply.observations.get(node.metadata.name))
    }
    for key, node in open_.items():
        reply, observation = last.get(key[0], (None, None))
        if not is_silent(node):
            evidence.pop(key, None)
        elif reply is None or observation is None or isinstance(observation.answer, CloudError):
            continue
        elif not _shows_off(observation, node, rules.known):
            evidence.pop(key, None)
        else:
            entry = evidence.get(key, Evidence())
            if entry.proved is not None and had_power(node, entry.proved.first, rules.known):
                entry = Evidence()
            is_doubtful = is_wrong or awake or key in outlasted
            if not is_doubtful and _is_vouched_for(reply, observation):
                confirmed.add(key)
                entry = _proved(entry, observation, policy, decides=reply.question.decides)
            evidence[key] = entry
    return PoweredOff(evidence, frozenset(confirmed), awake, outlasted)


def is_silent(node: Node) -> bool:
    """Tell whether the kubelet reports nothing, by the word of the node lifecycle controller."""
    ready = condition(node.status.conditions, "Ready")
    return ready is not None and ready.status == "Unknown"


def _shows_off(observation: Observation, node: Node, known: Known) -> bool:
    """Tell whether an answer speaks against a node that may be marked, and none is newer."""
    if not is_off(observation) or not _may_be_marked(node, known):
        return False
    return not had_power(node, observation.began, known)


def had_power(node: Node, began: float, known: Known) -> bool:
    """Tell whether another call has said otherwise, or the Node was Ready, since `began`."""
    sighting = known.sighting(node)
    is_shown_on = sighting.shown is not None and (sighting.off is None or sighting.off > began)
    return is_shown_on or known.ready_until(node) > began


def is_off(observation: Observation) -> bool:
    """Tell whether an answer shows a machine as powered off."""
    answer = observation.answer
    if not isinstance(answer, Instance):
        return False
    return answer.powered_off and answer.state is InstanceState.STOPPED


def _proved(
    entry: Evidence, observation: Observation, policy: Policy, *, decides: bool
) -> Evidence:
    return proved(entry, observation.began, ended(observation), policy, decides=decides)


def _awake(
    ready: Mapping[Key, Node], replies: Iterable[Reply], memory: ScopeMemory
) -> tuple[frozenset[Key], bool]:
    """Return the Ready nodes shown as powered off, and whether one was shown running later."""
    awake = {key for key in memory.awake if key in ready}
    is_contradicted = False
    keys = {node.metadata.name: key for key, node in ready.items()}
    for reply in replies:
        for witness in reply.question.witnesses:
            key = keys.get(witness.metadata.name)
            if key is None:
                continue
            for one in reply.observations.get(witness.metadata.name, ()):
                if is_off(one):
                    awake.add(key)
                elif _is_running(one) and key in awake:
                    awake.discard(key)
                    is_contradicted = True
    return frozenset(awake), is_contradicted


def _may_be_marked(node: Node, known: Known) -> bool:
    is_initialised = bool(node.spec.provider_id) and not has_taint(node, TAINT_UNINITIALIZED)
    return is_initialised and known.owns(node) is Ownership.YES


def _is_vouched_for(reply: Reply, observation: Observation) -> bool:
    """Tell whether the witnesses in the same call are shown, most of them as running."""
    near = [reply.beside(witness, observation) for witness in reply.question.witnesses]
    if any(isinstance(one.answer, NotFound) or is_off(one) for those in near for one in those):
        return False
    running = sum(bool(those) and all(_is_running(one) for one in those) for those in near)
    return 2 * running > len(near)


def _is_running(observation: Observation) -> bool:
    answer = observation.answer
    return isinstance(answer, Instance) and answer.state is InstanceState.RUNNING
