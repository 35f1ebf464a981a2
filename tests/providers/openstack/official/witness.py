"""Stands between a manager and the services, and notes every request.

keystone's catalog, and every address in an answer, lead back to here. So it sees what both managers
send, in the same way and to the last request, whatever they count themselves.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import aiohttp
import msgspec
from aiohttp import web

from proreus.testing.openstack.settings import PORTS, url

_DROPPED = frozenset({"host", "content-length", "transfer-encoding", "connection", "keep-alive"})
_ENCODED = frozenset({"content-encoding", "accept-encoding"})


class Call(msgspec.Struct, frozen=True):
    """A request of a manager.

    Attributes:
        service: Such as neutron.
        method: Of HTTP.
        path: Below the service's address, with the query.
        status: What was answered.
    """

    service: str
    method: str
    path: str
    status: int

    @property
    def is_write(self) -> bool:
        """Whether it was to change something; a login changes nothing."""
        return self.method != "GET" and self.service != "keystone"

    def __str__(self) -> str:
        """For people."""
        return f"{self.method} {self.service}{self.path} {self.status}"


class Witness:
    """The requests so far, in their order."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        """Hand on through `session`."""
        self._session = session
        self.here = ""
        self.calls: list[Call] = []

    def since(self, mark: int) -> list[Call]:
        """The requests since there were `mark`."""
        return self.calls[mark:]

    async def hand_on(self, request: web.Request) -> web.Response:
        """Ask the service, and answer what it answers."""
        service = request.match_info["service"]
        path = request.raw_path.removeprefix(f"/{service}")
        async with self._session.request(
            request.method,
            url(service, path),
            headers=_kept(request.headers.items()),
            data=await request.read() or None,
            skip_auto_headers=("Content-Type", "User-Agent"),
            allow_redirects=False,
        ) as answer:
            body = await answer.read()
            for name in PORTS:
                body = body.replace(url(name).encode(), f"{self.here}/{name}".encode())
            self.calls.append(Call(service, request.method, path, answer.status))
            headers = _kept(answer.headers.items())
            return web.Response(status=answer.status, headers=headers, body=body)


def _kept(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The headers that are not about the connection alone."""
    return [pair for pair in headers if pair[0].lower() not in _DROPPED | _ENCODED]


@asynccontextmanager
async def watched() -> AsyncIterator[Witness]:
    """A witness that listens on loopback."""
    async with aiohttp.ClientSession() as session:
        witness = Witness(session)
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{service}{path:.*}", witness.hand_on)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            witness.here = f"http://{host}:{port}"
            yield witness
        finally:
            await runner.cleanup()
