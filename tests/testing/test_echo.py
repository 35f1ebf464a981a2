"""The server behind node ports ends cleanly."""

import asyncio
import gc
import socket

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
