import base64
import ssl
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from proreus.kube import config
from proreus.kube.client import Client
from proreus.kube.config import ClientConfig, FileToken
from proreus.kube.errors import ConfigError, Unreachable
from proreus.kube.objects import Node
from proreus.kube.requests import NODES
from proreus.testing.controlplane.certificates import Authority

Serve = Callable[..., Awaitable[str]]


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def document(
    cluster: Mapping[str, Any] | None = None, user: Mapping[str, Any] | None = None, **top: Any
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://a:6443", **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
        "current-context": "x",
        **top,
    }


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Write a kubeconfig; answers its path."""

    def put(content: Any, name: str = "kubeconfig") -> str:
        text = content if isinstance(content, str) else yaml.safe_dump(content)
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return put


Write = Callable[..., str]


async def whoami(client_config: ClientConfig) -> Node:
    async with Client(client_config) as client:
        return await client.get(NODES, "whoami")


async def answer_whoami(request: web.BaseRequest) -> web.StreamResponse:
    """Say who asks: the common name of the client's certificate, and the bearer token."""
    assert request.transport is not None
    peer = request.transport.get_extra_info("peercert") or {}
    subject = {key: value for ((key, value),) in peer.get("subject", ())}
    labels = {
        "certificate": subject.get("commonName", ""),
        "token": request.headers.get("Authorization", ""),
    }
    return web.json_response({"metadata": {"labels": labels}})


# Sources


def test_the_flag_comes_before_everything(write: Write, tmp_path: Path) -> None:
    flag = write(document({"server": "https://flag"}), "flag")
    other = write(document({"server": "https://env"}), "env")
    env = {"KUBECONFIG": other, "KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOME": str(tmp_path)}

    assert config.load(flag, env=env).server == "https://flag"
    assert config.load(env=env).server == "https://env"


@pytest.mark.parametrize("pattern", ["{}", "{}:/other", ":{}"])
def test_the_first_file_of_the_environment_counts(write: Write, pattern: str) -> None:
    path = write(document())

    assert config.load(env={"KUBECONFIG": pattern.format(path)}).server == "https://a:6443"


@pytest.mark.parametrize("variable", ["HOME", "KUBECONFIG"])
def test_a_place_that_cannot_be_read_is_reported(variable: str) -> None:
    place = "/" + "x" * 5000  # what root may not see cannot be made by a test that root runs
    with pytest.raises(ConfigError, match="File name too long"):
        config.load(env={variable: place})


def test_the_file_in_the_home_directory_comes_last(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(yaml.safe_dump(document()))

    assert config.load(env={"HOME": str(tmp_path)}).server == "https://a:6443"


def test_without_any_source_the_error_names_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load(env={"HOME": str(tmp_path)})

    for source in ("--kubeconfig", "--master", "$KUBECONFIG", "service account", ".kube/config"):
        assert source in str(caught.value)


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("https://m:1", "https://m:1"),
        ("https://m:1/prefix/", "https://m:1/prefix"),
        ("m:8080", "http://m:8080"),
        ("http://[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_a_master_by_itself_comes_without_credentials(master: str, expected: str) -> None:
    loaded = config.load(master=master, env={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})

    assert loaded == ClientConfig(server=expected)


def test_the_master_replaces_the_server_and_its_name_only(
    write: Write, authority: Authority
) -> None:
    ca = encoded(authority.certificate)
    cluster = {"certificate-authority-data": ca, "tls-server-name": "elsewhere"}
    path = write(document(cluster, {"token": "t"}))

    loaded = config.load(path, "master:6443", env={})

    assert loaded.server == "https://master:6443"
    assert loaded.tls_server_name == ""
    assert loaded.ca == authority.certificate
    assert loaded.bearer_token() == "t"
    assert config.load(path, env={}).tls_server_name == "elsewhere"


def test_a_context_can_be_chosen(write: Write) -> None:
    more = document()
    more["clusters"].append({"name": "c2", "cluster": {"server": "https://b"}})
    more["users"].append({"name": "u2", "user": {"token": "two"}})
    more["contexts"].append({"name": "x2", "context": {"cluster": "c2", "user": "u2"}})

    loaded = config.load(write(more), context="x2", env={})

    assert (loaded.server, loaded.bearer_token(), loaded.namespace) == ("https://b", "two", "")


def test_what_other_contexts_use_may_be_broken(write: Write) -> None:
    more = document()
    more["users"].append(
        {"name": "other", "user": {"exec": {"command": "x"}, "client-key": "/absent"}}
    )
    more["clusters"].append({"name": "other", "cluster": {"proxy-url": "http://p"}})

    assert config.load(write(more), env={}).namespace == "n"


# What is wrong


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", ["current-context: is not set (there are: none)"]),
        ("- a\n- b\n", ["is not a mapping"]),
        ("a: b\nc: [secret\n", ["line 3: is not YAML"]),
        ("a: *secret\n", ["line 1: is not YAML: found undefined alias (not shown"]),
        (
            "a: !secret b\n",
            ["line 1: is not YAML: could not determine a constructor for the tag ("],
        ),
        ("a: \x00", ["is not YAML"]),
        ("a: 2026-99-99", ["is not YAML"]),
        ({"kind": "Pod"}, ["kind: is not Config", "current-context: is not set"]),
        ({**document(), "current-context": ""}, ["current-context: is not set (there are: x)"]),
        (
            {**document(), "current-context": "y"},
            ["current-context: there is no 'y' (there are: x)"],
        ),
        (document(contexts=[]), ["current-context: there is no 'x' (there are: none)"]),
        (document(contexts={"x": {}}), ["contexts: is not a list", "there is no 'x'"]),
        (
            document(contexts=["x"]),
            ["contexts[0]: is not a mapping", "contexts[0].name: is not set", "there is no 'x'"],
        ),
        (document(clusters=[]), ["contexts[x].context.cluster: there is no 'c' (there are: none)"]),
        (
            document(contexts=[{"name": "x", "context": {}}]),
            [
                "contexts[x].context.cluster: is not set (there are: c)",
                "contexts[x].context.user: is not set (there are: u)",
            ],
        ),
        (
            document(contexts=[{"name": "x"}]),
            ["context.cluster: is not set", "context.user: is not set"],
        ),
        (document(users=[{"name": "u", "user": []}]), ["users[u].user: is not a mapping"]),
        (document(users=[{"name": "u"}, {"name": "u"}]), ["users[1].name: u is there twice"]),
        (
            document(users=[{"name": 5}]),
            ["users[0].name: is not a string", "context.user: there is no 'u'"],
        ),
        (document({"server": ""}), ["clusters[c].cluster.server: is not set"]),
        (document({"server": "ftp://a"}), ["clusters[c].cluster.server: is not a URL"]),
        (document({"server": "https://"}), ["clusters[c].cluster.server: is not a URL"]),
        (document({"server": "https://a:port"}), ["clusters[c].cluster.server: is not a URL"]),
        (document({"server": "https://a b"}), ["clusters[c].cluster.server: is not a URL"]),
        (document({"server": "https://me:secret@a"}), ["clusters[c].cluster.server: is not a URL"]),
        (document({"server": "https://a?b=c"}), ["clusters[c].cluster.server: is not a URL"]),
        (
            document({"server": 6443}),
            ["cluster.server: is not a string", "cluster.server: is not set"],
        ),
        (
            document({"proxy-url": "http://me:secret@"}),
            ["clusters[c].cluster.proxy-url: is not a URL"],
        ),
        (document({"proxy-url": "secret:3128"}), ["clusters[c].cluster.proxy-url: is not a URL"]),
        (
            document({"proxy-url": "socks5://secret:1"}),
            ["clusters[c].cluster.proxy-url: socks5 is not supported, give an HTTP proxy"],
        ),
        (
            document({"insecure-skip-tls-verify": "yes"}),
            ["clusters[c].cluster.insecure-skip-tls-verify: is neither true nor false"],
        ),
        (
            document({"insecure-skip-tls-verify": True, "certificate-authority": "absent"}),
            [
                "certificate-authority: ",
                "insecure-skip-tls-verify: contradicts certificate-authority",
            ],
        ),
        (
            document({"certificate-authority": "absent"}),
            ["clusters[c].cluster.certificate-authority: "],
        ),
        (
            document({"certificate-authority-data": "c2VjcmV0"}),
            ["certificate-authority: no certificate in PEM form"],
        ),
        (
            document({"certificate-authority-data": encoded("sécret".encode())}),
            ["certificate-authority: no certificate in PEM form"],
        ),
        (
            document({"certificate-authority-data": "secret!"}),
            ["clusters[c].cluster.certificate-authority-data: is not base64"],
        ),
        (
            document({"certificate-authority-data": "c2VjcmV0", "certificate-authority": "x"}),
            [
                "clusters[c].cluster.certificate-authority: give either",
                "no certificate in PEM form",
            ],
        ),
        (
            document(user={"client-certificate-data": "c2VjcmV0"}),
            ["users[u].user.client-key: is needed with client-certificate"],
        ),
        (
            document(user={"client-key-data": "c2VjcmV0"}),
            ["users[u].user.client-certificate: is needed with client-key"],
        ),
        (
            document(user={"client-key-data": "c2VjcmV0", "client-certificate-data": "c2VjcmV0"}),
            ["client-certificate and client-key are not a matching pair in PEM"],
        ),
        (document(user={"token": "sec ret"}), ["users[u].user.token: is not a token"]),
        (document(user={"token": "secrét"}), ["users[u].user.token: is not a token"]),
        (document(user={"token": 123456}), ["users[u].user.token: is not a string"]),
        (document(user={"tokenFile": "absent"}), ["users[u].user.tokenFile: "]),
        (
            document(user={"auth-provider": {"name": "azure", "config": {"a": "secret"}}}),
            ["users[u].user.auth-provider: is gone since Kubernetes 1.26: use exec with kubelogin"],
        ),
        (
            document(user={"auth-provider": {"name": "mine"}}),
            ["users[u].user.auth-provider: is gone since Kubernetes 1.26: use exec with the prov"],
        ),
        (
            document(user={"username": "secret", "password": "secret"}),
            [
                "users[u].user.username: basic authentication is gone since Kubernetes 1.19",
                "users[u].user.password: basic authentication is gone since Kubernetes 1.19",
            ],
        ),
        (
            document(user={"as-groups": ["secret"]}),
            ["users[u].user.as: is needed with as-uid, as-groups and as-user-extra"],
        ),
        (
            document(user={"as": "a", "as-groups": "secret", "as-user-extra": {"k": "secret"}}),
            [
                "users[u].user.as-groups: is not a list",
                "users[u].user.as-user-extra.k: is not a list",
            ],
        ),
        (
            document(user={"as": "a", "as-groups": ["secret", 5]}),
            ["users[u].user.as-groups: is not a list of strings"],
        ),
        (document(user={"as": "secret\r\nX: y"}), ["users[u].user.as: this, or a field beside it"]),
        (
            document(
                {"server": "x://", "proxy-url": "p", "certificate-authority": "absent"},
                {"exec": {"a": 1}, "token": "", "client-key": "absent"},
            ),
            [
                "users[u].user.client-key: ",
                "users[u].user.client-certificate: is needed",
                "users[u].user.exec.apiVersion",
                "users[u].user.exec.command: is not set",
                "clusters[c].cluster.certificate-authority: ",
                "clusters[c].cluster.proxy-url",
                "clusters[c].cluster.server: ",
            ],
        ),
    ],
)
def test_all_that_is_wrong_with_a_file_is_reported_with_its_field(
    write: Write, content: Any, expected: list[str]
) -> None:
    path = write(content)

    with pytest.raises(ConfigError) as caught:
        config.load(path, env={})

    problems = caught.value.problems
    assert len(problems) == len(expected), problems
    for part, problem in zip(expected, problems, strict=True):
        assert part in problem
        assert path in problem
        assert "secret" not in problem.replace(path, "")


@pytest.mark.parametrize("name", ["absent", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)

    for flag, env in ((path, {}), ("", {"KUBECONFIG": path})):
        with pytest.raises(ConfigError, match=path):
            config.load(flag, env=env)


@pytest.mark.parametrize("master", ["https://me:secret@m", "x://m", "https://m:99999", "a b"])
def test_a_master_that_is_no_url_is_reported(write: Write, master: str) -> None:
    for path in ("", write(document())):
        with pytest.raises(ConfigError, match="--master: is not a URL") as caught:
            config.load(path, master, env={})
        assert "secret" not in str(caught.value)


def test_a_key_with_a_passphrase_is_an_error_and_no_question(write: Write, tmp_path: Path) -> None:
    key = (
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"
        f"{encoded(bytes(range(200)))}\n"
        "-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    user = {"client-key-data": encoded(key.encode()), "client-certificate-data": encoded(b"x")}

    with pytest.raises(ConfigError, match="matching pair"):
        config.load(write(document(user=user)), env={})


def test_secrets_do_not_show(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cr3t")
    token = FileToken(tmp_path / "token")
    assert token() == "s3cr3t"

    for shown in (
        ClientConfig(server="https://a", token="s3cr3t", client_key=b"s3cr3t"),
        ClientConfig(server="https://a", token=token),
        token,
    ):
        assert "s3cr3t" not in f"{shown} {shown!r}"


# Tokens


def test_a_token_file_is_read_each_time(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = FileToken(path)

    for content in ("one\n", "two"):
        path.write_text(content)
        assert token() == content.strip()


@pytest.mark.parametrize("content", [None, b"", b"\xff", b"a b"])
def test_while_a_token_file_is_unreadable_the_last_token_serves(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "token"
    token = FileToken(path)
    path.write_text("one")
    assert token() == "one"
    path.unlink()
    if content is not None:
        path.write_bytes(content)

    assert token() == "one"
    path.write_text("two")
    assert token() == "two"


def test_a_token_file_wins_over_the_token(write: Write, tmp_path: Path) -> None:
    (tmp_path / "t").write_text("from-file")
    path = write(document(user={"token": "inline", "tokenFile": "t"}))

    loaded = config.load(path, env={})

    assert loaded.bearer_token() == "from-file"
    absent = write(document(user={"token": "inline", "tokenFile": "absent"}))
    assert config.load(absent, env={}).bearer_token() == "inline"


# In a Pod


@pytest.fixture
def pod(tmp_path: Path, authority: Authority) -> Path:
    directory = tmp_path / "serviceaccount"
    directory.mkdir()
    (directory / "token").write_text("pod-token")
    (directory / "ca.crt").write_bytes(authority.certificate)
    (directory / "namespace").write_text("kube-system")
    return directory


async def test_a_pod_uses_its_service_account(
    serve: Serve, serving_tls: ssl.SSLContext, pod: Path
) -> None:
    server = await serve(answer_whoami, serving_tls)
    host, _, port = server.removeprefix("https://").rpartition(":")
    env = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}

    loaded = config.load(env=env, service_account_dir=pod)

    assert loaded.namespace == "kube-system"
    assert (await whoami(loaded)).metadata.labels["token"] == "Bearer pod-token"
    assert isinstance(loaded.token, FileToken)  # so that it is read again,
    assert loaded.ca == pod / "ca.crt"  # and this too


@pytest.mark.parametrize(
    ("host", "expected"),
    [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")],
)
def test_a_pods_server_may_have_any_family(pod: Path, host: str, expected: str) -> None:
    env = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}

    assert config.load(env=env, service_account_dir=pod).server == expected


def test_what_a_pod_lacks_is_reported_together(tmp_path: Path) -> None:
    env = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}

    with pytest.raises(ConfigError) as caught:
        config.load(env=env, service_account_dir=tmp_path)

    port, token, ca = caught.value.problems
    assert "$KUBERNETES_SERVICE_PORT" in port
    assert str(tmp_path / "token") in token
    assert "automountServiceAccountToken" in token
    assert str(tmp_path / "ca.crt") in ca


# TLS


def fields(parts: Mapping[str, bytes], directory: Path | None) -> dict[str, str]:
    """The parts as fields: in files below the directory, or inline."""
    if directory is None:
        return {f"{name}-data": encoded(content) for name, content in parts.items()}
    directory.mkdir(exist_ok=True)
    for name, content in parts.items():
        (directory / name).write_bytes(content)
    return {name: f"{directory.name}/{name}" for name in parts}


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "file"])
async def test_certificates_come_inline_or_by_a_path_relative_to_the_file(
    serve: Serve,
    serving_tls: ssl.SSLContext,
    authority: Authority,
    tmp_path: Path,
    *,
    inline: bool,
) -> None:
    certificate, key = authority.client("me", ["group"])
    directory = None if inline else tmp_path / "pki"
    cluster = fields({"certificate-authority": authority.certificate}, directory)
    user = fields({"client-certificate": certificate, "client-key": key}, directory)
    server = await serve(answer_whoami, serving_tls)
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document({"server": server, **cluster}, user)))

    loaded = config.load(str(path), env={})

    assert (await whoami(loaded)).metadata.labels == {"certificate": "me", "token": ""}


async def test_a_server_of_another_authority_is_refused(
    serve: Serve, serving_tls: ssl.SSLContext
) -> None:
    server = await serve(answer_whoami, serving_tls)

    for ca in (Authority().certificate, None):
        with pytest.raises(Unreachable, match="certificate verify failed") as caught:
            await whoami(ClientConfig(server=server, ca=ca))
        assert not caught.value.sent


async def test_the_name_of_the_server_is_checked(
    serve: Serve, serving_tls: ssl.SSLContext, authority: Authority
) -> None:
    server = await serve(answer_whoami, serving_tls)
    good = ClientConfig(server=server, ca=authority.certificate, tls_server_name="localhost")
    bad = ClientConfig(server=server, ca=authority.certificate, tls_server_name="elsewhere")

    await whoami(good)
    with pytest.raises(Unreachable, match="elsewhere"):
        await whoami(bad)


async def test_verification_can_be_switched_off(
    serve: Serve, serving_tls: ssl.SSLContext, write: Write
) -> None:
    server = await serve(answer_whoami, serving_tls)
    path = write(document({"server": server, "insecure-skip-tls-verify": True}, {"token": "t"}))

    assert (await whoami(config.load(path, env={}))).metadata.labels["token"] == "Bearer t"


async def test_the_master_flag_is_where_requests_go(
    serve: Serve, serving_tls: ssl.SSLContext, write: Write, authority: Authority
) -> None:
    server = await serve(answer_whoami, serving_tls)
    cluster = {"certificate-authority-data": encoded(authority.certificate)}
    path = write(document(cluster, {"token": "t"}))

    loaded = config.load(path, server, env={})

    assert (await whoami(loaded)).metadata.labels["token"] == "Bearer t"


def test_a_key_of_another_certificate_is_refused(authority: Authority) -> None:
    certificate, _ = authority.client("me", [])
    _, key = authority.client("you", [])

    with pytest.raises(ConfigError, match="matching pair"):
        ClientConfig(
            server="https://a", client_certificate=certificate, client_key=key
        ).ssl_context()


def test_no_file_is_left_behind_or_open(authority: Authority) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    certificate, key = authority.client("me", [])
    before = descriptors()
    for _ in range(3):
        ClientConfig(
            server="https://a", client_certificate=certificate, client_key=key
        ).ssl_context()

    assert descriptors() == before


@pytest.mark.parametrize(
    ("server", "proxy", "reads"),
    [
        ("https://a", "", True),
        ("http://a", "https://proxy", True),
        ("http://a", "http://proxy", False),
        ("http://a", "", False),
    ],
)
def test_the_systems_authorities_are_read_only_where_they_count(
    server: str, proxy: str, *, reads: bool, tmp_path: Path, authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    file = tmp_path / "authorities.pem"
    file.write_bytes(authority.certificate)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))

    tls = ClientConfig(server=server, proxy=proxy).ssl_context()

    assert tls.cert_store_stats()["x509_ca"] == reads
