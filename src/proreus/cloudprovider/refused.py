"""Map a cloud's HTTP errors to the framework's errors. Pure.

A cloud reports an error by a status and a body of its own form. The provider reads the body
(`ErrorBody`); what status and body mean is decided here, for all clouds alike.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from html import escape
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, quote_plus

import msgspec

from proreus.cloudprovider.errors import CloudError, Throttled, Unauthenticated
from proreus.cloudprovider.requests import Answer

LONGEST_TEXT: Final = 500
"""Letters of a cloud's text that go into an error, which ends in events and conditions."""
_AS_GO: Final = {ord(one): f"\\u{ord(one):04x}" for one in "<>&"}
SHORTEST_SECRET: Final = 8
"""Letters that a header's value must have to be taken out of texts."""


class Reason(StrEnum):
    """The reason why a cloud refused, in Kubernetes' words (`metav1.StatusReason`)."""

    TOO_MANY_REQUESTS = "TooManyRequests"
    UNAUTHORIZED = "Unauthorized"
    """The credential does not count, or not any more: a new one may."""
    FORBIDDEN = "Forbidden"
    NOT_FOUND = "NotFound"
    """The cloud itself says that there is no such object."""
    CONFLICT = "Conflict"
    PRECONDITION_FAILED = "PreconditionFailed"
    """The object has changed since: observe again."""
    INVALID = "Invalid"
    UNKNOWN = "Unknown"


_REASONS: Final[Mapping[int, Reason]] = {
    HTTPStatus.BAD_REQUEST: Reason.INVALID,
    HTTPStatus.UNAUTHORIZED: Reason.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN: Reason.FORBIDDEN,
    HTTPStatus.NOT_FOUND: Reason.NOT_FOUND,
    HTTPStatus.CONFLICT: Reason.CONFLICT,
    HTTPStatus.GONE: Reason.NOT_FOUND,
    HTTPStatus.PRECONDITION_FAILED: Reason.PRECONDITION_FAILED,
    HTTPStatus.UNPROCESSABLE_ENTITY: Reason.INVALID,
    HTTPStatus.TOO_MANY_REQUESTS: Reason.TOO_MANY_REQUESTS,
}


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of a cloud's error, parsed.

    Attributes:
        code: The cloud's code for the error, such as "InvalidInstanceID.NotFound", or "".
        message: The text of the error.
        reason: The reason of the error, where the HTTP status does not say it, such as a quota that
            is reported with a 403; None: by the status.
        after: Seconds to wait, where no header `Retry-After` says how long.
    """

    code: str = ""
    message: str = ""
    reason: Reason | None = None
    after: float | None = None


ReadError = Callable[[Answer], ErrorBody | None]
"""Reads the body of an error. None, or a CloudError that it raises, says that these are not the
cloud's own words, but a proxy's for instance."""


class Refused(CloudError):
    """The error of a cloud that is neither about its quota nor about credentials.

    Attributes:
        status: The HTTP status; 0 where there is none.
        code: The cloud's code for the error, or "".
        text: The cloud's text beside the code, in full.
        reason: The reason of the error. Absence is `NOT_FOUND`, never the status 404 alone.
        after: Seconds that the cloud asks to wait, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str = "",
        text: str = "",
        reason: Reason = Reason.UNKNOWN,
        after: float | None = None,
    ) -> None:
        """Keep what the cloud answered."""
        super().__init__(message)
        self.status = status
        self.code = code
        self.text = text
        self.reason = reason
        self.after = after

    @property
    def is_absence(self) -> bool:
        """Whether the cloud itself says that there is no such object."""
        return self.reason is Reason.NOT_FOUND


def reason_of(status: int, parsed: ErrorBody | None) -> Reason:
    """Return what an HTTP error means.

    `parsed` is None if the body is not in the cloud's own form.
    """
    if parsed is not None and parsed.reason is not None:
        return parsed.reason
    found = _REASONS.get(status, Reason.UNKNOWN)
    # A proxy that answers 404 to everything must not make machines look gone.
    return Reason.UNKNOWN if found is Reason.NOT_FOUND and parsed is None else found


def cloud_error(
    name: str,
    status: int,
    parsed: ErrorBody | None,
    *,
    text: str = "",
    after: float | None = None,
    secrets: Iterable[str] = (),
) -> CloudError:
    """Make the error for a refusal, in an answer or at the end of an operation.

    Args:
        name: The name of the call, such as "compute.instances.get".
        status: The HTTP status, or 0.
        parsed: The body as parsed, or None if it is not in the cloud's own form.
        text: The body where `parsed` is None.
        after: Seconds to wait, from the headers.
        secrets: The texts that the error must not contain although the cloud repeats them.

    Returns:
        A Throttled, Unauthenticated or Refused error.
    """
    after = after if parsed is None or after is not None else parsed.after
    reason, body = reason_of(status, parsed), parsed or ErrorBody(message=_plain(text))
    hidden = _forms(secrets)
    # Once as it came, and once in one line, in which a text with other blanks is another one.
    full = _without(hidden, " ".join(_without(hidden, body.message).split()))
    words = [str(part) for part in (status, _without(hidden, body.code)) if part]
    message = f"{name}: {' '.join(words)}: {full[:LONGEST_TEXT] or 'no reason given'}"
    if reason is Reason.TOO_MANY_REQUESTS:
        return Throttled(message, after=after)
    if reason in {Reason.UNAUTHORIZED, Reason.FORBIDDEN}:
        return Unauthenticated(message)
    return Refused(message, status=status, code=body.code, text=full, reason=reason, after=after)


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds to wait that an answer's Retry-After asks for.

    `Retry-After` is a number or a time (RFC 9110, 10.2.3); Azure has headers in milliseconds.
    """
    for name in ("x-ms-retry-after-ms", "retry-after-ms"):
        if (value := headers.get(name, "")) and value.isascii() and value.isdecimal():
            return int(value) / 1000
    value = headers.get("Retry-After", "")
    if value.isascii() and value.isdecimal():
        return float(value)
    try:
        return max((parsedate_to_datetime(value) - now).total_seconds(), 0.0)
    except (TypeError, ValueError):  # no time, or one without a zone
        return None


def _plain(text: str) -> str:
    """Return the text, unless it is a page of HTML."""
    return "" if "<" in text else text


def _forms(secrets: Iterable[str]) -> Sequence[str]:
    """Return the secrets in all forms in which a cloud may repeat them, the longest first."""
    found: set[str] = set()
    for secret in secrets:
        if len(secret) >= SHORTEST_SECRET:
            found |= {secret, " ".join(secret.split()), quote(secret), quote(secret, safe="")}
            found |= {quote_plus(secret), escape(secret), escape(secret, quote=False)}
            for is_ascii in (True, False):
                text = json.dumps(secret, ensure_ascii=is_ascii)[1:-1]
                # Go writes these so, and what is sent may be escaped twice.
                found |= {text, json.dumps(text, ensure_ascii=is_ascii)[1:-1]}
                found |= {text.translate(_AS_GO), escape(text, quote=False)}
    return sorted(found, key=len, reverse=True)


def _without(hidden: Iterable[str], text: str) -> str:
    for one in hidden:
        if one in text:
            text = text.replace(one, "***")
    return text
