"""Make keys and certificates for a control plane that lives for minutes."""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = dt.timedelta(days=30)


class Authority:
    """A certificate authority with its key in memory."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("proreus-test-ca")
        usage = _key_usage(key_cert_sign=True, crl_sign=True)
        self._certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def certificate(self) -> bytes:
        """The authority's own certificate, PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key(self) -> bytes:
        """The authority's private key, PEM."""
        return _private_pem(self._key)

    def serving(
        self,
        names: Sequence[str] = ("localhost",),
        addresses: Sequence[str] = ("127.0.0.1",),
    ) -> tuple[bytes, bytes]:
        """Make a server's certificate and key, PEM, by default for loopback."""
        alternatives = _alternatives(names, addresses)
        return self._issue(_name("kube-apiserver"), ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def client(self, user: str, groups: Sequence[str]) -> tuple[bytes, bytes]:
        """Make the certificate and key, PEM, of a user: CN is the user, each O a group."""
        subject = _name(user, groups)
        return self._issue(subject, ExtendedKeyUsageOID.CLIENT_AUTH)

    def _issue(
        self,
        subject: x509.Name,
        purpose: x509.ObjectIdentifier,
        names: x509.SubjectAlternativeName | None = None,
    ) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            self._builder(subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        )
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return certificate.public_bytes(serialization.Encoding.PEM), _private_pem(key)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        # Both key identifiers are needed by Python 3.13's strict verification.
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + _LIFETIME)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )


def signing_request(
    user: str,
    groups: Sequence[str] = (),
    names: Sequence[str] = (),
    addresses: Sequence[str] = (),
) -> bytes:
    """Make a request, PEM, for a certificate of a user with these names; its key is thrown away."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(_name(user, groups))
    if names or addresses:
        builder = builder.add_extension(_alternatives(names, addresses), critical=False)
    request = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def signing_key() -> bytes:
    """Make a private key, PEM, that signs the tokens of service accounts."""
    return _private_pem(ec.generate_private_key(ec.SECP256R1()))


def write_private(path: Path, content: bytes) -> Path:
    """Write a file that only its owner can read; return its path."""
    path.touch(mode=0o600)
    path.write_bytes(content)
    return path


def _name(common_name: str, organizations: Sequence[str] = ()) -> x509.Name:
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _alternatives(names: Sequence[str], addresses: Sequence[str]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName(
        [
            *(x509.DNSName(name) for name in names),
            *(x509.IPAddress(ipaddress.ip_address(address)) for address in addresses),
        ]
    )


def _key_usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        # kube-apiserver reads no PKCS #8 from --service-account-key-file.
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
