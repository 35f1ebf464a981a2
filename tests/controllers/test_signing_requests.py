"""What a request for a certificate is read as, and which are not read at all."""

import ipaddress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import AttributeOID, NameOID

from proreus.controllers.kubelet_serving.plan import Asked
from proreus.controllers.kubelet_serving.signing_request import read
from proreus.testing.controlplane.certificates import signing_request

KEY = ec.generate_private_key(ec.SECP256R1())
NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a")])
GOOD = signing_request("system:node:a", ["system:nodes"], ["a"], ["10.0.0.1", "fd00::1"])


def made(builder: x509.CertificateSigningRequestBuilder) -> bytes:
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def builder(subject: x509.Name = NAME) -> x509.CertificateSigningRequestBuilder:
    return x509.CertificateSigningRequestBuilder().subject_name(subject)


def asking(*names: x509.GeneralName) -> bytes:
    return made(builder().add_extension(x509.SubjectAlternativeName(names), critical=True))


def test_names_addresses_and_subject_are_read() -> None:
    assert read(GOOD) == Asked(
        common_names=("system:node:a",),
        organizations=("system:nodes",),
        names=("a",),
        addresses=(ipaddress.ip_address("10.0.0.1"), ipaddress.ip_address("fd00::1")),
    )


def test_a_request_without_extensions_asks_for_nothing() -> None:
    assert read(made(builder())) == Asked(common_names=("a",))


def test_an_ipv4_address_in_the_form_of_ipv6_is_strange() -> None:
    """Go's signer makes 10.0.0.1 of it, which may be another Node's."""
    pem = signing_request("system:node:a", ["system:nodes"], ["a"], ["::ffff:10.0.0.1", "fd00::1"])
    assert read(pem).strange == ("it asks for 10.0.0.1 as an IPv6 address",)


def test_every_common_name_and_organization_is_read() -> None:
    parts = [(NameOID.COMMON_NAME, "b"), (NameOID.ORGANIZATION_NAME, "o")]
    more = x509.Name([*NAME, *(x509.NameAttribute(oid, text) for oid, text in parts * 2)])
    found = read(made(builder(more)))
    assert found.common_names == ("a", "b", "b")
    assert found.organizations == ("o", "o")


@pytest.mark.parametrize(
    ("pem", "said"),
    [
        (b"", "not one PEM block"),
        (GOOD + GOOD, "not one PEM block"),
        (b"-----BEGIN X-----\n" + GOOD, "not one PEM block"),
        (GOOD.replace(b"CERTIFICATE REQUEST", b"NEW CERTIFICATE REQUEST"), "not one PEM block"),
        (GOOD.replace(b"\nM", b"\nN", 1), "cannot be read"),
        (GOOD[:100] + b"\n-----END CERTIFICATE REQUEST-----", "cannot be read"),
    ],
)
def test_what_is_not_one_request_is_not_read(pem: bytes, said: str) -> None:
    found = read(pem)
    assert said in found.strange[0]
    assert found == Asked(strange=found.strange)


def test_a_request_that_another_key_has_signed_is_not_read() -> None:
    der = x509.load_pem_x509_csr(GOOD).public_bytes(serialization.Encoding.DER)
    changed = der.replace(b"system:node:a", b"system:node:b")
    pem = x509.load_der_x509_csr(changed).public_bytes(serialization.Encoding.PEM)
    assert read(pem).strange == ("its signature is not by the key in it",)


@pytest.mark.parametrize(
    ("pem", "said"),
    [
        (asking(x509.RFC822Name("a@example.org")), "RFC822Name"),
        (
            asking(x509.UniformResourceIdentifier("https://example.org")),
            "UniformResourceIdentifier",
        ),
        (asking(x509.DirectoryName(NAME)), "DirectoryName"),
        (asking(x509.IPAddress(ipaddress.ip_network("10.0.0.0/8"))), "IPAddress"),
        (
            made(
                builder().add_extension(
                    x509.BasicConstraints(ca=True, path_length=0), critical=True
                )
            ),
            "the extension 2.5.29.19",
        ),
        (
            made(builder(x509.Name([*NAME, x509.NameAttribute(NameOID.COUNTRY_NAME, "GR")]))),
            "its subject has 2.5.4.6",
        ),
        (
            made(builder().add_attribute(AttributeOID.CHALLENGE_PASSWORD, b"x")),
            "an attribute that is not a list of extensions",
        ),
    ],
)
def test_what_no_kubelet_asks_for_is_told(pem: bytes, said: str) -> None:
    assert said in "; ".join(read(pem).strange)


def test_two_lists_of_extensions_are_refused() -> None:
    """The signer could read the other one."""
    one = builder().add_extension(x509.SubjectAlternativeName([x509.DNSName("a")]), critical=False)
    plain = one.sign(KEY, hashes.SHA256())
    (attribute,) = plain.attributes
    twice = builder().add_attribute(attribute.oid, b"0\x00")
    twice = twice.add_extension(x509.SubjectAlternativeName([x509.DNSName("b")]), critical=False)
    (said,) = read(made(twice)).strange
    assert "extensions" in said or "cannot be read" in said
