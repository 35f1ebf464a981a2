"""Read the errors of a vCenter: faults of SOAP, and errors of its REST API."""

from typing import Any, Final

from proreus.cloudprovider.refused import ErrorBody, Reason
from proreus.cloudprovider.requests import Answer
from proreus.providers.vsphere.soap import fault

NOT_AUTHENTICATED: Final = "NotAuthenticated"
"""The fault of a session that has ended."""
INVALID_LOGIN: Final = "InvalidLogin"
GONE: Final = "ManagedObjectNotFound"

_REASONS: Final = {
    GONE: Reason.NOT_FOUND,
    INVALID_LOGIN: Reason.UNAUTHORIZED,
    "NoPermission": Reason.FORBIDDEN,
    # A session of its own is begun for it, and what was asked is asked again (`vcenter`).
    NOT_AUTHENTICATED: Reason.UNKNOWN,
}
_REMEDIES: Final = {
    INVALID_LOGIN: "check user and password of this vCenter in the cloud-config or in its Secret",
}


def read_error(answer: Answer) -> ErrorBody | None:
    """Parse an answer of 300 and above of the SOAP API; None if no vCenter wrote it."""
    found = fault(answer)
    if found is None:
        return None
    text = found.text
    if found.privilege:
        text = f"{text}: the account lacks the privilege {found.privilege}"
    if found.name in _REMEDIES:
        text = f"{text}: {_REMEDIES[found.name]}"
    return ErrorBody(found.name, text, _REASONS.get(found.name, Reason.UNKNOWN))


def read_rest_error(answer: Answer) -> ErrorBody | None:
    """Parse an error of the REST API: `/api` has the error itself, `/rest` wraps it in `value`."""
    content = answer.json(dict[str, Any])
    inner = content.get("value")
    said: dict[str, Any] = inner if isinstance(inner, dict) else content
    code = said.get("error_type") or content.get("type")
    if not code:
        return None
    texts = said.get("messages")
    messages = [
        str(one.get("default_message", ""))
        for one in (texts if isinstance(texts, list) else ())
        if isinstance(one, dict)
    ]
    return ErrorBody(str(code), " ".join(messages))
