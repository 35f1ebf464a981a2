"""Keep Nodes that have outlived their instance: they have another machine by now.

A tombstone says of an id that its machine is gone. A machine that goes makes its Node not Ready, in
less than a minute unless Kubernetes is told to wait for longer. So a Node that stays Ready for ten
has another machine: one that got the name of the first while its Node was still there; or an
inventory is wrong. The same is sure at once where the kubelet reports the UUID of another machine
than before, and the cloud has not shown the first one as running since: it may be kept for some
time. That is marked before it is deleted, since a later manager does not see the UUID change.
Nothing that the cloud says of the id proves anything of that machine. Pure.
"""

from collections.abc import Collection, Iterable, Iterator
from math import inf
from typing import Final

from proreus.cloudprovider.instances import Ownership
from proreus.cloudprovider.lookups import system_uuids
from proreus.controllers.cloud_node_lifecycle.declared import ANNOTATION_GONE
from proreus.controllers.cloud_node_lifecycle.questions import Known, Rules, key_of
from proreus.controllers.cloud_node_lifecycle.witnesses import Key
from proreus.kube import patch
from proreus.kube.objects import Node, is_ready
from proreus.kube.patch import Patch

ANNOTATION_OUTLIVED: Final = "proreus.io/outlived-instance"
"""Set on a Node that has another machine than the instance of its provider id.

Without it, after a restart, a silent kubelet would let the Node go with that instance. Its value is
the UUID that the kubelet of the machine reports, or "true" if it reports none.
"""


def outlived(nodes: Iterable[Node], before: Collection[Key], rules: Rules) -> frozenset[Key]:
    """Return the nodes that have outlived their instance, until the cloud shows it as running."""
    return frozenset(key_of(node) for node in nodes if _has_outlived(node, before, rules))


def outlived_marks(
    nodes: Iterable[Node], found: Collection[Key], rules: Rules
) -> Iterator[tuple[Node, Patch]]:
    """Make the patches that mark such nodes for a later manager, or remove the mark.

    A node that yet another machine has taken over is marked anew. With each mark goes an operator's
    word: it was about the former machine.
    """
    for node in nodes:
        is_wanted = key_of(node) in found
        is_right = is_marked_outlived(node) if is_wanted else not _is_marked(node)
        if not is_right and _is_judged(node, rules):
            value: dict[str, str | None] = {ANNOTATION_OUTLIVED: None}
            if is_wanted:
                *_, mark = ("true", *system_uuids(node))
                value = {ANNOTATION_OUTLIVED: mark, ANNOTATION_GONE: None}
            given = patch.annotations(node.metadata.annotations, value)
            yield node, patch.json_patch(node.metadata.uid, given)


def _is_judged(node: Node, rules: Rules) -> bool:
    is_here = rules.known.owns(node) is not Ownership.NO
    return bool(rules.policy.witnesses) and is_here and node.metadata.deletion_timestamp is None


def _has_outlived(node: Node, before: Collection[Key], rules: Rules) -> bool:
    if not _is_judged(node, rules):
        return False
    seen, taken_over = rules.known.sighting(node), rules.known.taken_over(node)
    if taken_over < inf and not has_run_since(node, rules.known):
        return True
    if seen.is_running:
        return False
    if key_of(node) in before or _is_marked(node):
        return True
    first = inf if seen.tombstone is None else seen.tombstone
    # A pass may take minutes, and the Node be silent by its end.
    last = rules.at if is_ready(node) else rules.known.ready_until(node)
    return last - first >= rules.policy.aside_after


def has_run_since(node: Node, known: Known) -> bool:
    """Tell whether the cloud has shown the instance as running since another machine reports."""
    ran = known.sighting(node).ran
    return ran is not None and ran >= known.taken_over(node)


def is_marked_outlived(node: Node) -> bool:
    """Tell whether a Node is marked, and for the machine whose kubelet reports now."""
    mark, reported = node.metadata.annotations.get(ANNOTATION_OUTLIVED), system_uuids(node)
    return mark is not None and (mark in reported or not reported)


def _is_marked(node: Node) -> bool:
    return ANNOTATION_OUTLIVED in node.metadata.annotations
