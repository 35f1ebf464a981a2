"""A client that asks without a pause, and then says what was answered: `probe.py ADDRESS`.

It runs on a machine of the cluster, by itself, and ends with its input. It makes new connections
(port 81), keeps some (the same port), and sends numbered datagrams from some ports (82). What it
prints is JSON: lists of attempts, each with the time of its start by the monotonic clock, the
seconds that it took, and whether it was answered.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Coroutine
from typing import Any

CONNECTIONS, DATAGRAMS = 81, 82
CONNECTION_EVERY = 0.02
DATAGRAM_EVERY = 0.005
STREAM_EVERY = 0.1
PORTS = 8
STREAMS = 16
PATIENCE = 1.0
STREAM_PATIENCE = 10.0

Attempt = tuple[float, float, bool]


class Datagrams(asyncio.DatagramProtocol):
    """A UDP socket whose datagrams come back if somebody is there."""

    def __init__(self) -> None:
        self.sent: dict[int, float] = {}
        self.took: dict[int, float] = {}
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        """Remember what to send by."""
        self.transport = transport

    def send(self) -> None:
        """Send the next one."""
        number = len(self.sent)
        self.sent[number] = time.monotonic()
        self.transport.sendto(b"echo %d" % number)

    def datagram_received(self, data: bytes, _: Any) -> None:
        """Note when it came back."""
        with contextlib.suppress(ValueError, KeyError):
            number = int(data)
            self.took.setdefault(number, time.monotonic() - self.sent[number])

    def error_received(self, _: Exception) -> None:
        """Ignore that a port is refused: that is no answer."""

    def attempts(self, end: float) -> list[Attempt]:
        """Return all datagrams that had time to come back."""
        return [
            (at, self.took.get(number, PATIENCE), number in self.took)
            for number, at in self.sent.items()
            if at < end - PATIENCE
        ]


async def connect(address: str, attempts: list[Attempt]) -> None:
    """Ask once by a new connection."""
    at = time.monotonic()
    good = False
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection(address, CONNECTIONS)
            try:
                writer.write(b"GET /hostname HTTP/1.0\r\n\r\n")
                good = b" 200 " in await reader.readline()
            finally:
                writer.transport.abort()
    attempts.append((at, time.monotonic() - at, good))


async def stream(address: str, attempts: list[Attempt]) -> None:
    """Ask by one connection until it breaks."""
    at = time.monotonic()
    good = False
    with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        reader, writer = await asyncio.open_connection(address, CONNECTIONS)
        try:
            while True:
                async with asyncio.timeout(STREAM_PATIENCE):
                    writer.write(b"GET /hostname HTTP/1.1\r\nHost: x\r\n\r\n")
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = head.lower().partition(b"content-length:")[2].split()[0]
                    await reader.readexactly(int(length))
                await asyncio.sleep(STREAM_EVERY)
        except asyncio.CancelledError:
            good = True
            raise
        finally:
            writer.transport.abort()
            attempts.append((at, time.monotonic() - at, good))


async def main(address: str) -> None:
    """Ask until the input ends, then tell."""
    loop = asyncio.get_running_loop()
    ended = loop.run_in_executor(None, sys.stdin.read)
    connections: list[Attempt] = []
    streams: list[Attempt] = []
    tasks: set[asyncio.Task[None]] = set()

    def start(work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    ports: list[Datagrams] = []
    for _ in range(PORTS):
        with contextlib.suppress(OSError):  # there is no way yet
            _, port = await loop.create_datagram_endpoint(
                Datagrams, remote_addr=(address, DATAGRAMS)
            )
            ports.append(port)
    for _ in range(STREAMS):
        start(stream(address, streams))
    number = 0
    while not ended.done():
        if number % int(CONNECTION_EVERY / DATAGRAM_EVERY) == 0:
            start(connect(address, connections))
        if ports:
            with contextlib.suppress(OSError):
                ports[number % len(ports)].send()
        number += 1
        await asyncio.sleep(DATAGRAM_EVERY)
    end = time.monotonic()
    for task in list(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    datagrams = [one for port in ports for one in port.attempts(end)]
    whole = [one for one in connections if one[0] < end - PATIENCE]
    print(json.dumps({"connections": whole, "datagrams": datagrams, "streams": streams}))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
