"""Certificates, names and clients' authorities of a real HTTPS server."""

import asyncio
import datetime as dt
import io
import socket
import ssl
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from proreus.kube.clientconfig import load_pair
from proreus.runtime import klog
from proreus.serving import servers, tls_settings
from proreus.serving.selfsigned import Pair, self_signed
from proreus.serving.tls import ServerTLS, TLSError
from proreus.serving.tls_settings import Settings
from proreus.testing.controlplane.certificates import Authority

SECONDS = 60


@asynccontextmanager
async def serving_with(server: ServerTLS) -> AsyncIterator[int]:
    """The port of a server that answers with the client's common name, or "nobody"."""

    async def who(request: web.Request) -> web.Response:
        connection = request.get_extra_info("ssl_object")
        subject = (connection.getpeercert() or {}).get("subject", ())
        names = dict(pair for part in subject for pair in part)
        return web.Response(text=names.get("commonName", "nobody"))

    app = web.Application()
    app.router.add_get("/", who)
    async with servers.serve(
        app, "127.0.0.1", 0, flag="--secure-port", tls=server, any_port=True
    ) as port:
        yield port


def unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def shown(
    port: int, name: str | None = None, context: ssl.SSLContext | None = None
) -> x509.Certificate:
    """The certificate that a client is shown who asks for that name."""
    async with asyncio.timeout(SECONDS):
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context or unverified(), server_hostname=name or ""
        )
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        await writer.wait_closed()
    return x509.load_der_x509_certificate(der)


async def who(port: int, context: ssl.SSLContext) -> str:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"https://127.0.0.1:{port}/", ssl=context) as response,
    ):
        return await response.text()


def serial(pair: Pair) -> int:
    return x509.load_pem_x509_certificate(pair.certificate).serial_number


def write(folder: Path, name: str, pair: Pair) -> tuple[str, str]:
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    return str(certificate), str(key)


async def test_without_files_it_makes_a_certificate_in_memory_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with serving_with(ServerTLS(Settings())) as port:
        names = (await shown(port)).extensions.get_extension_for_class(x509.SubjectAlternativeName)
        assert names.value.get_values_for_type(x509.DNSName) == ["localhost"]
    assert not list(tmp_path.iterdir())


async def test_a_folder_keeps_the_certificate_over_restarts(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    settings = Settings(cert_dir=str(folder))
    async with serving_with(ServerTLS(settings)) as port:
        first = await shown(port)
    async with serving_with(ServerTLS(settings)) as port:
        assert await shown(port) == first
    assert sorted(path.name for path in folder.iterdir()) == [
        "cloud-controller-manager.crt",
        "cloud-controller-manager.key",
    ]
    key = folder / "cloud-controller-manager.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    key.unlink()
    with pytest.raises(TLSError, match=r"--cert-dir: .*add or remove one"):
        ServerTLS(settings)


async def test_certificates_change_under_load_and_no_request_fails(tmp_path: Path) -> None:
    authority = Authority()
    pairs = [Pair(*authority.serving()) for _ in range(3)]
    files = write(tmp_path, "tls", pairs[0])
    server = ServerTLS(Settings(cert_file=files[0], private_key_file=files[1]), pause=0.05)
    context = ssl.create_default_context(cadata=authority.certificate.decode())
    stop, answers = asyncio.Event(), 0

    async def load(port: int) -> None:
        nonlocal answers
        while not stop.is_set():
            assert await who(port, context) == "nobody"
            answers += 1

    async with serving_with(server) as port, asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(load(port))
        for pair in pairs[1:]:
            write(tmp_path, "tls", pair)
            async with asyncio.timeout(SECONDS):
                while (await shown(port)).serial_number != serial(pair):
                    await asyncio.sleep(0.05)
        stop.set()
    assert answers


def test_a_wrong_new_pair_is_reported_once_and_the_old_one_stays(tmp_path: Path) -> None:
    old, new, other = self_signed(["old"]), self_signed(["new"]), self_signed(["other"])
    files = write(tmp_path, "tls", old)
    server = ServerTLS(Settings(cert_file=files[0], private_key_file=files[1]))
    before, stream = server.context.inner, io.StringIO()
    klog.setup(stream=stream)
    try:
        assert not server.reload()
        write(tmp_path, "tls", Pair(new.certificate, other.key))
        assert not server.reload()
        assert not server.reload()
        assert server.context.inner is before
        write(tmp_path, "tls", new)
        assert server.reload()
        Path(files[1]).unlink()
        assert not server.reload()
        assert not server.reload()
    finally:
        klog.setup()
    assert server.context.inner is not before
    told = [line for line in stream.getvalue().splitlines() if "not used" in line]
    assert len(told) == 2
    assert f"--tls-cert-file: {files[0]} and {files[1]}: are not a usable pair" in told[0]
    assert f"--tls-private-key-file: cannot read {files[1]}: No such file" in told[1]
    assert "PRIVATE KEY" not in stream.getvalue()


async def test_each_name_gets_its_certificate(tmp_path: Path) -> None:
    default = self_signed(["default.test"])
    given = self_signed(["a.test", "given.test"])
    own = self_signed(["a.test", "own.test", "*.wild.test"])
    later = self_signed(["own.test"])
    certificate, key = write(tmp_path, "d", default)
    settings = Settings(
        cert_file=certificate,
        private_key_file=key,
        sni=(
            (*write(tmp_path, "own", own), ()),
            (*write(tmp_path, "later", later), ()),
            (*write(tmp_path, "given", given), ("A.test", "b.test")),
        ),
    )
    expected = {
        None: default,
        "default.test": default,
        "elsewhere.test": default,
        "a.test": given,  # a name that the flag gives wins over one in a certificate
        "b.test": given,
        "given.test": default,  # the flag has named all that it is for
        "own.test": own,  # the first of two that are equal
        "x.wild.test": own,
        "X.Wild.Test": own,
        "x.y.wild.test": default,
    }
    async with serving_with(ServerTLS(settings)) as port:
        found = {name: (await shown(port, name)).serial_number for name in expected}
    assert found == {name: serial(pair) for name, pair in expected.items()}


@pytest.mark.parametrize(
    ("minimum", "version", "served"),
    [
        ("", ssl.TLSVersion.TLSv1_2, True),
        ("VersionTLS12", ssl.TLSVersion.TLSv1_2, True),
        ("VersionTLS10", ssl.TLSVersion.TLSv1_2, True),
        ("VersionTLS13", ssl.TLSVersion.TLSv1_3, True),
        ("VersionTLS13", ssl.TLSVersion.TLSv1_2, False),
        ("", ssl.TLSVersion.TLSv1_1, False),
        ("VersionTLS10", ssl.TLSVersion.TLSv1_1, False),
    ],
)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_versions_below_the_lowest_are_refused(
    minimum: str, version: ssl.TLSVersion, *, served: bool
) -> None:
    context = unverified()
    context.set_ciphers("ALL:@SECLEVEL=0")  # else a client of today would not even offer TLS 1.1
    context.minimum_version = context.maximum_version = version
    async with serving_with(ServerTLS(Settings(min_version=minimum))) as port:
        if served:
            assert await shown(port, context=context)
        else:
            with pytest.raises(OSError):
                await shown(port, context=context)


async def test_only_the_suites_and_the_curve_of_the_flags_are_served() -> None:
    settings = Settings(
        cipher_suites=("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256"),
        curve_preferences=(24,),
    )
    async with serving_with(ServerTLS(settings)) as port:
        for suite, served in (("AES256-GCM-SHA384", True), ("AES128-GCM-SHA256", False)):
            context = unverified()
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            context.set_ciphers(f"ECDHE-ECDSA-{suite}")
            if served:
                assert await shown(port, context=context)
            else:
                with pytest.raises(OSError):
                    await shown(port, context=context)
        for curve, served in (("secp384r1", True), ("prime256v1", False)):
            context = unverified()
            context.set_ecdh_curve(curve)
            if served:
                assert await shown(port, context=context)
            else:
                with pytest.raises(OSError):
                    await shown(port, context=context)


@pytest.mark.parametrize("suite", sorted(tls_settings.CIPHER_SUITES))
def test_openssl_has_every_suite_by_its_name(suite: str) -> None:
    names = {
        each["name"]
        for each in ServerTLS(Settings(cipher_suites=(suite,))).context.inner.get_ciphers()
    }
    assert tls_settings.CIPHER_SUITES[suite] in names


def test_what_is_wrong_with_flags_and_files_is_reported_all_at_once(tmp_path: Path) -> None:
    found = tls_settings.problems(
        Settings(
            prefix="webhook-tls",
            cipher_suites=("TLS_RSA_WITH_RC4_128_SHA", "nonsense"),
            curve_preferences=(29, 7),
        )
    )
    assert [problem.partition(";")[0] for problem in found] == [
        "--webhook-tls-cipher-suites: TLS_RSA_WITH_RC4_128_SHA, nonsense: not offered",
        "--webhook-tls-curve-preferences: 7: unknown",
    ]
    (tmp_path / "empty").touch()
    empty = str(tmp_path / "empty")
    with pytest.raises(TLSError) as caught:
        ServerTLS(
            Settings(cert_file=empty, private_key_file=empty, sni=(("/no/crt", "/no/key", ()),))
        )
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "--tls-cert-file",
        "--tls-sni-cert-key",
        "--tls-sni-cert-key",
    ]


def client(authority: Authority | None, user: str = "") -> ssl.SSLContext:
    context = unverified()
    if authority is not None:
        load_pair(context, *authority.client(user, ["g"]))
    return context


async def test_clients_certificates_are_optional_and_their_authorities_are_replaced() -> None:
    old, new = Authority(), Authority()
    server = ServerTLS(Settings())
    async with serving_with(server) as port:
        # Nobody is asked for a certificate before there are authorities.
        assert await who(port, client(old, "ann")) == "nobody"
        server.set_client_cas("# Ümläute\n" + old.certificate.decode())
        assert await who(port, client(old, "ann")) == "ann"
        assert await who(port, client(None)) == "nobody"
        klog.setup(2, stream=(log := io.StringIO()))
        try:
            with pytest.raises(aiohttp.ClientError):
                await who(port, client(new, "bob"))
        finally:
            klog.setup()
        assert '"A TLS handshake failed" reason="unable to get local issuer' in log.getvalue()
        server.set_client_cas((old.certificate + new.certificate).decode())
        assert await who(port, client(old, "ann")) == "ann"
        server.set_client_cas(new.certificate.decode())
        assert await who(port, client(new, "bob")) == "bob"
        with pytest.raises(aiohttp.ClientError):
            await who(port, client(old, "ann"))
        with pytest.raises(ValueError):
            server.set_client_cas("nonsense")
        assert await who(port, client(new, "bob")) == "bob"
        server.set_client_cas("")
        assert await who(port, client(old, "ann")) == "nobody"


async def test_no_older_session_is_resumed_after_the_authorities_were_replaced() -> None:
    old, new = Authority(), Authority()
    server = ServerTLS(Settings())
    server.set_client_cas(old.certificate.decode())
    async with serving_with(server) as port:
        context = client(old, "ann")
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # a session is there after the handshake
        session = await asyncio.to_thread(_session, port, context, None)
        assert await asyncio.to_thread(_resumes, port, context, session)
        server.set_client_cas(new.certificate.decode())
        with pytest.raises(OSError):
            await asyncio.to_thread(_resumes, port, context, session)


def _session(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None) -> ssl.SSLSession:
    with _connected(port, context, session) as connection:
        found = connection.session
        assert found is not None
        return found


def _resumes(port: int, context: ssl.SSLContext, session: ssl.SSLSession) -> bool:
    with _connected(port, context, session) as connection:
        return bool(connection.session_reused)


def _connected(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None) -> ssl.SSLSocket:
    raw = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
    return context.wrap_socket(raw, session=session)


async def test_a_name_of_its_own_does_not_get_around_the_authorities(tmp_path: Path) -> None:
    known, unknown = Authority(), Authority()
    pair = write(tmp_path, "sni", self_signed(["named.test"]))
    server = ServerTLS(Settings(sni=((*pair, ()),)))
    server.set_client_cas(known.certificate.decode())

    async def ask(port: int, context: ssl.SSLContext) -> str:
        async with (
            aiohttp.ClientSession() as session,
            session.get(
                f"https://127.0.0.1:{port}/", ssl=context, server_hostname="named.test"
            ) as response,
        ):
            return await response.text()

    async with serving_with(server) as port:
        assert await ask(port, client(known, "ann")) == "ann"
        with pytest.raises(aiohttp.ClientError):
            await ask(port, client(unknown, "bob"))


def test_a_certificate_in_memory_is_made_anew_in_time() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x")])
    now = dt.datetime.now(dt.UTC)

    def pair(age: int, rest: int) -> Pair:
        made = (
            x509.CertificateBuilder(name, name, key.public_key(), 1)
            .not_valid_before(now - dt.timedelta(days=age))
            .not_valid_after(now + dt.timedelta(days=rest))
            .sign(key, hashes.SHA256())
        )
        return Pair(made.public_bytes(serialization.Encoding.PEM), b"")

    assert not pair(1, 2).is_ageing()
    assert pair(2, 1).is_ageing()
