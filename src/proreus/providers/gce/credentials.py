"""Have tokens issued: by the metadata server, for a key file, or by a `token-url`.

Which of these it is follows from `token-url`, as with the official manager: without one the
metadata server, with "nil" what Google's libraries find by themselves, else that URL.
"""

import os
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

from proreus.cloudprovider.credential import Credential, Issued, bearer
from proreus.cloudprovider.errors import ConfigError
from proreus.cloudprovider.jwt import signed_jwt
from proreus.cloudprovider.requests import Body, Request, form_body
from proreus.cloudprovider.rest import RestClient
from proreus.providers.gce.config import NO_TOKEN_URL, Global
from proreus.providers.gce.federation import (
    EXTERNAL_ACCOUNT,
    SCOPE,
    ExternalAccount,
    Federation,
    read_external_account,
)
from proreus.providers.gce.metadata import Metadata, OAuthToken

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

VARIABLE_FILE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
"""The environment variable that names the key file."""
LIFETIME: Final = timedelta(hours=1)

_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_WELL_KNOWN: Final = ".config/gcloud/application_default_credentials.json"


class KeyFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of credentials as Google gives it: the key of a service account, or a user's token."""

    type: str
    client_email: str = ""
    private_key: str = ""
    private_key_id: str = ""
    token_uri: str = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
    client_id: str = ""
    client_secret: str = ""
    refresh_token: str = ""

    def __repr__(self) -> str:
        """Show no secret."""
        return f"KeyFile(type={self.type!r})"


class _Alternative(msgspec.Struct, frozen=True, rename="camel"):
    access_token: str
    expire_time: datetime


def key_file_path(settings: Global) -> str:
    """Return the file whose credentials are used; "" if the metadata server is asked."""
    if settings.token_url != NO_TOKEN_URL:
        return ""
    named = os.environ.get(VARIABLE_FILE, "")
    usual = Path.home() / _WELL_KNOWN
    return named or (str(usual) if usual.exists() else "")


def read_key_file(path: str) -> KeyFile | ExternalAccount:
    """Read a file of credentials.

    Raises:
        ConfigError: The file cannot be read, or holds no credentials of a known type.
    """
    try:
        content = Path(path).read_bytes()
        found = msgspec.json.decode(content, type=KeyFile)
    except OSError as error:
        raise ConfigError((f"{VARIABLE_FILE}: {path}: {error.strerror}",)) from error
    except msgspec.MsgspecError:
        problem = f"{VARIABLE_FILE}: {path} is not a file of Google's credentials in JSON"
        raise ConfigError((problem,)) from None
    if found.type == "service_account" and found.client_email and found.private_key:
        _private_key(found, path)
        return found
    if found.type == "authorized_user" and found.refresh_token:
        return found
    if found.type == EXTERNAL_ACCOUNT:
        return read_external_account(content, f"{VARIABLE_FILE}: {path}")
    problem = (
        f"{VARIABLE_FILE}: {path} has credentials of the type {found.type!r}: give the key of a"
        " service account or a file of workload identity federation (external_account), or leave"
        " out token-url in [Global] to use the metadata server"
    )
    raise ConfigError((problem,))


def signed_assertion(key: KeyFile, now: datetime) -> str:
    """Sign that the service account asks for a token (RFC 7523)."""
    issued = int(now.timestamp())
    claims = {
        "iss": key.client_email,
        "scope": SCOPE,
        "aud": key.token_uri,
        "iat": issued,
        "exp": issued + int(LIFETIME.total_seconds()),
    }
    return signed_jwt({"kid": key.private_key_id}, claims, _private_key(key, ""))


def _private_key(key: KeyFile, path: str) -> RSAPrivateKey:
    try:
        found = serialization.load_pem_private_key(key.private_key.encode(), None)
    except (ValueError, TypeError):
        raise ConfigError((f"{VARIABLE_FILE}: {path}: private_key cannot be read",)) from None
    if not isinstance(found, RSAPrivateKey):
        raise ConfigError((f"{VARIABLE_FILE}: {path}: private_key is not of RSA",))
    return found


class TokenSource:
    """The place where tokens come from, as the cloud-config has it."""

    def __init__(
        self, context: "Context", settings: Global, metadata: Metadata, timeout: float
    ) -> None:
        """Keep the source that the cloud-config names; read the key file.

        Raises:
            ConfigError: The key file cannot be used.
        """
        self._now = context.now
        path = key_file_path(settings)
        found = read_key_file(path) if path else None
        self._key = found if isinstance(found, KeyFile) else None
        self._federation = None
        if isinstance(found, ExternalAccount):
            self._federation = Federation(context, found, timeout)
        self._token_url = settings.token_url if settings.token_url != NO_TOKEN_URL else ""
        self._token_body = settings.token_body
        self._machine: Credential[str] = Credential(metadata.token, now=context.now, headers=bearer)
        self._oauth = RestClient(context, timeout=timeout)
        self._alternative = RestClient(context, credential=self._machine, timeout=timeout)
        self._metadata = metadata

    async def close(self) -> None:
        """Close the connections."""
        await self._oauth.close()
        await self._alternative.close()
        if self._federation is not None:
            await self._federation.close()

    def credential(self) -> Credential[str]:
        """Return a credential that renews itself."""
        issue: Callable[[], Awaitable[Issued[str]]] = self._metadata.token
        if self._token_url:
            issue = self._from_url
        elif self._federation is not None:
            issue = self._federation.issue
        elif self._key is not None:
            issue = self._for_key
        return Credential(issue, now=self._now, headers=bearer)

    async def _for_key(self) -> Issued[str]:
        key = self._key
        if key is None:
            raise ConfigError((f"{VARIABLE_FILE}: there is no key file",))
        if key.type == "service_account":
            form = {"grant_type": _GRANT, "assertion": signed_assertion(key, self._now())}
        else:
            form = {
                "grant_type": "refresh_token",
                "client_id": key.client_id,
                "client_secret": key.client_secret,
                "refresh_token": key.refresh_token,
            }
        request = Request(
            "oauth.token", "POST", key.token_uri, body=form_body(form), read=True, quota="oauth"
        )
        found = await self._oauth.call(request, OAuthToken)
        return Issued(found.access_token, self._now() + timedelta(seconds=found.expires_in))

    async def _from_url(self) -> Issued[str]:
        body = Body(self._token_body.encode(), "application/json")
        request = Request(
            "oauth.alternative", "POST", self._token_url, body=body, read=True, quota="oauth"
        )
        found = await self._alternative.call(request, _Alternative)
        return Issued(found.access_token, found.expire_time)
