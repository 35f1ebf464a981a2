"""The gate on a real TLS server, with an API server that cannot be reached: nothing is let in."""

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from proreus.app.access import delegated_access
from proreus.app.options import Options
from proreus.kube.client import Client
from proreus.kube.config import ClientConfig
from proreus.serving.answers import AT_ONCE
from proreus.serving.authorities import AuthoritiesError, ClientAuthorities, Sources
from proreus.serving.health import Health
from proreus.serving.servers import serve
from proreus.serving.tls import ServerTLS
from proreus.serving.tls_settings import Settings
from proreus.testing.controlplane.certificates import Authority
from proreus.testing.waiting import until

PATIENCE = 60.0
UNREACHABLE = ClientConfig(server="http://127.0.0.1:1")
PROXIED = {"X-Remote-User": "ann", "X-Remote-Group": "system:masters"}


class Door:
    """The server, and the files of the authorities that it trusts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.users, self.proxies = Authority(), Authority()
        self.users_file, self.proxies_file = directory / "users.crt", directory / "proxies.crt"
        self.users_file.write_bytes(self.users.certificate)
        self.proxies_file.write_bytes(self.proxies.certificate)
        self.port = 0

    async def get(
        self,
        path: str,
        shown: tuple[bytes, bytes] | None = None,
        method: str = "GET",
        **headers: str,
    ) -> tuple[int, Any]:
        """The answer to a new connection; its JSON, if it is that."""
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        if shown is not None:
            pair = self.directory / "client.pem"
            pair.write_bytes(b"".join(shown))
            tls.load_cert_chain(pair)
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls)) as session,
            session.request(
                method, f"https://127.0.0.1:{self.port}{path}", headers=headers
            ) as answer,
        ):
            is_json = answer.content_type == "application/json"
            return answer.status, await (answer.json() if is_json else answer.text())


async def show(request: web.Request) -> web.Response:
    return web.Response(text=f"here is {request.path}")


@asynccontextmanager
async def opened(
    door: Door, api_server: ClientConfig = UNREACHABLE, **options: Any
) -> AsyncIterator[None]:
    flags = Options(
        client_ca_file=str(door.users_file),
        requestheader_client_ca_file=str(door.proxies_file),
        requestheader_allowed_names=("front",),
        **options,
    )
    tls = ServerTLS(Settings())
    async with delegated_access(flags, api_server, Health()) as access:
        application = web.Application(middlewares=(access.middleware,))
        application.router.add_route("*", "/{any:.*}", show)

        def take() -> None:
            tls.set_client_cas(access.authorities.pem)

        take()
        access.authorities.on_change(take)
        async with serve(
            application, "127.0.0.1", 0, flag="--test", tls=tls, any_port=True
        ) as port:
            door.port = port
            yield


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    door = Door(tmp_path)
    async with opened(door):
        yield door


class Reviews:
    """The reviews of an API server. Those of strangers take until `gate` is set."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.url = ""
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    async def answer(self, request: web.Request) -> web.Response:
        kind = request.path.rpartition("/")[2]
        spec = (await request.json())["spec"]
        is_known = spec.get("token") == "good" or spec.get("user") in {"scraper", "ann"}
        self.now[kind] += 1
        self.most[kind] = max(self.most[kind], self.now[kind])
        if not is_known:
            await self.gate.wait()
        self.now[kind] -= 1
        if kind == "tokenreviews":
            status = {"authenticated": is_known, "user": {"username": "scraper"}}
        else:
            status = {"allowed": spec["user"] == "scraper"}
        return web.json_response({"status": status})


@pytest.fixture
async def reviews() -> AsyncIterator[Reviews]:
    reviews = Reviews()
    application = web.Application()
    application.router.add_post("/{any:.*}", reviews.answer)
    async with serve(application, "127.0.0.1", 0, flag="--test", any_port=True) as port:
        reviews.url = f"http://127.0.0.1:{port}"
        yield reviews


class Flood:
    """Requests of strangers, each about something else, on few connections."""

    def __init__(self, door: Door, count: int, *, with_tokens: bool) -> None:
        self.statuses: Counter[int] = Counter()
        self.retry_after: set[str | None] = set()
        self._door = door
        self._count = count
        self._with_tokens = with_tokens
        self.task = asyncio.create_task(self._run())

    async def has_refused(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while self.statuses[429] < count:
                assert not self.task.done() or not self.task.exception(), self.statuses
                await asyncio.sleep(0.01)

    async def _run(self) -> None:
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        connector = aiohttp.TCPConnector(ssl=tls, limit=30)
        async with aiohttp.ClientSession(connector=connector) as session:
            await asyncio.gather(*(self._ask(session, n) for n in range(self._count)))

    async def _ask(self, session: aiohttp.ClientSession, number: int) -> None:
        headers = {"Authorization": f"Bearer t{number}"} if self._with_tokens else {}
        url = f"https://127.0.0.1:{self._door.port}/made-up/{number}"
        async with session.get(url, headers=headers) as answer:
            self.statuses[answer.status] += 1
            if answer.status == 429:
                self.retry_after.add(answer.headers.get("Retry-After"))
                assert (await answer.json())["reason"] == "TooManyRequests"


@pytest.mark.parametrize(
    ("with_tokens", "kind", "refused"),
    [(False, "subjectaccessreviews", 403), (True, "tokenreviews", 401)],
)
async def test_unknown_clients_cause_only_so_many_reviews(
    tmp_path: Path, reviews: Reviews, kind: str, refused: int, *, with_tokens: bool
) -> None:
    door = Door(tmp_path)
    async with opened(door, ClientConfig(server=reviews.url)):
        flood = Flood(door, 90, with_tokens=with_tokens)
        await flood.has_refused(90 - AT_ONCE)
        reviews.gate.set()
        await flood.task
    assert flood.statuses == {429: 90 - AT_ONCE, refused: AT_ONCE}
    assert reviews.most[kind] == AT_ONCE
    assert flood.retry_after == {"1"}


async def test_many_unknown_clients_do_not_keep_out_known_ones(
    tmp_path: Path, reviews: Reviews
) -> None:
    door = Door(tmp_path)
    soon = {
        "authentication_token_webhook_cache_ttl": 0.001,
        "authorization_webhook_cache_authorized_ttl": 0.001,
    }
    known: dict[str, Any] = {"Authorization": "Bearer good"}
    async with opened(door, ClientConfig(server=reviews.url), **soon):
        assert (await door.get("/metrics", **known))[0] == 200
        floods = [Flood(door, 40, with_tokens=with_tokens) for with_tokens in (False, True)]
        for flood in floods:
            await flood.has_refused(40 - AT_ONCE)
        for _ in range(3):
            assert (await door.get("/metrics", **known))[0] == 200
        assert (await door.get("/metrics", door.users.client("ann", ["dev"])))[0] == 403
        reviews.gate.set()
        await asyncio.gather(*(flood.task for flood in floods))


async def test_everybody_may_ask_for_health(door: Door) -> None:
    assert await door.get("/healthz") == (200, "here is /healthz")


async def test_a_master_may_do_everything_without_the_api_server(door: Door) -> None:
    shown = door.users.client("root", ["system:masters"])
    assert await door.get("/metrics", shown, "PUT") == (200, "here is /metrics")


@pytest.mark.parametrize("path", ["/metrics", "/healthz/ping", "/healthz/../metrics", "/%6detrics"])
async def test_nobody_else_is_let_in_while_the_api_server_does_not_answer(
    door: Door, path: str
) -> None:
    for shown in (None, door.users.client("ann", ["dev"])):
        status, answer = await door.get(path, shown)
        assert status == 500
        assert answer["kind"] == "Status"
        assert answer["reason"] == "InternalError"


async def test_a_token_that_cannot_be_reviewed_is_refused_everywhere(door: Door) -> None:
    for path in ("/metrics", "/healthz"):
        assert await door.get(path, Authorization="Bearer secret") == (
            401,
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "message": "Unauthorized",
                "reason": "Unauthorized",
                "code": 401,
            },
        )


async def test_a_token_that_is_no_token_is_refused(door: Door) -> None:
    assert (await door.get("/metrics", Authorization="Bearer schlüssel"))[0] == 401


async def test_a_front_proxy_names_the_user(door: Door) -> None:
    assert (await door.get("/metrics", door.proxies.client("front", []), **PROXIED))[0] == 200


@pytest.mark.parametrize(
    ("shown", "status"),
    [
        pytest.param(lambda door: None, 500, id="anonymous"),
        pytest.param(lambda door: door.users.client("front", []), 500, id="a user"),
        pytest.param(lambda door: door.proxies.client("other", []), 401, id="another name"),
    ],
)
async def test_nobody_else_does(
    door: Door, shown: Callable[[Door], tuple[bytes, bytes] | None], status: int
) -> None:
    assert (await door.get("/metrics", shown(door), **PROXIED))[0] == status


async def test_a_front_proxy_that_names_nobody_is_nobody(door: Door) -> None:
    assert (await door.get("/healthz", door.proxies.client("front", ["system:masters"])))[0] == 401


async def test_a_path_that_is_no_text_does_not_reach_the_server(door: Door) -> None:
    assert (await door.get("/metrics%ff%fe"))[0] in {400, 500}


async def test_another_authority_is_trusted_when_its_file_changes_and_the_old_one_no_more(
    door: Door,
) -> None:
    newer = Authority()
    old, new = (each.client("root", ["system:masters"]) for each in (door.users, newer))
    assert (await door.get("/metrics", old))[0] == 200
    door.users_file.write_bytes(b"no certificate")  # it is told, and the old one stays
    assert (await door.get("/metrics", old))[0] == 200
    door.users_file.write_bytes(newer.certificate)
    await until("the new authority counts", lambda: accepted(door, new), PATIENCE)
    assert not await accepted(door, old)


async def accepted(door: Door, shown: tuple[bytes, bytes]) -> bool:
    """Whether a client certificate lets its owner in; an unknown authority ends the handshake."""
    try:
        return (await door.get("/metrics", shown))[0] == 200
    except aiohttp.ClientError:
        return False


async def test_a_connection_lasts_no_longer_than_the_trust_in_its_certificate(door: Door) -> None:
    pair = door.directory / "kept.pem"
    pair.write_bytes(b"".join(door.users.client("root", ["system:masters"])))
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    tls.load_cert_chain(pair)
    connector = aiohttp.TCPConnector(ssl=tls, limit=1)
    url = f"https://127.0.0.1:{door.port}/metrics"
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.timeout(PATIENCE):
        async with session.get(url) as answer:
            assert answer.status == 200
        door.users_file.write_bytes(Authority().certificate)
        while True:
            try:
                async with session.get(url) as answer:
                    if answer.status == 401:
                        break
                    assert answer.status == 200
            except aiohttp.ClientError:
                pytest.fail("the connection was not kept")
            await asyncio.sleep(0.2)


async def test_all_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    sources = Sources(
        client_file=str(tmp_path / "missing"), proxy_file=str(tmp_path / "empty"), lookup=False
    )
    async with Client(UNREACHABLE) as client:
        authorities = ClientAuthorities(sources, client)
        with pytest.raises(AuthoritiesError) as raised:
            await authorities.load()
    assert "--client-ca-file" in str(raised.value)
    assert "--requestheader-client-ca-file" in str(raised.value)


async def test_an_api_server_that_is_not_there_yet_is_no_error() -> None:
    async with Client(UNREACHABLE) as client:
        authorities = ClientAuthorities(Sources(), client)
        await authorities.load()
    assert authorities.pem == ""


async def test_a_file_without_certificates_is_named_with_its_flag(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_text("no certificate")
    async with Client(UNREACHABLE) as client:
        authorities = ClientAuthorities(Sources(client_file=str(file), lookup=False), client)
        with pytest.raises(AuthoritiesError, match=f"^--client-ca-file: {file} holds no"):
            await authorities.load()
