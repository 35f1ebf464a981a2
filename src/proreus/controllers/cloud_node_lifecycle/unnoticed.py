"""Find nodes that were Ready and unknown to the cloud for long while no pass decided. Pure.

A pass takes minutes where the cloud is slow, and sees a Node only when it begins and when it
decides. One that falls silent just before that was Ready all the same: the memory of when nodes
were Ready tells.
"""

from collections.abc import Collection, Mapping

from proreus.controllers.cloud_node_lifecycle.evidence import Evidence
from proreus.controllers.cloud_node_lifecycle.questions import Rules
from proreus.controllers.cloud_node_lifecycle.witnesses import Key, Missing
from proreus.kube.objects import Node


def unnoticed(
    open_: Mapping[Key, Node],
    evidence: Mapping[Key, Evidence],
    strange: Collection[Key],
    rules: Rules,
) -> Mapping[Key, Missing]:
    """Return since when the cloud has not known such nodes, which are silent by now.

    Args:
        open_: The nodes in question.
        evidence: The evidence of the pass before. Of a node of which something is proved since it
            was Ready last, that pass has judged already what it was while it was Ready.
        strange: The nodes that are known for strange already.
        rules: The settings, and what is known of nodes.
    """
    known, policy = rules.known, rules.policy
    found: dict[Key, Missing] = {}
    for key, node in open_.items():
        seen, before = known.sighting(node), evidence.get(key)
        proofs = before.proved if before is not None else None
        is_judged = proofs is not None and not known.was_there(node, proofs.first)
        if seen.missing is None or (is_judged and key not in strange):
            continue
        least = policy.dying if seen.shown is None else policy.aside_after
        if known.ready_for(node, seen.missing) >= least:
            found[key] = Missing(seen.missing, seen.missing, shown=seen.shown)
    return found
