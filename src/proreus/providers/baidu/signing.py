"""Sign requests as Baidu AI Cloud checks them: bce-auth-v1. Pure."""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import Final
from urllib.parse import quote

import msgspec

from proreus.providers.baidu.config import Credentials

LIFETIME: Final = 1800
"""Seconds after which a signature counts no more: as with the vendor's SDKs."""
DATE: Final = "x-bce-date"
TOKEN: Final = "x-bce-security-token"  # noqa: S105 - the name of a header
"""Headers: the time of a request, and the token of a temporary key."""


class Signable(msgspec.Struct, frozen=True):
    """The parts of a request that are signed.

    Attributes:
        method: The HTTP method.
        host: The host, with its port where it is not the scheme's own.
        path: The path, not percent-encoded.
        query: The parameters of the query.
    """

    method: str
    host: str
    path: str
    query: Mapping[str, str]


def canonical(method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]) -> str:
    """Return the text that is signed for a request: its parts in a fixed order.

    Args:
        method: The HTTP method.
        path: The path, not percent-encoded.
        query: The parameters of the query.
        headers: The headers that are signed, by their names in small letters.
    """
    pairs = sorted(f"{_quoted(name)}={_quoted(value)}" for name, value in query.items())
    lines = sorted(f"{_quoted(name)}:{_quoted(value.strip())}" for name, value in headers.items())
    return "\n".join((method, quote(path, safe="/~"), "&".join(pairs), "\n".join(lines)))


def authorization(
    request: str, names: Mapping[str, str], credentials: Credentials, now: datetime
) -> str:
    """Return the header Authorization.

    Args:
        request: The canonical form of the request.
        names: The headers that are signed.
        credentials: The key that signs.
        now: The time, in UTC.
    """
    prefix = f"bce-auth-v1/{credentials.access_key_id}/{timestamp(now)}/{LIFETIME}"
    key = _digest(credentials.secret_access_key, prefix)
    return f"{prefix}/{';'.join(sorted(names))}/{_digest(key, request)}"


def signed_headers(request: Signable, credentials: Credentials, now: datetime) -> dict[str, str]:
    """Return the headers that a request needs besides `Host`: time, token, signature.

    Args:
        request: The request to sign.
        credentials: The key that signs.
        now: The time, in UTC.
    """
    extra = {DATE: timestamp(now)}
    if credentials.session_token:
        extra[TOKEN] = credentials.session_token
    signed = {"host": request.host, **extra}
    text = canonical(request.method, request.path, request.query, signed)
    return {**extra, "Authorization": authorization(text, signed, credentials, now)}


def timestamp(now: datetime) -> str:
    """Return a time as the API writes it."""
    return f"{now:%Y-%m-%dT%H:%M:%SZ}"


def _digest(key: str, text: str) -> str:
    return hmac.new(key.encode(), text.encode(), hashlib.sha256).hexdigest()


def _quoted(text: str) -> str:
    return quote(text, safe="~")
