"""Read errors of Baidu AI Cloud. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.refused import ErrorBody, Reason
from proreus.cloudprovider.requests import Answer

_REASONS: Final[Mapping[str, Reason]] = {
    **dict.fromkeys(
        (
            "InvalidAccessKeyId",
            "InvalidHTTPAuthHeader",
            "InvalidSessionToken",
            "RequestExpired",
            "SignatureDoesNotMatch",
            "Unauthorized",
        ),
        Reason.UNAUTHORIZED,
    ),
    **dict.fromkeys(("RequestLimited", "TooManyRequests"), Reason.TOO_MANY_REQUESTS),
    **dict.fromkeys(("PreconditionFailed",), Reason.PRECONDITION_FAILED),
    # With the status 404, and about the path of the API: no object is absent for it (Baidu AI
    # Cloud's table of common error codes).
    **dict.fromkeys(("InvalidURI", "InvalidVersion"), Reason.UNKNOWN),
}
_QUOTAS: Final = ("Exceed", "Quota", "LimitReached")
"""Parts of codes that say that an account may have no more of something."""


def read_error(answer: Answer) -> ErrorBody | None:
    """Parse an answer that is an error; return None if the cloud has not written it."""
    try:
        content = answer.json(dict[str, Any])
    except CloudError:
        return None
    code = content.get("code")
    if not isinstance(code, str) or not code:
        return None
    return ErrorBody(code, str(content.get("message") or ""), reason_for(code))


def reason_for(code: str) -> Reason | None:
    """Return the reason for an error code; None where the HTTP status tells it.

    A quota is told with several statuses, 403 among them, and is no lack of a right.
    """
    if code in _REASONS:
        return _REASONS[code]
    return Reason.UNKNOWN if any(part in code for part in _QUOTAS) else None
