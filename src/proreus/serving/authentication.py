"""Identify users of our servers by front proxy, client certificate or token; else anonymous.

The order and the outcomes are those of the Go framework's delegated authentication. The first
credential that is good counts. Where there is one and none is good, the request is refused (401),
whatever it asks for; where there is none, it is `system:anonymous`.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, Protocol
from urllib.parse import unquote

import msgspec
from cryptography import x509

from proreus.kube.client import Client
from proreus.kube.errors import KubeError
from proreus.kube.reviews import TokenReview, TokenReviewStatus, User, token_review
from proreus.runtime import klog
from proreus.serving.answers import Answers, Budget, tried
from proreus.serving.certificates import common_name, is_trusted, user_of

log = klog.logger(__name__)

ANONYMOUS: Final = User("system:anonymous", groups=("system:unauthenticated",))
"""The user of a request without credentials."""

AUTHENTICATED: Final = "system:authenticated"
"""The group of all users who are not anonymous."""


class Unauthenticated(Exception):
    """The error that no credential is valid; its text is for our log and holds no secret."""


class FrontProxy(msgspec.Struct, frozen=True):
    """The front proxies whose headers about users are trusted: `--requestheader-*`.

    Without `cas` no front proxy is trusted; without `names` any common name is.
    """

    cas: tuple[x509.Certificate, ...] = ()
    names: tuple[str, ...] = ()
    username_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()


class Trust(msgspec.Struct, frozen=True):
    """The authorities of clients' certificates, and the front proxies."""

    clients: tuple[x509.Certificate, ...] = ()
    front_proxy: FrontProxy = FrontProxy()


class Credentials(msgspec.Struct, frozen=True):
    """The credentials of a request: its headers, and its certificate chain, its own first."""

    headers: tuple[tuple[str, str], ...] = ()
    chain: tuple[x509.Certificate, ...] = ()

    @property
    def token(self) -> str:
        """The bearer token, "" if there is none."""
        for value in _values(self.headers, "authorization"):
            scheme, _, token = value.strip().partition(" ")
            if scheme.lower() == "bearer":
                return token.strip()
        return ""

    def __repr__(self) -> str:
        return "Credentials(...)"


class TrustSource(Protocol):
    """A source of the trusted authorities, which may change at any time."""

    @property
    def trust(self) -> Trust:
        """The authorities that are trusted now."""


def proxied_user(shown: Credentials, proxy: FrontProxy, now: datetime) -> User | None:
    """Return the user whom a front proxy names; None if the client is no front proxy."""
    if not proxy.cas or not is_trusted(shown.chain, proxy.cas, now):
        return None
    if proxy.names and common_name(shown.chain[0]) not in proxy.names:
        return None
    name = _first(shown.headers, proxy.username_headers)
    if not name:
        return None
    groups = [
        value for header in proxy.group_headers for value in _values(shown.headers, header) if value
    ]
    return User(
        name,
        uid=_first(shown.headers, proxy.uid_headers),
        groups=tuple(groups),
        extra=_extra(shown.headers, proxy.extra_prefixes),
    )


def certified_user(shown: Credentials, trust: Trust, now: datetime) -> User | None:
    """Return the user of a valid client certificate; None if there is no such user."""
    if not is_trusted(shown.chain, trust.clients, now):
        return None
    user = user_of(shown.chain[0])
    return user if user.name else None


def with_authenticated(user: User) -> User:
    """Add the group `system:authenticated` to a user who is not anonymous."""
    if AUTHENTICATED in user.groups or user.name == ANONYMOUS.name:
        return user
    return msgspec.structs.replace(user, groups=(*user.groups, AUTHENTICATED))


class Authenticator:
    """A judge of who a user is. The API server reviews tokens; only their digests are kept."""

    def __init__(self, source: TrustSource, client: Client, *, token_ttl: float) -> None:
        """Keep the sources of trust; a token's review is valid for `token_ttl` seconds."""
        self._source = source
        self._client = client
        self._reviews: Answers[bytes, TokenReviewStatus] = Answers(
            lambda _: token_ttl, renews=lambda status: status.authenticated
        )
        self._strangers = Budget()
        self._key = secrets.token_bytes(32)

    async def authenticate(self, shown: Credentials) -> User:
        """Return the user of these credentials.

        Raises:
            Unauthenticated: There are credentials, and none is valid.
            Busy: Too many tokens are shown that were not valid before.
        """
        trust, now = self._source.trust, datetime.now(UTC)
        user = proxied_user(shown, trust.front_proxy, now) or certified_user(shown, trust, now)
        if user is not None:
            return with_authenticated(user)
        if shown.token:
            return with_authenticated(await self._owner(shown.token))
        if shown.chain:
            raise Unauthenticated("the client certificate is not signed by a trusted CA")
        return ANONYMOUS

    async def close(self) -> None:
        """Cancel the TokenReviews that have no answer yet."""
        await self._reviews.close()

    async def _owner(self, token: str) -> User:
        async def review() -> TokenReviewStatus:
            answer = await tried(lambda: self._client.send(token_review(token), TokenReview))
            return answer.status

        if not token.isascii():
            raise Unauthenticated("the token is not ASCII")
        digest = hmac.digest(self._key, token.encode(), hashlib.sha256)
        try:
            status = await self._reviews.get(digest, review, self._strangers)
        except KubeError as exc:
            raise Unauthenticated(f"the token cannot be reviewed: {exc}") from exc
        if not status.authenticated or not status.user.name:
            raise Unauthenticated(
                f"the token is not valid: {status.error or 'it belongs to no user'}"
            )
        return status.user


def _values(headers: Sequence[tuple[str, str]], name: str) -> list[str]:
    return [value for key, value in headers if key.lower() == name.lower()]


def _first(headers: Sequence[tuple[str, str]], names: Sequence[str]) -> str:
    """Return the first value that is not empty of the first header that has one."""
    return next((value for name in names for value in _values(headers, name) if value), "")


def _extra(
    headers: Sequence[tuple[str, str]], prefixes: Sequence[str]
) -> Mapping[str, tuple[str, ...]]:
    """Return the user's extra fields: the header's name after the prefix is the key, decoded."""
    found: dict[str, tuple[str, ...]] = {}
    for prefix in prefixes:
        for name, value in headers:
            if name.lower().startswith(prefix.lower()):
                key = unquote(name[len(prefix) :].lower())
                found[key] = (*found.get(key, ()), value)
    return found
