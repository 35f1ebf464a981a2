"""Exchange tokens of another issuer for Google's: workload identity federation.

A file of the type `external_account` says where a token of the workload is, such as that of a
Kubernetes service account; Google's token service takes it in exchange for one of its own (RFC
8693), which can be another service account's then. The form of the file is Google's AIP-4117.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from proreus.cloudprovider.credential import Issued, bearer
from proreus.cloudprovider.errors import ConfigError, Unauthenticated
from proreus.cloudprovider.requests import Request, form_body, json_body
from proreus.cloudprovider.rest import RestClient
from proreus.providers.gce.metadata import OAuthToken

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

EXTERNAL_ACCOUNT: Final = "external_account"
"""The type of these files."""
SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
LIFETIME: Final = 3600
"""Seconds that a token of a service account lasts, if the file does not say."""

_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105 - a type
_URLS: Final = ("https://", "http://")


class Format(msgspec.Struct, frozen=True):
    """The form of a token that is read: the text itself, or a field of an object in JSON."""

    type: str = "text"
    subject_token_field_name: str = ""


class Source(msgspec.Struct, frozen=True):
    """The place where the workload's token is read: a file or a URL, but of no environment."""

    environment_id: str = ""
    file: str = ""
    url: str = ""
    headers: Mapping[str, str] = {}
    format: Format = Format()

    def __repr__(self) -> str:
        """Show no header."""
        return f"Source(file={self.file!r}, url={self.url!r})"


class Impersonation(msgspec.Struct, frozen=True):
    """The lifetime in seconds of a service account's token."""

    token_lifetime_seconds: int = LIFETIME


class ExternalAccount(msgspec.Struct, frozen=True):
    """A file of the type `external_account`."""

    audience: str = ""
    subject_token_type: str = ""
    token_url: str = ""
    credential_source: Source = Source()
    service_account_impersonation_url: str = ""
    service_account_impersonation: Impersonation = Impersonation()

    def problems(self) -> Iterator[str]:
        """Report what is missing or cannot be used."""
        for name in ("audience", "subject_token_type", "token_url"):
            if not getattr(self, name):
                yield f"{name}: is missing"
        source = self.credential_source
        if source.environment_id or bool(source.file) == bool(source.url):
            yield (
                "credential_source: give a file or a url: those of AWS, executables and"
                " certificates are not read here"
            )
        for name, url in (
            ("token_url", self.token_url),
            ("credential_source.url", source.url),
            ("service_account_impersonation_url", self.service_account_impersonation_url),
        ):
            if url and not url.startswith(_URLS):
                yield f"{name}: give a URL"
        if source.format.type not in {"text", "json"}:
            yield "credential_source.format.type: give text or json"
        if source.format.type == "json" and not source.format.subject_token_field_name:
            yield "credential_source.format.subject_token_field_name: is missing"


class _Generated(msgspec.Struct, frozen=True, rename="camel"):
    access_token: str
    expire_time: datetime


def read_external_account(text: bytes, where: str) -> ExternalAccount:
    """Read the content of a file of the type `external_account`.

    Raises:
        ConfigError: Fields cannot be used; names each of them.
    """
    try:
        found = msgspec.json.decode(text, type=ExternalAccount)
    except msgspec.ValidationError as error:
        raise ConfigError((f"{where}: {error}",)) from None
    if problems := tuple(f"{where}: {problem}" for problem in found.problems()):
        raise ConfigError(problems)
    return found


def subject_token(content: str, form: Format) -> str:
    """Return the workload's token in what was read; "" if there is none. Pure."""
    if form.type == "text":
        return content.strip()
    try:
        found = msgspec.json.decode(content, type=dict[str, object])
    except msgspec.MsgspecError:
        return ""
    token = found.get(form.subject_token_field_name)
    return token if isinstance(token, str) else ""


class Federation:
    """The exchange of tokens that a file describes."""

    def __init__(self, context: "Context", account: ExternalAccount, timeout: float) -> None:
        """Keep where to ask; ask nothing yet."""
        self._now = context.now
        self._account = account
        self._rest = RestClient(context, timeout=timeout)

    async def close(self) -> None:
        """Close the connections."""
        await self._rest.close()

    async def issue(self) -> Issued[str]:
        """Have a token issued.

        Raises:
            CloudError: The workload has no token, or Google does not accept it.
        """
        account = self._account
        form = {
            "grant_type": _EXCHANGE,
            "audience": account.audience,
            "scope": SCOPE,
            "requested_token_type": _ACCESS_TOKEN,
            "subject_token": await self._subject_token(account.credential_source),
            "subject_token_type": account.subject_token_type,
        }
        request = Request(
            "sts.token", "POST", account.token_url, body=form_body(form), read=True, quota="oauth"
        )
        found = await self._rest.call(request, OAuthToken)
        if account.service_account_impersonation_url:
            return await self._impersonate(found.access_token)
        return Issued(found.access_token, self._now() + timedelta(seconds=found.expires_in))

    async def _impersonate(self, token: str) -> Issued[str]:
        seconds = self._account.service_account_impersonation.token_lifetime_seconds
        request = Request(
            "iamcredentials.generateAccessToken",
            "POST",
            self._account.service_account_impersonation_url,
            body=json_body({"delegates": [], "scope": [SCOPE], "lifetime": f"{seconds}s"}),
            headers=bearer(token),
            read=True,
            quota="oauth",
        )
        found = await self._rest.call(request, _Generated)
        return Issued(found.access_token, found.expire_time)

    async def _subject_token(self, source: Source) -> str:
        """Read the token of the workload anew: whoever issues it puts a new one there."""
        if source.url:
            request = Request(
                "workload.token", "GET", source.url, headers=source.headers, quota="oauth"
            )
            content = (await self._rest.send(request)).text()
        else:
            content = _read(source.file)
        token = subject_token(content, source.format)
        if not token:
            # A URL may hold a signature.
            where = source.file or "the answer to the url of credential_source"
            raise Unauthenticated(f"{where} holds no token of the workload: see credential_source")
        return token


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Unauthenticated(
            f"the token of the workload in {file} cannot be read: {error}: mount the file that"
            " credential_source names"
        ) from error
