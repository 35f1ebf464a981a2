import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest
from aiohttp import web

from proreus.kube import patch, requests
from proreus.kube.client import LIST_TRIES, Client, Written
from proreus.kube.config import ClientConfig
from proreus.kube.errors import (
    Gone,
    NotFound,
    RefusedByGate,
    ServerError,
    StatusError,
    TooManyRequests,
    Unreachable,
)
from proreus.kube.objects import ConfigMap, Node
from proreus.kube.requests import CONFIG_MAPS, LEASES, NODES, PARTIAL, Request
from proreus.testing.waiting import until

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Serve = Callable[[Handler], Awaitable[str]]
Call = Callable[[Client], Awaitable[Any]]

CHANGE = patch.json_patch("u", patch.set_once("/spec/providerID", "x"))
WRITTEN = {"metadata": {"uid": "u", "resourceVersion": "12"}}

CALLS: dict[str, Call] = {
    "GET": lambda client: client.get(NODES, "a"),
    "LIST": lambda client: client.list(NODES),
    "POST": lambda client: client.create(NODES, {}),
    "PATCH": lambda client: client.patch(NODES, "a", CHANGE),
    "PUT": lambda client: client.replace_lease("n", "a", {}),
    "DELETE": lambda client: client.delete(NODES, "a"),
}
READS = ["GET", "LIST"]
WRITES = ["POST", "PATCH", "PUT", "DELETE"]


def good(body: Any = None) -> web.Response:
    default = {"metadata": {"uid": "u", "resourceVersion": "12"}, "items": []}
    return web.json_response(default if body is None else body)


def refused(code: int, retry_after: str | None = None) -> web.Response:
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return web.json_response({"kind": "Status", "reason": "Why"}, status=code, headers=headers)


def abort(request: web.BaseRequest) -> web.Response:
    """Cut the connection, as a server that dies."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


class Script:
    """Answers in turn, the last one for ever; remembers what was asked."""

    def __init__(self, *answers: web.Response | str) -> None:
        self.answers = answers
        self.seen: list[str] = []

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        answer = self.answers[min(len(self.seen), len(self.answers) - 1)]
        self.seen.append(f"{request.method} {request.path_qs}")
        if answer == "cut":
            return abort(request)
        if answer == "hang":
            await asyncio.sleep(3600)
        assert isinstance(answer, web.Response)
        assert isinstance(answer.body, bytes)
        return web.Response(body=answer.body, status=answer.status, headers=answer.headers)


@pytest.fixture
async def connect(serve: Serve) -> AsyncIterator[Callable[..., Awaitable[Client]]]:
    """Make a client of a server with that handler."""
    clients: list[Client] = []

    async def make(handler: Handler, **options: Any) -> Client:
        client = Client(ClientConfig(server=await serve(handler), token="t"), **options)
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.close()


Connect = Callable[..., Awaitable[Client]]


async def test_a_request_carries_what_the_api_server_needs(connect: Connect) -> None:
    seen: list[tuple[web.BaseRequest, bytes]] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        seen.append((request, await request.read()))
        return good()

    client = await connect(handler, user_agent="agent/1")
    written = await client.patch(NODES, "a", CHANGE, subresource="status")
    await client.list(NODES, label_selector="a=b,c!=d é")

    assert written == Written("u", 12)
    (change, body), (read, nothing) = seen
    assert (change.method, change.path) == ("PATCH", "/api/v1/nodes/a/status")
    assert change.headers["Content-Type"] == "application/json-patch+json"
    assert change.headers["Accept"] == PARTIAL
    assert change.headers["Authorization"] == "Bearer t"
    assert change.headers["User-Agent"] == "agent/1"
    assert msgspec.json.decode(body)[0] == {"op": "test", "path": "/metadata/uid", "value": "u"}
    assert read.query["labelSelector"] == "a=b,c!=d é"
    assert read.headers["Accept-Encoding"] == "identity"
    assert nothing == b""


async def test_a_path_in_the_servers_url_is_kept(serve: Serve) -> None:
    script = Script(good())
    server = await serve(script)

    async with Client(ClientConfig(server=f"{server}/k8s/clusters/c-1")) as client:
        await client.get(NODES, "a")

    assert script.seen == ["GET /k8s/clusters/c-1/api/v1/nodes/a"]


async def test_a_name_with_a_slash_stays_one_segment(connect: Connect) -> None:
    paths: list[str] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        paths.append(request.raw_path)
        return good()

    await (await connect(handler)).get(NODES, "a/../b")

    assert paths == ["/api/v1/nodes/a%2F..%2Fb"]


async def test_an_error_answer_is_raised_as_its_kind(connect: Connect) -> None:
    script = Script(refused(404), refused(409), refused(422))
    client = await connect(script)

    with pytest.raises(NotFound):
        await client.get(NODES, "a")
    for _ in range(2):  # 422 of a PATCH without causes too
        with pytest.raises(StatusError, match="Why") as caught:
            await client.patch(NODES, "a", CHANGE)
        assert type(caught.value).__name__ == "Conflict"


async def test_no_token_stands_in_an_error_of_a_proxy_that_repeats_the_request(
    serve: Serve,
) -> None:
    async def echo(request: web.BaseRequest) -> web.StreamResponse:
        said = f"Bad gateway: {dict(request.headers)} {(await request.read()).decode()}"
        return web.Response(status=502, text=said)

    config = ClientConfig(server=await serve(echo), token="planted-own-token")
    review = {"spec": {"token": "planted-token-of-somebody"}}
    errors = []
    async with Client(config) as client:
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: client.get(NODES, "a"),
            lambda: client.patch(NODES, "a", CHANGE),
            lambda: client.send(
                Request("POST", "/apis/reviews", body=msgspec.json.encode(review)), Node
            ),
            lambda: anext(client.stream(Request("GET", "/api/v1/nodes", (("watch", "1"),)))),
        ]
        for call in calls:
            with pytest.raises(ServerError) as caught:
                await call()
            errors.append(str(caught.value))
    assert all("Bad gateway" in text and "***" in text for text in errors)
    assert not [text for text in errors if "planted" in text]


@pytest.mark.parametrize("code", [429, 503])
@pytest.mark.parametrize("call", CALLS)
async def test_what_was_not_carried_out_is_tried_again(
    connect: Connect, call: str, code: int
) -> None:
    script = Script(refused(code, "0"), refused(code, "0"), good())
    client = await connect(script)

    await CALLS[call](client)

    assert len(script.seen) == 3


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (refused(503), ServerError),
        (refused(500, "0"), ServerError),
        (refused(429), TooManyRequests),
        (refused(429, "60"), TooManyRequests),  # later than the deadline
        (refused(302), StatusError),
    ],
)
@pytest.mark.parametrize("call", CALLS)
async def test_other_refusals_are_raised_at_once(
    connect: Connect, call: str, answer: web.Response, expected: type[StatusError]
) -> None:
    script = Script(answer)
    client = await connect(script)

    with pytest.raises(expected) as caught:
        await CALLS[call](client)

    assert len(script.seen) == 1
    header = answer.headers.get("Retry-After")
    assert caught.value.retry_after == (None if header is None else float(header))


@pytest.mark.parametrize("method", ["GET", "PATCH"])
async def test_no_answer_within_the_timeout_is_unreachable(connect: Connect, method: str) -> None:
    client = await connect(Script("hang"))

    with pytest.raises(Unreachable, match=r"no answer within 0\.2 s") as caught:
        await client.send(Request(method, "/x", timeout=0.2), Node)

    assert caught.value.sent == (method == "PATCH")


async def test_a_write_that_waits_for_its_turn_until_the_timeout_was_not_sent(
    connect: Connect,
) -> None:
    class Never:
        async def acquire(self) -> None:
            await asyncio.sleep(3600)

    script = Script(good())
    client = await connect(script, limiter=Never())

    with pytest.raises(Unreachable) as caught:
        await client.send(Request("PATCH", "/x", timeout=0.1), Node)

    assert not caught.value.sent
    assert script.seen == []


@pytest.mark.parametrize("warm", [False, True], ids=["new", "kept-alive"])
@pytest.mark.parametrize("call", WRITES)
async def test_a_write_whose_connection_is_cut_has_an_unknown_outcome(
    connect: Connect, call: str, *, warm: bool
) -> None:
    script = Script(*[good()] * warm, "cut", good())
    client = await connect(script)
    if warm:
        await client.get(NODES, "a")

    with pytest.raises(Unreachable) as caught:
        await CALLS[call](client)

    assert caught.value.sent
    assert len(script.seen) == warm + 1  # it was not sent again


@pytest.mark.parametrize("call", READS)
async def test_a_read_on_a_dead_connection_is_repeated_once(connect: Connect, call: str) -> None:
    script = Script(good(), "cut", good())
    client = await connect(script)
    await client.get(NODES, "a")

    await CALLS[call](client)

    assert len(script.seen) == 3


@pytest.mark.parametrize("call", READS)
async def test_a_read_is_not_repeated_for_ever(connect: Connect, call: str) -> None:
    script = Script("cut")
    client = await connect(script)

    with pytest.raises(Unreachable) as caught:
        await CALLS[call](client)

    assert not caught.value.sent
    assert len(script.seen) == 2


@pytest.mark.parametrize("call", CALLS)
async def test_a_connection_that_cannot_be_made_sent_nothing(serve: Serve, call: str) -> None:
    server = await serve(Script(good()))
    host, _, port = server.rpartition(":")
    async with Client(
        ClientConfig(server=f"{host.replace('127.0.0.1', '127.0.0.2')}:{port}")
    ) as client:
        with pytest.raises(Unreachable, match=f"127.0.0.2:{port}") as caught:
            await CALLS[call](client)

    assert not caught.value.sent
    assert "ssl" not in str(caught.value)  # nobody can do anything with an object's name


@pytest.mark.parametrize("call", CALLS)
async def test_an_answer_cut_in_its_body_is_unreachable(connect: Connect, call: str) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "1000"})
        await answer.prepare(request)
        await answer.write(b'{"metadata"')
        return abort(request)

    client = await connect(handler)

    with pytest.raises(Unreachable) as caught:
        await CALLS[call](client)

    assert caught.value.sent == (call in WRITES)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"metadata": 1}', b"<html>"])
@pytest.mark.parametrize("call", ["GET", "LIST", "PATCH"])
async def test_an_answer_that_cannot_be_read_is_unreachable(
    connect: Connect, call: str, body: bytes
) -> None:
    client = await connect(Script(web.Response(body=body)))

    with pytest.raises(Unreachable, match="cannot be read") as caught:
        await CALLS[call](client)

    assert caught.value.sent == (call == "PATCH")


@pytest.mark.parametrize("call", WRITES)
async def test_the_gate_holds_writes_back(connect: Connect, call: str) -> None:
    def gate() -> None:
        raise RefusedByGate("not the leader")

    script = Script(good())
    client = await connect(script, gate=gate)

    with pytest.raises(RefusedByGate):
        await CALLS[call](client)
    assert script.seen == []

    for read in READS:
        await CALLS[read](client)


async def test_the_gate_is_asked_at_each_try_after_the_limiter(connect: Connect) -> None:
    asked: list[str] = []

    class Limiter:
        async def acquire(self) -> None:
            asked.append("limiter")

    client = await connect(
        Script(refused(429, "0"), good()), limiter=Limiter(), gate=lambda: asked.append("gate")
    )

    await client.patch(NODES, "a", CHANGE)
    await client.get(NODES, "a")

    assert asked == ["limiter", "gate", "gate", "limiter", "gate", "gate", "limiter"]


async def test_a_write_whose_connection_came_after_the_gate_closed_is_not_sent(
    connect: Connect,
) -> None:
    answers = iter((None, RefusedByGate("too late"), None, None))

    def gate() -> None:
        if error := next(answers):
            raise error

    script = Script(good())
    client = await connect(script, gate=gate)

    with pytest.raises(RefusedByGate, match="too late"):
        await client.patch(NODES, "a", CHANGE)
    assert script.seen == []

    await client.patch(NODES, "a", CHANGE)
    assert len(script.seen) == 1


async def test_the_observer_is_called_for_each_try(connect: Connect) -> None:
    seen: list[tuple[str, int]] = []

    def observer(request: Request, code: int, seconds: float) -> None:
        assert 0 <= seconds < 60
        seen.append((request.method, code))

    script = Script(refused(429, "0"), good(), refused(404), "cut")
    client = await connect(script, observer=observer)
    await client.patch(NODES, "a", CHANGE)
    with pytest.raises(NotFound):
        await client.get(NODES, "a")
    with pytest.raises(Unreachable):
        await client.patch(NODES, "a", CHANGE)

    assert seen == [("PATCH", 429), ("PATCH", 200), ("GET", 404), ("PATCH", 0)]


async def test_requests_one_after_another_share_connections_for_reads_and_for_writes(
    connect: Connect,
) -> None:
    ports: set[tuple[str, int]] = set()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        ports.add((request.method, request.transport.get_extra_info("peername")[1]))
        return refused(404) if request.method == "GET" else good()

    client = await connect(handler)
    for _ in range(5):
        await client.patch(NODES, "a", CHANGE)
        with pytest.raises(NotFound):
            await client.get(NODES, "a")

    assert len(ports) == len(("GET", "PATCH"))


async def test_cancelling_a_request_cancels_it(connect: Connect) -> None:
    script = Script("hang")
    client = await connect(script)
    task = asyncio.create_task(client.patch(NODES, "a", CHANGE))
    await until("the request is there", lambda: script.seen)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


def pages(count: int, gone_at: Sequence[int] = ()) -> tuple[Handler, list[str]]:
    """A list of `count` pages with two objects each; the requests of these numbers get 410."""
    seen: list[str] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        token = request.query.get("continue", "")
        seen.append(token)
        if len(seen) in gone_at:
            return web.json_response({"reason": "Expired"}, status=410)
        page = int(token or 0)
        items = [{"metadata": {"name": f"c{page * 2 + i}"}} for i in range(2)]
        following = str(page + 1) if page + 1 < count else ""
        meta = {"resourceVersion": "77", "continue": following}
        return web.json_response({"metadata": meta, "items": items})

    return handler, seen


def names(items: Sequence[ConfigMap]) -> list[str]:
    return [item.metadata.name for item in items]


async def test_a_list_is_read_page_by_page(connect: Connect) -> None:
    handler, seen = pages(3)
    client = await connect(handler)

    listing = await client.list(CONFIG_MAPS, "n", limit=2)

    assert names(listing.items) == [f"c{i}" for i in range(6)]
    assert listing.resource_version == "77"
    assert seen == ["", "1", "2"]


async def test_a_list_that_gets_too_old_on_the_way_is_begun_again(connect: Connect) -> None:
    handler, seen = pages(3, gone_at=[3])
    client = await connect(handler)

    listing = await client.list(CONFIG_MAPS)

    assert names(listing.items) == [f"c{i}" for i in range(6)]
    assert seen == ["", "1", "2", "", "1", "2"]


async def test_a_list_that_is_always_too_old_fails(connect: Connect) -> None:
    handler, seen = pages(3, gone_at=range(100))
    client = await connect(handler)

    with pytest.raises(Gone):
        await client.list(CONFIG_MAPS)

    assert seen == [""] * LIST_TRIES


async def test_a_list_without_items_is_empty(connect: Connect) -> None:
    client = await connect(Script(good({"metadata": {"resourceVersion": "5"}, "items": None})))

    assert (await client.list(NODES)).items == ()


async def test_leases_come_whole(connect: Connect) -> None:
    lease = {"metadata": {"name": "a", "future": 1}, "spec": {"future": [True]}}
    client = await connect(Script(good(lease)))

    assert await client.get_lease("n", "a") == lease
    assert await client.create_lease("n", lease) == lease
    assert await client.replace_lease("n", "a", lease) == lease
    assert await client.get(LEASES, "a", "n") == lease


def chunks(*parts: bytes, cut: bool = False) -> Handler:
    """An answer in these pieces."""

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for part in parts:
            await answer.write(part)
            await asyncio.sleep(0.01)  # so that it comes as a piece of its own
        return abort(request) if cut else answer

    return handler


async def lines(client: Client) -> list[bytes]:
    return [line async for line in client.stream(Request("GET", "/x"))]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([b"a\nb\n", b"c\n"], [b"a", b"b", b"c"]),
        ([b"a", b"b", b"\n", b"c\nd", b"e\n"], [b"ab", b"c", b"de"]),
        ([b"\n\na\n\n", b"\n"], [b"a"]),
        ([], []),
        ([b"x" * 700_000, b"y" * 700_000 + b"\nz\n"], [b"x" * 700_000 + b"y" * 700_000, b"z"]),
    ],
)
async def test_a_stream_yields_whole_lines(
    connect: Connect, parts: list[bytes], expected: list[bytes]
) -> None:
    assert await lines(await connect(chunks(*parts))) == expected


async def test_a_stream_that_is_cut_drops_the_half_line(connect: Connect) -> None:
    client = await connect(chunks(b"a\nb", cut=True))
    stream = client.stream(Request("GET", "/x"))

    assert await anext(stream) == b"a"
    with pytest.raises(Unreachable):
        await anext(stream)


async def test_a_stream_that_is_refused_raises_the_error(connect: Connect) -> None:
    client = await connect(Script(refused(410)))

    with pytest.raises(Gone):
        await lines(client)


async def test_a_stream_that_outlives_its_request_is_unreachable(connect: Connect) -> None:
    client = await connect(Script("hang"))

    with pytest.raises(Unreachable):
        await anext(client.stream(Request("GET", "/x", timeout=0.2)))


async def test_a_stream_that_is_left_gives_its_connection_up(connect: Connect) -> None:
    closed = asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        try:
            while True:
                await answer.write(b"line\n")
                await asyncio.sleep(0.01)
        finally:
            closed.set()

    client = await connect(handler)
    stream = client.stream(requests.watch(NODES, resource_version="1", timeout_seconds=300))
    assert await anext(stream) == b"line"
    assert not closed.is_set()

    await stream.aclose()

    await asyncio.wait_for(closed.wait(), timeout=30)
