"""Start programs of Proreus in processes of their own: managers, clouds, commands."""

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, Protocol

from proreus.testing.controlplane.child import tied_to_this_process


class Program(Protocol):
    """A process as asyncio has it, as far as it is needed."""

    @property
    def pid(self) -> int:
        """The process id."""

    @property
    def returncode(self) -> int | None:
        """The exit code, below zero for a signal; None while it runs."""

    async def wait(self) -> int:
        """Wait for the end; return the exit code."""

    def send_signal(self, signal: int, /) -> None:
        """Send a signal.

        Raises:
            ProcessLookupError: The process is known to have ended.
        """

    def terminate(self) -> None:
        """Ask the process to end, with SIGTERM."""

    def kill(self) -> None:
        """Kill the process with SIGKILL."""


class Launcher(Protocol):
    """A way of starting programs, for `launched_by`."""

    async def start(
        self,
        module: str,
        arguments: tuple[str, ...],
        output: IO[bytes] | None,
        errors: IO[bytes] | None,
    ) -> Program:
        """Start a program; the arguments are those of `start`."""


async def start(
    module: str, *arguments: str, output: IO[bytes] | None = None, errors: IO[bytes] | None = None
) -> Program:
    """Run `python -m module` with these arguments and the environment of this process.

    It reads nothing, writes to `output` (where this process writes if None), errors to the same
    place if `errors` is None, and ends with this process at the latest.
    """
    return await _launcher.start(module, arguments, output, errors or output)


async def run(module: str, *arguments: str) -> tuple[int, str, str]:
    """Run `python -m module` to its end; return its exit code, output and errors."""
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
def launched_by(launcher: Launcher) -> Iterator[None]:
    """Let `start` use another launcher within the block, such as a quicker one."""
    global _launcher  # noqa: PLW0603 - managers and clouds start their programs with `start`
    before, _launcher = _launcher, launcher
    try:
        yield
    finally:
        _launcher = before


class Interpreters:
    """The launcher that starts each program with an interpreter of its own; the default."""

    async def start(
        self,
        module: str,
        arguments: tuple[str, ...],
        output: IO[bytes] | None,
        errors: IO[bytes] | None,
    ) -> Program:
        """Start a program; the arguments are those of `programs.start`."""
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


_launcher: Launcher = Interpreters()
