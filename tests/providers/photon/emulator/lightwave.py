"""The emulated Lightwave: tokens for user and password, over TLS as the SDK demands it."""

import itertools
import ssl
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from aiohttp import web

from proreus.testing.controlplane.certificates import Authority

from .world import Json

SCOPE = "openid offline_access rs_photon_platform at_groups"
AGAIN = "refresh-token"
MOST_WRONG = 5
"""Wrong passwords after which an account is locked."""


class Lightwave:
    """A directory with one user."""

    def __init__(self, authority: Authority, now: Callable[[], float]) -> None:
        self.user, self.password = "ec-admin@example.org", "planted-secret & = %1"
        self.lasts = 3600
        """Seconds that a token lasts."""
        self.tokens: dict[str, float] = {}
        self.calls: Counter[str] = Counter()
        self.wrong = 0
        self.status = 200
        """What is answered instead, if it is another one."""
        self.port = 0
        self._authority = authority
        self._now = now
        self._numbers = itertools.count(1)
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_post("/openidconnect/token", self._token)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(
            self._runner, "127.0.0.1", 0, ssl_context=serving(self._authority)
        ).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def issue(self) -> str:
        token = f"planted-secret-token-{next(self._numbers):04}"
        self.tokens[token] = self._now() + self.lasts
        return token

    async def _token(self, request: web.Request) -> web.Response:
        form = {key: str(value) for key, value in (await request.post()).items()}
        self.calls[form.get("grant_type", "")] += 1
        if self.status != 200:
            return web.Response(status=self.status, text="<html>down</html>")
        return self._refusal(form) or self._issued()

    def _refusal(self, form: dict[str, str]) -> web.Response | None:
        grants = {
            "password": {"grant_type", "username", "password", "scope"},
            "refresh_token": {"grant_type", "refresh_token"},
        }
        grant = form.get("grant_type", "")
        if form.keys() != grants.get(grant) or form.get("scope", SCOPE) != SCOPE:
            return _refused("invalid_request", f"{grant} has the parameters {sorted(form)}")
        if grant == "refresh_token":
            is_good = form["refresh_token"] == AGAIN
        else:
            is_good = (form["username"], form["password"]) == (self.user, self.password)
            self.wrong += not is_good
        if self.wrong > MOST_WRONG:
            return _refused("invalid_grant", "user account locked")
        return None if is_good else _refused("invalid_grant", "incorrect username or password")

    def _issued(self) -> web.Response:
        answer: Json = {
            "access_token": self.issue(), "expires_in": self.lasts, "refresh_token": AGAIN,
            "id_token": "id", "token_type": "Bearer",
        }  # fmt: skip
        return web.json_response(answer)


def serving(authority: Authority) -> ssl.SSLContext:
    """The TLS settings of a server on loopback."""
    certificate, key = authority.serving()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with TemporaryDirectory() as directory:
        file = Path(directory) / "serving.pem"
        file.write_bytes(certificate + key)
        tls.load_cert_chain(file)
    return tls


def _refused(code: str, text: str) -> web.Response:
    return web.json_response({"error": code, "error_description": text}, status=400)
