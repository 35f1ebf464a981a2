from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from proreus.kube.reviews import User
from proreus.serving import certificates
from proreus.serving.authentication import (
    ANONYMOUS,
    Credentials,
    FrontProxy,
    Trust,
    certified_user,
    proxied_user,
    with_authenticated,
)
from proreus.serving.authorities import (
    Bundles,
    Sources,
    combined,
    published,
)
from proreus.testing.controlplane.certificates import Authority

NOW = datetime.now(UTC)
USERS, PROXIES, OTHERS = Authority(), Authority(), Authority()
DAY = timedelta(days=1)


def cas(authority: Authority) -> tuple[x509.Certificate, ...]:
    return certificates.authorities(authority.certificate.decode())


def client(authority: Authority, user: str, *groups: str) -> tuple[x509.Certificate, ...]:
    return (x509.load_pem_x509_certificate(authority.client(user, groups)[0]),)


PROXY = FrontProxy(
    cas=cas(PROXIES),
    names=("front",),
    username_headers=("X-Remote-User", "X-User"),
    uid_headers=("X-Remote-Uid",),
    group_headers=("X-Remote-Group",),
    extra_prefixes=("X-Remote-Extra-",),
)
ANN = (("x-remote-user", "ann"),)


def test_a_certificate_names_the_user_and_the_groups() -> None:
    shown = Credentials(chain=client(USERS, "ann", "dev", "ops"))
    assert certified_user(shown, Trust(cas(USERS)), NOW) == User("ann", groups=("dev", "ops"))


@pytest.mark.parametrize(
    ("chain", "now"),
    [
        pytest.param((), NOW, id="no certificate"),
        pytest.param(client(OTHERS, "ann"), NOW, id="another authority of the same name"),
        pytest.param(client(USERS, "ann"), NOW + 365 * DAY, id="expired"),
        pytest.param(client(USERS, "ann"), NOW - DAY, id="not valid yet"),
        pytest.param(
            (x509.load_pem_x509_certificate(USERS.serving()[0]),), NOW, id="a server's certificate"
        ),
    ],
)
def test_an_untrusted_certificate_has_no_user(
    chain: tuple[x509.Certificate, ...], now: datetime
) -> None:
    assert certified_user(Credentials(chain=chain), Trust(cas(USERS)), now) is None


def test_of_several_authorities_any_will_do() -> None:
    trust = Trust(cas(OTHERS) + cas(USERS))
    assert certified_user(Credentials(chain=client(USERS, "ann")), trust, NOW) == User("ann")


def issue(
    name: str,
    issuer: str,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    *,
    ca: bool,
    until: datetime = NOW + DAY,
) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - DAY)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if not ca:
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = builder.add_extension(usage, critical=False)
    return builder.sign(signer, hashes.SHA256())


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)] if common else [])


def test_a_certificate_without_a_name_has_no_user() -> None:
    root_key, leaf_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    trust = Trust((issue("root", "root", root_key, root_key, ca=True),))
    for name, expected in (("ann", User("ann")), ("", None)):
        shown = Credentials(chain=(issue(name, "root", leaf_key, root_key, ca=False),))
        assert certified_user(shown, trust, NOW) == expected


def test_a_certificate_or_an_authority_that_has_expired_is_trusted_no_more() -> None:
    root_key, leaf_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    for root_until, leaf_until, expected in (
        (NOW + DAY, NOW + DAY, True),
        (NOW + DAY, NOW - DAY / 2, False),
        (NOW - DAY / 2, NOW + DAY, False),
    ):
        root = issue("root", "root", root_key, root_key, ca=True, until=root_until)
        leaf = issue("ann", "root", leaf_key, root_key, ca=False, until=leaf_until)
        assert certificates.is_trusted((leaf,), (root,), NOW) is expected


def test_an_intermediate_authority_leads_to_the_root_and_a_client_does_not() -> None:
    root_key, middle_key, leaf_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    root = issue("root", "root", root_key, root_key, ca=True)
    leaf = issue("ann", "middle", leaf_key, middle_key, ca=False)
    for is_authority in (True, False):
        middle = issue("middle", "root", middle_key, root_key, ca=is_authority)
        assert certificates.is_trusted((leaf, middle), (root,), NOW) is is_authority
        assert certificates.is_trusted((leaf,), (middle,), NOW) is is_authority
        assert not certificates.is_trusted((leaf,), (root,), NOW)


def test_chains_that_bite_their_tail_end() -> None:
    one_key, two_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    one = issue("one", "two", one_key, two_key, ca=True)
    two = issue("two", "one", two_key, one_key, ca=True)
    assert not certificates.is_trusted((one, two, one, two), cas(USERS), NOW)


def test_a_front_proxy_gives_name_groups_and_extra_of_the_user() -> None:
    headers = (
        *ANN,
        ("X-REMOTE-GROUP", "dev"),
        ("x-remote-group", "ops"),
        ("X-Remote-Uid", "17"),
        ("X-Remote-Extra-Scopes", "a"),
        ("X-Remote-Extra-Scopes", "b"),
        ("X-Remote-Extra-Example.com%2fTeam", "c"),
    )
    shown = Credentials(headers, client(PROXIES, "front"))
    assert proxied_user(shown, PROXY, NOW) == User(
        "ann",
        uid="17",
        groups=("dev", "ops"),
        extra={"scopes": ("a", "b"), "example.com/team": ("c",)},
    )


def test_the_first_header_that_has_a_name_counts() -> None:
    headers = (("X-User", "bob"), ("X-Remote-User", ""))
    assert proxied_user(Credentials(headers, client(PROXIES, "front")), PROXY, NOW) == User("bob")


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(Credentials(ANN), id="no certificate"),
        pytest.param(Credentials(ANN, client(USERS, "front")), id="another authority"),
        pytest.param(Credentials(ANN, client(PROXIES, "someone")), id="another name"),
        pytest.param(Credentials((), client(PROXIES, "front")), id="no user"),
    ],
)
def test_no_other_client_is_trusted_as_a_front_proxy(shown: Credentials) -> None:
    assert proxied_user(shown, PROXY, NOW) is None


def test_without_names_each_client_of_the_front_proxies_authority_is_one() -> None:
    proxy = FrontProxy(cas=cas(PROXIES), username_headers=("X-Remote-User",))
    assert proxied_user(Credentials(ANN, client(PROXIES, "any")), proxy, NOW) == User("ann")


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer  abc ", "abc"),
        ("Basic abc", ""),
        ("Bearer", ""),
        ("abc", ""),
    ],
)
def test_the_token_is_that_of_the_bearer(header: str, token: str) -> None:
    shown = Credentials((("AUTHORIZATION", header),))
    assert shown.token == token
    assert "abc" not in repr(shown)


def test_all_but_anonymous_are_authenticated() -> None:
    assert with_authenticated(User("ann", groups=("dev",))).groups == (
        "dev",
        "system:authenticated",
    )
    assert with_authenticated(ANONYMOUS) == ANONYMOUS
    twice = with_authenticated(with_authenticated(User("ann")))
    assert twice.groups == ("system:authenticated",)


def test_the_config_map_names_the_trusted_authorities() -> None:
    assert published(
        {
            "client-ca-file": "A",
            "requestheader-client-ca-file": "B",
            "requestheader-allowed-names": '["front"]',
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-uid-headers": '["X-Remote-Uid"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        }
    ) == Bundles(
        "A",
        "B",
        FrontProxy(
            names=("front",),
            username_headers=("X-Remote-User",),
            uid_headers=("X-Remote-Uid",),
            group_headers=("X-Remote-Group",),
            extra_prefixes=("X-Remote-Extra-",),
        ),
    )
    assert published({"client-ca-file": "A"}) == Bundles("A")


@pytest.mark.parametrize("text", ["front", '"front"', "[1]", "{}"])
def test_a_list_in_the_config_map_that_is_none_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="requestheader-allowed-names is not a list"):
        published({"requestheader-allowed-names": text})


def test_what_a_flag_names_counts_instead_of_what_is_published() -> None:
    own, theirs = FrontProxy(names=("own",)), FrontProxy(names=("theirs",))
    cluster = Bundles("cluster", "proxies", theirs)
    files = {"u": "users", "p": "own proxies"}
    for sources, expected in (
        (Sources(), cluster),
        (Sources(client_file="u"), Bundles("users", "proxies", theirs)),
        (Sources(proxy_file="p", front_proxy=own), Bundles("cluster", "own proxies", own)),
        (
            Sources(client_file="u", proxy_file="p", front_proxy=own),
            Bundles("users", "own proxies", own),
        ),
    ):
        assert combined(sources, files, cluster) == expected
    assert not Sources(client_file="u", proxy_file="p").needs_lookup
    assert Sources(client_file="u").needs_lookup
    assert not Sources(lookup=False).needs_lookup
