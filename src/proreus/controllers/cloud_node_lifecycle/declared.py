"""Believe an operator that a machine is gone until its Node has been Ready for long. Pure.

The declaration replaces witnesses and breaker. Left on a Node that lives, it would delete that
Node at the next moment in which it is not Ready and the cloud's answers are wrong. A machine that
has just gone leaves its Node Ready for a while, so only a Node that stays Ready refutes it. A pass
may take minutes, and see the Node only while it is silent: what counts is for how long it was Ready
in all since it was declared gone.
"""

from collections.abc import Iterable

from proreus.cloudprovider.instances import Ownership
from proreus.controllers.cloud_node_lifecycle.questions import Rules
from proreus.kube import patch
from proreus.kube.objects import Node
from proreus.kube.patch import Patch

ANNOTATION_GONE = "proreus.io/machine-gone"
"""Set to "true" by an operator: delete the Node if the cloud says so, without witnesses."""


def is_declared_gone(node: Node) -> bool:
    """Tell whether an operator has declared that the machine is gone."""
    return node.metadata.annotations.get(ANNOTATION_GONE) == "true"


def is_refuted(node: Node, rules: Rules) -> bool:
    """Tell whether a node was Ready for too long after it was declared gone."""
    if not is_declared_gone(node):
        return False
    ready = rules.known.ready_for(node, rules.at - rules.known.declared_for(node))
    # Where nobody waits for a dying one, as in a preview, it must have been Ready at all.
    return bool(ready) and ready >= rules.policy.dying


def is_believed_gone(node: Node, rules: Rules) -> bool:
    """Tell whether an operator has declared that the machine is gone, and nothing refutes it."""
    return is_declared_gone(node) and not is_refuted(node, rules)


def refuted(nodes: Iterable[Node], rules: Rules) -> tuple[tuple[Node, Patch], ...]:
    """Make the patches that remove the declaration from the nodes that have refuted it."""
    return tuple(
        (node, _without_word(node))
        for node in nodes
        if is_refuted(node, rules)
        and node.metadata.deletion_timestamp is None
        and rules.known.owns(node) is not Ownership.NO
    )


def _without_word(node: Node) -> Patch:
    given = patch.annotations(node.metadata.annotations, {ANNOTATION_GONE: None})
    return patch.json_patch(node.metadata.uid, given)
