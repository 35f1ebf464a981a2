"""Run the manager as a real process: start, end, kill, freeze and thaw it."""

import asyncio
import signal
from pathlib import Path
from types import TracebackType
from typing import Self

from proreus.testing import programs
from proreus.testing.simulated import SimulatedCloudProcess

STOP_SECONDS = 30.0
"""Seconds from SIGTERM to SIGKILL: longer than a manager drains."""


class ManagerProcess:
    """A process of `proreus run`, for `async with`. It ends with the process that starts it.

    Attributes:
        flags: The command line.
        log: The file with its output; it outlives restarts.
    """

    def __init__(self, *flags: str, log: Path) -> None:
        """Keep the flags; the process starts with the block."""
        self.flags = flags
        self.log = log
        self._process: programs.Program | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def is_running(self) -> bool:
        """Whether the process exists, frozen or not."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the process; it appends to the same log file.

        Raises:
            RuntimeError: The process runs already.
        """
        if self.is_running:
            raise RuntimeError("the manager runs already: stop or kill it first")
        with self.log.open("ab") as log:
            self._process = await programs.start("proreus", "run", *self.flags, output=log)

    async def wait(self) -> int:
        """Wait for the end; return the exit code, below zero for a signal.

        Raises:
            RuntimeError: The process was never started.
        """
        return await self._started().wait()

    async def stop(self) -> int | None:
        """Send SIGTERM, and SIGKILL if that does not help; return the exit code, if any."""
        if self._process is None:
            return None
        if self.is_running:
            self.resume()
            self._process.terminate()
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await self._process.wait()
            except TimeoutError:
                await self.kill()
        return self._process.returncode

    async def kill(self) -> None:
        """Kill the process with SIGKILL."""
        if self.is_running:
            self._started().kill()
            await self.wait()

    def pause(self) -> None:
        """Freeze the process with SIGSTOP; for the kernel it lives on."""
        self._started().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen process go on, with SIGCONT."""
        self._started().send_signal(signal.SIGCONT)

    def output(self) -> str:
        """Return what the process has written so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def _started(self) -> programs.Program:
        if self._process is None:
            raise RuntimeError("the manager was never started")
        return self._process


def cloud_config(cloud: SimulatedCloudProcess, *, token: str = "", batch_size: int = 0) -> str:
    """Make the cloud-config for a simulated cloud."""
    lines = [
        "[Global]",
        f'endpoint = "{cloud.endpoint}"',
        "region = sim-1",
        f"token = {token or cloud.token}",
    ]
    if batch_size:
        lines.append(f"batch-size = {batch_size}")
    return "\n".join(lines) + "\n"
