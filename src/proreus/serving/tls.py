"""Set up TLS for our servers: certificates that change on disk, names (SNI), client CAs.

A server is given one `ssl.SSLContext` for its whole life, and that one passes each new connection
to the context in use, which is replaced when a certificate or the authorities of clients change.
So a connection sees all of the old state or all of the new, and resumes no older session.

Differences from Go, which come from Python's ssl: TLS 1.2 is the lowest version there is; one
curve can be chosen, not an order of several; a client's certificate that no known authority has
signed ends the connection in the handshake, where Go answers 401 afterwards. Clients without a
certificate are served, and those that keep theirs back as its authority was not asked for.
"""

import asyncio
import ssl
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from proreus.kube.clientconfig import load_pair
from proreus.runtime import klog
from proreus.serving.certificates import authorities
from proreus.serving.selfsigned import Pair, ensured, self_signed
from proreus.serving.tls_settings import (
    CURVES,
    VERSIONS,
    Settings,
    openssl_suites,
    problems,
    warn_without_effect,
)

log = klog.logger(__name__)

PAUSE_SECONDS: Final = 2.0
"""Seconds between two reads of files. Kubernetes takes up to a minute to update mounted ones."""

VERBOSE: Final = 2
"""The log verbosity at which failed handshakes are explained."""

_UNREADABLE: Final = (
    x509.ExtensionNotFound,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)
"""Errors of certificates that OpenSSL serves all the same; they then match no name."""

OWN_NAMES: Final = ("localhost",)
"""Names in certificates that we make, beside loopback's addresses; as Go's."""


class TLSError(Exception):
    """The error that the server's TLS cannot be set up; `problems` name the flags."""

    def __init__(self, problems: Sequence[str]) -> None:
        """Keep all problems."""
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class ServerTLS:
    """The TLS settings of one server.

    Attributes:
        context: The TLS context of the server; each connection gets the certificates and
            authorities of the moment at which it begins.
    """

    def __init__(self, settings: Settings, *, pause: float = PAUSE_SECONDS) -> None:
        """Read or make the certificates.

        Args:
            settings: The settings that the flags give.
            pause: Seconds between two looks at the files.

        Raises:
            TLSError: The flags or the files are wrong.
        """
        if wrong := problems(settings):
            raise TLSError(wrong)
        self._settings = settings
        self._pause = pause
        self._client_cas = b""  # DER
        self._made: Pair | None = None  # in memory, where no file is given
        self._named: tuple[_Named, ...] = ()
        self._seen = self._read()
        self._load(self._seen)
        self.context = _Passing()
        self.context.inner = self._build()
        warn_without_effect(settings)

    def set_client_cas(self, pem: str) -> None:
        """Ask new connections for a certificate of these authorities; "" asks for none.

        An open connection keeps what was verified when it began.

        Raises:
            ValueError: The text is no PEM of certificates; all stays as it was.
        """
        self._client_cas = b"".join(
            authority.public_bytes(serialization.Encoding.DER) for authority in authorities(pem)
        )
        self.context.inner = self._build()

    async def follow(self) -> None:
        """Reload certificates that change on disk, for ever; log each wrong one once."""
        while True:
            await asyncio.sleep(self._pause)
            self.reload()

    def reload(self) -> bool:
        """Read the files again; tell whether something new is in use.

        Files that were read once and are wrong are not tried again until they change, and the old
        certificates stay.
        """
        if self._made is not None and self._made.is_ageing():
            self._made = None
        elif (now := self._read()) == self._seen:
            return False
        else:
            self._seen = now
        try:
            self._load(self._seen)
            self.context.inner = self._build()
        except TLSError as exc:
            klog.error(log, "The new certificate is not used; the old one stays", err=exc)
            return False
        klog.info(log, "A new certificate is in use", names=self._named[0].about())
        return True

    def _read(self) -> "_Files":
        """Read each file; put an error in its place if it cannot be read."""
        found: dict[str, bytes | str] = {}
        for path in _paths(self._settings):
            try:
                found[path] = Path(path).read_bytes()
            except OSError as exc:
                found[path] = exc.strerror or type(exc).__name__
        return found

    def _load(self, files: "_Files") -> None:
        """Load the certificates with their keys from the files, or make a self-signed one.

        Raises:
            TLSError: At least one certificate or key is wrong; none is used.
        """
        settings, wrong = self._settings, list[str]()
        named: list[_Named] = []
        if settings.cert_file:
            flags = (f"--{settings.prefix}-cert-file", f"--{settings.prefix}-private-key-file")
            own = (settings.cert_file, settings.private_key_file, ())
            named += _from_files(own, flags, files, wrong)
        else:
            named.append(self._own(files))
        sni = f"--{settings.prefix}-sni-cert-key"
        for each in settings.sni:
            named += _from_files(each, (sni, sni), files, wrong)
        if wrong:
            raise TLSError(wrong)
        self._named = tuple(named)

    def _own(self, files: "_Files") -> "_Named":
        """Return the folder's certificate and key, or make them; without a folder, in memory."""
        settings = self._settings
        if not settings.cert_dir:
            self._made = self._made or self_signed(OWN_NAMES)
            return _Named.of(self._made, ())
        flag = "--" + settings.prefix.removesuffix("tls") + "cert-dir"
        try:
            pair = ensured(Path(settings.cert_dir), settings.pair_name, OWN_NAMES)
            _check(pair)
            found = _Named.of(pair, ())
        except (OSError, ValueError) as exc:
            raise TLSError((f"{flag}: {settings.cert_dir}: {exc}",)) from exc
        if not all(isinstance(files[path], bytes) for path in _own_paths(settings)):
            self._seen = self._read()  # what was just made is nothing new
        return found

    def _build(self) -> ssl.SSLContext:
        contexts = [self._context_of(one.pair) for one in self._named]
        default, by_name = contexts[0], _by_name(self._named[1:], contexts[1:])
        if by_name:

            def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
                if name and (other := chosen(name, by_name)) is not None:
                    connection.context = other

            # No name is refused: one that nothing is for gets the default, as in Go.
            default.sni_callback = choose
        return default

    def _context_of(self, pair: Pair) -> ssl.SSLContext:
        settings = self._settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.sslobject_class = _Connection
        context.minimum_version = VERSIONS.get(settings.min_version, ssl.TLSVersion.TLSv1_2)
        if suites := openssl_suites(settings.cipher_suites):
            context.set_ciphers(":".join(suites))
        if len(settings.curve_preferences) == 1:
            context.set_ecdh_curve(CURVES[settings.curve_preferences[0]])
        load_pair(context, pair.certificate, pair.key)
        if self._client_cas:
            # An intermediate in the bundle is an anchor too, as in Go.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.load_verify_locations(cadata=self._client_cas)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context


class _Passing(ssl.SSLContext):
    """A listener that passes every connection to the context in use when it begins."""

    inner: ssl.SSLContext

    def __new__(cls) -> Self:
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """Wrap a connection; asyncio calls this for each one."""
        return self.inner.wrap_bio(*args, **kwargs)


class _Connection(ssl.SSLObject):
    """A connection that logs why its handshake failed: asyncio closes it without a reason."""

    def do_handshake(self) -> None:
        """Continue the handshake; log why it fails."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as exc:
            why = getattr(exc, "verify_message", "") or exc.reason or str(exc)
            klog.v(log, VERBOSE, "A TLS handshake failed", reason=why)
            raise


class _Named(msgspec.Struct, frozen=True):
    """A pair and its names: those given, else those in the certificate."""

    pair: Pair
    given: tuple[str, ...]
    own: tuple[str, ...]

    @classmethod
    def of(cls, pair: Pair, given: tuple[str, ...]) -> "_Named":
        return cls(pair, given, names_of(pair.certificate))

    def about(self) -> str:
        return ", ".join(self.own)


_Files = dict[str, bytes | str]


def chosen(name: str, table: Mapping[str, ssl.SSLContext]) -> ssl.SSLContext | None:
    """Return the context for a name: its own, else its domain's wildcard's, else None."""
    name = name.lower().rstrip(".")
    return table.get(name) or table.get("*." + name.partition(".")[2])


def names_of(certificate: bytes) -> tuple[str, ...]:
    """Return the DNS names in a certificate (PEM, the first of a chain), else its common name.

    Names that cannot be read are left out.

    Raises:
        ValueError: The text holds no certificate.
    """
    found = x509.load_pem_x509_certificate(certificate)
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        dns = names.get_values_for_type(x509.DNSName)
    except (*_UNREADABLE, ValueError):
        dns = []
    common = found.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return tuple(dns) or tuple(str(each.value) for each in common[:1])


def _by_name(
    named: Sequence[_Named], contexts: Sequence[ssl.SSLContext]
) -> dict[str, ssl.SSLContext]:
    """Map names to contexts: given names win over certificates' own, the first over later ones."""
    table: dict[str, ssl.SSLContext] = {}
    pairs = list(zip(named, contexts, strict=True))[::-1]
    for one, context in pairs:
        if not one.given:
            table.update((name.lower(), context) for name in one.own)
    for one, context in pairs:
        table.update((name.lower(), context) for name in one.given)
    return table


def _from_files(
    files: tuple[str, str, tuple[str, ...]],
    flags: tuple[str, str],
    content: _Files,
    wrong: list[str],
) -> Iterable[_Named]:
    cert, key, names = files
    certificate, private_key = content[cert], content[key]
    if isinstance(certificate, str):
        wrong.append(f"{flags[0]}: cannot read {cert}: {certificate}")
    if isinstance(private_key, str):
        wrong.append(f"{flags[1]}: cannot read {key}: {private_key}")
    if isinstance(certificate, str) or isinstance(private_key, str):
        return
    pair = Pair(certificate, private_key)
    try:
        _check(pair)
        yield _Named.of(pair, names)
    except ValueError as exc:
        wrong.append(f"{flags[0]}: {cert} and {key}: {exc}")


def _check(pair: Pair) -> None:
    """Raise ValueError if OpenSSL cannot serve with the certificate and key."""
    try:
        load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), pair.certificate, pair.key)
    except ssl.SSLError as exc:
        reason = (exc.reason or "not a certificate and an unencrypted key in PEM").lower()
        raise ValueError(f"are not a usable pair: {reason.replace('_', ' ')}") from exc


def _paths(settings: Settings) -> tuple[str, ...]:
    return (*_own_paths(settings), *(path for one in settings.sni for path in one[:2]))


def _own_paths(settings: Settings) -> tuple[str, ...]:
    if settings.cert_file:
        return settings.cert_file, settings.private_key_file
    if settings.cert_dir:
        start = Path(settings.cert_dir) / settings.pair_name
        return f"{start}.crt", f"{start}.key"
    return ()
