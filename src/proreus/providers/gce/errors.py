"""Read the bodies of Google's errors, and the errors with which operations end."""

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.refused import ErrorBody, Reason, Refused, cloud_error
from proreus.cloudprovider.requests import Answer

EXISTS: Final = "alreadyExists"
IN_USE: Final = frozenset({"resourceInUseByAnotherResource", "resourceInUse"})
ADDRESS_IN_USE: Final = frozenset({"ipInUseByAnotherResource", "IP_IN_USE_BY_ANOTHER_RESOURCE"})
"""Something else has the address that a forwarding rule is to have: a machine, or another rule."""
NOT_READY: Final = "resourceNotReady"
FORBIDDEN: Final = "forbidden"
NOT_FOUND: Final = "notFound"

_RATE: Final = frozenset({"rateLimitExceeded", "userRateLimitExceeded"})
_QUOTA: Final = "quotaExceeded"
_NAMED: Final = re.compile(r"'(?:https?://[^']*?/)?projects/[^/']+/([^']+)'")
_ALIASES: Final = {"resourceNotFound": NOT_FOUND, "resourceAlreadyExists": EXISTS}


class _One(msgspec.Struct, frozen=True):
    reason: str = ""


class _Error(msgspec.Struct, frozen=True):
    message: str
    errors: tuple[_One, ...] = ()
    status: str = ""


class _Body(msgspec.Struct, frozen=True):
    error: _Error


def read_error(answer: Answer) -> ErrorBody | None:
    """Parse an answer of 300 and above; return None if Google did not write it.

    Absence is only what Google says of the very resource that was asked for: not of its project,
    nor of something else that a request names.
    """
    try:
        said = answer.json(_Body).error
    except CloudError:
        return None
    reason = said.errors[0].reason if said.errors else said.status
    body = ErrorBody(reason, said.message)
    if reason in _RATE:
        return msgspec.structs.replace(body, reason=Reason.TOO_MANY_REQUESTS)
    if reason == _QUOTA:
        return msgspec.structs.replace(body, reason=Reason.UNKNOWN)
    if answer.status == HTTPStatus.NOT_FOUND and not _is_about(said.message, answer.request.url):
        return msgspec.structs.replace(body, reason=Reason.UNKNOWN)
    return body


def read_error_of_firewalls(answer: Answer) -> ErrorBody | None:
    """Parse an answer as `read_error`; a right that is missing is no wrong credential.

    The rights to change the firewall of a shared network may be others' alone.
    """
    body = read_error(answer)
    if body is not None and body.code == FORBIDDEN:
        return msgspec.structs.replace(body, reason=Reason.UNKNOWN)
    return body


def is_forbidden(error: CloudError) -> bool:
    """Tell whether the account lacks the right to change a firewall (`read_error_of_firewalls`)."""
    return isinstance(error, Refused) and error.code == FORBIDDEN


def _is_about(message: str, url: str) -> bool:
    """Tell whether a message names the resource at a URL; the project may have another name."""
    path = url.partition("projects/")[2].partition("/")[2]
    found = _NAMED.search(message)
    return found is not None and bool(path) and found[1] == path


def operation_error(name: str, status: int, errors: Sequence[Mapping[str, Any]]) -> CloudError:
    """Make the error of an operation that has failed. Pure.

    Args:
        name: The name of the call that began the operation.
        status: The HTTP status that Google says for it, or 0.
        errors: The errors of the operation.
    """
    code = _camel(str(errors[0].get("code", "")))
    message = "; ".join(str(one.get("message", "")) for one in errors)
    # Nothing is gone because an operation on it failed.
    reason = Reason.TOO_MANY_REQUESTS if code in _RATE else Reason.UNKNOWN
    return cloud_error(name, status, ErrorBody(_ALIASES.get(code, code), message, reason))


def _camel(code: str) -> str:
    """Return a code of an operation as answers have it."""
    first, *rest = code.lower().split("_")
    return first + "".join(word.capitalize() for word in rest)
