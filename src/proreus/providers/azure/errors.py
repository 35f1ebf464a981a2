"""Read the bodies of Azure's errors, all of one form."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from proreus.cloudprovider.errors import CallTimeout, CloudError, Throttled, Unauthenticated
from proreus.cloudprovider.refused import ErrorBody, Reason, Refused
from proreus.cloudprovider.requests import Answer

ABSENCES: Final = frozenset(
    {"NotFound", "ParentResourceNotFound", "ResourceGroupNotFound", "ResourceNotFound"}
)
"""Codes of a resource that does not exist. That of a missing subscription is none of them: a
wrong credential is answered so, too."""
_GONE: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})
_THROTTLES: Final = frozenset({"OperationNotAllowed", "SubscriptionRequestsThrottled"})
BUSY: Final = frozenset(
    {"AnotherOperationInProgress", "CanceledAndSupersededDueToAnotherOperation",
     "ReferencedResourceNotProvisioned", "RetryableError"}
)  # fmt: skip
"""Codes of a resource that is being changed."""
_INTERNAL: Final = frozenset(
    {"Canceled", "Failed", "InternalError", "InternalExecutionError", "InternalServerError",
     "NetworkingInternalOperationError", "OperationTimedOut", "ServerTimeout", "ServiceUnavailable"}
)  # fmt: skip
"""Codes with which an operation ends that failed for no fault of what was asked for."""
_OF_REQUESTS: Final = frozenset({"LinkedAuthorizationFailed", "RequestDisallowedByPolicy"})
"""Codes of a 403 for what a request asks for or names: the credentials are good for others."""
_LOGIN: Final = frozenset({"invalid_client", "invalid_grant", "unauthorized_client"})


_CLOCK: Final = re.compile(r"(\d{1,2}):(\d{2}):(\d{2})(?:\.\d+)?")


class _Said(msgspec.Struct):
    code: str = ""
    message: str = ""


class _Arm(msgspec.Struct):
    error: _Said


class _Login(msgspec.Struct):
    error: str
    error_description: str = ""


def read_error(answer: Answer) -> ErrorBody | None:
    """Parse an answer of 300 and above; return None if Azure has not written it."""
    try:
        said = answer.json(_Arm).error
    except CloudError:
        return _read_login(answer)
    parsed = error_body(said.code, said.message, answer.status)
    return parsed and msgspec.structs.replace(parsed, after=resets_after(answer.headers))


def error_body(code: str, message: str, status: int = 0) -> ErrorBody | None:
    """Return what an error of Azure means, in an answer or at the end of an operation."""
    if not code:
        return None
    reason: Reason | None = None
    if status in _GONE or code in ABSENCES:
        reason = Reason.NOT_FOUND if code in ABSENCES else Reason.UNKNOWN
    elif code == "PreconditionFailed":
        reason = Reason.PRECONDITION_FAILED
    elif code in BUSY:
        reason = Reason.CONFLICT
    elif code in _OF_REQUESTS:
        reason = Reason.INVALID
    elif status == HTTPStatus.CONFLICT and code in _THROTTLES and "429" in message:
        reason = Reason.TOO_MANY_REQUESTS
    return ErrorBody(code, message, reason)


def is_everyones(error: CloudError) -> bool:
    """Tell whether Azure has refused for a reason that is not what was asked for.

    An operation that fails in the end has no status, and its code tells.
    """
    if isinstance(error, CallTimeout | Throttled | Unauthenticated):
        return True
    if not isinstance(error, Refused) or error.reason is not Reason.UNKNOWN:
        return False
    return bool(error.status) or error.code in _INTERNAL


def resets_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds after which the quota of Azure Resource Graph begins anew, if it says so.

    https://learn.microsoft.com/azure/governance/resource-graph/concepts/guidance-for-throttled-requests
    """
    found = _CLOCK.fullmatch(headers.get("x-ms-user-quota-resets-after", ""))
    if found is None:
        return None
    hours, minutes, seconds = (int(part) for part in found.groups())
    return hours * 3600.0 + minutes * 60.0 + seconds


def _read_login(answer: Answer) -> ErrorBody | None:
    try:
        said = answer.json(_Login)
    except CloudError:
        return None
    # Entra answers 400 or 401 where a credential is wrong; nothing renews one that the file has.
    reason = Reason.FORBIDDEN if said.error in _LOGIN else None
    if answer.status in _GONE:
        # Gateways write this form, too; Azure's word for a resource has another one.
        reason = Reason.UNKNOWN
    return ErrorBody(said.error, said.error_description, reason)
