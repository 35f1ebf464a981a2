"""Make the patches of a node's taints: shut down, out of service, and back in service. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from proreus.cloudprovider.instances import Instance, InstanceAnswer, InstanceState, Ownership
from proreus.controllers.cloud_node_lifecycle.questions import Known, key_of
from proreus.controllers.cloud_node_lifecycle.scopes import Answer
from proreus.controllers.cloud_node_lifecycle.witnesses import Key
from proreus.kube import patch
from proreus.kube.objects import (
    TAINT_OUT_OF_SERVICE,
    TAINT_SHUTDOWN,
    Node,
    Taint,
    has_taint,
    is_ready,
)
from proreus.kube.patch import Op, Patch

ANNOTATION_OUT_OF_SERVICE: Final = "proreus.io/out-of-service"
"""Set to "true" together with our taint out-of-service, which is removed only with it.

One without it was set by an operator, and is left alone.
"""

_SHUTDOWN = Taint(key=TAINT_SHUTDOWN, effect="NoSchedule")
_OUT_OF_SERVICE = Taint(key=TAINT_OUT_OF_SERVICE, effect="NoExecute", value="nodeshutdown")


def shutdown(node: Node, answer: InstanceAnswer | None) -> Patch | None:
    """Make the patch that taints a stopped node, or removes the taint of a running one.

    A Ready node gets no taint, whatever the cloud says. Return None if there is nothing to do.
    """
    state = answer.state if isinstance(answer, Instance) else InstanceState.UNKNOWN
    others = tuple(taint for taint in node.spec.taints if not _is(taint, _SHUTDOWN))
    is_tainted = len(others) < len(node.spec.taints)
    if is_ready(node) or state is InstanceState.RUNNING:
        wanted = others
    elif state is InstanceState.STOPPED and not is_tainted:
        wanted = (*others, _SHUTDOWN)
    else:
        return None
    return patch.json_patch(node.metadata.uid, patch.taints(node.spec.taints, wanted)) or None


def shutdowns(
    nodes: Iterable[Node], answers: Mapping[Key, Answer], known: Known
) -> tuple[tuple[Node, Patch], ...]:
    """Make the patches that set or remove the shutdown taint, with their nodes."""
    patches: list[tuple[Node, Patch]] = []
    for node in nodes:
        answer = answers.get(key_of(node))
        is_back = (
            is_ready(node)
            and has_taint(node, TAINT_SHUTDOWN)
            and node.metadata.deletion_timestamp is None
            and known.owns(node) is not Ownership.NO
        )
        if not is_back and answer is None:
            continue
        wanted = shutdown(node, None if answer is None else answer.value)
        if wanted is not None:
            patches.append((node, wanted))
    return tuple(patches)


def is_marked_out_of_service(node: Node) -> bool:
    """Tell whether the node has the mark of our taint out-of-service."""
    return ANNOTATION_OUT_OF_SERVICE in node.metadata.annotations


def out_of_service(node: Node) -> Patch:
    """Make the patch that takes a node out of service; it applies to this version of it only.

    If the node has changed since, for instance because its kubelet has reported, nothing is
    written.
    """
    meta, taints = node.metadata, node.spec.taints
    return patch.json_patch(
        meta.uid,
        (
            Op("test", "/metadata/resourceVersion", meta.resource_version),
            *patch.annotations(meta.annotations, {ANNOTATION_OUT_OF_SERVICE: "true"}),
            *patch.taints(taints, (*taints, _OUT_OF_SERVICE)),
        ),
    )


def may_return(node: Node) -> bool:
    """Tell whether a node that we took out of service reports again, so that the cloud is asked."""
    is_here = node.metadata.deletion_timestamp is None
    return is_here and is_marked_out_of_service(node) and is_ready(node)


def returned(
    nodes: Iterable[Node], answers: Mapping[str, InstanceAnswer], outlived: Collection[Key]
) -> tuple[tuple[Node, Patch], ...]:
    """Make the patches that put nodes back in service: Ready, and the machine runs.

    So does that of a Node that has `outlived` its instance, of which alone the cloud's word is.
    """
    return tuple(
        (node, _in_service(node))
        for node in nodes
        if may_return(node) and (_runs(answers.get(node.metadata.name)) or key_of(node) in outlived)
    )


def _runs(answer: InstanceAnswer | None) -> bool:
    return isinstance(answer, Instance) and answer.state is InstanceState.RUNNING


def _in_service(node: Node) -> Patch:
    kept = tuple(
        taint
        for taint in node.spec.taints
        if not (_is(taint, _OUT_OF_SERVICE) and taint.value == _OUT_OF_SERVICE.value)
    )
    return patch.json_patch(
        node.metadata.uid,
        (
            *patch.annotations(node.metadata.annotations, {ANNOTATION_OUT_OF_SERVICE: None}),
            *patch.taints(node.spec.taints, kept),
        ),
    )


def _is(taint: Taint, other: Taint) -> bool:
    """Tell whether two taints have one key and effect, of which a node has one at most."""
    return (taint.key, taint.effect) == (other.key, other.effect)
