"""Check client certificates: who issued them, and which user they name. Pure."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from proreus.kube.reviews import User

LONGEST_CHAIN: Final = 5
"""The most certificates of a chain, from the client's to the authority's."""

_FOR_CLIENTS: Final = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}


def authorities(pem: str) -> tuple[x509.Certificate, ...]:
    """Decode the certificates of a bundle; none if the bundle is blank.

    Raises:
        ValueError: The bundle holds no certificate, or one that cannot be read.
    """
    if not pem.strip():
        return ()
    try:
        return tuple(x509.load_pem_x509_certificates(pem.encode()))
    except ValueError as exc:
        raise ValueError(f"holds no certificates in PEM: {exc}") from exc


def common_name(certificate: x509.Certificate) -> str:
    """Return the subject's common name; "" if there is none."""
    return next(iter(_subject(certificate, NameOID.COMMON_NAME)), "")


def user_of(certificate: x509.Certificate) -> User:
    """Return the user that a client's certificate names; each organization is a group."""
    groups = _subject(certificate, NameOID.ORGANIZATION_NAME)
    return User(common_name(certificate), groups=tuple(groups))


def is_trusted(
    chain: Sequence[x509.Certificate], trusted: Sequence[x509.Certificate], now: datetime
) -> bool:
    """Tell whether a chain, the client's certificate first, leads to a trusted authority.

    The others of the chain are what the client showed with it. That the client has the key was
    proven to the TLS server, which also checked the chain against all authorities together; this
    tells one authority from the other, and lets a connection go on no longer than its trust.
    """
    if not chain or not _is_for_clients(chain[0]):
        return False
    return _leads(chain[0], chain[1:], trusted, now, LONGEST_CHAIN)


def _leads(
    certificate: x509.Certificate,
    shown: Sequence[x509.Certificate],
    trusted: Sequence[x509.Certificate],
    now: datetime,
    length: int,
) -> bool:
    if length <= 1 or not _is_current(certificate, now):
        return False
    if any(_is_issued(certificate, each) and _is_current(each, now) for each in trusted):
        return True
    return any(
        _is_issued(certificate, each) and _leads(each, shown, trusted, now, length - 1)
        for each in shown
        if each != certificate
    )


def _is_current(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


def _is_issued(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    if certificate.issuer != issuer.subject or not _is_authority(issuer):
        return False
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, UnsupportedAlgorithm, TypeError, ValueError):
        return False
    return True


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def _is_for_clients(certificate: x509.Certificate) -> bool:
    """Tell whether the certificate's usages, if it lists any, allow client authentication."""
    try:
        usages = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    except ValueError:
        return False
    return not _FOR_CLIENTS.isdisjoint(usages)


def _subject(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> list[str]:
    return [str(each.value) for each in certificate.subject.get_attributes_for_oid(oid)]
