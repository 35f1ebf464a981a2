"""Read the bodies of Rackspace's errors: those of Nova, and those of Cloud Load Balancers. Pure."""

from http import HTTPStatus
from typing import Any, Final

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.refused import ErrorBody, Reason, Refused
from proreus.cloudprovider.requests import Answer
from proreus.providers.nova.errors import read_error as read_nova_error

_AT_WORK: Final = ("immutable", "is unprocessable", "is not active")
"""Parts of what Cloud Load Balancers say while they work on a change; 422 has others, too."""


def read_error(answer: Answer) -> ErrorBody | None:
    """Parse an answer of 300 and above; return None if no service of Rackspace wrote it.

    Cloud Load Balancers answer 413 for a rate, with a time to wait, and for a limit of the account,
    which no waiting changes.
    """
    found = _clb(answer) or read_nova_error(answer)
    if found is not None and answer.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        is_rate = "Retry-After" in answer.headers or "retry" in found.message.lower()
        reason = Reason.TOO_MANY_REQUESTS if is_rate else Reason.UNKNOWN
        return ErrorBody(found.code, found.message, reason)
    return found


def is_immutable(error: Refused) -> bool:
    """Tell whether a load balancer refuses a change only because it is busy with another one.

    Most refusals have the status 422; a load balancer that is deleted refuses with 400.
    """
    words = error.text.lower()
    if error.status == HTTPStatus.UNPROCESSABLE_ENTITY:
        return any(part in words for part in _AT_WORK)
    return error.status == HTTPStatus.BAD_REQUEST and "are immutable" in words


def is_gone(error: Refused) -> bool:
    """Tell whether there is no such object (any more)."""
    is_unknown = error.status == HTTPStatus.BAD_REQUEST and "could not be found" in error.text
    return error.is_absence or is_unknown


def _clb(answer: Answer) -> ErrorBody | None:
    """Parse the fault of Cloud Load Balancers, with all that their validation says."""
    try:
        content = answer.json(dict[str, Any])
    except CloudError:
        return None
    if not isinstance(content.get("message"), str) or "code" not in content:
        return None
    wrong = content.get("validationErrors")
    told = wrong.get("messages") if isinstance(wrong, dict) else None
    texts = [content["message"], *(told if isinstance(told, list) else ())]
    if not told and content.get("details"):
        texts.append(str(content["details"]))
    return ErrorBody("", "; ".join(map(str, texts)))
