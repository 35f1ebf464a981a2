"""A proxy before the API server that can hold back requests, or their answers, or cut them off."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.test_utils import RawTestServer
from yarl import URL

from proreus.kube.clientconfig import ClientConfig

_SENT_ON = ("Accept", "Content-Type", "User-Agent")


class ApiProxy:
    """Speaks as one user to the API server, whoever asks.

    Attributes:
        url: Where it listens, without TLS.
        held: Bodies of the requests of which anything has been held back or cut off.
        hanging: Paths of which watches show nothing more, until released.
    """

    def __init__(
        self,
        config: ClientConfig,
        session: aiohttp.ClientSession,
        requests: Collection[str],
        answers: Collection[str],
        cut: Collection[str],
    ) -> None:
        self.url = ""
        self.held: list[Any] = []
        self.hanging: set[str] = set()
        self._requests = requests
        self._answers = answers
        self._cut = cut
        self._server = config.server
        self._session = session
        self._free = asyncio.Event()

    def release(self) -> None:
        """Let everything through, what was held back and what comes."""
        self._free.set()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        if request.method in self._requests:
            await self._hold(body)
        async with self._session.request(
            request.method,
            URL(self._server + request.raw_path, encoded=True),
            data=body or None,
            headers={name: request.headers[name] for name in _SENT_ON if name in request.headers},
        ) as answer:
            if request.method in self._answers:
                await self._hold(body)
            if request.method in self._cut and not self._free.is_set():
                self.held.append(json.loads(body))
                if request.transport is not None:
                    request.transport.abort()
                return web.Response()
            response = web.StreamResponse(
                status=answer.status, headers={"Content-Type": answer.headers["Content-Type"]}
            )
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                if "watch" in request.query and request.path in self.hanging:
                    await self._free.wait()
                await response.write(chunk)
            await response.write_eof()
            return response

    async def _hold(self, body: bytes) -> None:
        self.held.append(json.loads(body))
        await self._free.wait()


@asynccontextmanager
async def api_proxy(
    config: ClientConfig,
    *,
    requests: Collection[str] = (),
    answers: Collection[str] = (),
    cut: Collection[str] = (),
) -> AsyncIterator[ApiProxy]:
    """Until released, holds back requests, or answers, of these methods, or cuts answers off."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=config.ssl_context(), limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
    ) as session:
        proxy = ApiProxy(config, session, requests, answers, cut)
        server = RawTestServer(proxy.handle)
        await server.start_server()
        proxy.url = str(server.make_url("/")).rstrip("/")
        try:
            yield proxy
        finally:
            proxy.release()
            await server.close()
