"""Read what a certificate signing request (PKCS#10, RFC 2986) asks for. Pure.

What it is read as must be what the signer reads. So a request in which two libraries could choose
another part is refused: text around the block, a second list of extensions, a second common name;
and an IPv4 address written as one of IPv6 (`::ffff:10.0.0.5`), of which Go makes the IPv4 address.
"""

import base64
import re
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.x509.oid import NameOID

from proreus.controllers.kubelet_serving.plan import Asked

_BLOCK: Final = re.compile(
    rb"\s*-----BEGIN CERTIFICATE REQUEST-----\r?\n([A-Za-z0-9+/=\r\n]+)"
    rb"-----END CERTIFICATE REQUEST-----\s*"
)
_EXTENSION_REQUEST: Final = x509.ObjectIdentifier("1.2.840.113549.1.9.14")
"""The attribute that holds all extensions asked for (PKCS#9, RFC 2985)."""

_ERRORS: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)


def read(pem: bytes) -> Asked:
    """Return what the request asks for, or `strange`: what keeps it from being read."""
    block = _BLOCK.fullmatch(pem)
    if block is None:
        return Asked(strange=("it is not one PEM block CERTIFICATE REQUEST",))
    try:
        request = x509.load_der_x509_csr(base64.b64decode(block[1]))
        if not request.is_signature_valid:
            return Asked(strange=("its signature is not by the key in it",))
        if any(one.oid != _EXTENSION_REQUEST for one in request.attributes):
            return Asked(strange=("it has an attribute that is not a list of extensions",))
        if len(list(request.attributes)) > 1:
            return Asked(strange=("it has two lists of extensions",))
        return _asked(request)
    except _ERRORS as exc:
        return Asked(strange=(f"it cannot be read: {exc}",))


def _asked(request: x509.CertificateSigningRequest) -> Asked:
    subject = [(one.oid, str(one.value)) for one in request.subject]
    known = (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME)
    strange = [f"its subject has {oid.dotted_string}" for oid, _ in subject if oid not in known]
    names: list[str] = []
    addresses: list[IPv4Address | IPv6Address] = []
    for extension in request.extensions:
        if not isinstance(extension.value, x509.SubjectAlternativeName):
            strange.append(f"it asks for the extension {extension.oid.dotted_string}")
            continue
        for one in extension.value:
            if isinstance(one, x509.DNSName):
                names.append(one.value)
            elif isinstance(one, x509.IPAddress) and isinstance(
                one.value, IPv4Address | IPv6Address
            ):
                addresses.append(one.value)
                if isinstance(one.value, IPv6Address) and one.value.ipv4_mapped is not None:
                    strange.append(f"it asks for {one.value.ipv4_mapped} as an IPv6 address")
            else:
                strange.append(f"it asks for a name of the kind {type(one).__name__}")
    return Asked(
        common_names=tuple(text for oid, text in subject if oid == known[0]),
        organizations=tuple(text for oid, text in subject if oid == known[1]),
        names=tuple(names),
        addresses=tuple(addresses),
        strange=tuple(strange),
    )
