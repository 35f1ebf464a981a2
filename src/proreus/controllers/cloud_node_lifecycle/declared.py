"""Remove an operator's declaration that a machine is gone from a Node that stays Ready. Pure.

The declaration replaces witnesses and breaker. Left on a Node that lives, it would delete that
Node at the next moment in which it is not Ready and the cloud's answers are wrong. A machine that
has just gone leaves its Node Ready for a while, so only a Node that stays Ready refutes it.
"""

from collections.abc import Iterable, Mapping

from proreus.cloudprovider.instances import Ownership
from proreus.controllers.cloud_node_lifecycle.questions import Rules, key_of
from proreus.controllers.cloud_node_lifecycle.scopes import ANNOTATION_GONE, is_declared_gone
from proreus.controllers.cloud_node_lifecycle.witnesses import Key
from proreus.kube import patch
from proreus.kube.objects import Node, is_ready
from proreus.kube.patch import Patch


def doubtful(
    nodes: Iterable[Node], before: Mapping[Key, float], rules: Rules
) -> Mapping[Key, float]:
    """Return the Ready nodes that an operator declared gone, and since when both are true."""
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
    """Make the patches that remove the declaration from nodes that stayed Ready for too long."""
    return tuple(
        (node, _without_word(node))
        for node in nodes
        if (since := doubts.get(key_of(node))) is not None
        and rules.at - since >= rules.policy.dying
    )


def _without_word(node: Node) -> Patch:
    given = patch.annotations(node.metadata.annotations, {ANNOTATION_GONE: None})
    return patch.json_patch(node.metadata.uid, given)
