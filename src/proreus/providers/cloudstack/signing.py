"""Sign requests as CloudStack checks them: HMAC-SHA1 over the sorted parameters. Pure."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote

LIFETIME: Final = timedelta(minutes=15)
"""After so long a signed request counts no more: as with CloudStack's SDK for Go."""


def signature(parameters: Mapping[str, str], secret: str) -> str:
    """Return the signature of a request.

    CloudStack sorts the parameters by name, encodes their values as Java does and takes the whole
    in small letters.
    """
    text = "&".join(f"{name}={_encoded(parameters[name])}" for name in sorted(parameters))
    digest = hmac.new(secret.encode(), text.lower().encode(), hashlib.sha1)
    return base64.b64encode(digest.digest()).decode()


def signed(
    parameters: Mapping[str, str], *, api_key: str, secret: str, now: datetime
) -> dict[str, str]:
    """Return the parameters of a request with key, time of expiry and signature."""
    whole = {
        **parameters,
        "apikey": api_key,
        "response": "json",
        "signatureversion": "3",
        "expires": f"{now + LIFETIME:%Y-%m-%dT%H:%M:%S}+0000",
    }
    return {**whole, "signature": signature(whole, secret)}


def _encoded(value: str) -> str:
    """Encode as java.net.URLEncoder does, but for spaces: `*` stays, `~` does not."""
    return quote(value, safe="*").replace("~", "%7E")
