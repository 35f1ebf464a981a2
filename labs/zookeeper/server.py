"""Runs a server of ZooKeeper, which can be paused, ended and started again with what it knows."""

import asyncio
import os
import re
import signal
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from labs.zookeeper.program import classpath
from proreus.testing.ports import free_port

TICK: Final = 400
"""Milliseconds; sessions last at least two of these, and at most twenty."""
START: Final = 60.0


class ZooKeeperServer:
    """One server that keeps its data in a directory, for `async with`.

    Attributes:
        address: Where it serves.
    """

    def __init__(self, directory: Path) -> None:
        """Start nothing yet."""
        self._directory = directory
        self._process: asyncio.subprocess.Process | None = None
        self._port = free_port()
        self.address = f"127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        """Start it."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End it."""
        await self.stop()

    async def start(self) -> None:
        """Start it, and wait until it serves.

        Raises:
            NoZooKeeper: There is none on this machine, and none can be fetched.
            RuntimeError: It does not serve.
        """
        path = await classpath()
        config = self._directory / "zoo.cfg"
        config.write_text(
            f"tickTime={TICK}\ndataDir={self._directory / 'data'}\nclientPort={self._port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
            "4lw.commands.whitelist=ruok,dump\n"
        )
        with (self._directory / "zookeeper.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *("java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", path),
                *("org.apache.zookeeper.server.ZooKeeperServerMain", str(config)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            async with asyncio.timeout(START):
                while not await self._serves():
                    if self._process.returncode is not None:
                        said = (self._directory / "zookeeper.log").read_text(errors="replace")
                        raise RuntimeError(f"ZooKeeper has ended:\n{said[-2000:]}")
                    await asyncio.sleep(0.1)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End it; what it knows is kept."""
        if self._process is not None and self._process.returncode is None:
            self.resume()
            self._process.kill()
            await self._process.wait()
        self._process = None

    def pause(self) -> None:
        """Let it answer nothing, as a server that hangs."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            os.kill(self._process.pid, number)

    async def sessions(self) -> frozenset[str]:
        """Return the ids of all sessions that have not expired."""
        said = await self._say(b"dump")
        return frozenset(re.findall(r"0x[0-9a-f]+", said.partition("ephemeral nodes")[0]))

    async def _serves(self) -> bool:
        try:
            # It forgets whoever comes while it starts.
            async with asyncio.timeout(1):
                return await self._say(b"ruok") == "imok"
        except (OSError, TimeoutError):
            return False

    async def _say(self, word: bytes) -> str:
        """Return the answer to one of ZooKeeper's words of four letters."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(word)
            return (await reader.read()).decode()
        finally:
            writer.close()
