"""Programs of Proreus in processes of their own, which can be started in milliseconds.

A suite starts hundreds of managers and clouds; each imports for half a second. Within `forked`
they are forks of one process that has imported everything, and otherwise what they would be.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, Protocol

import msgspec

from proreus.testing.controlplane.child import tied_to_this_process
from proreus.testing.forkserver import Request

_ENDED: Final = -signal.SIGKILL
"""The exit code of forks whose server is gone: the kernel has killed them."""


class Program(Protocol):
    """What asyncio's processes can do, as far as it is needed."""

    @property
    def pid(self) -> int:
        """Process id."""

    @property
    def returncode(self) -> int | None:
        """The exit code, below zero for a signal; None while it runs."""

    async def wait(self) -> int:
        """Wait for the end; the exit code."""

    def send_signal(self, signal: int, /) -> None:
        """Send a signal.

        Raises:
            ProcessLookupError: It is known to have ended.
        """

    def terminate(self) -> None:
        """SIGTERM."""

    def kill(self) -> None:
        """SIGKILL."""


async def start(
    module: str, *arguments: str, output: IO[bytes] | None = None, errors: IO[bytes] | None = None
) -> Program:
    """Run `python -m module` with these arguments and the environment of this process.

    It reads nothing, writes to `output` (where this process writes if None), errors to the same
    place if `errors` is None, and ends with this process at the latest.
    """
    errors = errors or output
    if _server is not None:
        return await _server.start(module, arguments, output, errors)
    return await asyncio.create_subprocess_exec(
        *tied_to_this_process(),
        sys.executable,
        "-m",
        module,
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=errors,
    )


async def run(module: str, *arguments: str) -> tuple[int, str, str]:
    """Run `python -m module` to its end: the exit code, its output and its errors."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        program = await start(module, *arguments, output=output, errors=errors)
        try:
            code = await program.wait()
        finally:
            if program.returncode is None:
                program.kill()
                await program.wait()
        output.seek(0)
        errors.seek(0)
        return code, output.read().decode(), errors.read().decode()


@contextlib.contextmanager
def forked() -> Iterator[None]:
    """Let `start` fork meanwhile, where the kernel can tell of the end of a process (Linux)."""
    global _server  # noqa: PLW0603 - as there is one process that is forked from
    if _server is not None or not hasattr(os, "pidfd_open"):
        yield
        return
    _server = _ForkServer()
    try:
        yield
    finally:
        server, _server = _server, None
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
                [sys.executable, "-m", "proreus.testing.forkserver", str(self._its_end.fileno())],
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


_server: _ForkServer | None = None
