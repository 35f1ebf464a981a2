"""Run the process's servers: HTTPS with access checks, plain HTTP where flags ask for it.

HTTP/1.1 only. An address that is taken is one clear error, which names the flag to change.
"""

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from proreus.runtime import klog
from proreus.runtime.backoff import Backoff
from proreus.runtime.tasks import supervise
from proreus.serving.tls import ServerTLS

log = klog.logger(__name__)

SHUTDOWN_SECONDS: Final = 2.0
"""Seconds that running requests get to finish at shutdown."""

BACKLOG: Final = 128

RESTART: Final = Backoff(first=1.0, cap=60.0)
"""The pause before a crashed reload of certificates starts again."""

_EVERYWHERE: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - to recognise it

_REMEDIES: Final = {
    errno.EADDRINUSE: "another program uses it: stop that program, or choose another port",
    errno.EACCES: "choose a port above 1023",
}


class CannotListen(Exception):
    """The error that an address cannot be bound; the message names the flag and the address."""


@asynccontextmanager
async def serve(
    application: web.Application,
    host: str,
    port: int,
    *,
    flag: str,
    tls: ServerTLS | None = None,
    any_port: bool = False,
    share_port: bool = False,
) -> AsyncIterator[int]:
    """Serve while the body runs; yields the port.

    Args:
        application: The application to serve.
        host: An IP address or name; empty, 0.0.0.0 and :: are all addresses of both families,
            as in Go.
        port: The port; 0 serves nothing, unless `any_port` is set.
        flag: The flag that gives the port, for errors.
        tls: The TLS settings for HTTPS; their certificates are followed on disk. None is plain
            HTTP.
        any_port: Whether port 0 stands for any free port.
        share_port: Whether other processes may listen on the port, too.

    Raises:
        CannotListen: The address is taken, or is not one of this machine.
    """
    if port == 0 and not any_port:
        yield 0
        return
    listener = _listener(host, port, flag, share_port=share_port)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
    follow: asyncio.Task[None] | None = None
    try:
        await runner.setup()
        context = None if tls is None else tls.context
        await web.SockSite(runner, listener, ssl_context=context, backlog=BACKLOG).start()
        if tls is not None:
            name = f"certificates of {flag}"
            follow = asyncio.create_task(
                supervise(name, tls.follow, backoff=RESTART, on_crash=lambda _: None), name=name
            )
        bound: int = listener.getsockname()[1]
        klog.info(log, "Serving", flag=flag, address=f"{host}:{bound}", tls=tls is not None)
        yield bound
    finally:
        if follow is not None:
            follow.cancel()
            await asyncio.gather(follow, return_exceptions=True)
        await runner.cleanup()
        listener.close()


def _listener(host: str, port: int, flag: str, *, share_port: bool) -> socket.socket:
    """Bind an address; SO_REUSEADDR is always set, as in Go: a restart need not wait."""
    try:
        if host in _EVERYWHERE:
            return _everywhere(port, share_port=share_port)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server(
            (host, port), family=family, reuse_port=share_port, backlog=BACKLOG
        )
    except OSError as exc:
        number = exc.errno or 0
        why = os.strerror(number) if number > 0 else exc.strerror  # below zero: an unknown name
        remedy = _REMEDIES.get(number, "choose an address of this machine")
        raise CannotListen(
            f"{flag}: cannot listen on {host or '*'}:{port} ({why}); {remedy}"
        ) from exc


def _everywhere(port: int, *, share_port: bool) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("::", port),
                family=socket.AF_INET6,
                dualstack_ipv6=True,
                reuse_port=share_port,
                backlog=BACKLOG,
            )
        except OSError as exc:
            # Without IPv6 in the kernel or on any interface.
            if exc.errno not in {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}:
                raise
    return socket.create_server(("", port), reuse_port=share_port, backlog=BACKLOG)
