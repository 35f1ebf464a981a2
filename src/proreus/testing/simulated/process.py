"""Start and end the simulated cloud's process."""

import asyncio
import json
import socket
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from proreus.testing import programs
from proreus.testing.simulated.admin import Admin
from proreus.testing.simulated.model import Settings

_START_TIMEOUT = 30.0
_POLL = 0.02


class SimulatedCloudProcess:
    """A simulated cloud in a process of its own, for `async with`.

    Attributes:
        endpoint: The URL at which it listens.
        token: The token of the credential "default".
        admin: The client of its admin API.
    """

    def __init__(
        self,
        state: Path | None = None,
        *,
        settings: Settings | None = None,
        tokens: Mapping[str, str] | None = None,
    ) -> None:
        """Keep the state file (a temporary one if None), settings and tokens."""
        self._directory = tempfile.TemporaryDirectory(prefix="simulated-cloud-")
        self._state = state or Path(self._directory.name) / "state.db"
        self._settings = settings or Settings()
        self._tokens = dict(tokens or {"default": "token"})
        self._process: programs.Program | None = None
        self._port = ExitStack()
        self.token = next(iter(self._tokens.values()))
        self.endpoint = ""
        self.admin = Admin("")

    async def __aenter__(self) -> Self:
        try:
            await self._start("127.0.0.1:0")
        except BaseException:
            await self._end()
            raise
        self.admin = await Admin(self.endpoint).__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.admin.__aexit__(kind, error, trace)
        await self._end()

    @property
    def pid(self) -> int:
        """The process id.

        Raises:
            RuntimeError: it was never started.
        """
        if self._process is None:
            raise RuntimeError("the simulated cloud was never started: it has no process id")
        return self._process.pid

    async def kill(self) -> None:
        """Kill the process with SIGKILL; the state on disk stays, and nobody gets its port."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()
            self._port.enter_context(_kept(self._address))

    async def restart(self) -> None:
        """Start the process again on the same port, state and settings."""
        await self.kill()
        await self._start(self._address)

    @property
    def _address(self) -> str:
        return self.endpoint.removeprefix("http://")

    async def _start(self, listen: str) -> None:
        ready = Path(self._directory.name) / "ready.json"
        ready.unlink(missing_ok=True)
        tokens = (f"--token={name}={token}" for name, token in self._tokens.items())
        self._port.close()
        self._process = await programs.start(
            "proreus.testing.simulated",
            f"--listen={listen}",
            f"--state={self._state}",
            f"--ready-file={ready}",
            f"--settings={msgspec.json.encode(self._settings).decode()}",
            "--with-parent",
            *tokens,
        )
        async with asyncio.timeout(_START_TIMEOUT):
            while not ready.exists():
                if self._process.returncode is not None:
                    raise RuntimeError(
                        "the simulated cloud ended at its start: its output says why"
                    )
                await asyncio.sleep(_POLL)
        self.endpoint = json.loads(ready.read_text())["endpoint"]

    async def _end(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()
        self._port.close()
        self._directory.cleanup()


def _kept(address: str) -> socket.socket:
    """Return a socket at a host and port that refuses connections.

    Else the system gives the port to the next server, such as that of another test, which answers.
    """
    host, _, port = address.rpartition(":")
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind((host, int(port)))
    return kept
