"""Clusters behind a load balancer that cuts idle connections, and peers that fall silent."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer

from proreus.kube import patch, requests
from proreus.kube.client import Client
from proreus.kube.clientconfig import ClientConfig
from proreus.kube.errors import Unreachable
from proreus.kube.objects import Node
from proreus.kube.requests import NODES
from proreus.kube.transport import SILENCE
from proreus.kube.watch import Applied, Restarted, watch
from proreus.testing.clock import virtual_time

Serve = Callable[..., Awaitable[str]]

CHANGE = patch.json_patch("u", patch.set_once("/spec/providerID", "x"))


class LoadBalancer(asyncio.Protocol):
    """Passes bytes on, until it forgets the connections it has."""

    def __init__(self, to: tuple[str, int], balancers: "list[LoadBalancer]") -> None:
        self.to = to
        self.transport: asyncio.Transport | None = None
        self.back: asyncio.Transport | None = None
        self.forgotten = False
        self.waiting: list[bytes] = []
        self.tasks: set[asyncio.Task[None]] = set()
        balancers.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        task = asyncio.get_running_loop().create_task(self._connect())
        self.tasks.add(task)

    async def _connect(self) -> None:
        assert self.transport is not None
        back, _ = await asyncio.get_running_loop().create_connection(lambda: Back(self), *self.to)
        self.back = back
        for data in self.waiting:
            back.write(data)

    def data_received(self, data: bytes) -> None:
        assert self.transport is not None
        if self.forgotten:
            self.transport.abort()  # with unread data or by itself: a reset, as for no such flow
        elif self.back is None:
            self.waiting.append(data)
        else:
            self.back.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.back is not None:
            self.back.close()

    def close(self) -> None:
        """Say goodbye to the client, as a polite one does."""
        assert self.transport is not None
        self.transport.close()


class Back(asyncio.Protocol):
    def __init__(self, front: LoadBalancer) -> None:
        self.front = front

    def data_received(self, data: bytes) -> None:
        assert self.front.transport is not None
        self.front.transport.write(data)


@asynccontextmanager
async def balanced(server: str) -> AsyncIterator[tuple[str, list[LoadBalancer]]]:
    host, port = server.removeprefix("http://").split(":")
    balancers: list[LoadBalancer] = []
    listener = await asyncio.get_running_loop().create_server(
        lambda: LoadBalancer((host, int(port)), balancers), "127.0.0.1", 0
    )
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", balancers
    finally:
        listener.close()
        for balancer in balancers:
            balancer.close()


class Api:
    def __init__(self) -> None:
        self.seen: list[str] = []

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        self.seen.append(request.method)
        meta = {"name": "a", "uid": "u", "resourceVersion": "1"}
        return web.json_response({"metadata": meta, "items": []})


async def test_a_read_on_a_forgotten_connection_is_repeated_on_a_new_one(serve: Serve) -> None:
    api = Api()
    async with (
        balanced(await serve(api)) as (url, balancers),
        Client(ClientConfig(server=url)) as client,
    ):
        await client.get(NODES, "a")
        balancers[-1].forgotten = True
        await client.get(NODES, "a")
        balancers[-1].forgotten = True
        await client.list(NODES)

    assert api.seen == ["GET"] * 3
    assert len(balancers) == 3


async def test_a_write_on_a_forgotten_connection_has_an_unknown_outcome(serve: Serve) -> None:
    api = Api()
    async with (
        balanced(await serve(api)) as (url, balancers),
        Client(ClientConfig(server=url)) as client,
    ):
        await client.patch(NODES, "a", CHANGE)
        balancers[-1].forgotten = True
        with pytest.raises(Unreachable) as caught:
            await client.patch(NODES, "a", CHANGE)
        assert caught.value.sent
        await client.patch(NODES, "a", CHANGE)

    assert api.seen == ["PATCH", "PATCH"]


async def test_a_write_after_an_idle_connection_was_closed_goes_on_a_new_one(
    serve: Serve,
) -> None:
    api = Api()
    async with (
        balanced(await serve(api)) as (url, balancers),
        Client(ClientConfig(server=url)) as client,
    ):
        await client.patch(NODES, "a", CHANGE)
        balancers[0].close()
        while not (balancers[0].back is None or balancers[0].back.is_closing()):
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.05)  # until the end has come to the client too
        await client.patch(NODES, "a", CHANGE)

    assert api.seen == ["PATCH", "PATCH"]


def in_table(address: tuple[str, int]) -> str:
    """The address as /proc/net/tcp writes it."""
    host, port = address
    return f"{socket.inet_aton(host)[::-1].hex().upper()}:{port:04X}"


@pytest.mark.parametrize(
    "call",
    [lambda client: client.get(NODES, "a"), lambda client: client.patch(NODES, "a", CHANGE)],
    ids=["of reads", "of writes"],
)
async def test_the_kernel_probes_each_connection(
    serve: Serve, call: Callable[[Client], Awaitable[object]]
) -> None:
    seen: list[list[str]] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        ends = ("peername", "sockname")  # ours is their peer
        seen.append([in_table(request.transport.get_extra_info(end)) for end in ends])
        meta = {"name": "a", "uid": "u", "resourceVersion": "1"}
        return web.json_response({"metadata": meta})

    async with Client(ClientConfig(server=await serve(handler))) as client:
        await call(client)
        table = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()]

    (row,) = [row for row in table if row[1:3] == seen[0]]
    kind, _, jiffies = row[5].partition(":")
    assert kind == "02"  # the timer that waits is that of keepalive
    assert 0 < int(jiffies, 16) <= 20 * 100


def test_a_watch_that_is_cut_silently_is_noticed_and_goes_on_where_it_was() -> None:
    asked: list[str] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response({"metadata": {"resourceVersion": "5"}, "items": []})
        asked.append(request.query["resourceVersion"])
        answer = web.StreamResponse()
        await answer.prepare(request)
        version = str(5 + len(asked))
        node = {"metadata": {"name": "a", "resourceVersion": version}}
        await answer.write(msgspec.json.encode({"type": "MODIFIED", "object": node}) + b"\n")
        await asyncio.sleep(3600)  # and not a byte more
        return answer

    @virtual_time
    async def run() -> tuple[list[Any], list[Exception], float]:
        errors: list[Exception] = []
        events: list[Any] = []
        server = RawTestServer(handler)
        await server.start_server()
        url = str(server.make_url("/")).rstrip("/")
        async with (
            Client(ClientConfig(server=url)) as client,
            aclosing(watch(client, NODES, backoff=lambda _: 1.0, on_error=errors.append)) as stream,
        ):
            async for event in stream:
                events.append(event)
                if len(events) == 3:
                    break
        took = asyncio.get_running_loop().time()
        await server.close()
        return events, errors, took

    events, errors, took = run()

    first, *others = events
    assert isinstance(first, Restarted)
    assert all(isinstance(event, Applied) and isinstance(event.object, Node) for event in others)
    assert asked == ["5", "6"]  # no list in between
    assert [type(error) for error in errors] == [Unreachable]
    assert SILENCE <= took <= SILENCE + 10


def test_a_watch_with_bookmarks_is_not_silent() -> None:
    @virtual_time
    async def run() -> list[bytes]:
        async def handler(request: web.BaseRequest) -> web.StreamResponse:
            answer = web.StreamResponse()
            await answer.prepare(request)
            for number in range(5):
                await answer.write(f"{number}\n".encode())
                await asyncio.sleep(60)
            return answer

        server = RawTestServer(handler)
        await server.start_server()
        url = str(server.make_url("/")).rstrip("/")
        async with Client(ClientConfig(server=url)) as client:
            request = requests.watch(NODES, resource_version="1", timeout_seconds=600)
            lines = [line async for line in client.stream(request)]
        await server.close()
        return lines

    assert run() == [b"0", b"1", b"2", b"3", b"4"]
