"""A proxy between a provider and its cloud: sees every request and can answer in its place."""

import asyncio
import ssl
import tempfile
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web
from yarl import URL

from proreus.testing.conformance.fixture import Answer
from proreus.testing.controlplane.certificates import Authority

_PER_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "content-length", "host"}
_MAX_BODY = 64 * 1024 * 1024


class Wire:
    """A proxy before the cloud; an async context manager.

    Attributes:
        url: The URL at which it listens, which the provider takes for the cloud.
        requests: How many requests came, by method and path.
        arrived: The event that is set by the first request.
    """

    def __init__(self, endpoint: str, authority: Authority | None = None) -> None:
        """Stand before the cloud at `endpoint`; with an authority, speak TLS."""
        self._cloud = URL(endpoint)
        self._authority = authority
        self._answer: Answer | None = None
        self._hanging = False
        self._cutting = False
        self._released = asyncio.Event()
        self._transports: set[asyncio.Transport] = set()
        self._runner: web.AppRunner | None = None
        self._session: aiohttp.ClientSession | None = None
        self.url = ""
        self.requests: Counter[tuple[str, str]] = Counter()
        self.arrived = asyncio.Event()

    async def __aenter__(self) -> Self:
        """Listen on a port of loopback."""
        app = web.Application(client_max_size=_MAX_BODY)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        tls = _serving(self._authority) if self._authority else None
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=tls).start()
        port = self._runner.addresses[0][1]
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{port}{self._cloud.raw_path.rstrip('/')}"
        connector = aiohttp.TCPConnector(limit=0, ssl=_trusting(self._authority))
        self._session = aiohttp.ClientSession(auto_decompress=False, connector=connector)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop, and let go of whoever still waits for an answer."""
        self._released.set()
        if self._runner is not None:
            await self._runner.cleanup()
        for transport in self._transports:
            transport.abort()  # TLS would wait for the other side's farewell
        await asyncio.sleep(0)
        if self._session is not None:
            await self._session.close()

    def answer(self, answer: Answer) -> None:
        """Answer everything with this from now on; the cloud sees no request."""
        self._answer = answer

    def hang(self) -> None:
        """Take connections and never answer from now on."""
        self._hanging = True

    def cut(self) -> None:
        """Close every connection without an answer from now on."""
        self._cutting = True

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests[request.method, request.path] += 1
        if request.transport is not None:
            self._transports.add(request.transport)
        self.arrived.set()
        if self._hanging:
            await self._released.wait()
        if self._hanging or self._cutting:
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        if self._answer is not None:
            answer = self._answer
            return web.Response(status=answer.status, body=answer.body, headers=answer.headers)
        return await self._forward(request)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        if self._session is None:
            raise RuntimeError("use Wire as an async context manager")
        url = URL(f"{self._cloud.origin()}{request.raw_path}", encoded=True)
        headers = [(k, v) for k, v in request.headers.items() if k.lower() not in _PER_CONNECTION]
        async with self._session.request(
            request.method,
            url,
            data=await request.read() if request.can_read_body else None,
            headers=headers,
            allow_redirects=False,
        ) as got:
            kept = [(k, v) for k, v in got.headers.items() if k.lower() not in _PER_CONNECTION]
            answer = web.Response(status=got.status, body=await got.read())
            # aiohttp has put in a content type of its own.
            answer.headers.clear()
            answer.headers.extend(kept)
            return answer


def _serving(authority: Authority) -> ssl.SSLContext:
    """Make the TLS settings of a server on loopback; Python reads certificates from files only."""
    certificate, key = authority.serving()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(certificate + key)
        context.load_cert_chain(file.name)
    return context


def _trusting(authority: Authority | None) -> ssl.SSLContext | bool:
    """Make the TLS settings of a client that trusts the authority, or aiohttp's own without one.

    To read the system's authorities takes 50 ms, and there are hundreds of proxies in a suite.
    """
    if authority is None:
        return True
    return ssl.create_default_context(cadata=authority.certificate.decode())
