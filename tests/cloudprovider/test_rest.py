"""The client for HTTP APIs, with servers on real sockets."""

import asyncio
import gzip
import html
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus
from xml.etree import ElementTree as ET

import msgspec
import pytest
from aiohttp import web

from proreus.cloudprovider import (
    Answer,
    CallTimeout,
    CloudError,
    ConfigError,
    Credential,
    ErrorBody,
    Issued,
    Reason,
    Refused,
    Request,
    Throttled,
    Unauthenticated,
    bearer,
    configured_tls,
    form_body,
    json_body,
    retry_after,
    tls_context,
    xml_body,
)
from proreus.cloudprovider.requests import Body
from proreus.testing.controlplane.certificates import Authority

from .served import Handler, client, context, served

TOKEN = "token-that-is-secret"


class Thing(msgspec.Struct):
    name: str


@asynccontextmanager
async def raw(answer: bytes) -> AsyncIterator[str]:
    """The address of a server that says these bytes to each request, and hangs up."""

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(say, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def answers(body: object, status: int = 200, **headers: str) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        if isinstance(body, bytes):
            return web.Response(body=body, status=status, headers=named)
        return web.json_response(body, status=status, headers=named)

    return handler


GET = Request("compute.things.get", "GET", "things/a")


async def test_a_request_is_counted_by_its_name_and_its_answer_is_decoded() -> None:
    seen = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.path_qs, request.headers["Accept"], request.headers["X-Ours"]))
        return web.json_response({"name": "a", "new": True})

    made = context()
    request = Request(
        "compute.things.get", "GET", "/things/a%2Fb", {"q": ("a b", "ü&"), "n": "1"}, quota="reads"
    )
    async with served(handler) as url, client(f"{url}/v1/", made, headers={"X-Ours": "x"}) as rest:
        assert await rest.call(request, Thing) == Thing("a")
    assert seen == [("/v1/things/a%2Fb?q=a%20b&q=%C3%BC%26&n=1", "application/json", "x")]
    (call,) = made.calls
    assert (call.service, call.operation, call.quota) == ("compute", "things.get", "reads")
    assert call.read


@pytest.mark.parametrize(
    ("body", "type_", "sent"),
    [
        (json_body({"a": [1]}), "application/json", b'{"a":[1]}'),
        (form_body({"grant": "a b&c"}), "application/x-www-form-urlencoded", b"grant=a%20b%26c"),
    ],
)
async def test_bodies_have_their_type(body: Any, type_: str, sent: bytes) -> None:
    seen = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.content_type, await request.read()))
        return web.Response(status=204)

    async with served(handler) as url, client(url) as rest:
        assert await rest.call(Request("x.create", "POST", "/", body=body), dict[str, int]) == {}
    assert seen == [(type_, sent)]


async def test_xml_goes_both_ways_and_a_document_type_is_refused() -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=await request.read(), content_type=request.content_type)

    bomb = b'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b "bbb">]><a>&b;</a>'
    async with served(handler) as url, client(url) as rest:
        root = Answer(GET, 200, {}, b"<vm id='1'><name>a</name></vm>").xml()
        answer = await rest.send(Request("x.create", "POST", "/", body=xml_body(root)))
    assert answer.headers["content-type"] == "application/xml"
    assert answer.xml().findtext("name") == "a"
    for body in (bomb, b"<a>", b"", b"\xff"):
        with pytest.raises(CloudError):
            Answer(GET, 200, {}, body).xml()


@pytest.mark.parametrize(
    ("status", "body", "kind", "reason"),
    [
        (400, {"code": "Bad", "message": "no"}, Refused, Reason.INVALID),
        (404, {"code": "Gone", "message": "no"}, Refused, Reason.NOT_FOUND),
        (410, {"code": "Gone", "message": "no"}, Refused, Reason.NOT_FOUND),
        (404, b"<html>nginx</html>", Refused, Reason.UNKNOWN),
        (404, b"", Refused, Reason.UNKNOWN),
        (404, [1], Refused, Reason.UNKNOWN),
        (409, {"code": "Busy"}, Refused, Reason.CONFLICT),
        (412, {"code": "Changed"}, Refused, Reason.PRECONDITION_FAILED),
        (422, {"code": "Bad"}, Refused, Reason.INVALID),
        (500, b"\xff\x00", Refused, Reason.UNKNOWN),
        (302, b"", Refused, Reason.UNKNOWN),
        (401, b"", Unauthenticated, None),
        (403, b"<html>", Unauthenticated, None),
        (429, b"", Throttled, None),
    ],
)
async def test_errors_are_of_the_frameworks_kinds(
    status: int, body: Any, kind: type[CloudError], reason: Reason | None
) -> None:
    request = Request("compute.things.create", "POST", "things")
    async with served(answers(body, status)) as url, client(url) as rest:
        with pytest.raises(kind) as caught:
            await rest.call(request, Thing)
    assert str(caught.value).startswith(f"compute.things.create: {status}")
    assert "<" not in str(caught.value)
    assert getattr(caught.value, "reason", None) is reason


async def test_absence_is_only_what_the_cloud_itself_answers() -> None:
    async with served(answers({"code": "NotFound"}, 404)) as url:
        async with client(url) as rest:
            assert await rest.find(GET, Thing) is None
        async with client(url, read_error=lambda _: None) as rest:
            with pytest.raises(Refused, match="404"):
                await rest.find(GET, Thing)
    async with served(answers(b"404: Not Found", 404)) as url, client(url) as rest:
        with pytest.raises(Refused, match="404: Not Found"):
            await rest.find(GET, Thing)
    async with served(answers({"name": "a"})) as url, client(url) as rest:
        assert await rest.find(GET, Thing) == Thing("a")


async def test_that_no_credential_is_issued_is_no_absence() -> None:
    """Such as by a metadata service that answers 404 while it is updated."""
    async with served(answers({"code": "NotFound"}, 404)) as gone, client(gone) as issuer:

        async def issue() -> Issued[str]:
            return Issued(await issuer.call(GET, str))

        credential = Credential(issue, now=lambda: datetime.now(UTC), headers=bearer)
        async with (
            served(answers({"name": "a"})) as url,
            client(url, credential=credential) as rest,
        ):
            with pytest.raises(Refused, match="404") as caught:
                await rest.find(GET, Thing)
    assert not caught.value.is_absence


async def test_a_cloud_can_have_another_sign_of_a_used_up_quota() -> None:
    def limited(answer: Answer) -> ErrorBody:
        return ErrorBody("rateLimitExceeded", "slow", Reason.TOO_MANY_REQUESTS, after=7)

    request = Request("compute.things.create", "POST", "things")
    async with served(answers({}, 403)) as url, client(url, read_error=limited) as rest:
        with pytest.raises(Throttled) as caught:
            await rest.send(request)
    assert caught.value.after == 7


@pytest.mark.parametrize(
    ("header", "least", "most"),
    [
        ("600", 600, 600),
        ("", None, None),
        ("-1", None, None),
        ("soon", None, None),
        ("date", 500, 610),
    ],
)
async def test_retry_after_is_seconds_or_a_time(
    header: str, least: float | None, most: float | None
) -> None:
    if header == "date":
        later = datetime.now(UTC) + timedelta(seconds=605)
        header = later.strftime("%a, %d %b %Y %H:%M:%S GMT")
    request = Request("compute.things.create", "POST", "things")
    async with (
        served(answers({"code": "Busy"}, 409, Retry_After=header)) as url,
        client(url) as rest,
    ):
        with pytest.raises(Refused) as refused:
            await rest.send(request)
    assert (refused.value.after is None) is (least is None)
    async with served(answers(b"", 429, Retry_After=header)) as url, client(url) as rest:
        with pytest.raises(Throttled) as caught:
            await rest.send(request)
    after = caught.value.after
    assert after is None if least is None else least <= (after or 0) <= (most or 0)


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + b'Content-Length: 100\r\n\r\n{"name": "a"}',
        HEAD + b'Transfer-Encoding: chunked\r\n\r\n1000\r\n{"name": "a"}',
        HEAD + b'Transfer-Encoding: chunked\r\n\r\nd\r\n{"name": "a"}\r\n',
        HEAD + b"Content-Encoding: gzip\r\nContent-Length: 8\r\n\r\n" + gzip.compress(b"{}")[:8],
        HEAD + b'Connection: close\r\n\r\n{"name": "',
        HEAD + b"Content-Length: 5\r\n\r\nhello",
        HEAD + b'Content-Length: 10\r\n\r\n{"name": 1}'[:-1],
        HEAD + b"Content-Length: 2\r\n\r\n{}",
        HEAD + b"Content-Length: 2\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nContent-Length: nine\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"",
    ],
    ids=[
        "cut", "cut in a chunk", "cut between chunks", "cut gzip", "cut without a length", "text",
        "cut JSON", "empty object", "list", "no number", "no HTTP", "nothing",
    ],
)  # fmt: skip
async def test_half_an_answer_or_garbage_is_an_error_and_no_answer(answer: bytes) -> None:
    made = context()
    async with raw(answer) as url, client(url, made) as rest:
        with pytest.raises(CloudError, match=r"^compute\.things\.get: "):
            await rest.find(GET, Thing)
    assert [call.outcome.value for call in made.calls] == ["error"]


async def test_redirects_are_refused_and_get_no_credential() -> None:
    seen: list[str] = []

    async def target(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        return web.json_response({"name": "b"})

    async with (
        served(target) as other,
        served(answers(b"", 307, Location=f"{other}/x")) as url,
        client(url, headers=bearer(TOKEN)) as rest,
    ):
        with pytest.raises(Refused, match=f"307: the answer redirects to {other}"):
            await rest.call(GET, Thing)
        link = Request("compute.things.list", "GET", f"{other}/things?page=2")
        with pytest.raises(CloudError, match="is another host than the cloud's endpoint"):
            await rest.call(link, Thing)
    assert seen == []


async def test_a_link_of_an_answer_is_followed_on_the_same_server() -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.path_qs)
        return web.json_response({"name": "a"})

    async with served(handler) as url, client(f"{url}/v1") as rest:
        link = Request("compute.things.list", "GET", f"{url}/v1/things?page=2%2F", {"n": "1"})
        await rest.call(link, Thing)
    assert seen == ["/v1/things?page=2%2F&n=1"]


async def test_a_server_that_is_silent_is_an_unknown_outcome() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begun.set()
        await reader.readuntil(b"\r\n\r\n")
        await reader.read()  # until the client hangs up
        cancelled.set()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, client(url, timeout=0.2) as rest:
        with pytest.raises(CallTimeout, match="the outcome is unknown"):
            await rest.call(GET, Thing)
        await asyncio.wait_for(cancelled.wait(), 30)
        with pytest.raises(CallTimeout, match=r"0\.1 s"):
            await rest.call(msgspec.structs.replace(GET, timeout=0.1), Thing)
    begun.clear()
    cancelled.clear()
    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, client(url) as rest:
        task = asyncio.create_task(rest.call(GET, Thing))
        await asyncio.wait_for(begun.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(cancelled.wait(), 30)


async def test_nobody_at_the_other_end_is_a_cloud_error() -> None:
    async with client("http://127.0.0.1:9") as rest:
        with pytest.raises(CloudError, match=r"no answer: .*127\.0\.0\.1:9"):
            await rest.call(GET, Thing)
    async with client("http://nowhere.invalid") as rest:
        with pytest.raises(CloudError, match=r"no answer: .*nowhere\.invalid"):
            await rest.call(GET, Thing)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST", "GET"])
async def test_a_write_on_a_connection_that_dies_is_not_sent_twice(method: str) -> None:
    requests = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await reader.readuntil(b"\r\n\r\n")
        requests += 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await reader.readuntil(b"\r\n\r\n")
        requests += 1
        writer.transport.abort()

    server = await asyncio.start_server(once, "127.0.0.1", 0)
    async with server, client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as rest:
        await rest.send(GET)
        with pytest.raises(CloudError, match="no answer"):
            await rest.send(Request("x.change", method, "/", read=False))
    assert requests == 2


async def test_the_gate_is_asked_again_when_the_connection_is_there() -> None:
    class NotLeading(Exception):
        pass

    asked = 0

    def gate() -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            raise NotLeading

    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.method)
        return web.json_response({"name": "a"})

    async with served(handler) as url, client(url, context(gate)) as rest:
        with pytest.raises(NotLeading):
            await rest.call(GET, Thing)
        assert seen == []
        await rest.call(GET, Thing)
    assert seen == ["GET"]


async def test_each_request_is_observed_and_signed_when_it_is_sent() -> None:
    seen: list[str] = []

    @contextmanager
    def observe(request: Request) -> Iterator[None]:
        seen.append(f"before {request.name}")
        try:
            yield
        finally:
            seen.append(f"after {request.name}")

    def sign(request: Request) -> Request:
        return request.with_query(signature="s1gn4ture")

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.query["signature"])
        return web.Response(status=500)

    async with served(handler) as url, client(url, observe=observe, sign=sign) as rest:
        with pytest.raises(Refused):
            await rest.call(GET, Thing)
    assert seen == ["before compute.things.get", "s1gn4ture", "after compute.things.get"]


# TLS


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def server_tls(
    authority: Authority, folder: Path, *, clients: bool = False, names: tuple[str, ...] = ()
) -> ssl.SSLContext:
    addresses = () if names else ("127.0.0.1",)
    certificate, key = authority.serving(names, addresses)
    (folder / "server.pem").write_bytes(certificate + key)
    (folder / "ca.pem").write_bytes(authority.certificate)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.pem")
    tls.load_cert_chain(folder / "server.pem")
    tls.verify_mode = ssl.CERT_REQUIRED if clients else ssl.CERT_NONE
    return tls


async def test_certificates_are_verified_by_the_authority_that_is_given(
    authority: Authority, tmp_path: Path
) -> None:
    async with served(answers({"name": "a"}), server_tls(authority, tmp_path)) as url:
        async with client(url, tls=tls_context(ca_file=str(tmp_path / "ca.pem"))) as rest:
            assert await rest.call(GET, Thing) == Thing("a")
        other = tmp_path / "other.pem"
        other.write_bytes(Authority().certificate)
        for tls in (None, tls_context(), tls_context(ca_file=str(other))):
            async with client(url, tls=tls) as rest:
                with pytest.raises(CloudError, match="the certificate is not trusted"):
                    await rest.call(GET, Thing)
        async with client(url, tls=tls_context(verify=False)) as rest:
            assert await rest.call(GET, Thing) == Thing("a")


async def test_a_certificate_of_another_name_is_not_trusted(
    authority: Authority, tmp_path: Path
) -> None:
    tls = server_tls(authority, tmp_path, names=("other.example",))
    ours = tls_context(ca_file=str(tmp_path / "ca.pem"))
    async with served(answers({"name": "a"}), tls) as url, client(url, tls=ours) as rest:
        with pytest.raises(CloudError, match="the certificate is not trusted"):
            await rest.call(GET, Thing)


async def test_a_client_shows_its_own_certificate(authority: Authority, tmp_path: Path) -> None:
    certificate, key = authority.client("ccm", ())
    ca, cert, key_file = (str(tmp_path / name) for name in ("ca.pem", "own.crt", "own.key"))
    Path(cert).write_bytes(certificate)
    Path(key_file).write_bytes(key)
    async with served(answers({"name": "a"}), server_tls(authority, tmp_path, clients=True)) as url:
        own = tls_context(ca_file=ca, cert_file=cert, key_file=key_file)
        async with client(url, tls=own) as rest:
            assert await rest.call(GET, Thing) == Thing("a")
        async with client(url, tls=tls_context(ca_file=ca)) as rest:
            with pytest.raises(CloudError):
                await rest.call(GET, Thing)


def test_files_of_tls_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for given in (
        {"ca_file": str(tmp_path / "none.pem")},
        {"ca_file": str(empty)},
        {"cert_file": str(empty)},
        {"cert_file": str(tmp_path / "none.pem")},
    ):
        with pytest.raises(ConfigError, match=next(iter(given.values()))):
            tls_context(**given)  # type: ignore[arg-type]


def test_what_a_config_leaves_as_it_is_reads_no_authorities(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    assert configured_tls() is None
    insecure = configured_tls(verify=False)
    assert insecure is not None
    assert insecure.verify_mode is ssl.CERT_NONE
    (tmp_path / "ca.pem").write_bytes(authority.certificate)
    ours = configured_tls(ca_file=str(tmp_path / "ca.pem"))
    assert ours is not None
    assert ours.verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(ConfigError, match=r"own\.crt"):
        configured_tls(ca_file=str(tmp_path / "ca.pem"), cert_file=str(tmp_path / "own.crt"))


async def test_a_proxy_of_the_environment_is_used_but_not_on_the_link(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, *_ = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        seen.append(line)
        writer.write(HEAD + b'Content-Length: 13\r\n\r\n{"name": "a"}')
        writer.close()

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for name in ("HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", f"http://user:planted-proxy@{address}")
    async with server:
        async with client("http://cloud.invalid/v1") as rest:
            assert await rest.call(GET, Thing) == Thing("a")
        async with client("http://cloud.invalid/v1", proxies=False) as rest:
            with pytest.raises(CloudError):
                await rest.call(GET, Thing)
    assert seen == ["GET http://cloud.invalid/v1/things/a HTTP/1.1"]
    async with client("http://cloud.invalid") as rest:
        with pytest.raises(CloudError, match="the proxy cannot be reached") as caught:
            await rest.call(GET, Thing)
    assert "planted" not in str(caught.value)


# Credentials


class Tokens:
    """Issues token-1, token-2, …; `good` are those that the cloud takes."""

    def __init__(self) -> None:
        self.issued = 0
        self.good = {"token-number-1"}
        self.sent: list[str] = []

    async def issue(self) -> Issued[str]:
        self.issued += 1
        await asyncio.sleep(0)
        return Issued(f"token-number-{self.issued}")

    async def handler(self, request: web.Request) -> web.Response:
        token = request.headers["Authorization"].removeprefix("Bearer ")
        self.sent.append(f"{request.method} {token}")
        if token in self.good:
            return web.json_response({"name": token})
        return web.json_response({"code": "Expired", "message": f"{token} is over"}, status=401)

    def credential(self) -> Credential[str]:
        return Credential(self.issue, now=lambda: datetime.now(UTC), headers=bearer)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_credential_that_is_refused_is_replaced_once_also_for_a_write(method: str) -> None:
    tokens = Tokens()
    tokens.good = {"token-number-2"}
    request = Request("x.change", method, "/")
    async with served(tokens.handler) as url, client(url, credential=tokens.credential()) as rest:
        assert await rest.call(request, Thing) == Thing("token-number-2")
        assert tokens.sent == [f"{method} token-number-1", f"{method} token-number-2"]
        tokens.good = set()
        with pytest.raises(Unauthenticated) as caught:
            await rest.call(request, Thing)
    assert tokens.issued == 3
    assert len(tokens.sent) == 4
    assert str(caught.value) == "x.change: 401 Expired: *** is over"


async def test_many_calls_whose_credential_is_refused_have_one_issued() -> None:
    tokens = Tokens()
    tokens.good = {"token-number-2"}
    async with served(tokens.handler) as url, client(url, credential=tokens.credential()) as rest:
        found = await asyncio.gather(*(rest.call(GET, Thing) for _ in range(20)))
    assert {one.name for one in found} == {"token-number-2"}
    assert tokens.issued == 2


async def test_without_a_credential_that_renews_itself_a_401_is_final() -> None:
    tokens = Tokens()
    async with served(tokens.handler) as url, client(url, headers=bearer(TOKEN)) as rest:
        with pytest.raises(Unauthenticated):
            await rest.call(GET, Thing)
    assert len(tokens.sent) == 1


async def test_no_secret_stands_in_errors_values_or_logs(caplog: pytest.LogCaptureFixture) -> None:
    async def echo(request: web.Request) -> web.Response:
        said = " ".join([*request.headers.values(), request.path_qs])
        return web.json_response({"code": "E", "message": said}, status=int(request.query["s"]))

    def sign(request: Request) -> Request:
        return request.with_query(signature="planted-signature")

    made: list[object] = [
        json_body({"p": TOKEN}),
        Request("a.b", "GET", TOKEN, {"t": TOKEN}, json_body(TOKEN), {"t": TOKEN}),
        Answer(GET, 200, {"t": TOKEN}, TOKEN.encode()),
        Issued(TOKEN),
    ]
    errors: list[str] = []
    options: dict[str, Any] = {"headers": {"X-Key": TOKEN, **bearer(TOKEN)}, "sign": sign}
    with caplog.at_level(logging.DEBUG, "proreus"):
        async with served(echo) as url, client(url, **options) as rest:
            for status in (400, 403, 429):
                request = Request("x.change", "POST", "/", {"s": str(status)})
                with pytest.raises(CloudError) as caught:
                    await rest.call(request, Thing)
                errors.append(repr(caught.value))
            own = Request("x.change", "POST", "/", {"s": "400"}, headers=bearer("planted-token"))
            with pytest.raises(CloudError) as caught:
                await rest.call(own, Thing)
            errors.append(repr(caught.value))
        for answer in (b"HTTP/1.1 200 OK\r\nContent-Length: nine\r\n\r\n", HEAD + b"\r\n{"):
            async with raw(answer) as url, client(url, **options) as rest:
                with pytest.raises(CloudError) as caught:
                    await rest.call(Request("x.get", "GET", "/"), Thing)
                chain: BaseException | None = caught.value
                while chain is not None:
                    errors.append(repr(chain))
                    chain = chain.__cause__
    texts = [*errors, *map(repr, made), *(record.getMessage() for record in caplog.records)]
    assert not [text for text in texts if TOKEN in text or "planted" in text]
    assert len(errors) >= 5


PASSWORD = "planted-pass/word+1"


def soap_login(password: str = PASSWORD) -> ET.Element:
    root = ET.Element("{urn:vim25}Login")
    ET.SubElement(root, "{urn:vim25}password").text = password
    return root


@pytest.mark.parametrize("type_", ["application/json", "text/xml", "text/form", "text/plain"])
def test_a_body_in_another_form_than_its_type_has_no_fields(type_: str) -> None:
    assert not list(Body(b"\xff{", type_).fields())


@pytest.mark.parametrize(
    "holding",
    [
        {"headers": {"Cookie": f"session={PASSWORD}"}},
        {"query": {"Signature": PASSWORD}},
        {"body": form_body({"username": "admin", "password": PASSWORD})},
        {"body": json_body({"auth": [{"user": {"name": "admin", "password": PASSWORD}}]})},
        {"body": xml_body(soap_login())},
        {"body": Body(PASSWORD.encode(), "text/plain"), "headers": {"X-Key": PASSWORD}},
    ],
    ids=["cookie", "query", "form", "JSON", "XML", "text"],
)
async def test_no_secret_of_a_request_stands_in_an_error_that_repeats_it(
    holding: dict[str, Any],
) -> None:
    async def echo(request: web.Request) -> web.Response:
        said = [PASSWORD, *request.headers.values(), request.path_qs, await request.text()]
        return web.json_response({"code": "E", "message": " ".join(said)}, status=400)

    async with served(echo) as url, client(url) as rest:
        with pytest.raises(CloudError) as caught:
            await rest.call(Request("x.login", "POST", "/", **holding), Thing)
    assert "planted" not in str(caught.value)
    assert "***" in str(caught.value)


@pytest.mark.parametrize(
    "password",
    ['planted"planted', "planted\\planted", "plantedöplanted", "planted<&>planted",
     "planted \t planted", "planted'planted", "planted\nplanted"],
)  # fmt: skip
@pytest.mark.parametrize("make", [json_body, form_body, xml_body])
async def test_no_secret_stands_in_an_error_in_the_form_that_a_body_gives_it(
    password: str, make: Callable[[Any], Body]
) -> None:
    body = make(soap_login(password) if make is xml_body else {"password": password})

    async def echo(request: web.Request) -> web.Response:
        text = await request.text()
        said = [password, text, json.dumps(password), html.escape(password), quote_plus(password)]
        if make is json_body:  # as Go writes it
            said.append(
                text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
            )
        if request.query:
            plain = (one for one in said if "<" not in one)  # a page of HTML is not shown at all
            return web.Response(text=" ".join(plain), status=400)
        return web.json_response({"code": text, "message": " ".join(said)}, status=400)

    async with served(echo) as url, client(url) as rest:
        for query in ({}, {"raw": "1"}):
            with pytest.raises(CloudError) as caught:
                await rest.call(Request("x.login", "POST", "/", query, body), Thing)
            assert "planted" not in str(caught.value)
            assert "planted" not in getattr(caught.value, "text", "")


def test_azures_headers_in_milliseconds_count_too() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert retry_after({"x-ms-retry-after-ms": "1500", "Retry-After": "9"}, now) == 1.5
    assert retry_after({"Retry-After": "9"}, now) == 9
    assert retry_after({}, now) is None


async def test_a_clouds_text_is_one_line_and_cut_in_the_error_but_kept_whole() -> None:
    long = "too\n  many\r\nthings " + "x" * 1000
    async with served(answers({"code": "Bad", "message": long}, 400)) as url, client(url) as rest:
        with pytest.raises(Refused) as caught:
            await rest.call(GET, Thing)
    assert str(caught.value).startswith("compute.things.get: 400 Bad: too many things xxx")
    assert len(str(caught.value)) < 600
    assert caught.value.text == " ".join(long.split())
