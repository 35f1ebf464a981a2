"""Give requests to NSX-T their credentials: a session, a password, or a token of VMware Cloud.

By default five wrong passwords lock an account for 15 minutes. Requests go side by side, so a
password that was changed would lock it at once, if each request bore it: it is sent once, for a
session. One that was refused is not sent again for a while.
"""

import base64
import ssl
from collections.abc import Mapping
from http.cookies import SimpleCookie
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from proreus.cloudprovider.credential import Credential, Issued
from proreus.cloudprovider.errors import CloudError, ConfigError, Unauthenticated
from proreus.cloudprovider.logins import Logins
from proreus.cloudprovider.requests import Request, form_body
from proreus.cloudprovider.rest import RestClient
from proreus.providers.vsphere.nsxt.config import Nsxt
from proreus.providers.vsphere.nsxt.errors import read_error

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

LOGINS: Final = Logins(300.0)
"""The logins of this process."""

_COOKIE: Final = "JSESSIONID"
_KEYS: Final = ("username", "password")
"""The entries of the Secret (the official manager's `secretName`)."""


def secret_files(config: Nsxt) -> tuple[str, ...]:
    """Return the files of the mounted Secret; none if there are other credentials."""
    if not config.needs_secret:
        return ()
    return tuple(str(Path(config.directory) / key) for key in _KEYS)


class _Login(msgspec.Struct, frozen=True):
    """The headers by which requests are a user's."""

    headers: Mapping[str, str]

    def __repr__(self) -> str:
        """Return a text without the credentials."""
        return "_Login()"


class Password:
    """A user and a password, of the cloud-config or of the mounted Secret.

    A user of another directory (`remote-auth`) has no sessions: the password goes with each
    request, as officially.

    Attributes:
        credential: The credential that gives requests their headers.
    """

    def __init__(
        self, config: Nsxt, context: "Context", *, timeout: float, tls: ssl.SSLContext | None
    ) -> None:
        """Read the files of the Secret, if it holds the credentials.

        Args:
            config: The settings that say how the manager is reached.
            context: The framework's gate.
            timeout: Seconds to wait for an answer.
            tls: The settings of TLS.

        Raises:
            ConfigError: A file cannot be read.
        """
        user, password = config.user, config.password
        if config.needs_secret:
            user, password = (_entry(config, key) for key in _KEYS)
        self._known = (config.host, user, password)
        self._is_remote = config.remote_auth
        self._is_in_use = False
        self._client = RestClient(
            context,
            config.url,
            read_error=read_error,
            timeout=timeout,
            connect_timeout=timeout,
            tls=tls,
        )
        self.credential: Credential[_Login] = Credential(
            self._issue, now=context.now, headers=lambda login: login.headers
        )

    async def close(self) -> None:
        """Close the connections; the session ends by itself after half an hour."""
        await self._client.close()

    async def _issue(self) -> Issued[_Login]:
        """Begin a session, or return the header of a user of another directory."""
        host, user, password = self._known
        refused = f"NSX-T {host}: refuses the user {user} or its password"
        if self._is_remote:
            if self._is_in_use:  # another one is asked for, since this one was refused
                self._is_in_use = False
                LOGINS.refused(self._known, refused)
            LOGINS.check(self._known)
            self._is_in_use = True
            pair = base64.b64encode(f"{user}:{password}".encode()).decode()
            return Issued(_Login({"Authorization": f"Remote {pair}"}))
        LOGINS.check(self._known)
        try:
            login = await self._session(user, password)
        except Unauthenticated as error:
            LOGINS.refused(self._known, f"{refused}: {error}")
            raise
        LOGINS.accepted(self._known)
        return Issued(login)

    async def _session(self, user: str, password: str) -> _Login:
        request = Request(
            "nsxt.session.create",
            "POST",
            "api/session/create",
            body=form_body({"j_username": user, "j_password": password}),
            read=True,
        )
        answer = await self._client.send(request)
        token = answer.headers.get("X-XSRF-TOKEN", "")
        cookies: SimpleCookie = SimpleCookie()
        for name, value in answer.headers.items():
            if name.lower() == "set-cookie":
                cookies.load(value)
        if _COOKIE not in cookies or not token:
            raise CloudError("nsxt.session.create: the answer has no session")
        cookie = f"{_COOKIE}={cookies[_COOKIE].value}"
        return _Login({"Cookie": cookie, "X-XSRF-TOKEN": token})


class CloudToken:
    """A token of VMware Cloud, for which a refresh token is exchanged.

    Attributes:
        credential: The credential that gives requests their header.
    """

    def __init__(self, config: Nsxt, context: "Context", *, timeout: float) -> None:
        """Keep the refresh token; `timeout` is the seconds for an answer."""
        self._config = config
        self._client = RestClient(context, timeout=timeout, connect_timeout=timeout)
        self.credential: Credential[str] = Credential(
            self._issue, now=context.now, headers=lambda token: {"csp-auth-token": token}
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _issue(self) -> Issued[str]:
        request = Request(
            "nsxt.token.create",
            "POST",
            f"https://{self._config.vmc_auth_host}",
            body=form_body({"refresh_token": self._config.vmc_access_token}),
            read=True,
        )
        answer = await self._client.call(request, dict[str, Any])
        token = answer.get("access_token")
        if not isinstance(token, str) or not token:
            raise CloudError("nsxt.token.create: the answer has no access_token")
        return Issued(token)


def _entry(config: Nsxt, key: str) -> str:
    file = Path(config.directory) / key
    try:
        text = file.read_text().rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            (f"NSXT secret-name: {file} cannot be read, mount the Secret there: {error}",)
        ) from None
    if not text:
        raise ConfigError((f"NSXT secret-name: {file} is empty",))
    return text
