"""Have tokens issued by Lightwave, the directory in which Photon Controller's users are.

Photon Controller itself says where Lightwave is. A token is issued for user and password (RFC 6749,
4.3), as to the in-tree provider, and again before it ends.
"""

import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from proreus.cloudprovider.credential import Issued
from proreus.cloudprovider.errors import CloudError, ConfigError, Unauthenticated
from proreus.cloudprovider.logins import Logins
from proreus.cloudprovider.requests import Request, form_body
from proreus.cloudprovider.rest import RestClient
from proreus.providers.photon.documents import Auth, Token
from proreus.providers.photon.errors import read_oauth_error

if TYPE_CHECKING:
    import ssl

    from proreus.cloudprovider.context import Context

SCOPE: Final = "openid offline_access rs_photon_platform at_groups"
PORT: Final = 443
"""Lightwave's port where Photon Controller names none."""
_HOST = re.compile(r"[A-Za-z0-9.:_-]+")
_LINES: Final = 2

LOGINS: Final = Logins(90.0)
"""The refused logins of this process: a wrong password is sent twice within three minutes at most.

By default Lightwave locks an account after five within that time.
"""


class Login(msgspec.Struct, frozen=True):
    """A user of Lightwave, with the password."""

    user: str
    password: str

    def __repr__(self) -> str:
        """Show the user only."""
        return f"Login({self.user!r})"


def read_login(file: str) -> Login:
    """Read user and password from the first two lines of a file.

    Raises:
        ConfigError: The file cannot be read, or lacks a line.
    """
    remedy = (
        "its first line must be the user, such as ec-admin@example.org, its second the password"
    )
    try:
        lines = Path(file).read_text().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        problem = f"[Client] login-file: {file} cannot be read: {reason}; authentication needs it"
        raise ConfigError((f"{problem}: {remedy}",)) from None
    given = [line.removesuffix("\r") for line in lines[:_LINES]]
    if len(given) < _LINES or not all(given):
        raise ConfigError((f"[Client] login-file: {file} lacks a line: {remedy}",))
    return Login(*given)


class Lightwave:
    """A client that has tokens issued."""

    def __init__(
        self,
        context: "Context",
        login: Login,
        where: Callable[[], Awaitable[Auth]],
        *,
        tls: "ssl.SSLContext | None",
        timeout: float,
    ) -> None:
        """Keep the settings; send nothing yet.

        Args:
            context: The framework's gate.
            login: The user whose tokens are issued.
            where: Returns where Lightwave is, by asking Photon Controller.
            tls: The TLS settings of `configured_tls`.
            timeout: Seconds for a connection, and for an answer.
        """
        self._now = context.now
        self._login = login
        self._where = where
        self._client = RestClient(
            context,
            read_error=read_oauth_error,
            timeout=timeout,
            connect_timeout=timeout,
            tls=tls,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def issue(self) -> Issued[str]:
        """Have a token issued.

        Raises:
            Unauthenticated: Lightwave refuses user and password.
            CloudError: Lightwave or Photon Controller does not answer.
        """
        server = server_of(await self._where())
        login = (server, self._login.user, self._login.password)
        LOGINS.check(login)
        request = Request(
            "lightwave.token",
            "POST",
            f"{server}/openidconnect/token",
            body=form_body(
                {
                    "grant_type": "password",
                    "username": self._login.user,
                    "password": self._login.password,
                    "scope": SCOPE,
                }
            ),
            read=True,
        )
        try:
            token = await self._client.call(request, Token)
        except Unauthenticated as error:
            LOGINS.refused(login, str(error))
            raise
        LOGINS.accepted(login)
        if not token.access_token:
            raise CloudError("lightwave.token: the answer has no access_token")
        lasts = token.expires_in
        return Issued(token.access_token, self._now() + timedelta(seconds=lasts) if lasts else None)


def server_of(auth: Auth) -> str:
    """Return the URL of Lightwave. Pure.

    Raises:
        ConfigError: Photon Controller wants no tokens.
        CloudError: The text that says where Lightwave is holds no host name.
    """
    host = auth.endpoint or ""
    if auth.enabled is False or not host:
        problem = "[Global] authentication: is true, but this Photon Controller wants no tokens"
        raise ConfigError((f"{problem}: leave it out",))
    if not _HOST.fullmatch(host):
        raise CloudError(f"photon.auth.get: {host!r} is not a name of Lightwave's host")
    inside = f"[{host}]" if ":" in host else host
    return f"https://{inside}:{auth.port or PORT}"
