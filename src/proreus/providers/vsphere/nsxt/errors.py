"""Read errors of NSX-T's policy API. Pure.

Codes are those of the policy API's own messages (module `policy`).
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.refused import ErrorBody, Reason, Refused
from proreus.cloudprovider.requests import Answer

BAD_PATH: Final = "500012"
"""There is nothing at a path, such as that of an object's parent."""
IN_USE: Final = "500030"
"""The object cannot be deleted, since it has children or is referred to."""
PENDING_DELETE: Final = "500045"
"""An object of the same path was deleted, and is purged within five minutes."""
REVISION: Final = "604"
"""The object has changed since it was read."""
GONE: Final = "500090"
"""The object was deleted since it was read."""

_WRONG: Final = "credentials were incorrect"
"""What a wrong password is answered with, with the status and the code of a missing right."""

_REASONS: Final[Mapping[str, Reason]] = {
    IN_USE: Reason.CONFLICT,
    PENDING_DELETE: Reason.CONFLICT,
    REVISION: Reason.PRECONDITION_FAILED,
    GONE: Reason.PRECONDITION_FAILED,
}


def read_error(answer: Answer) -> ErrorBody | None:
    """Parse an answer that is an error; return None if NSX-T has not written it.

    What is beyond the limits of requests is told in plain words by the server before it.
    """
    if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
        # The limit of all requests at once (NSX-T API guide, "API rate limits").
        return ErrorBody(message=answer.text(), reason=Reason.TOO_MANY_REQUESTS)
    try:
        content = answer.json(dict[str, Any])
    except CloudError:
        return None
    code = content.get("error_code")
    if not isinstance(code, int | str) or not code:
        return None
    related = content.get("related_errors")
    texts = [content, *(related if isinstance(related, list) else ())]
    messages = [str(one.get("error_message") or "") for one in texts if isinstance(one, Mapping)]
    message = "; ".join(filter(None, messages))
    if answer.status == HTTPStatus.FORBIDDEN and _WRONG in message:
        return ErrorBody(str(code), message, Reason.UNAUTHORIZED)
    return ErrorBody(str(code), message, _REASONS.get(str(code)))


def is_busy(error: Refused) -> bool:
    """Tell whether the same request may succeed once something else is done."""
    return error.reason in {Reason.CONFLICT, Reason.PRECONDITION_FAILED}
