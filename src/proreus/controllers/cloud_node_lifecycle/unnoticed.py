"""Find nodes that were Ready and unknown to the cloud for long while no pass decided. Pure.

A pass takes minutes where the cloud is slow, and sees a Node only when it begins and when it
decides. One that falls silent just before that was Ready all the same: the memory of when nodes
were Ready tells.
"""

from collections.abc import Mapping

from proreus.controllers.cloud_node_lifecycle.memory import ScopeMemory
from proreus.controllers.cloud_node_lifecycle.questions import Rules
from proreus.controllers.cloud_node_lifecycle.witnesses import Key, Missing
from proreus.kube.objects import Node


def unnoticed(
    open_: Mapping[Key, Node], memory: ScopeMemory, rules: Rules
) -> Mapping[Key, Missing]:
    """Return since when the cloud has not known such nodes, which are silent by now.

    Args:
        open_: The nodes in question.
        memory: The memory of the pass before. Of a node that was in question and silent then, that
            pass has judged already what it was while it was Ready.
        rules: The settings, and what is known of nodes.
    """
    known, policy = rules.known, rules.policy
    found: dict[Key, Missing] = {}
    for key, node in open_.items():
        seen = known.sighting(node)
        judged = memory.judged.get(key)
        is_judged = judged is not None and known.ready_until(node) <= judged
        if seen.missing is None or (is_judged and key not in memory.strange):
            continue
        least = policy.dying if seen.shown is None else policy.aside_after
        # Where nobody waits for a dying one, as in a preview, it must have been Ready at all.
        if (ready := known.ready_for(node, seen.missing)) and ready >= least:
            found[key] = Missing(seen.missing, seen.missing, shown=seen.shown)
    return found
