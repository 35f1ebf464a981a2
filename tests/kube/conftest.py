"""A local server that stands for the API server."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer

from proreus.testing.controlplane.certificates import Authority

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@pytest.fixture
async def serve() -> AsyncIterator[Callable[..., Awaitable[str]]]:
    """Start a server with a handler, over TLS if a context is given; answers its base URL."""
    servers: list[RawTestServer] = []

    async def start(handler: Handler, tls: ssl.SSLContext | None = None) -> str:
        server = RawTestServer(handler)
        servers.append(server)
        await server.start_server(ssl=tls)
        return str(server.make_url("/")).rstrip("/")

    yield start
    for server in servers:
        await server.close()


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def serving_tls(authority: Authority, tmp_path: Path) -> ssl.SSLContext:
    """TLS of a server on 127.0.0.1 and localhost; it asks clients for a certificate."""
    certificate, key = authority.serving()
    pair = tmp_path / "serving.pem"
    pair.write_bytes(certificate + key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pair)
    tls.load_verify_locations(cadata=authority.certificate.decode())
    tls.verify_mode = ssl.CERT_OPTIONAL
    return tls
