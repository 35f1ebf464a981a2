"""Programs as forks of one process that has imported Proreus: they start in milliseconds.

A suite starts hundreds of managers and clouds; each would import for half a second. `forked` lets
`proreus.testing.programs` start them so.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import msgspec

from labs import forkserver
from labs.forkserver import Request
from proreus.testing import programs
from proreus.testing.programs import Program

_ENDED: Final = -signal.SIGKILL
"""The exit code of forks whose server is gone: the kernel has killed them."""


@contextlib.contextmanager
def forked() -> Iterator[None]:
    """Let `programs.start` fork meanwhile, if the kernel tells of the end of a process (Linux)."""
    if not hasattr(os, "pidfd_open"):
        yield
        return
    server = _ForkServer()
    try:
        with programs.launched_by(server):
            yield
    finally:
        server.stop()


class _ForkServer:
    """The process that is forked from. It starts with the first program; its forks end with it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._control, self._its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    async def start(
        self,
        module: str,
        arguments: tuple[str, ...],
        output: IO[bytes] | None,
        errors: IO[bytes] | None,
    ) -> Program:
        request = Request(module, list(arguments), dict(os.environ), str(Path.cwd()))
        connection = self._ask(request, output, errors)
        fork = _Fork()
        await asyncio.get_running_loop().create_connection(lambda: fork, sock=connection)
        await fork.started.wait()
        return fork

    def _ask(
        self, request: Request, output: IO[bytes] | None, errors: IO[bytes] | None
    ) -> socket.socket:
        """Ask for a fork; it is told of on that socket."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-P", forkserver.__file__, str(self._its_end.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[self._its_end.fileno()],
            )
            self._its_end.close()
        ours, its = socket.socketpair()
        with its, Path(os.devnull).open("rb") as nothing:
            out, err = (
                1 if output is None else output.fileno(),
                2 if errors is None else errors.fileno(),
            )
            descriptors = [nothing.fileno(), out, err, its.fileno()]
            socket.send_fds(self._control, [msgspec.json.encode(request)], descriptors)
        return ours

    def stop(self) -> None:
        self._control.close()
        self._its_end.close()
        if self._process is not None:
            self._process.wait()


class _Fork(asyncio.Protocol):
    """A fork, as its server tells of it."""

    def __init__(self) -> None:
        self.pid = 0
        self.returncode: int | None = None
        self.started, self._ended = asyncio.Event(), asyncio.Event()
        self._said = b""

    def data_received(self, data: bytes) -> None:
        self._said += data
        *lines, self._said = self._said.split(b"\n")
        for line in lines:
            if not self.pid:
                self.pid = int(line)
                self.started.set()
            else:
                self.returncode = int(line)

    def connection_lost(self, _error: Exception | None) -> None:
        if self.returncode is None:
            self.returncode = _ENDED
        self.started.set()
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        return _ENDED if self.returncode is None else self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is not None:
            raise ProcessLookupError
        with contextlib.suppress(ProcessLookupError):  # ended, but not yet known to have
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
