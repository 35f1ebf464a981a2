"""Take an operator's word that a machine is gone back off a Node whose machine runs. Pure.

The word stands in for witnesses and breaker. Left on a Node that lives, it would do so at the next
moment in which that is not Ready and the cloud's answers are wrong. A machine that has just gone
leaves its Node Ready for a while, so the word is refuted only by a Node that stays so.
"""

from collections.abc import Iterable, Mapping

from proreus.cloudprovider.instances import Ownership
from proreus.controllers.cloud_node_lifecycle.questions import Rules, is_ready, key_of
from proreus.controllers.cloud_node_lifecycle.scopes import ANNOTATION_GONE, is_declared_gone
from proreus.controllers.cloud_node_lifecycle.witnesses import Key
from proreus.kube import patch
from proreus.kube.objects import Node
from proreus.kube.patch import Patch


def doubtful(
    nodes: Iterable[Node], before: Mapping[Key, float], rules: Rules
) -> Mapping[Key, float]:
    """Return the Ready nodes that are declared gone, with the times since when both hold."""
    return {
        key_of(node): before.get(key_of(node), rules.at)
        for node in nodes
        if is_declared_gone(node)
        and is_ready(node)
        and node.metadata.deletion_timestamp is None
        and rules.known.owns(node) is not Ownership.NO
    }


def refuted(
    nodes: Iterable[Node], doubts: Mapping[Key, float], rules: Rules
) -> tuple[tuple[Node, Patch], ...]:
    """Make the patches that take the word off nodes that have been Ready for too long with it."""
    return tuple(
        (node, _without_word(node))
        for node in nodes
        if (since := doubts.get(key_of(node))) is not None
        and rules.at - since >= rules.policy.dying
    )


def _without_word(node: Node) -> Patch:
    given = patch.annotations(node.metadata.annotations, {ANNOTATION_GONE: None})
    return patch.json_patch(node.metadata.uid, given)
