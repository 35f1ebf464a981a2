"""Map AWS' error codes to the framework's errors."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from botocore import exceptions

from proreus.cloudprovider.errors import CallTimeout, CloudError, Unauthenticated
from proreus.cloudprovider.refused import ErrorBody, Reason, cloud_error

THROTTLING = frozenset(
    {
        "BandwidthLimitExceeded",
        "EC2ThrottledException",
        "PriorRequestNotComplete",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "Throttling",
        "ThrottledException",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
"""Codes of a quota that is used up."""
RIGHTS = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
"""Codes of a right that the credentials lack, which is so until somebody gives it to them."""
AUTHENTICATION = RIGHTS | {
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "MissingAuthenticationToken",
    "OptInRequired",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
}
"""Codes of credentials that are wrong or lack a right."""
# EC2 appends kilobytes that only a right of its own can decode; and where a signature is wrong, AWS
# repeats what was signed, with the session's token.
_APPENDED = re.compile(
    r"\s*(?:Encoded authorization failure message:"
    r"|The (?:Canonical String|String-to-Sign|canonical string)\b).*",
    re.DOTALL,
)


class LacksRight(Unauthenticated):
    """The error when the credentials lack a right.

    Others, such as of a token that has ended or a clock that is wrong, say nothing of rights.
    """


def translated(call: str, error: Exception) -> CloudError:
    """Return the framework's error for an error of botocore."""
    if isinstance(error, exceptions.ClientError):
        return _answered(call, error.response)
    if isinstance(error, exceptions.ConnectTimeoutError | exceptions.ReadTimeoutError):
        return CallTimeout(f"{call}: no answer in time, the outcome is unknown")
    if isinstance(
        error,
        exceptions.NoCredentialsError
        | exceptions.PartialCredentialsError
        | exceptions.CredentialRetrievalError
        | exceptions.TokenRetrievalError,
    ):
        return Unauthenticated(
            f"{call}: no credentials ({type(error).__name__}): give the pod or this machine a role"
        )
    if isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError):
        return CloudError(f"{call}: no answer ({type(error).__name__})")
    # Its text may hold parameters.
    return CloudError(f"{call}: {type(error).__name__}")


def status_of(error: Exception) -> int:
    """Return the HTTP status of an error of botocore; 0 if there was no answer."""
    if not isinstance(error, exceptions.ClientError):
        return 0
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _answered(call: str, response: Mapping[str, Any]) -> CloudError:
    error_fields = response.get("Error", {})
    metadata = response.get("ResponseMetadata", {})
    code, status = str(error_fields.get("Code", "")), int(metadata.get("HTTPStatusCode", 0))
    full = _APPENDED.sub("", str(error_fields.get("Message", "")))
    reason = None if status == HTTPStatus.TOO_MANY_REQUESTS else _reason(code)
    after = str(metadata.get("HTTPHeaders", {}).get("retry-after", ""))
    error = cloud_error(
        call,
        status,
        ErrorBody(code, full, reason),
        after=float(after) if after.isdecimal() else None,
    )
    is_right = isinstance(error, Unauthenticated) and code in RIGHTS
    return LacksRight(str(error)) if is_right else error


def _reason(code: str) -> Reason:
    """Return the reason for an AWS error code, which the HTTP status hardly shows."""
    if code in THROTTLING:
        return Reason.TOO_MANY_REQUESTS
    return Reason.FORBIDDEN if code in AUTHENTICATION else Reason.UNKNOWN
