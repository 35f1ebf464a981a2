"""Read the errors of Photon Controller and of Lightwave. Pure."""

from typing import Final

import msgspec

from proreus.cloudprovider.refused import ErrorBody, Reason
from proreus.cloudprovider.requests import Answer

VM_NOT_FOUND: Final = "VmNotFound"
"""The only code that says that a machine is gone; NotFound also stands for projects and pages."""

_REASONS: Final = {
    VM_NOT_FOUND: Reason.NOT_FOUND,
    "TooManyRequests": Reason.TOO_MANY_REQUESTS,
    # A 404 of something else than a machine, such as a page of a list that was kept too long.
    "NotFound": Reason.UNKNOWN,
    "PageExpired": Reason.UNKNOWN,
    # A 403, although every right is there.
    "SystemPaused": Reason.UNKNOWN,
}
_REMEDIES: Final = {
    "MissingAuthToken": "set authentication = true in the cloud-config, and give the login file",
    "AccessForbidden": "the user must be in a security group of the project",
}


class ApiError(msgspec.Struct, frozen=True):
    """An error as Photon Controller describes it, in an answer or in a step of a task."""

    code: str
    message: str | None = None


class _OAuthError(msgspec.Struct, frozen=True):
    error: str
    error_description: str | None = None


def read_error(answer: Answer) -> ErrorBody | None:
    """Parse an answer of 300 and above of Photon Controller.

    Raises:
        CloudError: Photon Controller did not write it.
    """
    return error_body(answer.json(ApiError))


def error_body(error: ApiError) -> ErrorBody:
    """Return what an error means; a status beside it tells where the code does not."""
    text = error.message or ""
    if remedy := _REMEDIES.get(error.code):
        text = f"{text}: {remedy}"
    reason = _REASONS.get(error.code)
    if reason is None and error.code.endswith("NotFound"):
        reason = Reason.UNKNOWN
    return ErrorBody(error.code, text, reason)


def read_oauth_error(answer: Answer) -> ErrorBody | None:
    """Parse an error of Lightwave's token endpoint (RFC 6749, 5.2).

    Raises:
        CloudError: Lightwave did not write it.
    """
    said = answer.json(_OAuthError)
    refused = said.error in {"invalid_grant", "invalid_client", "access_denied"}
    text = said.error_description or ""
    if refused:
        text = f"{text}: check user and password in the login file"
    return ErrorBody(said.error, text, Reason.UNAUTHORIZED if refused else None)
