"""Run child processes that never outlive us, however we end."""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_STOP_GRACE = 15.0
"""Seconds from SIGTERM to SIGKILL."""

_LAST_LINES = 15

_GO_GARBAGE = {"GOGC": "400"}
"""Go's garbage collector runs a quarter as often: a third less CPU for some 100 MB more memory."""

# Runs in the child before the program takes its place. The kernel then kills the program when the
# thread that started it ends, also when that was by SIGKILL; the check is for a parent that ended
# before the request was made. Popen's preexec_fn could do it too, but may deadlock with threads.
_LAUNCHER = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def tied_to_this_process() -> tuple[str, ...]:
    """Return a command to put before a program, so that it ends with the thread that starts it."""
    return (sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()))


class Child:
    """A child process with its log file; usable from several event loops, one after another.

    Start it from a thread that lives as long as the child should.
    """

    def __init__(
        self, program: Path, arguments: Sequence[str], log_dir: Path, cwd: Path | None = None
    ) -> None:
        """Start the program, in the directory `cwd` if it is given."""
        self.name = program.name
        self._log = log_dir / f"{self.name}.log"
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [*tied_to_this_process(), str(program), *arguments],
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_GO_GARBAGE | os.environ,
                start_new_session=True,  # Ctrl-C is for us, who stop the children in order
            )

    @property
    def pid(self) -> int:
        """The process id; it stays the same when the program takes the launcher's place."""
        return self._process.pid

    def ended(self) -> bool:
        """Tell whether the process has ended."""
        return self._process.poll() is not None

    def last_words(self) -> str:
        """Name the log file and show the end of it."""
        lines = self._log.read_text(errors="replace").splitlines()[-_LAST_LINES:]
        return f"the last lines of {self._log}:\n" + "\n".join(f"    {line}" for line in lines)

    async def stop(self) -> None:
        """Ask the process to end, wait for it, and kill it after a grace."""
        self._process.terminate()
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, _STOP_GRACE)
        finally:
            self._process.kill()
            self._process.wait()
