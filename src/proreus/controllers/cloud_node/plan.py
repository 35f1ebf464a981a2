"""Decide what to write on a Node, from the Node and the cloud's answer about its machine.

A node is *uninitialised* while it carries the taint
`node.cloudprovider.kubernetes.io/uninitialized`. Its initialisation takes two patches: first the
status (addresses and the condition `CloudInitialized=True`), then labels, provider id and, last
of all, the taint. A failure to initialise shows as `CloudInitialized=False`. Afterwards the
condition stays True; what the refresh finds wrong is its reason (`TopologyDiffers` and others).
"""

import zlib
from collections.abc import Hashable
from datetime import datetime
from typing import Final

import msgspec

from proreus.cloudprovider.instances import Instance, InstanceAnswer, NotFound, Ownership
from proreus.containment.sightings import Sighting
from proreus.controllers.cloud_node import addresses, labels, reasons
from proreus.controllers.cloud_node.reasons import Failure, Reason
from proreus.controllers.events import EventType, PlannedEvent, scrub
from proreus.kube import patch
from proreus.kube.objects import (
    ANNOTATION_PROVIDED_NODE_IP,
    TAINT_OUT_OF_SERVICE,
    TAINT_UNINITIALIZED,
    Condition,
    Node,
    NodeAddress,
    condition,
    has_taint,
)
from proreus.kube.patch import Edit, Patch

CONDITION = "CloudInitialized"
CONFIRMED: Final = 3600.0
"""Seconds after which the cloud itself is asked about a node, whatever another source says."""
_OF_CLOUDS: Final = ("node.cloudprovider.kubernetes.io/", TAINT_OUT_OF_SERVICE)
"""Taints of nodes about whose machine something is to be decided."""
_FINE = Failure(
    Reason.INITIALIZED,
    "the labels, addresses and provider id are those of the machine in the cloud",
)


class Change(msgspec.Struct, frozen=True):
    """The change of a node, in this order: `status`, `main`, `events`.

    Both writes may be falsy. `initialised` says that `main` removes the taint, and `failure`
    why the node is not as it should be, even when there is nothing (new) to write.
    """

    status: Patch
    main: Edit
    events: tuple[PlannedEvent, ...] = ()
    initialised: bool = False
    failure: Failure | None = None


def relevant(old: Node | None, new: Node | None) -> bool:
    """Tell whether a node event needs a look; heartbeats and deleted nodes do not."""
    if new is None or is_settled(new):
        return False
    if old is None or _read_by_plan(old) != _read_by_plan(new):
        return True
    # The condition is our word of a failed try, and no reason for another one, unless it is lost.
    return _has_condition(old) and not _has_condition(new)


def is_settled(node: Node) -> bool:
    """Tell whether there is nothing to plan for the node before its next refresh."""
    if node.metadata.deletion_timestamp is not None:
        return True
    return not has_taint(node, TAINT_UNINITIALIZED) and not labels.mirrored(node.metadata.labels)


def needs_instance(node: Node) -> bool:
    """Tell whether the cloud must be asked about the node; the refresh asks about others."""
    return node.metadata.deletion_timestamp is None and has_taint(node, TAINT_UNINITIALIZED)


def may_be_confirmed(node: Node, sighting: Sighting, now: float) -> bool:
    """Tell whether a source that lags may say of a node that nothing has changed.

    Only a Ready node may be, with which nothing was wrong, and whose machine the cloud itself has
    shown not long ago and has not lacked since. `now` is of the inventory's clock.
    """
    ready = condition(node.status.conditions, "Ready")
    ours = condition(node.status.conditions, CONDITION)
    return (
        ready is not None
        and ready.status == "True"
        and ours is not None
        and ours.reason == _FINE.reason
        and node.metadata.deletion_timestamp is None
        and bool(node.spec.provider_id)
        and not any(taint.key.startswith(_OF_CLOUDS) for taint in node.spec.taints)
        and sighting.shown is not None
        and now - sighting.shown < CONFIRMED
        and not sighting.is_lost
    )


def update_group(key: str, node: Node | None, updates: int) -> Hashable:
    """Return the group of a node's writes: itself, or one of `updates` for initialised nodes.

    At most `updates` initialised nodes are written at once (0: as many as other nodes). Groups do
    that, since a node that waits for its group takes no slot from nodes that are new.
    """
    if not updates or node is None or needs_instance(node):
        return key
    return zlib.crc32(key.encode()) % updates


def plan(
    node: Node,
    answer: InstanceAnswer | None,
    now: datetime,
    *,
    refresh: bool,
    ownership: Ownership = Ownership.YES,
) -> Change | None:
    """Decide what to write on `node`; None means that nothing differs.

    Args:
        node: The newest object.
        answer: The cloud's answer about it, None if it gave none. Providers answer with the
            provider id in the node's own spelling where both mean the same machine.
        now: The time for `lastTransitionTime`.
        refresh: Whether the cloud was asked about a node that is initialised already.
        ownership: Whether the machine belongs to this cloud. Another cloud's node is left alone,
            but an uninitialised node without the condition gets it once.
    """
    if node.metadata.deletion_timestamp is not None:
        return None
    if has_taint(node, TAINT_UNINITIALIZED):
        change = _initialise(node, answer, now, ownership)
    elif ownership is Ownership.NO:
        return None
    elif refresh:
        change = _refresh(node, answer, now)
    else:
        change = Change(
            _status(node), patch.node_edit(node, new_labels=labels.mirrored(node.metadata.labels))
        )
    idle = not (change.status or change.main or change.events or change.failure)
    return None if idle else change


def _initialise(
    node: Node, answer: InstanceAnswer | None, now: datetime, ownership: Ownership
) -> Change:
    if ownership is Ownership.NO:
        return _failed(node, reasons.not_owned(), now)
    if not isinstance(answer, Instance):
        return _failed(node, reasons.failure(node, answer), now)
    wrong = _conflict(node, answer) or _no_provider_id(node, answer)
    if wrong is not None:
        return _failed(node, wrong, now)
    desired = _addresses(node, answer)
    if isinstance(desired, Failure):
        return _failed(node, desired, now)
    change = labels.initial(node, answer)
    main = patch.node_edit(
        node,
        new_labels=change.labels,
        new_annotations=change.annotations,
        provider_id=answer.provider_id,
        new_taints=tuple(taint for taint in node.spec.taints if taint.key != TAINT_UNINITIALIZED),
    )
    return Change(
        _status(node, desired, _condition(node, "True", _FINE, now)),
        main,
        events=(*_rejected(change), PlannedEvent("Normal", "Synced", "Node synced successfully")),
        initialised=True,
    )


def _failed(node: Node, failure: Failure, now: datetime) -> Change:
    """Report by condition and event why a node is not initialised."""
    state = _condition(node, "False", failure, now)
    if failure.reason is Reason.NOT_OWNED and condition(node.status.conditions, CONDITION):
        # What stands there may be the word of the node's own controller.
        state = None
    if failure.reason in {Reason.INSTANCE_PENDING, Reason.NOT_OWNED}:
        type_: EventType = "Normal" if failure.reason is Reason.INSTANCE_PENDING else "Warning"
        events = _on_transition(node, state, type_)
    else:
        # At every try: the recorder writes a lasting one again every ten minutes.
        events = (PlannedEvent("Warning", failure.reason.value, failure.message),)
    return Change(_status(node, None, state), patch.node_edit(node), events, failure=failure)


def _refresh(node: Node, answer: InstanceAnswer | None, now: datetime) -> Change:
    """Compare an initialised node with its instance.

    Without an answer the condition stays as it is: an outage must not write to every node, and
    a machine that is gone is the lifecycle controller's business.
    """
    main = patch.node_edit(node, new_labels=labels.mirrored(node.metadata.labels))
    if isinstance(answer, NotFound):
        return Change(_status(node), main)
    if not isinstance(answer, Instance):
        failure = reasons.failure(node, answer)
        if failure.reason is Reason.IDENTITY_CONFLICT:
            return _refreshed(node, failure, None, main, now)
        return Change(_status(node), main, failure=failure)
    conflict = _conflict(node, answer)
    if conflict is not None:
        return _refreshed(node, conflict, None, main, now)
    change = labels.refreshed(node, answer)
    main = patch.node_edit(node, new_labels=change.labels, new_annotations=change.annotations)
    desired = _addresses(node, answer) if answer.addresses else None
    if isinstance(desired, Failure):
        return _refreshed(node, desired, None, main, now)
    difference = labels.topology_difference(node, answer)
    finding = Failure(Reason.TOPOLOGY_DIFFERS, difference) if difference else _FINE
    return _refreshed(node, finding, desired, main, now)


def _refreshed(
    node: Node,
    finding: Failure,
    desired: tuple[NodeAddress, ...] | None,
    main: Edit,
    now: datetime,
) -> Change:
    """Make the change of an initialised node; its condition tells differences from the instance."""
    state = _condition(node, "True", finding, now)
    events = () if finding is _FINE else _on_transition(node, state, "Warning")
    return Change(_status(node, desired, state), main, events)


def _conflict(node: Node, instance: Instance) -> Failure | None:
    """Return a failure if node and instance have two provider ids."""
    ours, clouds = node.spec.provider_id, instance.provider_id
    if not (ours and clouds) or ours == clouds:
        return None
    return Failure(
        Reason.IDENTITY_CONFLICT,
        f"the node has the provider id {ours}, but the cloud found {clouds} for it; "
        "delete the Node object if its machine was replaced",
    )


def _no_provider_id(node: Node, instance: Instance) -> Failure | None:
    if node.spec.provider_id or instance.provider_id:
        return None
    return Failure(
        Reason.PROVIDER_ID_MISSING,
        "neither the cloud nor the node gives a provider id; start the kubelet with --provider-id",
    )


def _addresses(node: Node, instance: Instance) -> tuple[NodeAddress, ...] | Failure:
    try:
        return addresses.desired(node, instance.addresses)
    except addresses.ProvidedNodeIPInvalid as exc:
        return Failure(Reason.PROVIDED_NODE_IP_INVALID, str(exc))
    except addresses.ProvidedNodeIPMismatch as exc:
        return Failure(Reason.PROVIDED_NODE_IP_MISMATCH, str(exc))


def _condition(node: Node, status: str, failure: Failure, now: datetime) -> Condition | None:
    """Return the condition to write, or None if the node has it already."""
    old = condition(node.status.conditions, CONDITION)
    new = Condition(CONDITION, status, failure.reason.value, failure.message, now)
    if old is None or old.status != status:
        return new
    if (old.reason, old.message) == (new.reason, new.message):
        return None
    return msgspec.structs.replace(new, last_transition_time=old.last_transition_time or now)


def _on_transition(node: Node, new: Condition | None, type_: EventType) -> tuple[PlannedEvent, ...]:
    """Return an event if the condition's status or reason changes, not for a new message."""
    old = condition(node.status.conditions, CONDITION)
    if new is None or (old and (old.status, old.reason) == (new.status, new.reason)):
        return ()
    return (PlannedEvent(type_, new.reason, new.message),)


def _status(
    node: Node,
    desired: tuple[NodeAddress, ...] | None = None,
    state: Condition | None = None,
) -> Patch:
    """Make the status patch; addresses are compared in order, so that equal ones cost nothing."""
    return patch.status(
        node.metadata.uid,
        addresses=None if desired == node.status.addresses else desired,
        conditions=() if state is None else (state,),
        load_balancer=None,
    )


def _rejected(change: labels.LabelChange) -> tuple[PlannedEvent, ...]:
    if not change.rejected:
        return ()
    text = ", ".join(change.rejected)
    message = f"labels that the cloud gives, but Kubernetes does not allow, are left out: {text}"
    return (PlannedEvent("Warning", "LabelsRejected", scrub(message)),)


def _read_by_plan(node: Node) -> tuple[object, ...]:
    """Return all that `plan` reads of a node, except the condition."""
    return (
        node.metadata.uid,
        node.metadata.deletion_timestamp,
        node.metadata.labels,
        node.metadata.annotations.get(ANNOTATION_PROVIDED_NODE_IP),
        node.spec.provider_id,
        node.spec.taints,
        node.status.addresses,
    )


def _has_condition(node: Node) -> bool:
    return condition(node.status.conditions, CONDITION) is not None
