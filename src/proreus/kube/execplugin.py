"""Get credentials from a command: exec plugins of client.authentication.k8s.io.

https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Protocol

import msgspec

from proreus.kube.errors import KubeError

API_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")

RUN_TIMEOUT = 25.0
"""Seconds that a plugin may take: less than the request that waits for it."""


class PluginFailed(KubeError):
    """The error that a plugin cannot be run or gave no credential. Shows none of its output."""


class Credential(msgspec.Struct, frozen=True):
    """A plugin's credential: a token, a certificate with its key (PEM), or both.

    `expires` is a POSIX time, None if it does not expire.
    """

    token: str = ""
    certificate: bytes | None = None
    key: bytes | None = None
    expires: float | None = None

    def __repr__(self) -> str:
        return f"Credential(expires={self.expires!r})"


class CredentialSource(Protocol):
    """A source of credentials that expire: it runs again when one has expired or is refused."""

    @property
    def command(self) -> str:
        """The command's name, for messages."""

    async def run(self) -> Credential:
        """Return a new credential, or raise PluginFailed if there is none."""


class ExecPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A command that prints a credential.

    `command` is a name in $PATH or an absolute path, `env` is added to our environment,
    `cluster` what the plugin wants to know of the cluster (None: nothing).
    """

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    api_version: str = API_VERSIONS[0]
    install_hint: str = ""
    cluster: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        return f"ExecPlugin({self.command!r})"  # arguments and environment may hold secrets

    def not_found(self) -> str:
        """Return the error text for a missing command, with the hint how to install it."""
        where = "cannot be executed" if os.sep in self.command else "is not found in $PATH"
        hint = f"; {self.install_hint.strip()}" if self.install_hint.strip() else ""
        return f"{self.command} {where}{hint}"

    async def run(self, timeout_seconds: float = RUN_TIMEOUT) -> Credential:
        """Run the command, without any input, and read what it prints.

        Raises:
            PluginFailed: it cannot be run, fails, takes too long or prints no credential.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                self.command,
                *self.args,
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=DEVNULL,  # it may show what must not be in a log
                env={**os.environ, **self.env, "KUBERNETES_EXEC_INFO": self._info()},
                start_new_session=True,
            )
        except (FileNotFoundError, PermissionError) as exc:
            raise PluginFailed(f"exec plugin {self.not_found()}") from exc
        except OSError as exc:
            raise PluginFailed(f"exec plugin {self.command}: {exc.strerror}") from exc
        try:
            async with asyncio.timeout(timeout_seconds):
                output, _ = await process.communicate()
        except TimeoutError as exc:
            await _kill(process)
            raise PluginFailed(
                f"exec plugin {self.command}: did not end within {timeout_seconds:g} s"
            ) from exc
        except asyncio.CancelledError:
            await _kill(process)
            raise
        if process.returncode:
            raise PluginFailed(
                f"exec plugin {self.command}: ended with {process.returncode}; "
                "run it by hand to see why"
            )
        try:
            return decode(output, self.api_version)
        except ValueError as exc:
            raise PluginFailed(f"exec plugin {self.command}: {exc}") from exc

    def _info(self) -> str:
        spec: dict[str, Any] = {"interactive": False}
        if self.cluster is not None:
            spec["cluster"] = self.cluster
        info = {"kind": "ExecCredential", "apiVersion": self.api_version, "spec": spec}
        return msgspec.json.encode(info).decode()


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill the plugin's process group: children of a script would keep the pipe open."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: datetime | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    api_version: str = ""
    status: _Status | None = None


_DECODER = msgspec.json.Decoder(_ExecCredential)


def decode(output: bytes, api_version: str) -> Credential:
    """Decode the ExecCredential that a plugin printed.

    Raises:
        ValueError: the output has another form; the message shows nothing of it.
    """
    try:
        printed = _DECODER.decode(output)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Not the error itself: it may quote the output.
        raise ValueError("its output is not an ExecCredential in JSON") from None
    if (printed.kind, printed.api_version) != ("ExecCredential", api_version):
        raise ValueError(f"its output is not an ExecCredential of {api_version}")
    status = printed.status
    if status is None:
        raise ValueError("its ExecCredential has no status")
    token = (status.token or "").strip()
    certificate, key = status.client_certificate_data or "", status.client_key_data or ""
    if not (token or certificate or key):
        raise ValueError("its ExecCredential.status has neither token nor clientCertificateData")
    if bool(certificate) != bool(key):
        raise ValueError(
            "its ExecCredential.status has only one of clientCertificateData and clientKeyData"
        )
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ValueError("its ExecCredential.status.token cannot be sent in a header")
    expires = status.expiration_timestamp
    if expires is not None and expires.tzinfo is None:
        raise ValueError("its ExecCredential.status.expirationTimestamp has no time zone")
    return Credential(
        token=token,
        certificate=certificate.encode() or None,
        key=key.encode() or None,
        expires=None if expires is None else expires.timestamp(),
    )
