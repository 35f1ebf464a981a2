"""Give requests to NSX-T their credentials: a password, or a token of VMware Cloud.

A password is sent with each request, as officially. One that was refused is not sent again for a
while: by default five wrong ones lock an account for 15 minutes.
"""

import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proreus.cloudprovider.credential import Credential, Issued
from proreus.cloudprovider.errors import CloudError, ConfigError
from proreus.cloudprovider.logins import Logins
from proreus.cloudprovider.requests import Request, form_body
from proreus.cloudprovider.rest import RestClient
from proreus.providers.vsphere.nsxt.config import Nsxt

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

LOGINS: Final = Logins(300.0)
"""The logins of this process."""

_KEYS: Final = ("username", "password")
"""The entries of the Secret (the official manager's `secretName`)."""


def secret_files(config: Nsxt) -> tuple[str, ...]:
    """Return the files of the mounted Secret; none if there are other credentials."""
    if not config.needs_secret:
        return ()
    return tuple(str(Path(config.directory) / key) for key in _KEYS)


class Password:
    """A user and a password, of the cloud-config or of the mounted Secret.

    Attributes:
        credential: What gives requests their header.
    """

    def __init__(self, config: Nsxt, context: "Context") -> None:
        """Read the files of the Secret, if that holds them.

        Raises:
            ConfigError: One cannot be read.
        """
        user, password = config.user, config.password
        if config.needs_secret:
            user, password = (_entry(config, key) for key in _KEYS)
        self._known = (config.host, user, password)
        pair = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._header = f"{'Remote' if config.remote_auth else 'Basic'} {pair}"
        self._is_in_use = False
        self.credential: Credential[str] = Credential(
            self._issue, now=context.now, headers=lambda header: {"Authorization": header}
        )

    async def _issue(self) -> Issued[str]:
        """Issue the header; asked for another one, since that was refused, issue none."""
        host, user, _ = self._known
        if self._is_in_use:
            self._is_in_use = False
            LOGINS.refused(self._known, f"NSX-T {host}: refuses the user {user} or its password")
        LOGINS.check(self._known)
        self._is_in_use = True
        return Issued(self._header)


class CloudToken:
    """A token of VMware Cloud, for which a refresh token is exchanged.

    Attributes:
        credential: What gives requests their header.
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
