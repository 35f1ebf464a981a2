import asyncio
import base64
import json
import logging
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from proreus.kube import config, patch
from proreus.kube.client import Client
from proreus.kube.clientconfig import ClientConfig
from proreus.kube.errors import ConfigError, Unauthorized, Unreachable
from proreus.kube.execplugin import Credential, ExecPlugin, PluginFailed, decode
from proreus.kube.identity import PLUGIN_PAUSE, Identity
from proreus.kube.requests import NODES, Request
from proreus.testing.controlplane.certificates import Authority
from proreus.testing.waiting import until

Serve = Callable[..., Awaitable[str]]

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"


def credential(version: str = V1, **status: Any) -> str:
    return json.dumps({"kind": "ExecCredential", "apiVersion": version, "status": status})


class Plugin:
    """A shell script that counts its runs and prints the answer of the run, the last for ever."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "plug in"
        self.directory.mkdir()
        self.path = self.directory / "get-token"
        self.write('n=$(wc -l < runs); [ -e "answer$n" ] || n=last; cat "answer$n"')

    def write(self, script: str) -> None:
        here = f"cd '{self.directory}'"
        head = f'#!/bin/sh\n{here}\necho "$@" >> runs\nprintf %s "$KUBERNETES_EXEC_INFO" > info\n'
        self.path.write_text(f"{head}{script}\n")
        self.path.chmod(0o755)

    def prints(self, *answers: str) -> None:
        for number, answer in enumerate(answers, start=1):
            (self.directory / f"answer{number}").write_text(answer)
        (self.directory / "answerlast").write_text(answers[-1])

    @property
    def runs(self) -> list[str]:
        runs = self.directory / "runs"
        return runs.read_text().splitlines() if runs.exists() else []

    @property
    def info(self) -> Any:
        return json.loads((self.directory / "info").read_text())

    def config(self, server: str = "http://localhost:1", **more: Any) -> ClientConfig:
        return ClientConfig(server=server, exec_plugin=ExecPlugin(command=str(self.path)), **more)


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


def kubeconfig(
    directory: Path, exec_: Mapping[str, Any], cluster: Mapping[str, Any], **user: Any
) -> str:
    base = {"apiVersion": V1, "interactiveMode": "Never"}
    document = {
        "clusters": [{"name": "c", "cluster": {"server": "https://a", **cluster}}],
        "users": [{"name": "u", "user": {"exec": {**base, **exec_}, **user}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return str(path)


class Door:
    """A server that lets some tokens in, and says who came."""

    def __init__(self, *tokens: str) -> None:
        self.tokens = tokens
        self.seen: list[str] = []

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        self.seen.append(request.headers.get("Authorization", "").removeprefix("Bearer "))
        if self.tokens and self.seen[-1] not in self.tokens:
            return web.json_response({"reason": "Unauthorized"}, status=401)
        peer = request.transport.get_extra_info("peercert") or {}
        names = {key: value for ((key, value),) in peer.get("subject", ())}
        return web.json_response(
            {"metadata": {"name": names.get("commonName", ""), "uid": "u", "resourceVersion": "1"}}
        )


# Running


@pytest.mark.parametrize("version", [V1, V1BETA1])
async def test_a_plugin_gives_the_token(
    serve: Serve, plugin: Plugin, tmp_path: Path, version: str
) -> None:
    door = Door("s3cr3t")
    plugin.write(f"echo '{credential(version, token='PLACE')}' | sed \"s/PLACE/$PREFIX$2/\"")
    exec_ = {
        "command": "./plug in/get-token",  # relative to the kubeconfig, not to us
        "args": ["--token", "3t"],
        "env": [{"name": "PREFIX", "value": "s3cr"}],
        "apiVersion": version,
    }
    path = kubeconfig(tmp_path, exec_, {"server": await serve(door)})

    async with Client(config.load(path, env={})) as client:
        await client.get(NODES, "a")
        await client.get(NODES, "a")

    assert door.seen == ["s3cr3t", "s3cr3t"]
    assert plugin.runs == ["--token 3t"]
    assert plugin.info == {
        "kind": "ExecCredential",
        "apiVersion": version,
        "spec": {"interactive": False},
    }


@pytest.mark.parametrize("inline", [True, False], ids=["inline", "file"])
async def test_a_plugin_may_be_given_the_cluster(
    plugin: Plugin, tmp_path: Path, authority: Authority, *, inline: bool
) -> None:
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    field = "certificate-authority-data" if inline else "certificate-authority"
    cluster = {
        field: base64.b64encode(authority.certificate).decode() if inline else "ca.crt",
        "tls-server-name": "name",
        "proxy-url": "http://proxy:3128",
        "extensions": [
            {"name": "other", "extension": 1},
            {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}},
        ],
    }
    exec_ = {"command": str(plugin.path), "provideClusterInfo": True}
    loaded = config.load(kubeconfig(tmp_path, exec_, cluster), env={})
    plugin.prints(credential(token="t"))
    assert loaded.exec_plugin is not None

    assert (await loaded.exec_plugin.run()).token == "t"

    assert plugin.info["spec"]["cluster"] == {
        "server": "https://a",
        "tls-server-name": "name",
        "certificate-authority-data": base64.b64encode(authority.certificate).decode(),
        "proxy-url": "http://proxy:3128",
        "config": {"audience": "a"},
    }


async def test_a_plugin_gives_a_client_certificate(
    serve: Serve, serving_tls: ssl.SSLContext, authority: Authority, plugin: Plugin
) -> None:
    certificate, key = authority.client("me", [])
    plugin.prints(
        credential(clientCertificateData=certificate.decode(), clientKeyData=key.decode())
    )
    server = await serve(Door(), serving_tls)

    async with Client(plugin.config(server, ca=authority.certificate)) as client:
        assert (await client.get(NODES, "a")).metadata.name == "me"


@pytest.mark.parametrize("user", [{"token": "t"}, {"tokenFile": "t"}])
def test_what_stands_in_the_file_comes_before_the_plugin(
    plugin: Plugin, tmp_path: Path, user: dict[str, str]
) -> None:
    (tmp_path / "t").write_text("t")
    path = kubeconfig(tmp_path, {"command": str(plugin.path)}, {}, **user)

    loaded = config.load(path, env={})

    assert loaded.bearer_token() == "t"
    assert loaded.exec_plugin is None


async def test_other_work_goes_on_while_a_plugin_runs(serve: Serve, plugin: Plugin) -> None:
    plugin.write("until [ -e go ]; do sleep 0.01; done; cat answerlast")
    plugin.prints(credential(token="t"))

    async with Client(plugin.config(await serve(Door("t")))) as client:
        request = asyncio.create_task(client.get(NODES, "a"))
        await until("the plugin runs", lambda: plugin.runs)
        (plugin.directory / "go").touch()
        await request


async def test_all_who_wait_share_one_run_and_a_cancelled_one_leaves_it(
    serve: Serve, plugin: Plugin
) -> None:
    plugin.write("until [ -e go ]; do sleep 0.01; done; cat answerlast")
    plugin.prints(credential(token="t"))

    async with Client(plugin.config(await serve(Door("t")))) as client:
        requests = [asyncio.create_task(client.get(NODES, "a")) for _ in range(20)]
        await until("the plugin runs", lambda: plugin.runs)
        requests[0].cancel()
        (plugin.directory / "go").touch()
        first, *others = await asyncio.gather(*requests, return_exceptions=True)

    assert isinstance(first, asyncio.CancelledError)
    assert not [other for other in others if isinstance(other, BaseException)]
    assert len(plugin.runs) == 1


async def test_a_client_that_is_closed_ends_its_plugin(plugin: Plugin) -> None:
    plugin.write("echo $$ > pid; exec sleep 3600")
    pid = plugin.directory / "pid"
    async with Client(plugin.config()) as client:
        request = asyncio.create_task(client.get(NODES, "a"))
        await until("the plugin runs", lambda: pid.exists() and pid.read_text())
        process = int(pid.read_text())
        assert is_alive(process)

    assert not is_alive(process)
    with pytest.raises(asyncio.CancelledError):
        await request


def is_alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


# Keeping


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def in_seconds(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + seconds))


async def authorization(identity: Identity, clock: Clock) -> str | None:
    if clock() >= identity.valid_until:
        await identity.refresh()
    return identity.headers.get("Authorization")


async def test_a_credential_is_kept_until_it_expires(plugin: Plugin) -> None:
    plugin.prints(
        credential(token="one", expirationTimestamp=in_seconds(3600)),
        credential(token="two"),
    )
    clock = Clock()
    identity = Identity(plugin.config(), clock)

    seen = []
    for step in (0, 1800, 1700, 200, 1_000_000):
        clock.now += step
        seen.append(await authorization(identity, clock))

    assert seen == ["Bearer one", "Bearer one", "Bearer one", "Bearer two", "Bearer two"]


async def test_a_credential_that_has_expired_does_not_run_the_plugin_each_time(
    plugin: Plugin,
) -> None:
    plugin.prints(credential(token="one", expirationTimestamp=in_seconds(-3600)))
    clock = Clock()
    identity = Identity(plugin.config(), clock)

    for _ in range(10):
        await authorization(identity, clock)
    assert len(plugin.runs) == 1
    clock.now += PLUGIN_PAUSE
    await authorization(identity, clock)
    assert len(plugin.runs) == 2


@pytest.mark.parametrize("call", ["get", "patch", "stream"])
async def test_a_refused_credential_is_renewed_and_the_request_sent_again(
    serve: Serve, plugin: Plugin, call: str
) -> None:
    door = Door("new")
    plugin.prints(credential(token="old"), credential(token="new"))

    async with Client(plugin.config(await serve(door))) as client:
        if call == "get":
            await client.get(NODES, "a")
        elif call == "patch":
            change = patch.json_patch("u", patch.set_once("/spec/providerID", "x"))
            await client.patch(NODES, "a", change)
        else:
            [_ async for _ in client.stream(Request("GET", "/x"))]

    assert door.seen == ["old", "new"]


async def test_many_refused_at_once_run_the_plugin_once(serve: Serve, plugin: Plugin) -> None:
    plugin.prints(credential(token="old"), credential(token="new"))

    async with Client(plugin.config(await serve(Door("new")))) as client:
        await asyncio.gather(*(client.get(NODES, "a") for _ in range(20)))

    assert len(plugin.runs) == 2


async def test_who_is_refused_for_ever_does_not_run_the_plugin_for_ever(
    serve: Serve, plugin: Plugin
) -> None:
    door = Door("other")
    plugin.prints(credential(token="t"))

    async with Client(plugin.config(await serve(door))) as client:
        for _ in range(5):
            with pytest.raises(Unauthorized):
                await client.get(NODES, "a")

    assert len(plugin.runs) == 2  # the first, and one because of the refusal
    assert len(door.seen) == 5  # a credential that is the same is not tried again


# Failing


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo s3cr3t; echo s3cr3t >&2; exit 3", "ended with 3; run it by hand"),
        ("kill -9 $$", "ended with -9"),
        ("echo s3cr3t", "not an ExecCredential in JSON"),
        ("true", "not an ExecCredential in JSON"),
        (f"echo '{credential(V1BETA1, token='s3cr3t')}'", f"not an ExecCredential of {V1}"),
        (
            f"echo '{credential(clientCertificateData='s3cr3t', clientKeyData='s3cr3t')}'",
            "are not a matching pair in PEM",
        ),
    ],
)
async def test_a_plugin_that_fails_is_named_and_its_output_is_not_shown(
    serve: Serve,
    plugin: Plugin,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    *,
    script: str,
    expected: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    plugin.write(script)
    door = Door()

    async with Client(plugin.config(await serve(door))) as client:
        failures = await asyncio.gather(
            *(client.delete(NODES, "a") for _ in range(10)), return_exceptions=True
        )

    for failure in failures:
        assert isinstance(failure, Unreachable)
        assert expected in str(failure)
        assert str(plugin.path) in str(failure)
        assert "s3cr3t" not in f"{failure!r} {failure.__cause__!r}"
        assert not failure.sent
    out, err = capfd.readouterr()
    assert "s3cr3t" not in f"{caplog.text}{out}{err}"
    assert door.seen == []
    assert len(plugin.runs) == 1


async def test_a_plugin_that_failed_is_tried_again_later(plugin: Plugin) -> None:
    plugin.prints("", credential(token="t"))
    clock = Clock()
    identity = Identity(plugin.config(), clock)
    with pytest.raises(Unreachable):
        await authorization(identity, clock)

    clock.now += PLUGIN_PAUSE

    assert await authorization(identity, clock) == "Bearer t"


async def test_a_plugin_that_hangs_is_ended_with_all_it_started(plugin: Plugin) -> None:
    plugin.write("sleep 3600 & echo $! > pid; wait")

    with pytest.raises(PluginFailed, match=r"did not end within 0\.5 s"):
        await ExecPlugin(command=str(plugin.path)).run(timeout_seconds=0.5)

    child = int((plugin.directory / "pid").read_text())
    async with asyncio.timeout(30):
        while is_alive(child):
            await asyncio.sleep(0.01)


async def test_a_plugin_that_is_gone_is_named_with_the_hint(tmp_path: Path) -> None:
    gone = ExecPlugin(command=str(tmp_path / "gone"), install_hint="apt install it\n")

    with pytest.raises(PluginFailed, match=r"gone cannot be executed; apt install it$"):
        await gone.run()


async def test_a_plugin_of_the_wrong_format_is_named(tmp_path: Path) -> None:
    path = tmp_path / "binary"
    path.write_bytes(b"\x7fELF nonsense")
    path.chmod(0o755)

    with pytest.raises(PluginFailed, match="binary: Exec format error"):
        await ExecPlugin(command=str(path)).run()


# Reading


def test_a_credential_is_read() -> None:
    both = credential(
        token=" t\n",
        clientCertificateData="c",
        clientKeyData="k",
        expirationTimestamp="2026-01-02T03:04:05+01:00",
    )

    assert decode(both.encode(), V1) == Credential("t", b"c", b"k", 1767319445.0)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (b"\xff", "in JSON"),
        (b"[]", "in JSON"),
        (credential(token=5), "in JSON"),
        (credential(token="s3cr3t", expirationTimestamp="s3cr3t"), "in JSON"),
        (json.dumps({"kind": "Secret", "apiVersion": V1}), "not an ExecCredential of"),
        (json.dumps({"kind": "ExecCredential", "apiVersion": V1}), "no status"),
        (credential(), "neither token nor"),
        (credential(token="", clientKeyData=None), "neither token nor"),
        (credential(clientCertificateData="s3cr3t"), "only one of"),
        (credential(token="t", clientKeyData="s3cr3t"), "only one of"),
        (credential(token="s3cr3t\r\nX: y"), "cannot be sent"),
        (credential(token="s3cr3t é"), "cannot be sent"),
        (credential(token="t", expirationTimestamp="2026-01-02T03:04:05"), "no time zone"),
    ],
)
def test_what_is_no_credential_is_reported_without_showing_it(
    output: bytes | str, expected: str
) -> None:
    with pytest.raises(ValueError, match=expected) as caught:
        decode(output if isinstance(output, bytes) else output.encode(), V1)

    assert "s3cr3t" not in str(caught.value)


def test_secrets_do_not_show() -> None:
    for shown in (
        Credential(token="s3cr3t", key=b"s3cr3t"),
        ExecPlugin(command="c", args=("s3cr3t",), env={"A": "s3cr3t"}),
    ):
        assert "s3cr3t" not in f"{shown} {shown!r}"


@pytest.mark.parametrize(
    ("exec_", "expected"),
    [
        ({"command": ""}, ["exec.command: is not set"]),
        ({"command": "no-such"}, ["exec.command: no-such is not found in $PATH; get it at x"]),
        ({"command": "./no-such"}, ["exec.command: ", "/no-such cannot be executed; get it at x"]),
        ({"apiVersion": ""}, ["exec.apiVersion: must be one of"]),
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, ["exec.apiVersion: must be one"]),
        ({"interactiveMode": "Always"}, ["exec.interactiveMode: is Always, but nobody"]),
        ({"interactiveMode": "Sometimes"}, ["exec.interactiveMode: must be one of Never, If"]),
        ({"interactiveMode": ""}, ["exec.interactiveMode: is not set"]),
        ({"args": ["secret", 5]}, ["exec.args: is not a list of strings"]),
        ({"env": {"A": "secret"}}, ["exec.env: is not a list"]),
        ({"env": [{"name": "A", "value": 5}]}, ["exec.env[0].value: is not a string"]),
        ({"env": [{"value": "secret"}]}, ["exec.env: a name is not set"]),
        ({"provideClusterInfo": "yes"}, ["exec.provideClusterInfo: is neither true nor false"]),
    ],
)
def test_what_is_wrong_with_a_plugin_is_reported_with_its_field(
    tmp_path: Path, exec_: dict[str, Any], expected: list[str]
) -> None:
    path = kubeconfig(tmp_path, {"command": "cat", "installHint": "get it at x", **exec_}, {})

    with pytest.raises(ConfigError) as caught:
        config.load(path, env={})

    (problem,) = caught.value.problems
    assert problem.startswith(f"{path}: users[u].user.")
    assert "secret" not in problem
    for part in expected:
        assert part in problem


@pytest.mark.parametrize("mode", ["Never", "IfAvailable"])
def test_modes_without_questions_are_fine(tmp_path: Path, mode: str) -> None:
    path = kubeconfig(tmp_path, {"command": "cat", "interactiveMode": mode}, {})

    assert config.load(path, env={}).exec_plugin == ExecPlugin(command="cat")


def test_the_older_version_needs_no_mode(tmp_path: Path) -> None:
    exec_ = {"command": "cat", "apiVersion": V1BETA1, "interactiveMode": None}

    loaded = config.load(kubeconfig(tmp_path, exec_, {}), env={})

    assert loaded.exec_plugin == ExecPlugin(command="cat", api_version=V1BETA1)
