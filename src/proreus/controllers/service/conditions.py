"""The condition `LoadBalancerReady` of a Service: its reasons, and how it is made. Pure.

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
from proreus.kube.objects import Condition, Service, condition

CONDITION = "LoadBalancerReady"

NAMES_LIMIT: Final = 20
"""How many nodes a text names; as the Go controller."""


class Reason(StrEnum):
    """Every reason the condition can have; the list is closed."""

    PROVISIONING = "Provisioning"
    """The load balancer is being made or changed."""
    ENSURED = "Ensured"
    """All is well: the load balancer is as the Service says."""
    HOSTS_REJECTED = "HostsRejected"
    """It works, but the cloud refused some nodes as its targets; the message names them."""
    NO_HOSTS = "NoHosts"
    """It stands, but no node can be its target."""
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
    """The same as `Throttled`, while the load balancer is deleted."""
    DELETE_UNAUTHENTICATED = "DeleteUnauthenticated"
    """The same as `Unauthenticated`, while the load balancer is deleted."""
    DELETE_CALL_TIMEOUT = "DeleteCallTimeout"
    """The same as `CallTimeout`, while the load balancer is deleted."""
    DELETE_IDENTITY_CONFLICT = "DeleteIdentityConflict"
    """The same as `IdentityConflict`, while the load balancer is deleted."""
    DELETE_NOT_SUPPORTED = "DeleteNotSupported"
    """The same as `NotSupported`, while the load balancer is deleted."""
    DELETE_INVALID_REQUEST = "DeleteInvalidRequest"
    """The same as `InvalidRequest`, while the load balancer is deleted."""
    DELETE_CONFIG_ERROR = "DeleteConfigError"
    """The same as `ConfigError`, while the load balancer is deleted."""
    DELETE_CLOUD_ERROR = "DeleteCloudError"
    """The same as `CloudError`, while the load balancer is deleted."""


IN_PLACE = frozenset({Reason.ENSURED, Reason.HOSTS_REJECTED, Reason.NO_HOSTS})
"""The load balancer is as wished."""


class Says(msgspec.Struct, frozen=True):
    """What the condition says; `status` is "True", "False" or "Unknown"."""

    status: str
    reason: Reason
    message: str


ELSEWHERE = Says(
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


def readiness(hosts: Sequence[Host], rejected: Mapping[str, str]) -> Says:
    """What is said of a load balancer that is as wished; `rejected` are reasons by node."""
    if not hosts:
        return Says("False", Reason.NO_HOSTS, "There are no available nodes for LoadBalancer")
    if not rejected:
        return Says("True", Reason.ENSURED, "Ensured load balancer")
    named = [f"{node} ({why})" for node, why in sorted(rejected.items())[:NAMES_LIMIT]]
    if len(rejected) > NAMES_LIMIT:
        named.append(f"and {len(rejected) - NAMES_LIMIT} more")
    status = "False" if all(host.node in rejected for host in hosts) else "True"
    text = scrub(f"The cloud did not accept these nodes as hosts: {', '.join(named)}")
    return Says(status, Reason.HOSTS_REJECTED, text)


def is_said(service: Service, says: Says) -> bool:
    """Whether the Service says so already."""
    current = said(service)
    return current is not None and (
        (current.status, current.reason, current.message)
        == (says.status, says.reason, says.message)
    )


def to_say(service: Service, says: Says, now: datetime) -> Condition | None:
    """The condition to write, or None if the Service says so already.

    The time of transition is `now` only if the status changes.
    """
    if is_said(service, says):
        return None
    current = said(service)
    since = current.last_transition_time if current and current.status == says.status else None
    return Condition(CONDITION, says.status, says.reason.value, says.message, since or now)
