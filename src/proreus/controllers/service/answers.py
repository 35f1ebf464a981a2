"""Decide what to write on a Service before the first cloud call and after each answer. Pure.

Each `Change` holds at most one patch per subresource. The condition holds the last state,
so a repeated answer is no write, and no event unless it is a failure that is tried again: the
recorder counts those and writes a lasting one every ten minutes.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import TypeVar

import msgspec

from proreus.cloudprovider.errors import (
    CloudError,
    ImplementedElsewhere,
    InvalidRequest,
    NotSupported,
    RetryAfter,
    Throttled,
)
from proreus.cloudprovider.load_balancers import (
    DeleteAnswer,
    Done,
    EnsureAnswer,
    Ensured,
    LoadBalancerRef,
    Pending,
    withdraws,
)
from proreus.controllers.events import PlannedEvent, scrub
from proreus.controllers.service.conditions import (
    CONDITION,
    ELSEWHERE,
    IN_PLACE,
    ConditionState,
    Reason,
    condition_to_write,
    current_condition,
    current_reason,
    delete_failure,
    readiness,
    shows_deletion,
    sync_failure,
)
from proreus.controllers.service.contested import Contested, uncontested
from proreus.controllers.service.intake import (
    ANNOTATION_CLOUD_IN_USE,
    AS_GO,
    CONDITION_CLOUD,
    Classes,
    cloud_in_status,
    has_finalizer,
    is_of_others,
    is_recorded,
    is_to_have,
)
from proreus.controllers.service.plan import (
    Ensure,
    UpdateHosts,
    stated_ingress,
    with_ip_mode,
)
from proreus.kube import patch
from proreus.kube.objects import (
    FINALIZER_LOAD_BALANCER,
    Condition,
    LoadBalancerIngress,
    LoadBalancerStatus,
    Service,
)
from proreus.kube.patch import Patch

_ENSURING = "Ensuring load balancer"

_ASKED_AGAIN = 10.0
"""Seconds until a refused Service is looked at again of which nobody knows whose its port is."""

Answer = TypeVar("Answer")


class Change(msgspec.Struct, frozen=True):
    """The changes to write, the events to record, and when the key is due again.

    `status` goes to services/status and is sent first, because it carries the version of the
    object it was made from; `metadata` goes to the Service itself. `after` are seconds, None for
    "when something changes" or, with an `error`, for backoff. `error` is the failure to count.
    """

    status: Patch | None = None
    metadata: Patch | None = None
    events: tuple[PlannedEvent, ...] = ()
    after: float | None = None
    error: CloudError | None = None


def answer_of(by_uid: Mapping[str, Answer] | Exception, uid: str) -> Answer | CloudError:
    """Return the provider's answer for one load balancer; a missing one is a CloudError."""
    if isinstance(by_uid, CloudError):
        return by_uid
    if isinstance(by_uid, Exception):
        return CloudError(f"{type(by_uid).__name__}: {by_uid}")
    return by_uid.get(uid) or CloudError("the provider gave no answer for this load balancer")


def before(service: Service, now: datetime) -> Change | None:
    """Return the change before the first cloud call: finalizer and condition, in one patch.

    None if the Service has both, and while it is being deleted: the API server takes no finalizer
    then. While it has an address from earlier, nobody knows whether that works: "Unknown".
    """
    starts = current_condition(service) is None or shows_deletion(service)
    if service.metadata.deletion_timestamp is not None or (has_finalizer(service) and not starts):
        return None
    return Change(
        status=status_patch(
            service,
            condition=_provisioning(service, _ENSURING, now) if starts else None,
            added=() if has_finalizer(service) else (FINALIZER_LOAD_BALANCER,),
        ),
        events=(PlannedEvent("Normal", "EnsuringLoadBalancer", _ENSURING),) if starts else (),
    )


def after_ensure(
    service: Service | None,
    answer: EnsureAnswer,
    now: datetime,
    *,
    verb: Ensure | UpdateHosts,
    classes: Classes = AS_GO,
    contested: Contested = uncontested,
) -> Change:
    """Return the change after an answer to `ensure` or `update_hosts`.

    A Service that meanwhile is gone, new, or wants no load balancer is planned again for that
    reason, and the load balancer deleted: only an address that is left leaves the status at once.
    """
    if service is None or service.metadata.uid != verb.desired.ref.uid:
        return Change()
    if not is_to_have(service, classes):
        is_left = service.status.load_balancer.ingress and contested(service)
        is_ours = not is_of_others(service, classes)
        return Change(status=status_patch(service, ingress=() if is_left and is_ours else None))
    if isinstance(answer, Ensured):
        return _ensured(service, answer, now, verb)
    if isinstance(answer, RetryAfter):
        answer = Pending(answer.after, str(answer), withdrawn=answer.disowns)
    if isinstance(answer, Pending):
        return _pending(service, answer, now, contested)
    return _failed(service, answer, now, contested, is_update=isinstance(verb, UpdateHosts))


def refuse(
    service: Service, error: CloudError, now: datetime, contested: Contested = uncontested
) -> Change:
    """Return the change when no load balancer can be computed: as after a failed `ensure`."""
    return _failed(service, error, now, contested, is_update=False)


def before_delete(service: Service | None, ref: LoadBalancerRef) -> Change:
    """Return the event of a deletion that starts; no event when it is tried again."""
    if service is None or service.metadata.uid != ref.uid or shows_deletion(service):
        return Change()
    return Change(
        events=(PlannedEvent("Normal", "DeletingLoadBalancer", "Deleting load balancer"),)
    )


def after_delete(
    service: Service | None,
    answer: DeleteAnswer,
    now: datetime,
    *,
    ref: LoadBalancerRef,
    classes: Classes = AS_GO,
    contested: Contested = uncontested,
) -> Change:
    """Return the change after an answer to `delete`; only `Done` removes the finalizer.

    A Service that is gone, or new under the old name, gets neither patch nor event;
    `after` and `error` hold all the same, so that the deletion goes on.
    """
    present = service if service is not None and service.metadata.uid == ref.uid else None
    if isinstance(answer, Done | ImplementedElsewhere):
        was_found = not isinstance(answer, Done) or answer.found
        return _deleted(present, now, classes, was_found=was_found) if present else Change()
    if isinstance(answer, Pending | RetryAfter):
        change = Change(after=answer.after)
    else:
        change = Change(error=answer, after=_requested_delay(answer))
    if present is None:
        return change
    is_left = bool(withdraws(answer) or contested(present)) and not is_of_others(present, classes)
    return _still_there(present, answer, change, now, is_left=is_left)


def _still_there(
    service: Service, answer: Pending | CloudError, change: Change, now: datetime, *, is_left: bool
) -> Change:
    """Add a condition and event that say why the load balancer is not deleted yet.

    An address that is withdrawn, or another's by now (`is_left`), leaves the status in the same
    patch; if the patch fails, it stays.
    """
    reason, text = _delete_progress(answer)
    event = PlannedEvent("Warning", "DeleteLoadBalancerFailed", text)
    return msgspec.structs.replace(
        change,
        status=status_patch(
            service,
            condition=condition_to_write(service, ConditionState("False", reason, text), now),
            ingress=() if is_left and service.status.load_balancer.ingress else None,
        ),
        events=(event,) if change.error is not None else (),
    )


def _delete_progress(answer: Pending | CloudError) -> tuple[Reason, str]:
    """Return the reason and message of a deletion that is not finished."""
    if isinstance(answer, Pending):
        return Reason.DELETING, scrub(f"Deleting load balancer: {answer.reason}")
    if isinstance(answer, RetryAfter):
        return Reason.DELETING, scrub(f"Deleting load balancer: {answer}")
    return delete_failure(answer), scrub(f"Error deleting load balancer: {answer}")


def _ensured(
    service: Service, answer: Ensured, now: datetime, verb: Ensure | UpdateHosts
) -> Change:
    state = readiness(verb.desired.hosts, answer.rejected)
    condition = condition_to_write(service, state, now)
    ingress = stated_ingress(verb, answer)
    if ingress == service.status.load_balancer.ingress:
        ingress = None
    ops = patch.annotations(service.metadata.annotations, dict(answer.annotations))
    return Change(
        status=status_patch(service, condition=condition, ingress=ingress),
        metadata=patch.json_patch(service.metadata.uid, ops) or None,
        events=_success_events(service, verb, state, is_moved=ingress is not None),
    )


def _success_events(
    service: Service, verb: Ensure | UpdateHosts, state: ConditionState, *, is_moved: bool
) -> tuple[PlannedEvent, ...]:
    """Return the events of a success: none if nothing changed, or only the hosts."""
    earlier = current_condition(service)
    earlier_reason = earlier.reason if earlier else ""
    is_news = earlier_reason not in IN_PLACE or state.reason == Reason.ENSURED != earlier_reason
    events: list[PlannedEvent] = []
    if isinstance(verb, Ensure):
        if is_news or is_moved or verb.edited:
            events.append(PlannedEvent("Normal", "EnsuredLoadBalancer", "Ensured load balancer"))
    elif is_news and state.reason != Reason.NO_HOSTS:
        message = "Updated load balancer with new hosts"
        events.append(PlannedEvent("Normal", "UpdatedLoadBalancer", message))
    if state.reason == Reason.NO_HOSTS and earlier_reason != state.reason:
        events.append(PlannedEvent("Warning", "UnAvailableLoadBalancer", state.message))
    if state.reason == Reason.HOSTS_REJECTED and (
        earlier is None or earlier.message != state.message
    ):
        events.append(PlannedEvent("Warning", "HostsRejected", state.message))
    return tuple(events)


def _pending(service: Service, answer: Pending, now: datetime, contested: Contested) -> Change:
    """Return the change while the cloud works; unknown ingress leaves the status as it is.

    But an address that is withdrawn leaves it, or of which another one has a port that it needs.
    """
    text = scrub(f"{_ENSURING}: {answer.reason}")
    stated, shown = with_ip_mode(answer.ingress), service.status.load_balancer.ingress
    is_left = shown and not stated and (answer.withdrawn or contested(service))
    event = PlannedEvent("Normal", "EnsuringLoadBalancer", text)
    return Change(
        status=status_patch(
            service,
            condition=_provisioning(service, text, now),
            ingress=stated if is_left or stated not in ((), shown) else None,
        ),
        events=(event,) if current_reason(service) != Reason.PROVISIONING else (),
        after=answer.after,
    )


def _failed(
    service: Service, error: CloudError, now: datetime, contested: Contested, *, is_update: bool
) -> Change:
    has_ingress = bool(service.status.load_balancer.ingress)
    is_contested = has_ingress and (error.disowns or contested(service))
    ingress = () if is_contested else None
    if isinstance(error, ImplementedElsewhere):
        condition = condition_to_write(service, ELSEWHERE, now)
        return Change(status=status_patch(service, condition=condition, ingress=ingress))
    reason = sync_failure(error)
    name, doing = (
        ("UpdateLoadBalancerFailed", "Error updating load balancer with new hosts")
        if is_update
        else ("SyncLoadBalancerFailed", "Error syncing load balancer")
    )
    text = scrub(f"{doing}: {error}")
    is_final = isinstance(error, InvalidRequest | NotSupported)
    is_shown = is_final and current_reason(service) == reason
    return Change(
        status=status_patch(
            service,
            condition=condition_to_write(service, ConditionState("False", reason, text), now),
            ingress=ingress,
        ),
        events=() if is_shown else (PlannedEvent("Warning", name, text),),
        after=_ASKED_AGAIN if is_final and is_contested is None else _requested_delay(error),
        error=None if is_final else error,
    )


def _deleted(service: Service, now: datetime, classes: Classes, *, was_found: bool) -> Change:
    """Return the change after the load balancer has been deleted.

    A Service that wants a load balancer again meanwhile keeps its finalizer. The status of a
    Service whose class is now another implementation's is left to it; so is that of one that stays,
    of which nothing was found and nothing says that it was our cloud's: its address may be another
    cloud's.
    """
    event = PlannedEvent("Normal", "DeletedLoadBalancer", "Deleted load balancer")
    has_ingress = bool(service.status.load_balancer.ingress)
    if is_to_have(service, classes):
        state = ConditionState("False", Reason.PROVISIONING, _ENSURING)
        condition = condition_to_write(service, state, now)
        status = status_patch(service, condition=condition, ingress=() if has_ingress else None)
        return Change(status=status, events=(event,))
    finalizers = (FINALIZER_LOAD_BALANCER, *classes.left_finalizers)
    is_going = service.metadata.deletion_timestamp is not None
    is_unknown = not was_found and not is_recorded(service, classes) and not is_going
    is_left = is_unknown or is_of_others(service, classes)
    return Change(
        status=status_patch(
            service,
            ingress=() if has_ingress and not is_left else None,
            removed=tuple(one for one in finalizers if one in service.metadata.finalizers),
            removed_conditions=_removed_conditions(service, classes),
        ),
        metadata=_unrecorded(service, classes),
        events=(event,),
    )


def _removed_conditions(service: Service, classes: Classes) -> tuple[str, ...]:
    """Return our conditions on a Service, but for one that names another cloud."""
    named = cloud_in_status(service)
    is_ours = bool(named) and classes.cloud in {"", named}
    return (
        *((CONDITION,) if current_condition(service) else ()),
        *((CONDITION_CLOUD,) if is_ours else ()),
    )


def _unrecorded(service: Service, classes: Classes) -> Patch | None:
    """Make the patch that takes our cloud's name off a Service; None if the deletion does that.

    Another cloud's name stays, since that cloud may have the Service by now. The only cloud removes
    any name.
    """
    annotations = service.metadata.annotations
    is_ours = classes.cloud in {"", annotations.get(ANNOTATION_CLOUD_IN_USE)}
    if service.metadata.deletion_timestamp is not None or not is_ours:
        return None
    ops = patch.annotations(annotations, {ANNOTATION_CLOUD_IN_USE: None})
    return patch.json_patch(service.metadata.uid, ops) or None


def _provisioning(service: Service, text: str, now: datetime) -> Condition | None:
    status = "Unknown" if service.status.load_balancer.ingress else "False"
    return condition_to_write(service, ConditionState(status, Reason.PROVISIONING, text), now)


def _requested_delay(error: CloudError) -> float | None:
    return error.after if isinstance(error, Throttled) else None


def status_patch(
    service: Service,
    *,
    condition: Condition | None = None,
    ingress: tuple[LoadBalancerIngress, ...] | None = None,
    added: tuple[str, ...] = (),
    removed: tuple[str, ...] = (),
    removed_conditions: tuple[str, ...] = (),
) -> Patch | None:
    """Make the patch of services/status, or return None if there is nothing to write."""
    made = patch.service_status(
        service.metadata.uid,
        service.metadata.resource_version,
        added_finalizers=added,
        removed_finalizers=removed,
        conditions=(condition,) if condition else None,
        removed_conditions=removed_conditions,
        load_balancer=None if ingress is None else LoadBalancerStatus(ingress),
    )
    return made or None
