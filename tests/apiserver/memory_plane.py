"""The API server in memory, with the face of a control plane."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from proreus.testing.memory import MemoryApiServer
from proreus.testing.memory.kubeconfig import write_kubeconfig


class MemoryPlane:
    """What the tests of the client need of a control plane."""

    def __init__(self, server: MemoryApiServer, directory: Path) -> None:
        self.server = server
        self.kubeconfig = directory / "memory.kubeconfig"
        write_kubeconfig(server.url, self.kubeconfig)

    async def stop_apiserver(self) -> None:
        await self.server.stop()

    async def start_apiserver(self) -> None:
        await self.server.start()

    async def restart_apiserver(self) -> None:
        await self.stop_apiserver()
        await self.start_apiserver()


@asynccontextmanager
async def memory_plane(directory: Path) -> AsyncIterator[MemoryPlane]:
    async with MemoryApiServer() as server:
        yield MemoryPlane(server, directory)
