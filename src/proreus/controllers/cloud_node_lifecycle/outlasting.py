"""Remember which Nodes reported for long while the cloud called their machines powered off. Pure.

Without power no kubelet reports for so long, at once or again and again: so the cloud is wrong
about the machine, or the Node is that of another one, which has taken it over. Until the cloud
shows the machine as running, nothing that it says of its power is believed. Who begins to ask
later, after a restart or with another cloud-config, sees the Node Ready for a moment only before it
falls silent; so such a Node is marked.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from math import inf
from typing import Final

from proreus.cloudprovider.instances import Ownership
from proreus.controllers.cloud_node_lifecycle.questions import Rules
from proreus.controllers.cloud_node_lifecycle.witnesses import Key
from proreus.kube import patch
from proreus.kube.objects import Node
from proreus.kube.patch import Patch

ANNOTATION_OUTLASTING: Final = "proreus.io/ready-while-off"
"""Set on a Node that was Ready for long while the cloud called its machine powered off."""


def outlasting(nodes: Mapping[Key, Node], before: Collection[Key], rules: Rules) -> frozenset[Key]:
    """Return the nodes that reported for long while the cloud showed them as powered off.

    Whoever asked, such as the refresh of all nodes; until a machine is shown as running.
    """
    return frozenset(
        key
        for key, node in nodes.items()
        if not rules.known.sighting(node).is_running
        and (key in before or _is_marked(node) or _has_reported(node, rules))
    )


def outlasting_marks(nodes: Iterable[Node], rules: Rules) -> Iterator[tuple[Node, Patch]]:
    """Make the patches that mark such nodes for a later manager, or remove the mark."""
    if rules.policy.out_of_service_grace is None:
        return
    for node in nodes:
        is_marked = _is_marked(node)
        is_running = rules.known.sighting(node).is_running
        is_wanted = not is_running if is_marked else _has_reported(node, rules)
        if is_wanted is not is_marked and _is_judged(node, rules):
            value = {ANNOTATION_OUTLASTING: "true" if is_wanted else None}
            given = patch.annotations(node.metadata.annotations, value)
            yield node, patch.json_patch(node.metadata.uid, given)


def _is_judged(node: Node, rules: Rules) -> bool:
    is_here = rules.known.owns(node) is not Ownership.NO
    return is_here and node.metadata.deletion_timestamp is None


def _has_reported(node: Node, rules: Rules) -> bool:
    known = rules.known
    off = known.sighting(node).off
    if off is None:
        return False
    is_taken_over = off <= known.taken_over(node) < inf
    return is_taken_over or known.ready_for(node, off) >= rules.policy.outlasting


def _is_marked(node: Node) -> bool:
    return ANNOTATION_OUTLASTING in node.metadata.annotations
