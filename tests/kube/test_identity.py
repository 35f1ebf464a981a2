import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import RawTestServer

from proreus.kube import config
from proreus.kube.client import Client
from proreus.kube.clientconfig import ClientConfig, FileToken
from proreus.kube.errors import ConfigError, Unauthorized, Unreachable
from proreus.kube.identity import FILE_AGE, Identity
from proreus.kube.requests import NODES
from proreus.testing.clock import virtual_time
from proreus.testing.controlplane.certificates import Authority

Serve = Callable[..., Awaitable[str]]


class Door:
    """A server that lets in who is on its list, by token or certificate; all if there is none."""

    def __init__(self, *guests: str) -> None:
        self.guests = guests
        self.seen: list[str] = []
        self.ports: list[int] = []

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        peer = request.transport.get_extra_info("peercert") or {}
        names = {key: value for ((key, value),) in peer.get("subject", ())}
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        self.seen.append(token or names.get("commonName", ""))
        self.ports.append(request.transport.get_extra_info("peername")[1])
        if self.guests and self.seen[-1] not in self.guests:
            return web.json_response({"reason": "Unauthorized"}, status=401)
        return web.json_response({"metadata": {"name": "a"}})


def serving(authority: Authority, directory: Path) -> ssl.SSLContext:
    certificate, key = authority.serving()
    (directory / "serving").write_bytes(certificate + key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(directory / "serving")
    tls.load_verify_locations(cadata=authority.certificate.decode())
    tls.verify_mode = ssl.CERT_OPTIONAL
    return tls


@asynccontextmanager
async def served(door: Door, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    server = RawTestServer(door)
    await server.start_server(ssl=tls)
    try:
        yield str(server.make_url("/")).rstrip("/")
    finally:
        await server.close()


def put_pair(directory: Path, pair: tuple[bytes, bytes]) -> dict[str, Any]:
    certificate, key = pair
    (directory / "c.crt").write_bytes(certificate)
    (directory / "c.key").write_bytes(key)
    return {"client_certificate": directory / "c.crt", "client_key": directory / "c.key"}


# Files that are replaced


def test_a_token_file_is_read_again_after_a_minute(tmp_path: Path) -> None:
    path, door = tmp_path / "token", Door()
    path.write_text("one")

    @virtual_time
    async def run() -> None:
        async with (
            served(door) as server,
            Client(ClientConfig(server=server, token=FileToken(path))) as client,
        ):
            await client.get(NODES, "a")
            path.write_text("two")
            await asyncio.sleep(FILE_AGE - 1)
            await client.get(NODES, "a")
            await asyncio.sleep(2)
            await client.get(NODES, "a")

    run()
    assert door.seen == ["one", "one", "two"]


async def test_a_refused_token_is_read_again_at_once(serve: Serve, tmp_path: Path) -> None:
    path, door = tmp_path / "token", Door("one", "two")
    path.write_text("one")
    server = await serve(door)

    async with Client(ClientConfig(server=server, token=FileToken(path))) as client:
        await client.get(NODES, "a")
        path.write_text("two")
        door.guests = ("two",)
        await asyncio.gather(*(client.get(NODES, "a") for _ in range(5)))
        door.guests = ("three",)
        with pytest.raises(Unauthorized):
            await client.get(NODES, "a")

    assert set(door.seen[1:-1]) == {"one", "two"}
    assert door.seen[-1] == "two"
    assert door.seen.count("two") == 6  # one that is the same is not tried again


@pytest.mark.parametrize("token", ["", "t"])
async def test_a_refusal_of_what_cannot_change_is_final(serve: Serve, token: str) -> None:
    door = Door("other")

    async with Client(ClientConfig(server=await serve(door), token=token)) as client:
        with pytest.raises(Unauthorized):
            await client.get(NODES, "a")

    assert len(door.seen) == 1


async def test_a_refused_certificate_is_read_again_at_once(
    serve: Serve, serving_tls: ssl.SSLContext, authority: Authority, tmp_path: Path
) -> None:
    door = Door("old", "new")
    server = await serve(door, serving_tls)
    files = put_pair(tmp_path, authority.client("old", []))

    async with Client(ClientConfig(server=server, ca=authority.certificate, **files)) as client:
        await client.get(NODES, "a")
        put_pair(tmp_path, authority.client("new", []))
        await client.get(NODES, "a")
        door.guests = ("new",)
        await client.get(NODES, "a")
        await client.get(NODES, "a")

    assert door.seen == ["old", "old", "old", "new", "new"]
    assert len(set(door.ports)) == 2  # the old connection until then, and one new


def test_a_certificate_file_is_read_again_after_a_minute(
    authority: Authority, tmp_path: Path
) -> None:
    door = Door()
    files = put_pair(tmp_path, authority.client("old", []))

    @virtual_time
    async def run() -> None:
        async with (
            served(door, serving(authority, tmp_path)) as server,
            Client(ClientConfig(server=server, ca=authority.certificate, **files)) as client,
        ):
            await client.get(NODES, "a")
            put_pair(tmp_path, authority.client("new", []))
            for _ in range(2):
                await asyncio.sleep(FILE_AGE / 2 + 1)
                await client.get(NODES, "a")

    run()
    assert door.seen == ["old", "old", "new"]


def test_an_authority_that_is_replaced_is_trusted_and_the_old_one_no_more(tmp_path: Path) -> None:
    ca, old, new = tmp_path / "ca.crt", Authority(), Authority()
    ca.write_bytes(old.certificate)

    @virtual_time
    async def run() -> None:
        async with (
            served(Door(), serving(old, tmp_path)) as before,
            served(Door(), serving(new, tmp_path)) as after,
            Client(ClientConfig(server=before, ca=ca)) as first,
            Client(ClientConfig(server=after, ca=ca)) as second,
        ):
            await first.get(NODES, "a")
            with pytest.raises(Unreachable, match="certificate verify failed"):
                await second.get(NODES, "a")
            ca.write_bytes(new.certificate)
            await asyncio.sleep(FILE_AGE)
            await second.get(NODES, "a")
            with pytest.raises(Unreachable, match="certificate verify failed"):
                await first.get(NODES, "a")

    run()


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("broken", ["half", "empty", "gone"])
async def test_while_new_files_cannot_be_used_the_last_ones_go_on_with_one_warning(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    clock = Clock()
    token = tmp_path / "token"
    token.write_text("t")
    files = put_pair(tmp_path, authority.client("old", []))
    identity = Identity(ClientConfig(server="https://a", token=FileToken(token), **files), clock)
    tls, new = identity.tls, authority.client("new", [])

    certificate = tmp_path / "c.crt"
    if broken == "half":  # the certificate is there already, its key is not
        certificate.write_bytes(new[0])
    elif broken == "empty":
        certificate.write_bytes(b"")
    else:
        certificate.unlink()
    for _ in range(3):
        clock.now += FILE_AGE
        await identity.refresh()

    assert identity.tls is tls
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "client-certificate" in record.getMessage()
    assert identity.valid_until == clock.now + FILE_AGE

    put_pair(tmp_path, new)
    clock.now += FILE_AGE
    await identity.refresh()
    assert identity.tls is not tls
    assert len(caplog.records) == 1


async def test_files_that_stay_the_same_change_nothing(
    authority: Authority, tmp_path: Path
) -> None:
    clock = Clock()
    files = put_pair(tmp_path, authority.client("me", []))
    identity = Identity(ClientConfig(server="https://a", **files), clock)
    tls, headers = identity.tls, identity.headers

    clock.now += FILE_AGE
    await identity.refresh()

    assert (identity.tls, identity.headers, identity.generation) == (tls, headers, 0)
    assert identity.tls is tls


def test_what_is_in_memory_never_gets_old(authority: Authority) -> None:
    identity = Identity(
        ClientConfig(server="https://a", ca=authority.certificate, token="t"), Clock()
    )

    assert identity.valid_until == float("inf")


# Kubeconfig


def kubeconfig(directory: Path, cluster: dict[str, Any], user: dict[str, Any]) -> str:
    document = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return str(path)


async def test_files_of_a_kubeconfig_are_read_again(
    serve: Serve, serving_tls: ssl.SSLContext, authority: Authority, tmp_path: Path
) -> None:
    door = Door("new")
    put_pair(tmp_path, authority.client("old", []))
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    cluster = {"server": await serve(door, serving_tls), "certificate-authority": "ca.crt"}
    user = {"client-certificate": "c.crt", "client-key": "c.key"}
    loaded = config.load(kubeconfig(tmp_path, cluster, user), env={})

    async with Client(loaded) as client:
        put_pair(tmp_path, authority.client("new", []))
        await client.get(NODES, "a")

    assert door.seen[-1] == "new"


async def test_impersonation_is_in_the_headers_of_each_request(
    serve: Serve, tmp_path: Path
) -> None:
    seen: list[list[tuple[str, str]]] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(
            sorted(item for item in request.headers.items() if item[0].startswith("Impersonate"))
        )
        return web.json_response({"metadata": {"name": "a"}})

    user = {
        "token": "t",
        "as": "jane",
        "as-uid": "7",
        "as-groups": ["a", "b"],
        "as-user-extra": {"Scopes": ["view", "edit"], "acme.com/project": ["p"]},
    }
    path = kubeconfig(tmp_path, {"server": await serve(handler)}, user)

    async with Client(config.load(path, env={})) as client:
        for _ in range(2):
            await client.get(NODES, "a")

    assert seen[0] == [
        ("Impersonate-Extra-acme.com%2Fproject", "p"),
        ("Impersonate-Extra-scopes", "edit"),
        ("Impersonate-Extra-scopes", "view"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-User", "jane"),
    ]
    assert seen[1] == seen[0]


async def test_that_nothing_is_verified_is_reported_once(
    serve: Serve,
    serving_tls: ssl.SSLContext,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = f"{await serve(Door(), serving_tls)}/{tmp_path.name}"
    user = {"token": "s3cr3t"}
    path = kubeconfig(tmp_path, {"server": server, "insecure-skip-tls-verify": True}, user)

    for _ in range(2):
        async with Client(config.load(path, env={})) as client:
            await client.get(NODES, "a")

    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert server in warnings[0].getMessage()
    assert "insecure-skip-tls-verify" in warnings[0].getMessage()
    assert "s3cr3t" not in caplog.text


# Several files


def several(*documents: Any, directory: Path) -> dict[str, str]:
    paths = []
    for number, document in enumerate(documents):
        home = directory / str(number)
        home.mkdir()
        path = home / "config"
        if document is not None:
            path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
        paths.append(str(path))
    return {"KUBECONFIG": ":".join(paths)}


def named(name: str, inner: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"name": name, inner: fields}]


CONTEXT = named("x", "context", cluster="c", user="u")


def test_files_complete_one_another_and_the_missing_are_skipped(tmp_path: Path) -> None:
    env = several(
        None,
        {"contexts": CONTEXT},
        "",
        {"clusters": named("c", "cluster", server="https://a")},
        {"current-context": "x", "users": named("u", "user", token="t")},
        directory=tmp_path,
    )

    loaded = config.load(env=env)

    assert (loaded.server, loaded.bearer_token()) == ("https://a", "t")


def test_of_two_entries_with_one_name_the_first_counts_whole(tmp_path: Path) -> None:
    env = several(
        {
            "current-context": "x",
            "contexts": CONTEXT,
            "clusters": named("c", "cluster", server="https://first"),
            "users": named("u", "user", token="first"),
        },
        {
            "current-context": "y",
            "contexts": named("x", "context", cluster="z", user="z", namespace="second"),
            "clusters": named("c", "cluster", server="https://second", **{"tls-server-name": "s"}),
            "users": named("u", "user", token="second", **{"as": "second"}),
        },
        directory=tmp_path,
    )

    loaded = config.load(env=env)

    assert loaded == ClientConfig(server="https://first", token="first")


def test_paths_are_relative_to_the_file_that_has_them(tmp_path: Path, authority: Authority) -> None:
    env = several(
        {
            "current-context": "x",
            "contexts": CONTEXT,
            "users": named("u", "user", tokenFile="token"),
        },
        {"clusters": named("c", "cluster", server="https://a", **{"certificate-authority": "ca"})},
        directory=tmp_path,
    )
    (tmp_path / "0" / "token").write_text("t")
    (tmp_path / "1" / "ca").write_bytes(authority.certificate)

    loaded = config.load(env=env)

    assert (loaded.bearer_token(), loaded.ca) == ("t", tmp_path / "1" / "ca")


def test_what_is_wrong_in_all_files_is_reported_with_file_and_field(tmp_path: Path) -> None:
    env = several(
        "a: [secret",
        {"contexts": CONTEXT, "users": named("u", "user", token=5)},
        {
            "current-context": "x",
            "users": "secret",
            "clusters": named("c", "cluster", server="secret s"),
        },
        {"kind": "Secret"},
        directory=tmp_path,
    )

    with pytest.raises(ConfigError) as caught:
        config.load(env=env)

    expected = [
        "0/config: line 1: is not YAML",
        "3/config: kind: is not Config",
        "2/config: users: is not a list",
        "1/config: users[u].user.token: is not a string",
        "2/config: clusters[c].cluster.server: is not a URL",
    ]
    assert len(caught.value.problems) == len(expected), caught.value.problems
    for part, problem in zip(expected, caught.value.problems, strict=True):
        assert problem.startswith(f"{tmp_path}/{part}")
        assert "secret" not in problem


def test_the_first_file_with_a_current_context_is_blamed_for_it(tmp_path: Path) -> None:
    env = several({"contexts": CONTEXT}, {"current-context": "y"}, directory=tmp_path)

    with pytest.raises(ConfigError, match=r"1/config: current-context: there is no 'y' .*: x\)"):
        config.load(env=env)


def test_files_of_which_none_is_there_are_all_named(tmp_path: Path) -> None:
    env = several(None, None, directory=tmp_path)

    with pytest.raises(ConfigError) as caught:
        config.load(env=env)

    assert [str(tmp_path / str(n)) in p for n, p in enumerate(caught.value.problems)] == [True] * 2
