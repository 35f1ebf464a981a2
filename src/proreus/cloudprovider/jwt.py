"""Sign JSON Web Tokens by which a client proves to a server of OAuth who it is (RFC 7523).

It needs the package `cryptography`, so only providers that sign import it.
"""

import base64
from collections.abc import Mapping
from typing import Any

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey


def signed_jwt(header: Mapping[str, Any], claims: Mapping[str, Any], key: RSAPrivateKey) -> str:
    """Return a token signed with RS256; `header` names the key, such as by `kid`. Pure."""
    head = {"alg": "RS256", "typ": "JWT", **header}
    text = ".".join(base64url(msgspec.json.encode(part)) for part in (head, claims))
    signature = key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{text}.{base64url(signature)}"


def base64url(content: bytes) -> str:
    """Return the text form of bytes in a token, without padding (RFC 7515, 2)."""
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
