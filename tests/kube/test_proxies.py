import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from proreus.kube import config, patch
from proreus.kube.client import Client
from proreus.kube.clientconfig import ClientConfig
from proreus.kube.errors import ConfigError, Unreachable
from proreus.kube.proxies import from_environment, is_exempt
from proreus.kube.requests import NODES, watch
from proreus.testing.clock import virtual_time
from proreus.testing.controlplane.certificates import Authority

Serve = Callable[..., Awaitable[str]]

CHANGE = patch.json_patch("u", patch.set_once("/spec/providerID", "x"))


# Which proxy


@pytest.mark.parametrize(
    ("server", "env", "expected"),
    [
        ("https://a:6443", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https://a:6443", {"https_proxy": "https://p:1"}, "https://p:1"),
        ("https://a:6443", {"HTTPS_PROXY": "http://p", "https_proxy": "http://q"}, "http://p"),
        ("https://a:6443", {"HTTPS_PROXY": "p:3128"}, "http://p:3128"),
        ("https://a:6443", {"HTTP_PROXY": "http://p"}, ""),
        ("http://a:8080", {"HTTP_PROXY": "http://p"}, "http://p"),
        ("http://a:8080", {"HTTPS_PROXY": "http://p"}, ""),
        ("https://a", {"HTTPS_PROXY": "http://p", "NO_PROXY": "a"}, ""),
        ("https://a", {"HTTPS_PROXY": "http://p", "no_proxy": "a"}, ""),
        ("https://a", {"HTTPS_PROXY": "http://p", "NO_PROXY": "a:443"}, ""),
        ("https://a", {"HTTPS_PROXY": "http://p", "NO_PROXY": "a:6443"}, "http://p"),
        ("http://a", {"HTTP_PROXY": "http://p", "NO_PROXY": "a:80"}, ""),
        ("https://localhost:6443", {"HTTPS_PROXY": "http://p"}, ""),
        ("https://127.1.2.3:6443", {"HTTPS_PROXY": "http://p"}, ""),
        ("https://[::1]:6443", {"HTTPS_PROXY": "http://p"}, ""),
        ("https://[fd00::1]:6443", {"HTTPS_PROXY": "http://p", "NO_PROXY": "fd00::/8"}, ""),
        ("https://a", {"HTTPS_PROXY": ""}, ""),
        ("https://a", {"HTTPS_PROXY": "socks5://p", "NO_PROXY": "a"}, ""),
    ],
)
def test_the_variables_mean_what_they_mean_to_go(
    server: str, env: dict[str, str], expected: str
) -> None:
    problems: list[str] = []

    assert from_environment(server, env, problems) == expected
    assert problems == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("http://me:s3cr3t@", "$HTTPS_PROXY: is not a URL such as http://proxy:3128"),
        ("http://s3cr3t:port", "$HTTPS_PROXY: is not a URL such as http://proxy:3128"),
        ("ftp://s3cr3t", "$HTTPS_PROXY: is not a URL such as http://proxy:3128"),
        ("http://s3cr3t s", "$HTTPS_PROXY: is not a URL such as http://proxy:3128"),
        ("socks5://me:s3cr3t@p", "$HTTPS_PROXY: socks5 is not supported, give an HTTP proxy"),
        ("socks5h://p", "$HTTPS_PROXY: socks5h is not supported, give an HTTP proxy"),
    ],
)
def test_a_variable_that_is_no_proxy_is_reported(value: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load(master="https://a", env={"HTTPS_PROXY": value})

    assert caught.value.problems == (expected,)


@pytest.mark.parametrize(
    ("host", "no_proxy", "expected"),
    [
        ("a.b", "", False),
        ("a.b", ",, ,", False),
        ("a.b", "*", True),
        ("10.0.0.1", "x, *", True),
        ("a.b", "a.b", True),
        ("A.B", "x, a.b ,y", True),
        ("a.b", "A.B", True),
        ("c.a.b", "a.b", True),
        ("ca.b", "a.b", False),
        ("a.b", ".a.b", False),
        ("c.a.b", ".a.b", True),
        ("a.b", "*.a.b", False),
        ("d.c.a.b", "*.a.b", True),
        ("a.b", "a.b:443", True),
        ("a.b", "a.b:80", False),
        ("a.b", "a.b:", True),
        ("a.b", ":443", False),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.1:443", True),
        ("10.0.0.1", "10.0.0.1:80", False),
        ("10.0.0.11", "10.0.0.1", False),
        ("10.0.0.1", "0.0.1", False),  # an address has no suffixes
        ("10.0.0.1", ".1", False),
        ("10.0.0.1", "10.0.0.0/8", True),
        ("10.0.0.1", "10.3.4.5/8", True),
        ("11.0.0.1", "10.0.0.0/8", False),
        ("10.0.0.1", "fd00::/8", False),
        ("10.0.0.1", "10.0.0.0/99", False),
        ("a.b", "10.0.0.0/8", False),  # names are not looked up
        ("fd00::1", "fd00::1", True),
        ("fd00::1", "fd00:0::1", True),
        ("fd00::1", "[fd00::1]", True),
        ("fd00::1", "[fd00::1]:443", True),
        ("fd00::1", "[fd00::1]:80", False),
        ("fd00::1", "fd00::/8", True),
        ("::ffff:10.0.0.1", "10.0.0.0/8", True),
    ],
)
def test_who_is_exempt(host: str, no_proxy: str, *, expected: bool) -> None:
    assert is_exempt(host, "443", no_proxy) == expected


def test_the_kubeconfigs_proxy_comes_before_the_variables(tmp_path: Path) -> None:
    env = {"HTTPS_PROXY": "http://env", "NO_PROXY": "*"}

    with_url = config.load(kubeconfig(tmp_path, "https://a", proxy="http://url"), env=env)
    without = config.load(kubeconfig(tmp_path, "https://a"), env={"HTTPS_PROXY": "http://env"})

    assert (with_url.proxy, without.proxy) == ("http://url", "http://env")


def test_a_pod_uses_the_variables_too(tmp_path: Path, authority: Authority) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    env = {
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
        "HTTPS_PROXY": "http://p",
    }

    assert config.load(env=env, service_account_dir=tmp_path).proxy == "http://p"
    exempt = {**env, "NO_PROXY": ".svc,10.0.0.0/16"}
    assert config.load(env=exempt, service_account_dir=tmp_path).proxy == ""


def test_a_proxys_password_does_not_show() -> None:
    shown = ClientConfig(server="https://a", proxy="http://me:s3cr3t@p")

    assert "s3cr3t" not in f"{shown} {shown!r}"


# Through a proxy


class Proxy:
    """Opens tunnels to wherever `to` says, whatever it is asked for; or does what `mood` says."""

    def __init__(self, mood: str = "") -> None:
        self.mood = mood
        self.to = ("", 0)
        self.asked: list[str] = []
        self.authorization: list[str] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.splitlines()
            self.asked.append(first)
            self.authorization += [
                base64.b64decode(line.split()[-1]).decode()
                for line in lines
                if line.lower().startswith("proxy-authorization: basic")
            ]
            if self.mood == "hang":
                await asyncio.sleep(3600)
            elif self.mood:
                writer.write(f"HTTP/1.1 {self.mood}\r\nContent-Length: 0\r\n\r\n".encode())
                await writer.drain()
            else:
                await self._join(first, head, reader, writer)
        finally:
            writer.close()

    async def _join(
        self, first: str, head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        upstream, out = await asyncio.open_connection(*self.to)
        if first.startswith("CONNECT"):
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            out.write(head.encode())
        try:
            await asyncio.gather(pump(reader, out), pump(upstream, writer))
        finally:
            out.close()


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


@asynccontextmanager
async def running(proxy: Proxy, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    server = await asyncio.start_server(proxy, "127.0.0.1", 0, ssl=tls)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if "Proxy.__call__" in repr(task.get_coro()):
                task.cancel()
                await asyncio.wait([task])


def kubeconfig(directory: Path, server: str, *, proxy: str = "", ca: Path | None = None) -> str:
    cluster: dict[str, Any] = {"server": server, "proxy-url": proxy}
    if ca is not None:
        cluster |= {"certificate-authority": str(ca), "tls-server-name": "localhost"}
    document = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return str(path)


async def answer(request: web.BaseRequest) -> web.StreamResponse:
    assert "Proxy-Authorization" not in request.headers or request.url.scheme == "http"
    return web.json_response(
        {"metadata": {"name": request.headers["Authorization"], "resourceVersion": "1"}}
    )


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("by", ["proxy-url", "variable"])
async def test_requests_go_through_a_tunnel(
    serve: Serve,
    serving_tls: ssl.SSLContext,
    authority: Authority,
    tmp_path: Path,
    *,
    scheme: str,
    by: str,
) -> None:
    proxy = Proxy()
    proxy.to = ("127.0.0.1", port_of(await serve(answer, serving_tls)))
    ca = tmp_path / "ca.crt"
    ca.write_bytes(authority.certificate)

    async with running(proxy, serving_tls if scheme == "https" else None) as address:
        url = f"{scheme}://me:p%40ss@{address}"
        path = kubeconfig(
            tmp_path, "https://kube.example:6443", proxy=url if by == "proxy-url" else "", ca=ca
        )
        env = {} if by == "proxy-url" else {"HTTPS_PROXY": url, "NO_PROXY": "other.example"}
        async with Client(config.load(path, env=env)) as client:
            for _ in range(3):
                assert (await client.get(NODES, "a")).metadata.name == "Bearer t"

    assert proxy.asked == ["CONNECT kube.example:6443 HTTP/1.1"]  # and is kept for the next
    assert proxy.authorization == ["me:p@ss"]


async def test_plain_http_is_asked_of_the_proxy_itself(serve: Serve, tmp_path: Path) -> None:
    proxy = Proxy()
    proxy.to = ("127.0.0.1", port_of(await serve(answer)))

    async with running(proxy) as address:
        path = kubeconfig(tmp_path, "http://kube.example:8080")
        loaded = config.load(path, env={"HTTP_PROXY": address})
        async with Client(loaded) as client:
            await client.get(NODES, "a")

    assert proxy.asked == ["GET http://kube.example:8080/api/v1/nodes/a HTTP/1.1"]


async def test_the_server_behind_a_proxy_is_verified(
    serve: Serve, serving_tls: ssl.SSLContext
) -> None:
    proxy = Proxy()
    proxy.to = ("127.0.0.1", port_of(await serve(answer, serving_tls)))

    async with running(proxy) as address:
        other = ClientConfig(
            server="https://localhost:1",
            proxy=f"http://{address}",
            ca=Authority().certificate,
        )
        async with Client(other) as client:
            with pytest.raises(Unreachable, match="certificate verify failed") as caught:
                await client.patch(NODES, "a", CHANGE)

    assert not caught.value.sent


@pytest.mark.parametrize("mood", ["407 Proxy Authentication Required", "502 Bad Gateway"])
async def test_a_proxy_that_refuses_is_named_and_nothing_was_sent(mood: str) -> None:
    proxy = Proxy(mood)

    async with running(proxy) as address:
        away = ClientConfig(server="https://kube.example", proxy=f"http://me:s3cr3t@{address}")
        async with Client(away) as client:
            for call in (client.patch(NODES, "a", CHANGE), client.delete(NODES, "a")):
                with pytest.raises(Unreachable, match=f"the proxy refused .*: {mood}") as caught:
                    await call
                assert not caught.value.sent
                assert "s3cr3t" not in f"{caught.value!r}"

    assert proxy.asked == ["CONNECT kube.example:443 HTTP/1.1"] * 2


async def test_a_proxy_that_is_not_there_is_named(unused_tcp_port: int) -> None:
    away = ClientConfig(
        server="https://kube.example", proxy=f"http://me:s3cr3t@127.0.0.1:{unused_tcp_port}"
    )

    async with Client(away) as client:
        with pytest.raises(Unreachable, match=r"the proxy cannot be reached: .*127") as caught:
            await client.patch(NODES, "a", CHANGE)

    assert not caught.value.sent
    assert "s3cr3t" not in f"{caught.value!r}"


def test_a_silent_proxy_does_not_hold_a_watch_for_its_whole_length() -> None:
    @virtual_time
    async def run() -> None:
        loop = asyncio.get_running_loop()
        async with running(Proxy("hang")) as address:
            away = ClientConfig(server="https://kube.example", proxy=f"http://{address}")
            async with Client(away) as client:
                started = loop.time()
                with pytest.raises(Unreachable):
                    await anext(
                        client.stream(watch(NODES, resource_version="1", timeout_seconds=600))
                    )
                assert loop.time() - started < 30

    run()
