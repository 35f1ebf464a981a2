"""The condition `LoadBalancerReady` of a Service: its reasons, and how it is made. Pure.

There is no `observedGeneration`: Services have no generation.
"""

from datetime import datetime
from enum import StrEnum

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
from proreus.kube.objects import Condition, Service, condition

CONDITION = "LoadBalancerReady"


class Reason(StrEnum):
    """Every reason the condition can have; the list is closed."""

    PROVISIONING = "Provisioning"
    ENSURED = "Ensured"
    HOSTS_REJECTED = "HostsRejected"
    NO_HOSTS = "NoHosts"
    IMPLEMENTED_ELSEWHERE = "ImplementedElsewhere"
    THROTTLED = "Throttled"
    UNAUTHENTICATED = "Unauthenticated"
    CALL_TIMEOUT = "CallTimeout"
    IDENTITY_CONFLICT = "IdentityConflict"
    NOT_SUPPORTED = "NotSupported"
    INVALID_REQUEST = "InvalidRequest"
    CONFIG_ERROR = "ConfigError"
    CLOUD_ERROR = "CloudError"
    DELETING = "Deleting"
    DELETE_THROTTLED = "DeleteThrottled"
    DELETE_UNAUTHENTICATED = "DeleteUnauthenticated"
    DELETE_CALL_TIMEOUT = "DeleteCallTimeout"
    DELETE_IDENTITY_CONFLICT = "DeleteIdentityConflict"
    DELETE_NOT_SUPPORTED = "DeleteNotSupported"
    DELETE_INVALID_REQUEST = "DeleteInvalidRequest"
    DELETE_CONFIG_ERROR = "DeleteConfigError"
    DELETE_CLOUD_ERROR = "DeleteCloudError"


IN_PLACE = frozenset({Reason.ENSURED, Reason.HOSTS_REJECTED, Reason.NO_HOSTS})
"""The load balancer is as wished."""

SETTLED = IN_PLACE | {Reason.IMPLEMENTED_ELSEWHERE}
"""Nothing to do until the wish changes."""

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
    """The reason for a failed `ensure` or `update_hosts`: the class of the error."""
    return next((sync for type_, sync, _ in _ERROR_CLASSES if isinstance(error, type_)),
                Reason.CLOUD_ERROR)  # fmt: skip


def delete_failure(error: CloudError) -> Reason:
    """The reason for a failed `delete`."""
    return next((gone for type_, _, gone in _ERROR_CLASSES if isinstance(error, type_)),
                Reason.DELETE_CLOUD_ERROR)  # fmt: skip


def said(service: Service) -> Condition | None:
    """Our condition on the Service."""
    return condition(service.status.conditions, CONDITION)


def said_reason(service: Service) -> str:
    """The reason that the Service shows now, or ""."""
    current = said(service)
    return current.reason if current else ""


def speaks_of_deletion(service: Service) -> bool:
    """Whether the condition speaks of a deletion, under way or failed."""
    return said_reason(service) in _OF_DELETION


def to_say(
    service: Service, status: str, reason: Reason, message: str, now: datetime
) -> Condition | None:
    """The condition to write, or None if the Service says so already.

    The time of transition is `now` only if the status changes.
    """
    current = said(service)
    if current and (current.status, current.reason, current.message) == (status, reason, message):
        return None
    since = current.last_transition_time if current and current.status == status else None
    return Condition(CONDITION, status, reason.value, message, since or now)
