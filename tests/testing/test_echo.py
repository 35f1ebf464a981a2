"""The server behind node ports ends cleanly."""

import asyncio
import gc
import socket
from contextlib import suppress

import pytest

from proreus.testing.echo import EchoServer


@pytest.mark.parametrize("turns", range(6))
def test_a_connection_that_comes_right_before_the_end_is_closed(turns: int) -> None:
    """It is accepted in one turn of the event loop, and a connection some turns later."""

    async def serve() -> None:
        async with EchoServer("127.0.0.1") as server:
            client.settimeout(0)
            client.connect_ex(("127.0.0.1", server.port))
            for _ in range(turns):
                await asyncio.sleep(0)

    with socket.socket() as client:
        asyncio.run(serve())
    gc.collect()  # what was left open is a ResourceWarning now, which fails the test


@pytest.mark.parametrize("turns", range(20))
def test_a_server_that_is_cancelled_while_it_starts_or_ends_is_closed(turns: int) -> None:
    async def live() -> None:
        async with EchoServer("127.0.0.1"):
            pass

    async def cancel() -> None:
        life = asyncio.create_task(live())
        for _ in range(turns):
            await asyncio.sleep(0)
        life.cancel()
        with suppress(asyncio.CancelledError):
            await life

    asyncio.run(cancel())
    gc.collect()
