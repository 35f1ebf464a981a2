"""Make the API clients: the process's own and, if wanted, one for each controller's account."""

import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from proreus import __version__
from proreus.app.rights import SYSTEM
from proreus.controllers.table import Descriptor
from proreus.kube import requests
from proreus.kube.client import Client
from proreus.kube.clientconfig import ClientConfig
from proreus.kube.connections import Gate
from proreus.kube.errors import AlreadyExists, KubeError, NotFound
from proreus.kube.execplugin import Credential, PluginFailed
from proreus.kube.requests import SERVICE_ACCOUNTS
from proreus.kube.transport import Limiter
from proreus.runtime import klog, metrics
from proreus.runtime.backoff import Backoff

log = klog.logger(__name__)

USER_AGENT: Final = f"proreus/{__version__}"
LIFETIME: Final = 3600
"""Seconds that a token should be valid; the API server may choose otherwise."""

RENEW_AT: Final = 0.8
"""The share of a token's lifetime after which it is renewed."""

RETRY: Final = Backoff(first=5.0, cap=60.0)
"""The pause before the next try to renew a token that is still valid."""


class AccountToken:
    """A source of tokens of a service account, created if missing; kept in memory only."""

    def __init__(self, client: Client, account: str) -> None:
        """Prepare tokens for `account` in kube-system, to be requested with `client`."""
        self._client = client
        self._account = account
        self._token = ""
        self._ends = 0.0
        self._failures = 0
        self.command = f"the token of {SYSTEM}/{account}"

    async def run(self) -> Credential:
        """Renew the token for ever; while that fails, the last one serves until it expires.

        Raises:
            PluginFailed: The exec plugin gave no token, and the last one has expired.
        """
        asked = time.time()
        try:
            status = await self._requested()
        except KubeError as exc:
            wait = RETRY.delay(self._failures)
            self._failures += 1
            klog.warning(
                log,
                "The token could not be renewed",
                err=exc,
                account=self._account,
                retry_seconds=round(wait),
            )
            if asked >= self._ends:
                raise PluginFailed(f"cannot get {self.command}: {exc}") from exc
            return Credential(token=self._token, expires=min(asked + wait, self._ends))
        self._failures = 0
        self._token = status.token
        self._ends = status.expiration_timestamp.timestamp()
        return Credential(token=self._token, expires=asked + RENEW_AT * (self._ends - asked))

    async def _requested(self) -> "_TokenStatus":
        try:
            return await self._request()
        except NotFound:
            pass
        try:
            await self._client.create(
                SERVICE_ACCOUNTS, {"metadata": {"name": self._account}}, SYSTEM
            )
        except AlreadyExists:
            pass
        else:
            klog.info(
                log,
                "Created the ServiceAccount of a controller",
                account=self._account,
                namespace=SYSTEM,
            )
        return await self._request()

    async def _request(self) -> "_TokenStatus":
        request = requests.token_request(self._account, SYSTEM, LIFETIME)
        return (await self._client.send(request, _TokenRequest)).status


class _TokenStatus(msgspec.Struct, frozen=True, rename="camel"):
    token: str
    expiration_timestamp: datetime

    def __repr__(self) -> str:
        return f"_TokenStatus({self.expiration_timestamp!r})"


class _TokenRequest(msgspec.Struct, frozen=True):
    status: _TokenStatus


class Clients:
    """A client for the process and, with `apart`, one for each controller's account."""

    def __init__(
        self, config: ClientConfig, *, apart: bool, limiter: Limiter | None, gate: Gate
    ) -> None:
        """Prepare the clients without connecting; all share limit and gate."""
        self._config = config
        self._apart = apart
        self._more: Mapping[str, Any] = {
            "limiter": limiter, "gate": gate, "observer": metrics.observe_request
        }  # fmt: skip
        self.main = Client(config, user_agent=USER_AGENT, **self._more)
        self._accounts: dict[str, Client] = {}
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._open.enter_async_context(self.main)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._open.aclose()

    def of(self, controller: Descriptor) -> Client:
        """Return the client that the controller writes with; it is closed with the others."""
        if not self._apart:
            return self.main
        account = controller.account
        if account not in self._accounts:
            config = msgspec.structs.replace(
                self._config,
                token="",
                client_certificate=None,
                client_key=None,
                impersonation=None,
                exec_plugin=AccountToken(self.main, account),
            )
            client = Client(config, user_agent=f"{USER_AGENT}/{account}", **self._more)
            self._open.push_async_callback(client.close)
            self._accounts[account] = client
        return self._accounts[account]
