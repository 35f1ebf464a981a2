"""Send HTTP to the API server: thin, because every read and write passes here.

One connection carries one request at a time (HTTP/1.1) and is kept for the next. Reads go through
aiohttp; so do writes if there is a proxy, and else they have connections of their own, which cost
less (`kube.writing`).
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from copy import copy
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import urlencode

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from proreus.kube.clientconfig import ClientConfig
from proreus.kube.connections import NEVER_SENT, SEND_ONCE, Connector, Gate, text_of
from proreus.kube.errors import StatusError, Unauthorized, Unreachable, from_status
from proreus.kube.identity import Identity
from proreus.kube.requests import Request
from proreus.kube.writing import NoReply, NotConnected, WriteConnections

CONNECT_TIMEOUT = 10.0
"""Seconds to connect: name, TCP, proxy and TLS together."""

KEEP_ALIVE = 60.0
"""Seconds that an unused connection is kept; the API server keeps it longer."""

SILENCE = 90.0
"""Seconds without a byte after which a stream counts as dead; bookmarks come every minute."""

SHORTEST_WAIT = 0.1
"""Seconds between two tries at least, whatever Retry-After says."""

STREAM_BUFFER = 1 << 18
"""How many bytes of a stream are read ahead."""

SHORTEST_TOKEN = 8
"""Letters that a token must have to be taken out of errors."""

_TOKEN = re.compile(rb'"token":"([^"\\]+)"')

Observer = Callable[[Request, int, float], None]
"""An observer of each try: the request, the HTTP status (0: no answer), the seconds to its head."""


class Limiter(Protocol):
    """A limit that holds requests back."""

    async def acquire(self) -> None:
        """Return when the next request may go."""


class Transport:
    """A sender of requests that tries those again which were not carried out."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        limiter: Limiter | None,
        gate: Gate | None,
        observer: Observer | None,
        user_agent: str,
    ) -> None:
        """Prepare the transport in a running event loop; it connects when needed.

        The gate is asked before each try of a write, and again when its connection is there, which
        may be seconds later; it raises `RefusedByGate` to hold it back.
        """
        self._limiter = limiter
        self._gate = gate
        self._observer = observer
        self._time = asyncio.get_running_loop().time
        self._identity = Identity(config, self._time)
        self._server = config.server
        self._server_name = config.tls_server_name or None
        self._proxy = URL(config.proxy) if config.proxy else None
        # Compressing costs the API server more than the network costs us; as client-go here.
        self._standing = {"User-Agent": user_agent, "Accept-Encoding": "identity"}
        self._writes: WriteConnections | None = None
        if self._proxy is None:
            self._writes = WriteConnections(
                config.server,
                config.tls_server_name,
                gate=gate,
                timeout=CONNECT_TIMEOUT,
                kept=KEEP_ALIVE,
            )
        self._session = self._new_session()

    async def close(self) -> None:
        """Close all connections."""
        await self._identity.close()
        if self._writes is not None:
            self._writes.close()
        await self._session.close()

    @asynccontextmanager
    async def apart(self) -> AsyncIterator["Transport"]:
        """Give a transport whose reads share no connection with those of others.

        What is read one after another goes by one connection, as long as that lives.
        """
        other, session = copy(self), self._new_session()
        vars(other).update(_session=session)
        try:
            yield other
        finally:
            await session.close()

    @property
    def credentials(self) -> object:
        """What requests are sent with: one object for all transports of an account."""
        return self._identity

    async def exchange(self, request: Request, gate: Gate | None = None) -> bytes:
        """Return the body of a 2xx answer within `request.timeout`, or raise `KubeError`.

        `gate` is asked before each try of a write, too.
        """
        deadline = self._time() + request.timeout
        in_flight = False
        may_renew = True
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    await self._admit(request, gate)
                    in_flight = True
                    generation = self._identity.generation
                    code, body, headers = await self._answer(request, gate)
                    if _is_good(code):
                        return body
                    in_flight = False
                    is_patch = request.method == "PATCH"
                    error = from_status(code, self._shown(request, body), headers, patch=is_patch)
                    if may_renew and await self._is_renewed(error, generation):
                        may_renew = False
                        continue
                    wait = _wait(error)
                    if wait is None or self._time() + wait >= deadline:
                        raise error
                    await asyncio.sleep(wait)
        except TimeoutError as exc:
            raise Unreachable(
                f"{request.method} {request.path}: no answer within {request.timeout:g} s",
                sent=in_flight and not request.read,
            ) from exc

    def _new_session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=Connector(self._gate, url=self._server, keep_alive=KEEP_ALIVE, reads=False),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT),
        )

    async def _answer(
        self, request: Request, gate: Gate | None
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """Send the request once; return the status, the body and the headers of the answer."""
        if self._writes is not None and not request.read:
            return await self._write(request, self._writes, gate)
        response = await self._open(request)
        async with response:
            return response.status, await _body(request, response), response.headers

    async def _write(
        self, request: Request, connections: WriteConnections, gate: Gate | None
    ) -> tuple[int, bytes, Mapping[str, str]]:
        started = self._time()
        head = connections.head(request.method, _target(request), self._headers(request).items())
        code, is_sent = 0, False

        def sent() -> None:
            nonlocal is_sent
            if gate is not None:
                gate()
            is_sent = True

        try:
            reply = await connections.exchange(head, request.body, self._identity.tls, sent)
        except (NotConnected, NoReply) as exc:
            raise Unreachable(f"{request.method} {request.path}: {exc}", sent=is_sent) from exc
        else:
            code = reply.status
            return code, reply.body, {"Retry-After": reply.retry_after}
        finally:
            if self._observer is not None:
                self._observer(request, code, self._time() - started)

    async def stream(self, request: Request) -> AsyncGenerator[bytes]:
        """Yield the whole lines of an answer as they come, of any length.

        What a cut connection leaves of a line is dropped, and `Unreachable` is raised.
        """
        response = await self._open_stream(request)
        async with response:
            begun: list[bytes] = []
            try:
                async for chunk in response.content.iter_any():
                    for line in _lines(begun, chunk):
                        yield line
            except (aiohttp.ClientError, OSError) as exc:
                raise _unreachable(request, exc) from exc
            finally:
                # One that is left is not for another request; TLS would wait for its end politely,
                # and outlive the event loop.
                if response.connection is not None and response.connection.transport is not None:
                    response.connection.transport.abort()

    async def _open_stream(self, request: Request) -> aiohttp.ClientResponse:
        timeout = aiohttp.ClientTimeout(
            total=request.timeout, connect=CONNECT_TIMEOUT, sock_read=SILENCE
        )
        may_renew = True
        while True:
            await self._admit(request)
            generation = self._identity.generation
            response = await self._open(request, timeout=timeout, read_bufsize=STREAM_BUFFER)
            if _is_good(response.status):
                return response
            async with response:
                body = await _body(request, response)
            error = from_status(response.status, self._shown(request, body), response.headers)
            if not (may_renew and await self._is_renewed(error, generation)):
                raise error
            may_renew = False

    def _shown(self, request: Request, body: bytes) -> bytes:
        """Return an answer without tokens of the request, which a proxy may repeat in its own."""
        own = self._identity.headers.get("Authorization", "").rpartition(" ")[2].encode()
        for token in (own, *_TOKEN.findall(request.body or b"")):
            if len(token) >= SHORTEST_TOKEN:
                body = body.replace(token, b"***")
        return body

    async def _is_renewed(self, error: StatusError, generation: int) -> bool:
        """Tell whether a 401 came and newer credentials are at hand."""
        return isinstance(error, Unauthorized) and await self._identity.refused(generation)

    async def _admit(self, request: Request, gate: Gate | None = None) -> None:
        if self._limiter is not None:
            await self._limiter.acquire()
        if self._time() >= self._identity.valid_until:
            await self._identity.refresh()
        for one in (self._gate, gate):
            if one is not None and not request.read:
                one()

    async def _open(self, request: Request, **options: Any) -> aiohttp.ClientResponse:
        """Send the request; return when the head of the answer is there."""
        started = self._time()
        code = 0
        try:
            response = await self._session.request(
                request.method,
                URL(f"{self._server}{_target(request)}", encoded=True),
                data=request.body or None,
                headers=self._headers(request),
                allow_redirects=False,
                ssl=self._identity.tls,
                server_hostname=self._server_name,
                proxy=self._proxy,
                middlewares=None if request.method == "GET" else SEND_ONCE,
                **options,
            )
        except (aiohttp.ClientError, OSError) as exc:
            raise _unreachable(request, exc) from exc
        else:
            code = response.status
            return response
        finally:
            if self._observer is not None:
                self._observer(request, code, self._time() - started)

    def _headers(self, request: Request) -> CIMultiDict[str]:
        headers = self._identity.headers.copy()
        headers.extend(self._standing)
        headers["Accept"] = request.accept
        if request.content_type:
            headers["Content-Type"] = request.content_type
        return headers


def _target(request: Request) -> str:
    query = f"?{urlencode(request.query)}" if request.query else ""
    return f"{request.path}{query}"


async def _body(request: Request, response: aiohttp.ClientResponse) -> bytes:
    try:
        return await response.read()
    except (aiohttp.ClientError, OSError) as exc:
        raise _unreachable(request, exc) from exc


def _lines(begun: list[bytes], chunk: bytes) -> Iterator[bytes]:
    """Return the lines that `chunk` completes; `begun` keeps the pieces of an unfinished line.

    aiohttp's own reader of lines limits their length.
    """
    first, *rest = chunk.split(b"\n")
    begun.append(first)
    for piece in rest:
        line = b"".join(begun)
        begun[:] = [piece]
        if line:
            yield line


def _unreachable(request: Request, exc: Exception) -> Unreachable:
    return Unreachable(
        f"{request.method} {request.path}: {text_of(exc)}",
        sent=not (request.read or isinstance(exc, NEVER_SENT)),
    )


def _is_good(code: int) -> bool:
    return HTTPStatus.OK <= code < HTTPStatus.MULTIPLE_CHOICES


def _wait(error: StatusError) -> float | None:
    """Return the seconds until the next try, None if there is none."""
    refused = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
    if error.code not in refused or error.retry_after is None:
        return None
    return max(error.retry_after, SHORTEST_WAIT)
