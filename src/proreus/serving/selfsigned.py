"""Make certificates for a server that is given none."""

import datetime as dt
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME: Final = dt.timedelta(days=365)
"""How long a self-signed certificate is valid, as Go's."""


class Pair(msgspec.Struct, frozen=True):
    """A certificate with its chain, and its key; both PEM."""

    certificate: bytes
    key: bytes

    def is_ageing(self) -> bool:
        """Tell whether more than half of the certificate's lifetime is over."""
        found = x509.load_pem_x509_certificate(self.certificate)
        start, end = found.not_valid_before_utc, found.not_valid_after_utc
        return dt.datetime.now(dt.UTC) > start + (end - start) / 2


def self_signed(names: Sequence[str]) -> Pair:
    """Make a certificate for these names and loopback, and its key.

    Nobody can verify the certificate: it is for probes and scrapers that do not
    (`insecure_skip_verify`).
    """
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    loopback = [x509.IPAddress(ipaddress.ip_address(one)) for one in ("127.0.0.1", "::1")]
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))  # for clocks that are behind
        .not_valid_after(now + LIFETIME)
        .add_extension(
            x509.SubjectAlternativeName([*map(x509.DNSName, dict.fromkeys(names)), *loopback]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), private)


def ensured(folder: Path, name: str, names: Sequence[str]) -> Pair:
    """Return the pair `name`.crt and `name`.key of a folder; make both if neither file exists.

    Raises:
        OSError: The files cannot be read or written.
        ValueError: Only one of the two is there.
    """
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    there = [path.exists() for path in (certificate, key)]
    if all(there):
        return Pair(certificate.read_bytes(), key.read_bytes())
    if any(there):
        raise ValueError(f"holds one of {certificate.name} and {key.name}; add or remove one")
    pair = self_signed(names)
    folder.mkdir(parents=True, exist_ok=True)
    _write(key, pair.key, mode=0o600)
    _write(certificate, pair.certificate, mode=0o644)
    return pair


def _write(path: Path, content: bytes, mode: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
