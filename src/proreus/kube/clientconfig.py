"""Say where the API server is and who we are, as values that the client uses."""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from proreus.kube.errors import ConfigError
from proreus.kube.execplugin import CredentialSource

Pem = bytes | Path
"""Certificates or a key: in memory, or in a file that may be replaced at any time."""


class FileToken:
    """A bearer token in a file that is replaced from time to time."""

    def __init__(self, path: Path, *, fallback: str = "") -> None:
        """Remember the path; `fallback` serves until the file could be read once."""
        self._path = path
        self._token = fallback

    def __repr__(self) -> str:
        return f"FileToken({str(self._path)!r})"

    def __call__(self) -> str:
        """Return the token in the file; while it cannot be read, the last one read.

        Raises:
            ConfigError: the file could never be read.
        """
        try:
            self._token = checked_token(self._path.read_bytes())
        except (OSError, ValueError) as exc:
            if not self._token:
                why = exc.strerror if isinstance(exc, OSError) else exc
                raise ConfigError([f"{self._path}: {why}"]) from exc
        return self._token


class Impersonation(msgspec.Struct, frozen=True):
    """The user that requests impersonate, which needs the right `impersonate`."""

    user: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The way to the API server, with our credentials. Its repr hides the secrets.

    `server` has no slash at its end. Certificates and the key are PEM; without `ca` the system's
    authorities count. `token` and `exec_plugin` give the bearer token of the moment, the plugin
    perhaps a certificate instead. `namespace` may be "". `proxy` is the URL of the proxy between
    us and the server, with its user and password, "" if there is none.
    """

    server: str
    ca: Pem | None = None
    client_certificate: Pem | None = None
    client_key: Pem | None = None
    token: str | FileToken = ""
    exec_plugin: CredentialSource | None = None
    impersonation: Impersonation | None = None
    namespace: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy: str = ""

    def __repr__(self) -> str:
        return f"ClientConfig(server={self.server!r}, namespace={self.namespace!r})"

    def bearer_token(self) -> str:
        """Return the bearer token to send now; "" if the exec plugin gives it, or none.

        Raises:
            ConfigError: it is in a file that could never be read.
        """
        return self.token if isinstance(self.token, str) else self.token()

    def in_memory(self) -> "ClientConfig":
        """Return this config with certificates and key read from their files.

        Raises:
            ConfigError: a file cannot be read.
        """
        problems: list[str] = []
        ca = _held(self.ca, "certificate-authority", problems)
        certificate = _held(self.client_certificate, "client-certificate", problems)
        key = _held(self.client_key, "client-key", problems)
        if problems:
            raise ConfigError(problems)
        return msgspec.structs.replace(self, ca=ca, client_certificate=certificate, client_key=key)

    @property
    def _uses_tls(self) -> bool:
        return "https" in {url.partition("://")[0].lower() for url in (self.server, self.proxy)}

    def ssl_context(self) -> ssl.SSLContext:
        """Make the TLS context that the config describes.

        Raises:
            ConfigError: a certificate or the key cannot be read or used.
        """
        held = self.in_memory()
        ca, certificate, key = held.ca, held.client_certificate, held.client_key
        # Not create_default_context: from Python 3.13 on it asks for extensions that certificate
        # authorities of older clusters lack, and that Go does not ask for.
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        problems: list[str] = []
        if ca is None and self._uses_tls:
            tls.load_default_certs()  # 20 ms of CPU time
        elif isinstance(ca, bytes):
            try:
                tls.load_verify_locations(cadata=ca.decode("ascii"))
            except (ssl.SSLError, ValueError) as exc:
                problems.append(f"certificate-authority: no certificate in PEM form: {exc}")
        if self.insecure_skip_tls_verify:
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        if isinstance(certificate, bytes) and isinstance(key, bytes):
            try:
                load_pair(tls, certificate, key)
            except ssl.SSLError as exc:
                problems.append(
                    f"client-certificate and client-key are not a matching pair in PEM: {exc}"
                )
        if problems:
            raise ConfigError(problems)
        return tls


def checked_server(url: str, where: str, problems: list[str], *, is_tls: bool) -> str:
    """Return the server's base URL; report a problem if it is not a URL.

    Without a scheme it is https if anything of TLS is configured, as for kubectl.
    """
    if not url:
        problems.append(f"{where}: is not set")
        return ""
    if "://" not in url:
        url = f"https://{url}" if is_tls else f"http://{url}"
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        good = False
    else:
        good = good and not (parts.username or parts.password or parts.query or parts.fragment)
    if not good or any(char.isspace() for char in url):
        problems.append(f"{where}: is not a URL such as https://host:6443")
    return url.rstrip("/")


def read_file(path: Path, where: str, problems: list[str]) -> bytes | None:
    """Read a file; if that fails, report a problem that starts with `where`, return None."""
    try:
        return path.read_bytes()
    except OSError as exc:
        problems.append(f"{where}: cannot read {path}: {exc.strerror}")
        return None


def checked_token(content: bytes) -> str:
    """Raise ValueError, which does not show the token, if a header cannot carry it."""
    try:
        token = content.decode("ascii").strip()
    except UnicodeDecodeError:
        raise ValueError("is not a token: not ASCII") from None
    if not token:
        raise ValueError("is empty")
    if not token.isprintable() or " " in token:
        raise ValueError("is not a token: it contains white space")
    return token


def _held(pem: Pem | None, where: str, problems: list[str]) -> bytes | None:
    return read_file(pem, where, problems) if isinstance(pem, Path) else pem


def load_pair(tls: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load certificate and key into OpenSSL, which takes only files, also from memory.

    Raises:
        ssl.SSLError: the two do not belong together, or are not PEM.
    """
    with os.fdopen(os.memfd_create("client-certificate"), "wb") as pair:
        pair.write(certificate + b"\n" + key)
        pair.flush()
        # An encrypted key fails with the empty password, where without any OpenSSL would ask.
        tls.load_cert_chain(f"/proc/self/fd/{pair.fileno()}", password="")
