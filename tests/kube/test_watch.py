import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
from aiohttp import web

from proreus.kube.client import Client
from proreus.kube.config import ClientConfig
from proreus.kube.errors import Gone, NotFound, ServerError, Unreachable
from proreus.kube.objects import ConfigMap
from proreus.kube.requests import CONFIG_MAPS, NODES
from proreus.kube.watch import Applied, Deleted, Event, Restarted, watch

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Serve = Callable[[Handler], Awaitable[str]]


def config_map(name: str, version: int, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "data": data}


def line(type_: str, obj: Any) -> bytes:
    return msgspec.json.encode({"type": type_, "object": obj}) + b"\n"


def bookmark(version: int) -> bytes:
    empty = {
        "kind": "ConfigMap",
        "metadata": {"resourceVersion": str(version), "creationTimestamp": None},
    }
    return line("BOOKMARK", empty)


GONE = line("ERROR", {"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410})
BROKEN = line(
    "ERROR", {"kind": "Status", "status": "Failure", "reason": "InternalError", "code": 500}
)

CUT = b"cut"


class Server:
    """Answers lists and watches in turn; a number is an error. Once it has no more, it is over."""

    def __init__(self, lists: list[Any], watches: list[list[bytes] | int]) -> None:
        self.lists = iter(lists)
        self.watches = iter(watches)
        self.asked: list[str] = []
        self.over = asyncio.Event()

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        if "watch" in request.query:
            self.asked.append(f"watch {request.query['resourceVersion']}")
            answer = next(self.watches, None)
        else:
            self.asked.append("list")
            answer = next(self.lists, None)
        if answer is None:
            self.over.set()
            await asyncio.sleep(3600)
        assert answer is not None
        if isinstance(answer, int):
            return web.json_response({}, status=answer)
        if isinstance(answer, tuple):
            version, items = answer
            return web.json_response({"metadata": {"resourceVersion": version}, "items": items})
        assert request.query["allowWatchBookmarks"] == "true"
        assert 300 <= int(request.query["timeoutSeconds"]) <= 600
        return await pieces(request, answer)


async def pieces(request: web.BaseRequest, parts: list[bytes]) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    for part in parts:
        if part == CUT:
            assert request.transport is not None
            request.transport.abort()
            return answer
        await answer.write(part)
        await asyncio.sleep(0.005)  # so that it comes as a piece of its own
    return answer


class Seen:
    """What a watch yields, in short, with its errors and waits."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.errors: list[Exception] = []
        self.waits: list[int] = []

    def backoff(self, failures: int) -> float:
        self.waits.append(failures)
        return 0.0


def shown(event: Event[Any]) -> str:
    match event:
        case Restarted(items, version):
            return f"restarted {version}: {' '.join(item.metadata.name for item in items)}"
        case Applied(obj):
            return f"applied {obj.metadata.name} {obj.metadata.resource_version}"
        case Deleted(obj):
            return f"deleted {obj.metadata.name} {obj.metadata.resource_version}"


@pytest.fixture
def follow(serve: Serve) -> Callable[..., Awaitable[Seen]]:
    """Follow the server until it is over."""

    async def run(server: Server, resource: Any = CONFIG_MAPS) -> Seen:
        seen = Seen()

        async def read(client: Client) -> None:
            events = watch(client, resource, backoff=seen.backoff, on_error=seen.errors.append)
            async with aclosing(events):
                async for event in events:
                    seen.events.append(shown(event))

        async with asyncio.timeout(60), Client(ClientConfig(server=await serve(server))) as client:
            reader = asyncio.create_task(read(client))
            over = asyncio.create_task(server.over.wait())
            await asyncio.wait([reader, over], return_when=asyncio.FIRST_COMPLETED)
            assert not reader.done()
            reader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader
        return seen

    return run


Follow = Callable[..., Awaitable[Seen]]

ONE = ("5", [config_map("a", 4)])


async def test_a_watch_lists_once_and_goes_on_from_the_version_it_knows(follow: Follow) -> None:
    server = Server(
        [ONE],
        [
            [line("ADDED", config_map("b", 6)) + line("MODIFIED", config_map("a", 7))],
            [bookmark(9)],
            [line("DELETED", config_map("b", 11))],
        ],
    )

    seen = await follow(server)

    assert seen.events == ["restarted 5: a", "applied b 6", "applied a 7", "deleted b 11"]
    assert server.asked == ["list", "watch 5", "watch 7", "watch 9", "watch 11"]
    assert (seen.errors, seen.waits) == ([], [])


async def test_an_object_cut_in_its_middle_is_reported_once_it_is_whole(follow: Follow) -> None:
    whole = line("ADDED", config_map("c", 7))
    server = Server([ONE], [[line("ADDED", config_map("b", 6)) + whole[:50], CUT], [whole]])

    seen = await follow(server)

    assert seen.events == ["restarted 5: a", "applied b 6", "applied c 7"]
    assert server.asked == ["list", "watch 5", "watch 6", "watch 7"]
    assert [type(error) for error in seen.errors] == [Unreachable]
    assert seen.waits == [0]


async def test_an_object_of_many_pieces_and_over_a_megabyte_is_whole(follow: Follow) -> None:
    big = line("ADDED", config_map("big", 6, x="y" * 3_000_000))
    cuts = [big[i : i + 333_333] for i in range(0, len(big), 333_333)]
    listed = ("5", [config_map("old", 4, x="y" * 1_500_000)])

    seen = await follow(Server([listed], [[*cuts, line("ADDED", config_map("c", 7))]]))

    assert seen.events == ["restarted 5: old", "applied big 6", "applied c 7"]


@pytest.mark.parametrize("resource", [CONFIG_MAPS, NODES])
@pytest.mark.parametrize(
    ("watch_", "expected"), [([GONE], Gone), (410, Gone), ([BROKEN], ServerError)]
)
async def test_a_version_that_is_too_old_means_to_list_again(
    follow: Follow, resource: Any, watch_: list[bytes] | int, expected: type[Exception]
) -> None:
    server = Server([ONE, ("9", [config_map("b", 8)])], [watch_])

    seen = await follow(server, resource)

    assert seen.events == ["restarted 5: a", "restarted 9: b"]
    assert server.asked == ["list", "watch 5", "list", "watch 9"]
    assert [type(error) for error in seen.errors] == [expected]
    assert seen.waits == [0]


async def test_what_comes_after_an_error_event_is_not_read(follow: Follow) -> None:
    server = Server([ONE, ("9", [])], [[GONE + line("ADDED", config_map("stale", 6))]])

    assert (await follow(server)).events == ["restarted 5: a", "restarted 9: "]


@pytest.mark.parametrize("nonsense", [b"nonsense\n", b'{"type": "ADDED"}\n', line("ADDED", [])])
async def test_an_event_that_cannot_be_read_means_to_list_again(
    follow: Follow, nonsense: bytes
) -> None:
    server = Server([ONE, ("9", [])], [[nonsense]])

    seen = await follow(server)

    assert seen.events == ["restarted 5: a", "restarted 9: "]
    assert [type(error) for error in seen.errors] == [Unreachable]


async def test_an_error_before_the_first_list_is_reported_and_tried_again(follow: Follow) -> None:
    server = Server([404, 500, ONE], [])

    seen = await follow(server)

    assert seen.events == ["restarted 5: a"]
    assert [type(error) for error in seen.errors] == [NotFound, ServerError]
    assert seen.waits == [0, 1]


async def test_failures_in_a_row_wait_longer_until_a_line_is_heard(follow: Follow) -> None:
    server = Server([ONE], [500, 404, [bookmark(6)], 500])

    seen = await follow(server)

    assert server.asked == ["list", "watch 5", "watch 5", "watch 5", "watch 6", "watch 6"]
    assert seen.waits == [0, 1, 0]


async def test_watches_that_end_at_once_are_not_asked_for_in_a_tight_loop(follow: Follow) -> None:
    seen = await follow(Server([ONE], [[], [], []]))

    assert seen.waits == [0, 1, 2]
    assert seen.errors == []


async def test_the_watch_ends_when_it_is_cancelled_or_left(serve: Serve) -> None:
    server = Server([ONE], [])
    async with Client(ClientConfig(server=await serve(server))) as client:
        events: AsyncGenerator[Event[ConfigMap], None] = watch(
            client, CONFIG_MAPS, backoff=lambda _: 0.0, on_error=print
        )
        assert shown(await anext(events)) == "restarted 5: a"
        await events.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(events)
