"""What AWS' error codes mean to the framework."""

import re
from collections.abc import Mapping
from typing import Any

from botocore import exceptions

from proreus.cloudprovider.errors import CallTimeout, CloudError, Throttled, Unauthenticated

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
AUTHENTICATION = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
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
        "UnauthorizedOperation",
        "UnrecognizedClientException",
    }
)
"""Codes of credentials that are wrong or lack a right."""
_TOO_MANY_REQUESTS = 429
_LONGEST = 500
# EC2 appends kilobytes that only a right of its own can decode.
_ENCODED = re.compile(r"\s*Encoded authorization failure message:.*", re.DOTALL)


class Refused(CloudError):
    """AWS answered with an error that is neither throttling nor about credentials.

    Attributes:
        code: AWS' own word, such as `InvalidInstanceID.NotFound`.
        text: What AWS says beside it.
        status: The HTTP status.
    """

    def __init__(self, message: str, *, code: str, text: str, status: int) -> None:
        """Keep them."""
        super().__init__(message)
        self.code = code
        self.text = text
        self.status = status


def translated(call: str, error: Exception) -> CloudError:
    """The framework's error for what botocore raised; `call` is such as ec2.DescribeInstances."""
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
    """The HTTP status of the answer that botocore raised; 0 if there was none."""
    if not isinstance(error, exceptions.ClientError):
        return 0
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _answered(call: str, response: Mapping[str, Any]) -> CloudError:
    said = response.get("Error", {})
    metadata = response.get("ResponseMetadata", {})
    code, status = str(said.get("Code", "")), int(metadata.get("HTTPStatusCode", 0))
    full = _ENCODED.sub("", str(said.get("Message", "")))
    message = f"{call}: {code}: {full[:_LONGEST]}"
    if code in THROTTLING or status == _TOO_MANY_REQUESTS:
        after = str(metadata.get("HTTPHeaders", {}).get("retry-after", ""))
        return Throttled(message, after=float(after) if after.isdecimal() else None)
    if code in AUTHENTICATION:
        return Unauthenticated(message)
    return Refused(message, code=code, text=full, status=status)
