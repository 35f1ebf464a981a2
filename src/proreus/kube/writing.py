"""Send writes to the API server over connections that are kept, for a third of aiohttp's CPU time.

Each PATCH and POST is small and there are thousands of them, so that what a general client does
around each is most of the cost. Here a request is one block of bytes, an answer is read by
`kube.replies`, and a write is never sent twice. Reads, watches and all that goes through a proxy
are aiohttp's (`kube.transport`).
"""

import asyncio
import re
import ssl
from collections.abc import Callable, Iterable
from typing import Final, cast
from urllib.parse import urlsplit

import msgspec

from proreus.kube.connections import Gate, keep_alive
from proreus.kube.replies import BadReply, Reply, ReplyReader

_TARGET: Final = re.compile(r"[!-~]+")
_LINE: Final = re.compile(r"[^\0\r\n]*")
_SECOND_ADDRESS_AFTER: Final = 0.25
"""Seconds until another address of the server is tried beside the first (RFC 8305)."""


class NotConnected(Exception):
    """The error that there was no connection; nothing was sent."""


class NoReply(Exception):
    """The error that the connection gave no whole answer; the write may have been done."""


class _Connection(asyncio.Protocol):
    """A connection that carries one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._reader = ReplyReader()
        self._waiting: asyncio.Future[Reply] | None = None

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    def abort(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if (found := transport.get_extra_info("socket")) is not None:
            keep_alive(found)

    def data_received(self, data: bytes) -> None:
        if self._waiting is None or self._waiting.done():
            self.abort()  # nobody asked: the server is about to close
            return
        try:
            reply = self._reader.feed(data)
        except BadReply as exc:
            self._fail(f"the answer is not of HTTP: {exc}")
        else:
            if reply is not None:
                self._waiting.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is None or self._waiting.done():
            return
        reply = self._reader.end() if exc is None else None
        if reply is not None:
            self._waiting.set_result(reply)
        else:
            self._fail(str(exc or "the server closed the connection"))

    def _fail(self, text: str) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(NoReply(text))
        self.abort()

    async def exchange(self, request: bytes) -> Reply:
        """Send a request and return the answer; the connection ends with any error.

        Raises:
            NoReply: No answer came, or only a part of one.
        """
        self._reader = ReplyReader()
        self._waiting = asyncio.get_running_loop().create_future()
        try:
            self._transport.write(request)
            return await self._waiting
        except BaseException:
            self.abort()
            raise
        finally:
            self._waiting = None


class _Idle(msgspec.Struct, frozen=True, gc=False):
    """An idle connection, the time until which it is kept, and the TLS settings it is of."""

    connection: _Connection
    tls: ssl.SSLContext
    until: float


class WriteConnections:
    """The connections to one server on which writes are sent."""

    def __init__(
        self, server: str, server_name: str, *, gate: Gate | None, timeout: float, kept: float
    ) -> None:
        """Connect when needed.

        Args:
            server: The server's URL.
            server_name: The name in the server's certificate, "" for that in the URL.
            gate: Called when a connection is open; what it raises, `exchange` raises.
            timeout: Seconds that a connection may take.
            kept: Seconds that an unused connection is kept.
        """
        url = urlsplit(server)
        self._host = url.hostname or ""
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._is_tls = url.scheme == "https"
        self._netloc, self._prefix = url.netloc, url.path
        self._server_name = server_name or self._host.rstrip(".")
        self._gate = gate
        self._timeout, self._kept = timeout, kept
        self._idle: list[_Idle] = []
        self._busy: set[_Connection] = set()
        self._purging: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Cut all connections."""
        for connection in [*(one.connection for one in self._idle), *self._busy]:
            connection.abort()
        self._idle.clear()
        if self._purging is not None:
            self._purging.cancel()

    def head(self, method: str, target: str, headers: Iterable[tuple[str, str]]) -> bytes:
        """Return the head of a request without the length of its body.

        Raises:
            ValueError: A text contains a line break, which would end its header line.
        """
        lines = [f"{name}: {value}" for name, value in headers]
        if not _TARGET.fullmatch(target) or not all(map(_LINE.fullmatch, lines)):
            raise ValueError("a header or path of a request has a line break or blank in it")
        first = f"{method} {self._prefix}{target} HTTP/1.1"
        return "\r\n".join((first, f"Host: {self._netloc}", *lines, "")).encode()

    async def exchange(
        self, head: bytes, body: bytes, tls: ssl.SSLContext, sent: Callable[[], None]
    ) -> Reply:
        """Send a request and return the answer; `sent` is called right before, and may forbid it.

        Raises:
            NotConnected: No connection could be opened.
            NoReply: No answer came, or only a part of one.
        """
        connection = self._take(tls) or await self._connect(tls)
        self._busy.add(connection)
        try:
            try:
                if self._gate is not None:
                    self._gate()
                sent()
            except BaseException:
                self._keep(connection, tls)
                raise
            reply = await connection.exchange(
                b"%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body)
            )
            if reply.may_go_on:
                self._keep(connection, tls)
            else:
                connection.abort()
            return reply
        finally:
            self._busy.discard(connection)

    def _take(self, tls: ssl.SSLContext) -> _Connection | None:
        """Return the connection that was used last; others' TLS settings are out of date."""
        now = self._loop.time()
        while self._idle:
            idle = self._idle.pop()
            if idle.tls is tls and idle.until > now and idle.connection.is_open:
                return idle.connection
            idle.connection.abort()
        return None

    async def _connect(self, tls: ssl.SSLContext) -> _Connection:
        try:
            async with asyncio.timeout(self._timeout):
                _, connection = await self._loop.create_connection(
                    _Connection,
                    self._host,
                    self._port,
                    ssl=tls if self._is_tls else None,
                    server_hostname=self._server_name if self._is_tls else None,
                    happy_eyeballs_delay=_SECOND_ADDRESS_AFTER,
                )
        except OSError as exc:  # TimeoutError and errors of names and TLS among them
            text = str(exc) or f"not within {self._timeout:g} s"
            raise NotConnected(f"cannot connect to {self._host}:{self._port}: {text}") from exc
        return connection

    def _keep(self, connection: _Connection, tls: ssl.SSLContext) -> None:
        until = self._loop.time() + self._kept
        self._idle.append(_Idle(connection, tls, until))
        if self._purging is None:
            self._purging = self._loop.call_at(until, self._purge)

    def _purge(self) -> None:
        """Close the connections that were not used for too long; the oldest come first."""
        # `until` is the timer's own time: a difference, rounded, could make it start anew for ever.
        now = self._loop.time()
        for idle in self._idle:
            if idle.until <= now:
                idle.connection.abort()
        self._idle = [idle for idle in self._idle if idle.connection.is_open]
        self._purging = None
        if self._idle:
            self._purging = self._loop.call_at(self._idle[0].until, self._purge)
