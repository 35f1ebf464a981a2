"""Who asks: basic authentication, sessions and certificates of principal identities."""

import base64
import binascii
import hashlib
import secrets
from collections.abc import Callable, Mapping
from typing import Final

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from .errors import FRAMEWORK, NsxError, bad_credentials, bad_token

COOKIE: Final = "JSESSIONID"
LIFE: Final = 1800.0
"""Seconds after its last request at which a session ends, by the manager's default."""
FAILURES: Final = 5
"""Wrong passwords after which the API's lockout begins, by the manager's default."""


class Sessions:
    """Accounts, sessions and principal identities.

    Attributes:
        users: The passwords of users.
        readers: Users who may read only.
        remote: Users of another identity provider, who come with `Authorization: Remote`.
        life: Seconds for which an idle session lives.
        locked: Users whose account is locked after wrong passwords.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.users = {"admin": "planted-nsxt-password-1"}
        self.readers: set[str] = set()
        self.remote: set[str] = set()
        self.life = LIFE
        self.locked: set[str] = set()
        self._failures: dict[str, int] = {}
        self._principals: dict[str, str] = {}
        self._sessions: dict[str, tuple[str, str, float]] = {}

    @property
    def count(self) -> int:
        """How many sessions there are."""
        return len(self._sessions)

    def expire(self) -> None:
        """Let all sessions have ended."""
        self._sessions.clear()

    def register(self, name: str, certificate: bytes) -> None:
        """Make the owner of a certificate, PEM, a principal identity."""
        der = x509.load_pem_x509_certificate(certificate).public_bytes(Encoding.DER)
        self._principals[hashlib.sha256(der).hexdigest()] = name

    def create(self, form: Mapping[str, str]) -> web.Response:
        """Answer `/api/session/create`."""
        user = self._checked(form.get("j_username", ""), form.get("j_password", ""))
        id_, token = secrets.token_hex(16).upper(), secrets.token_hex(16)
        self._sessions[id_] = user, token, self._now() + self.life
        response = web.Response(headers={"X-XSRF-TOKEN": token})
        response.set_cookie(COOKIE, id_, path="/", secure=True, httponly=True, samesite="Lax")
        return response

    def destroy(self, request: web.Request) -> web.Response:
        """Answer `/api/session/destroy`."""
        self.user(request)
        self._sessions.pop(request.cookies.get(COOKIE, ""), None)
        return web.Response()

    def user(self, request: web.Request) -> str:
        """Who sends a request.

        Raises:
            NsxError: Nobody who may.
        """
        tls = request.transport.get_extra_info("ssl_object") if request.transport else None
        der = tls.getpeercert(binary_form=True) if tls else None
        if der:
            name = self._principals.get(hashlib.sha256(der).hexdigest())
            if name is None:
                raise bad_credentials()
            return name
        if header := request.headers.get("Authorization", ""):
            return self._basic(header)
        return self._session(request)

    def check_right(self, user: str, method: str) -> None:
        """Refuse writes of those who may read only."""
        if method != "GET" and user in self.readers:
            text = "User is not authorized to perform this operation on the application."
            raise NsxError(403, 289, text, FRAMEWORK)

    def _basic(self, header: str) -> str:
        scheme, _, value = header.partition(" ")
        try:
            user, _, password = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise bad_credentials() from None
        if scheme != ("Remote" if user in self.remote else "Basic"):
            raise bad_credentials()
        return self._checked(user, password)

    def _session(self, request: web.Request) -> str:
        id_ = request.cookies.get(COOKIE, "")
        if id_ not in self._sessions or self._sessions[id_][2] <= self._now():
            self._sessions.pop(id_, None)
            raise bad_credentials()
        user, token, _ = self._sessions[id_]
        if not secrets.compare_digest(request.headers.get("X-XSRF-TOKEN", ""), token):
            raise bad_token()
        self._sessions[id_] = user, token, self._now() + self.life
        return user

    def _checked(self, user: str, password: str) -> str:
        good = self.users.get(user)
        if user in self.locked or good is None or not secrets.compare_digest(good, password):
            self._failures[user] = self._failures.get(user, 0) + 1
            if self._failures[user] >= FAILURES:
                self.locked.add(user)
            raise bad_credentials()
        self._failures.pop(user, None)
        return user
