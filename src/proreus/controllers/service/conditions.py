"""Make the condition `LoadBalancerReady` of a Service, with its closed list of reasons. Pure.

There is no `observedGeneration`: Services have no generation.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from proreus.cloudprovider.errors import (
    CallTimeout,
    CloudError,
    ConfigError,
    IdentityConflict,
    InvalidRequest,
    NotSupported,
    Throttled,
    Unauthenticated,
)
from proreus.cloudprovider.load_balancers import Host
from proreus.controllers.events import scrub
from proreus.kube.objects import (
    CONDITION_LOAD_BALANCER_READY,
    Condition,
    Service,
    condition,
)

CONDITION = CONDITION_LOAD_BALANCER_READY

NAMES_LIMIT: Final = 20
"""How many nodes one message names; as the Go controller."""


class Reason(StrEnum):
    """Every reason that the condition can have; the list is closed."""

    PROVISIONING = "Provisioning"
    """The load balancer is being created or changed."""
    ENSURED = "Ensured"
    """The load balancer is as the Service says."""
    HOSTS_REJECTED = "HostsRejected"
    """The load balancer works, but the cloud refused some nodes; the message names them."""
    NO_HOSTS = "NoHosts"
    """The load balancer exists, but no node can be its target."""
    IMPLEMENTED_ELSEWHERE = "ImplementedElsewhere"
    """Another controller provides this load balancer."""
    THROTTLED = "Throttled"
    """The cloud's quota of calls is used up; it is tried again when there is room."""
    UNAUTHENTICATED = "Unauthenticated"
    """The cloud refuses the credentials: renew those of the cloud-config."""
    CALL_TIMEOUT = "CallTimeout"
    """The cloud did not answer in time; it is tried again."""
    IDENTITY_CONFLICT = "IdentityConflict"
    """Something with the load balancer's name is not ours: rename or remove it."""
    NOT_SUPPORTED = "NotSupported"
    """The cloud cannot do what the Service asks; the message names it."""
    INVALID_REQUEST = "InvalidRequest"
    """Something is wrong with the Service; the message names the field or annotation."""
    CONFIG_ERROR = "ConfigError"
    """Something is wrong with the cloud-config; the message names it."""
    CLOUD_ERROR = "CloudError"
    """The cloud failed; the message has its words. It is tried again."""
    DELETING = "Deleting"
    """The load balancer is being deleted."""
    DELETE_THROTTLED = "DeleteThrottled"
    """The quota of calls is used up while the load balancer is deleted; see `Throttled`."""
    DELETE_UNAUTHENTICATED = "DeleteUnauthenticated"
    """The cloud refuses the credentials while the load balancer is deleted."""
    DELETE_CALL_TIMEOUT = "DeleteCallTimeout"
    """The cloud did not answer in time while the load balancer is deleted."""
    DELETE_IDENTITY_CONFLICT = "DeleteIdentityConflict"
    """Something with the load balancer's name is not ours, so it is not deleted."""
    DELETE_NOT_SUPPORTED = "DeleteNotSupported"
    """The cloud cannot delete the load balancer; the message says why."""
    DELETE_INVALID_REQUEST = "DeleteInvalidRequest"
    """Something is wrong with the Service while its load balancer is deleted."""
    DELETE_CONFIG_ERROR = "DeleteConfigError"
    """Something is wrong with the cloud-config while the load balancer is deleted."""
    DELETE_CLOUD_ERROR = "DeleteCloudError"
    """The cloud failed while the load balancer is deleted; the message has its words."""


IN_PLACE = frozenset({Reason.ENSURED, Reason.HOSTS_REJECTED, Reason.NO_HOSTS})
"""The reasons of a load balancer that is as desired."""


class ConditionState(msgspec.Struct, frozen=True):
    """The content of the condition; `status` is "True", "False" or "Unknown"."""

    status: str
    reason: Reason
    message: str


ELSEWHERE = ConditionState(
    "Unknown", Reason.IMPLEMENTED_ELSEWHERE, "Another controller provides this load balancer"
)

_ERROR_CLASSES = (
    (Throttled, Reason.THROTTLED, Reason.DELETE_THROTTLED),
    (Unauthenticated, Reason.UNAUTHENTICATED, Reason.DELETE_UNAUTHENTICATED),
    (CallTimeout, Reason.CALL_TIMEOUT, Reason.DELETE_CALL_TIMEOUT),
    (IdentityConflict, Reason.IDENTITY_CONFLICT, Reason.DELETE_IDENTITY_CONFLICT),
    (NotSupported, Reason.NOT_SUPPORTED, Reason.DELETE_NOT_SUPPORTED),
    (InvalidRequest, Reason.INVALID_REQUEST, Reason.DELETE_INVALID_REQUEST),
    (ConfigError, Reason.CONFIG_ERROR, Reason.DELETE_CONFIG_ERROR),
)

_OF_DELETION = frozenset(
    {Reason.DELETING, Reason.DELETE_CLOUD_ERROR, *(deleting for _, _, deleting in _ERROR_CLASSES)}
)


def sync_failure(error: CloudError) -> Reason:
    """Return the reason for a failed `ensure` or `update_hosts`, by the error's class."""
    return next((sync for type_, sync, _ in _ERROR_CLASSES if isinstance(error, type_)),
                Reason.CLOUD_ERROR)  # fmt: skip


def delete_failure(error: CloudError) -> Reason:
    """Return the reason for a failed `delete`, by the error's class."""
    return next((deleting for type_, _, deleting in _ERROR_CLASSES if isinstance(error, type_)),
                Reason.DELETE_CLOUD_ERROR)  # fmt: skip


def current_condition(service: Service) -> Condition | None:
    """Return our condition on the Service, or None."""
    return condition(service.status.conditions, CONDITION)


def current_reason(service: Service) -> str:
    """Return the reason of our condition on the Service, or ""."""
    current = current_condition(service)
    return current.reason if current else ""


def shows_deletion(service: Service) -> bool:
    """Tell whether the condition reports a deletion, under way or failed."""
    return current_reason(service) in _OF_DELETION


def shows_one(service: Service) -> bool:
    """Tell whether the condition shows that the Service has had a load balancer."""
    return shows_deletion(service) or current_reason(service) in IN_PLACE


def readiness(hosts: Sequence[Host], rejected: Mapping[str, str]) -> ConditionState:
    """Return the state of a load balancer that is as desired; `rejected` has reasons by node."""
    if not hosts:
        return ConditionState(
            "False", Reason.NO_HOSTS, "There are no available nodes for LoadBalancer"
        )
    if not rejected:
        return ConditionState("True", Reason.ENSURED, "Ensured load balancer")
    named = [f"{node} ({why})" for node, why in sorted(rejected.items())[:NAMES_LIMIT]]
    if len(rejected) > NAMES_LIMIT:
        named.append(f"and {len(rejected) - NAMES_LIMIT} more")
    status = "False" if all(host.node in rejected for host in hosts) else "True"
    text = scrub(f"The cloud did not accept these nodes as hosts: {', '.join(named)}")
    return ConditionState(status, Reason.HOSTS_REJECTED, text)


def is_shown(service: Service, state: ConditionState) -> bool:
    """Tell whether the Service's condition has this state already."""
    current = current_condition(service)
    return current is not None and (
        (current.status, current.reason, current.message)
        == (state.status, state.reason, state.message)
    )


def condition_to_write(service: Service, state: ConditionState, now: datetime) -> Condition | None:
    """Return the condition to write, or None if the Service has it already.

    The time of transition is `now` only if the status changes.
    """
    if is_shown(service, state):
        return None
    current = current_condition(service)
    since = current.last_transition_time if current and current.status == state.status else None
    return Condition(CONDITION, state.status, state.reason.value, state.message, since or now)
