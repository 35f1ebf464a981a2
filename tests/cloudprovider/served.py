"""Servers on real sockets, and clients of them."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
from aiohttp import web

from proreus.cloudprovider import Answer, ClusterIdentity, Context, ErrorBody, RestClient

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Said(msgspec.Struct):
    code: str
    message: str = ""


def read_error(answer: Answer) -> ErrorBody:
    said = answer.json(Said)
    return ErrorBody(said.code, said.message)


class NoEvents:
    def event(self, ref: Any, type_: str, reason: str, message: str, /) -> None:
        raise AssertionError(message)


def context(gate: Callable[[], None] = lambda: None) -> Context:
    cluster = ClusterIdentity("test", "uid")
    now = lambda: datetime.now(UTC)  # noqa: E731
    return Context(cluster, now=now, events=NoEvents(), listers={}, gate=gate)


@asynccontextmanager
async def served(handler: Handler, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """The address of a server whose every request the handler answers."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        scheme = "http" if tls is None else "https"
        yield f"{scheme}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def client(
    url: str, made: Context | None = None, **options: Any
) -> AsyncIterator[RestClient]:
    rest = RestClient(made or context(), url, **{"read_error": read_error, **options})
    try:
        yield rest
    finally:
        await rest.close()
