"""Masters that register in a real ZooKeeper, as those of Mesos do, and a line to it that hangs."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from labs.zookeeper import ZooKeeperServer

from .emulator import Cluster

PATH = "/mesos"
SESSION = 6.0


class Electorate:
    """The sessions of masters in ZooKeeper; the one that registered first leads."""

    def __init__(self, server: ZooKeeperServer, cluster: Cluster) -> None:
        self._server, self._cluster = server, cluster
        self._clients: dict[int, KazooClient] = {}
        self.credentials: tuple[str, str] | None = None
        """User and password without which nobody reads what masters write."""

    @property
    def url(self) -> str:
        return f"zk://{self._server.address}{PATH}"

    async def join(self, number: int, over: str = "") -> None:
        """Let a master register, over the address of a line to the server if it is given."""
        await asyncio.to_thread(self._join, number, over or self._server.address)

    def _join(self, number: int, address: str) -> None:
        client = KazooClient(address, timeout=SESSION)
        client.start()
        acl = None
        if self.credentials:
            client.add_auth("digest", ":".join(self.credentials))
            acl = [make_digest_acl(*self.credentials, all=True)]
        if not client.exists(PATH):
            client.create(PATH, acl=acl)
        if not client.exists(f"{PATH}/log_replicas"):
            client.create(f"{PATH}/log_replicas", acl=acl)
        content = json.dumps(self._cluster.masters[number].info.described()).encode()
        self._clients[number] = client
        client.create(f"{PATH}/json.info_", content, ephemeral=True, sequence=True, acl=acl)

    async def leave(self, number: int) -> None:
        """End a master's session at once, as its process ends."""
        client = self._clients.pop(number)
        await asyncio.to_thread(client.stop)
        await asyncio.to_thread(client.close)

    async def close(self) -> None:
        for number in tuple(self._clients):
            with suppress(Exception):
                await self.leave(number)


class Line:
    """A TCP proxy before ZooKeeper that can hold what is sent through it."""

    def __init__(self, target: str) -> None:
        self._host, _, port = target.rpartition(":")
        self._port = int(port)
        self._open = asyncio.Event()
        self._open.set()
        self.lets_through: int | None = None
        """Packets to the server after which it holds everything; None if it holds nothing."""
        self.held = asyncio.Event()
        self.address = ""
        self._tasks: set[asyncio.Task[None]] = set()

    def hold(self) -> None:
        """Let nothing through any more, in either direction."""
        self._open.clear()
        self.held.set()

    def release(self) -> None:
        """Let all through again, with what was held."""
        self.lets_through = None
        self._open.set()

    async def close(self) -> None:
        """End all connections."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, to = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.close()
            return
        for source, sink, outward in ((reader, to, True), (there, writer, False)):
            task = asyncio.create_task(self._carry(source, sink, outward=outward))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, outward: bool
    ) -> None:
        packets = 0
        try:
            while data := await source.read(65536):
                packets += 1
                if outward and self.lets_through is not None and packets > self.lets_through:
                    self.hold()
                await self._open.wait()
                sink.write(data)
                await sink.drain()
        except OSError:
            pass  # The other end has gone.
        finally:
            sink.close()


@asynccontextmanager
async def line(target: str) -> AsyncIterator[Line]:
    """A line to a server."""
    made = Line(target)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.address = "{}:{}".format(*server.sockets[0].getsockname())
    try:
        yield made
    finally:
        made.release()
        server.close()
        await made.close()
