"""Read the errors of an engine: of its API in XML, of its single sign-on in JSON. Pure."""

from typing import Any, Final

from proreus.cloudprovider.refused import ErrorBody, Reason
from proreus.cloudprovider.requests import Answer

NOT_FOUND: Final = 404
BAD_CREDENTIALS: Final = frozenset({"access_denied", "invalid_grant"})
"""What single sign-on calls a user or a password that is wrong, or an account that is locked."""
_FORBIDDEN: Final = "insufficient permissions"


def read_error(answer: Answer) -> ErrorBody | None:
    """Parse an error of the API; None if the engine has not written it.

    That there is no such object the engine says with the status alone, and nothing in the body:
    where it is not installed or begins to run, the server before it answers with a page.
    """
    if not answer.body.strip():
        return ErrorBody(reason=Reason.NOT_FOUND) if answer.status == NOT_FOUND else None
    root = answer.xml()
    if root.tag != "fault":
        return None
    detail = (root.findtext("detail") or "").strip()
    reason = Reason.FORBIDDEN if _FORBIDDEN in detail.lower() else None
    return ErrorBody((root.findtext("reason") or "").strip(), detail, reason)


def read_sso_error(answer: Answer) -> ErrorBody | None:
    """Parse an error of single sign-on, which comes in two forms, with the status 400."""
    said = answer.json(dict[str, Any])
    code, text = said.get("error_code"), said.get("error")
    if code is None:
        code, text = text, said.get("error_description")
    return ErrorBody(str(code), str(text or "")) if code else None
