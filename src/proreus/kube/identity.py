"""Keep the client's current credentials and TLS settings, renewed from files or a plugin.

Requests take `headers` and `tls` as they stand. Only when `valid_until` has passed, or the API
server does not know us any more, are files read again and is the exec plugin run.
"""

import asyncio
import logging
import math
import ssl
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from urllib.parse import quote

import msgspec
from multidict import CIMultiDict

from proreus.kube.clientconfig import ClientConfig, FileToken, Pem, load_pair
from proreus.kube.errors import ConfigError, Unreachable
from proreus.kube.execplugin import Credential, CredentialSource, PluginFailed

FILE_AGE = 60.0
"""Seconds after which files are read again: tokens and certificates are replaced in place."""

PLUGIN_PAUSE = 5.0
"""Seconds for which a plugin's result or error is kept at least; and between two runs for the
reason that the API server refused what the plugin gave."""

log = logging.getLogger(__name__)


class Identity:
    """The headers and the TLS context that requests use now.

    Attributes:
        headers: What each request carries; not to be changed.
        tls: The TLS settings for new connections; another object once a certificate or the
            authority has changed.
        generation: A number that changes whenever the headers or the TLS settings do.
        valid_until: When to call `refresh` before the next request, by the clock.
    """

    def __init__(self, config: ClientConfig, clock: Callable[[], float]) -> None:
        """Read the files; the plugin does not run yet.

        Raises:
            ConfigError: a file cannot be read or used.
        """
        if config.insecure_skip_tls_verify:
            _warn_unverified(config.server)
        self._config = config
        self._clock = clock
        self._has_files = isinstance(config.token, FileToken) or any(
            isinstance(value, Path) for value in _pems(config)
        )
        self._plugin = None if config.exec_plugin is None else _Runner(config.exec_plugin, clock)
        self._problem = ""
        held = config.in_memory()
        self._pems = _pems(held)
        self.tls: ssl.SSLContext = held.ssl_context()
        self.headers = _headers(held)
        self.generation = 0
        self.valid_until = self._next_refresh()

    async def close(self) -> None:
        """Stop the plugin, if it is running."""
        if self._plugin is not None:
            await self._plugin.close()

    async def refresh(self) -> None:
        """Renew the credentials that have expired or whose files are due to be read again.

        While files cannot be read or used, their last content is used, with a warning.

        Raises:
            Unreachable: the plugin failed; nothing was sent.
        """
        credential: Credential | None = None
        if self._plugin is not None:
            try:
                credential = await self._plugin.credential()
            except PluginFailed as exc:
                raise Unreachable(str(exc), sent=False) from exc
        try:
            self._take(credential)
        except ConfigError as exc:
            if str(exc) != self._problem:
                log.warning("New credentials cannot be used; the last ones stay in use: %s", exc)
            self._problem = str(exc)
        else:
            self._problem = ""
        self.valid_until = self._next_refresh()

    async def refused(self, generation: int) -> bool:
        """After a 401, renew the credentials; tell whether they differ from those sent.

        Raises:
            Unreachable: the plugin failed; nothing was sent.
        """
        if generation == self.generation:
            if self._plugin is not None:
                self._plugin.doubt()
            await self.refresh()
        return generation != self.generation

    def _take(self, credential: Credential | None) -> None:
        held = self._config.in_memory()
        if credential is not None:
            held = msgspec.structs.replace(
                held,
                token=credential.token,
                client_certificate=credential.certificate,
                client_key=credential.key,
            )
        headers, pems = _headers(held), _pems(held)
        if pems != self._pems:
            self.tls = held.ssl_context()
        elif headers == self.headers:
            return
        self._pems, self.headers = pems, headers
        self.generation += 1

    def _next_refresh(self) -> float:
        files = self._clock() + FILE_AGE if self._has_files else math.inf
        return files if self._plugin is None else min(files, self._plugin.valid_until)


class _Runner:
    """A runner of a plugin: once at a time for all who wait; it keeps the result.

    Attributes:
        valid_until: When it must run again, by the clock.
    """

    def __init__(self, plugin: CredentialSource, clock: Callable[[], float]) -> None:
        self._plugin = plugin
        self._clock = clock
        self._result: Credential | PluginFailed | None = None
        self._doubted_at = -math.inf
        self._running: asyncio.Task[None] | None = None
        self.valid_until = -math.inf

    async def credential(self) -> Credential:
        """Return the plugin's credential, running it if needed, or raise PluginFailed."""
        if self._clock() >= self.valid_until:
            if self._running is None:
                self._running = asyncio.create_task(self._run())
            # A request that is cancelled leaves the plugin to the others.
            await asyncio.shield(self._running)
        if isinstance(self._result, Credential):
            return self._result
        raise PluginFailed(str(self._result)) from self._result

    def doubt(self) -> None:
        """Let the plugin run again, since the API server refused its credential."""
        now = self._clock()
        if now >= self._doubted_at + PLUGIN_PAUSE:
            self._doubted_at = now
            self.valid_until = -math.inf

    async def close(self) -> None:
        """Stop the plugin, if it is running."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])

    async def _run(self) -> None:
        lasts = -math.inf
        try:
            credential = await self._plugin.run()
            _check_pair(self._plugin, credential)
        except PluginFailed as exc:
            self._result = exc
        else:
            self._result = credential
            # The plugin tells the time of the day, which may be set; what counts is the distance.
            lasts = math.inf if credential.expires is None else credential.expires - time.time()
        finally:
            self._running = None
        now = self._clock()
        self.valid_until = now + max(lasts, PLUGIN_PAUSE)


def _check_pair(plugin: CredentialSource, credential: Credential) -> None:
    if credential.certificate is None or credential.key is None:
        return
    try:
        load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), credential.certificate, credential.key)
    except ssl.SSLError as exc:
        raise PluginFailed(
            f"exec plugin {plugin.command}: clientCertificateData and clientKeyData "
            f"are not a matching pair in PEM: {exc}"
        ) from exc


def _pems(config: ClientConfig) -> tuple[Pem | None, ...]:
    return config.ca, config.client_certificate, config.client_key


def _headers(config: ClientConfig) -> CIMultiDict[str]:
    """Return the Authorization and impersonation headers.

    https://kubernetes.io/docs/reference/access-authn-authz/authentication/#user-impersonation
    """
    headers: CIMultiDict[str] = CIMultiDict()
    token = config.bearer_token()
    if token:
        headers["Authorization"] = f"Bearer {token}"
    other = config.impersonation
    if other is not None:
        headers["Impersonate-User"] = other.user
        if other.uid:
            headers["Impersonate-Uid"] = other.uid
        for group in other.groups:
            headers.add("Impersonate-Group", group)
        for key, values in other.extra.items():
            for value in values:
                headers.add(f"Impersonate-Extra-{quote(key.lower(), safe='')}", value)
    return headers


@cache  # once per server, though there are several clients of it
def _warn_unverified(server: str) -> None:
    log.warning(
        "The certificate of %s is not verified (insecure-skip-tls-verify): "
        "whoever is between us and it can read our credentials",
        server,
    )
