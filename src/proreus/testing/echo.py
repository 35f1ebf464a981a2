"""An HTTP server that answers who it is and who called: what runs behind node ports in tests."""

import asyncio
import json
import socket
from types import TracebackType
from typing import Final, Self

from aiohttp import web

_TURNS: Final = 3
"""Turns of the event loop after which what was accepted is a connection that can be closed."""


class EchoServer:
    """A server that answers every GET with `{"node", "client", "port", "path"}`; for `async with`.

    Attributes:
        address: The address at which it listens.
        port: The port, also when 0 was asked for.
        healthy: Whether it is healthy; while False, every answer is 503.
    """

    def __init__(self, address: str, port: int = 0, *, node: str = "") -> None:
        """Keep address and port, and the name of the node (by default the address)."""
        self.address = address
        self.port = port
        self.healthy = True
        self._node = node or address
        self._runner: web.AppRunner | None = None
        self._socket: socket.socket | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        ending = asyncio.create_task(self._end())
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            await ending
            raise

    async def _start(self) -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        family = socket.AF_INET6 if ":" in self.address else socket.AF_INET
        self._socket = socket.create_server((self.address, self.port), family=family, backlog=128)
        await web.SockSite(self._runner, self._socket).start()
        self.port = self._runner.addresses[0][1]

    async def _end(self) -> None:
        if self._socket is not None:
            # asyncio leaves a connection open that it accepted right before its server was closed.
            asyncio.get_running_loop().remove_reader(self._socket)
            for _ in range(_TURNS):
                await asyncio.sleep(0)
        if self._runner is not None:
            await self._runner.cleanup()
        if self._socket is not None:
            self._socket.close()  # aiohttp does not if it was cancelled while it started

    async def _answer(self, request: web.Request) -> web.Response:
        peer = request.transport.get_extra_info("peername") if request.transport else None
        body = {
            "node": self._node,
            "client": peer[0] if peer else "",
            "port": self.port,
            "path": request.path,
        }
        return web.Response(
            text=json.dumps(body),
            status=200 if self.healthy else 503,
            content_type="application/json",
        )
