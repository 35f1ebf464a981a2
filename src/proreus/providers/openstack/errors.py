"""What OpenStack's errors mean to the framework."""

import json
from collections.abc import Mapping
from typing import Any

from keystoneauth1 import exceptions

from proreus.cloudprovider.errors import CallTimeout, CloudError, Throttled, Unauthenticated

_UNAUTHORIZED = 401
_FORBIDDEN = 403
_TOO_LARGE = 413
_TOO_MANY = 429
_LONGEST = 500


class Refused(CloudError):
    """OpenStack answered with an error that is neither throttling nor about credentials.

    Attributes:
        status: The HTTP status.
        kind: The service's own word for it, such as `RouterInvalidRoutes`, or "".
    """

    def __init__(self, message: str, *, status: int, kind: str) -> None:
        """Keep them."""
        super().__init__(message)
        self.status = status
        self.kind = kind


class TokenRefused(Unauthenticated):
    """The service does not take the token; a new one may do."""


def answered(call: str, status: int, headers: Mapping[str, str], body: str) -> CloudError:
    """The framework's error for an answer of 300 and above; `call` is such as nova.server_get."""
    kind, text = _said(body)
    message = (
        f"{call}: {status}{f' {kind}' if kind else ''}: {text[:_LONGEST] or 'no reason given'}"
    )
    is_quota = status == _TOO_LARGE and kind in {"overLimit", "OverLimit"}
    if status == _TOO_MANY or is_quota:
        after = headers.get("Retry-After", "")
        return Throttled(message, after=float(after) if after.isdecimal() else None)
    if status == _UNAUTHORIZED:
        return TokenRefused(message)
    if status == _FORBIDDEN and "quota" not in text.lower():
        return Unauthenticated(message)
    return Refused(message, status=status, kind=kind)


def translated(call: str, error: Exception) -> CloudError:
    """The framework's error for what keystoneauth raised."""
    if isinstance(error, exceptions.HttpError):
        response = error.response
        headers = getattr(response, "headers", {})
        body = getattr(response, "text", "") or ""
        found = answered(call, int(error.http_status or 0), headers, body)
        is_token = isinstance(found, TokenRefused)
        return Unauthenticated(str(found)) if is_token else found
    if isinstance(error, exceptions.ConnectTimeout):
        return CallTimeout(f"{call}: no answer in time, the outcome is unknown")
    if isinstance(error, exceptions.SSLError):
        return CloudError(
            f"{call}: the certificate is not trusted, or TLS failed: give ca-file in [Global]"
        )
    if isinstance(error, exceptions.CatalogException):
        return CloudError(f"{call}: {error}")
    # Other texts may hold addresses with parameters.
    return CloudError(f"{call}: no answer ({type(error).__name__})")


def _said(body: str) -> tuple[str, str]:
    """The service's word for an error, and its text: each service has a form of its own."""
    try:
        content = json.loads(body)
    except ValueError:
        return "", " ".join(body.split())[:_LONGEST] if "<" not in body else ""
    if not isinstance(content, dict):
        return "", ""
    if "faultstring" in content:
        return str(content.get("faultcode", "")), str(content["faultstring"])
    for kind, said in content.items():
        if isinstance(said, dict) and "message" in said:
            named: Any = said.get("type") or (kind if kind != "error" else said.get("title"))
            return str(named or ""), str(said["message"])
        if kind in {"NeutronError", "message"} and isinstance(said, str):
            return "", said
    # Octavia's, of what lies below something that is not there.
    return "", str(content.get("description") or "")
