"""Read the bodies of OpenStack's errors, of which each service has a form of its own."""

from http import HTTPStatus
from typing import Any

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.refused import ErrorBody, Reason
from proreus.cloudprovider.requests import Answer


def read_error(answer: Answer) -> ErrorBody | None:
    """Parse an answer of 300 and above; return None if no service of OpenStack wrote it."""
    said = _said(answer)
    if said is None:
        return None
    code, text = said
    is_limit = code in {"overLimit", "OverLimit"}
    if answer.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE and is_limit:
        return ErrorBody(code, text, Reason.TOO_MANY_REQUESTS)
    if answer.status == HTTPStatus.FORBIDDEN and "quota" in text.lower():
        return ErrorBody(code, text, Reason.UNKNOWN)
    return ErrorBody(code, text)


def _said(answer: Answer) -> tuple[str, str] | None:
    """Return the service's code for an error, and its text."""
    try:
        content = answer.json(dict[str, Any])
    except CloudError:
        return None
    if "faultstring" in content:
        return str(content.get("faultcode", "")), str(content["faultstring"])
    for kind, text in content.items():
        if isinstance(text, dict) and "message" in text:
            named: Any = text.get("type") or (kind if kind != "error" else text.get("title"))
            return str(named or ""), str(text["message"])
        if kind in {"NeutronError", "message"} and isinstance(text, str):
            return "", text
    # Octavia's, of what lies below something that is not there.
    return ("", str(content["description"])) if content.get("description") else None
