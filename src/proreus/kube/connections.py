"""Set up all our HTTP connections alike, to the API server and to clouds.

A dead peer is noticed, a write is never sent twice, and the gate is asked when the connection is
there.
"""

import re
import socket
import sys
from asyncio.trsock import TransportSocket
from collections.abc import Callable
from typing import Any, Final

import aiohttp

PROBE_AFTER = 20
PROBE_EVERY = 5
"""Seconds of silence after which TCP asks whether the other end is there, and between two such
questions. They also keep load balancers from forgetting the connection."""

UNACKNOWLEDGED = 15.0
"""Seconds after which a connection whose other end acknowledges nothing counts as dead. That
leaves time within a request to read again on a new one."""

_TLS_ARGUMENT = re.compile(r" ssl:(<[^>]*>|\w+)")
"""The part of aiohttp's error text about TLS settings: mostly an object's address."""

_LOSES_CLOSED_TLS = sys.version_info < (3, 12, 8) or sys.version_info[:3] == (3, 13, 0)
"""Whether this Python may keep TLS connections for ever that are closed (python/cpython#118960)."""

_ABORT_FAILS = sys.version_info < (3, 11, 7)
"""Whether aborting a closed TLS connection may raise, as in Debian 12's Python. There
it is better to keep them: they are few, and the error would break an ordered end."""

Gate = Callable[[], None]
"""A check that raises if this replica may not act any more."""

NEVER_SENT = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.ClientHttpProxyError,
)
"""The errors that aiohttp raises while it connects."""


class Connector(aiohttp.TCPConnector):
    """A connector that checks the gate again once a connection is ready to carry the request.

    No number of connections is set: callers limit how much they do at once.
    """

    def __init__(self, gate: Gate | None, *, url: str, keep_alive: float, reads: bool) -> None:
        """Prepare the connector without connecting.

        Args:
            gate: Called when a connection is open.
            url: What all URLs begin with, or "". With `http://` nothing watches for TLS connections
                that are closed.
            keep_alive: Seconds that an unused connection is kept.
            reads: Whether the gate is asked for GET, too.
        """
        watches = _LOSES_CLOSED_TLS and not _ABORT_FAILS
        super().__init__(
            socket_factory=_socket,
            limit=0,
            keepalive_timeout=keep_alive,
            enable_cleanup_closed=watches and not url.startswith("http://"),
        )
        self._gate = gate
        self._reads = reads

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: Any,
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - aiohttp's
    ) -> Any:
        """Return a connection for the request, or raise what the gate raises."""
        connection = await super().connect(req, traces, timeout)
        if self._gate is not None and (self._reads or req.method != "GET"):
            try:
                self._gate()
            except BaseException:
                connection.release()
                raise
        return connection


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Open a socket with keep-alive, so that a dead connection is noticed."""
    family, type_, protocol, _, _ = address
    made = socket.socket(family, type_, protocol)
    keep_alive(made)
    return made


def keep_alive(made: socket.socket | TransportSocket) -> None:
    """Let the kernel probe a connection, so that a dead one is noticed."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(UNACKNOWLEDGED * 1000))


class _Broken(aiohttp.ClientError):
    """The error that the connection ended before the answer of a write."""


async def _send_once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep aiohttp from sending a write again: its outcome is unknown.

    aiohttp repeats reads, too, and that is welcome.
    """
    try:
        return await handler(request)
    except NEVER_SENT:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as exc:
        raise _Broken(str(exc)) from exc


SEND_ONCE: Final[tuple[aiohttp.ClientMiddlewareType, ...]] = (_send_once,)
"""The middlewares of a request that aiohttp is not to send again on a new connection, which it does
for GET, PUT and DELETE when a kept-alive one is dead."""


def text_of(error: Exception) -> str:
    """Return the text of a connection error, without addresses of Python objects."""
    text = _TLS_ARGUMENT.sub("", str(error)) or type(error).__name__
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy refused the connection: {error.status} {error.message}"
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return f"the proxy cannot be reached: {text}"
    return text
