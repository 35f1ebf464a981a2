"""Emulated clouds on ports of loopback."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def listening(
    handle: Handler,
    *,
    path: str = "/{path:.*}",
    tls: ssl.SSLContext | None = None,
    largest: int = 2**22,
) -> AsyncIterator[str]:
    """Let `handle` answer all requests for a path, with bodies of `largest` bytes; the URL."""
    app = web.Application(client_max_size=largest)
    app.router.add_route("*", path, handle)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
