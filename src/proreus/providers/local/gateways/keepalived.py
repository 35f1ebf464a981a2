"""Run keepalived beside the manager: it speaks VRRP with the other gateways.

It lives as long as the manager: when that ends it takes leave, and others take over at once. Its
lines are in the manager's log, those of its end as a warning.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import signal
import socket
import tempfile
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final

from proreus.providers.local import locks

log = logging.getLogger(__name__)

PROGRAMS: Final = ("keepalived", "setpriv")
_LOCK: Final = "proreus-keepalived"
_PAUSE: Final = 1.0
_LOOK: Final = 0.2
_LEAVING: Final = ((signal.SIGTERM, 2.0), (signal.SIGTERM, 1.0), (signal.SIGKILL, 1.5))
"""What tells the program to end, each with the seconds that it then gets.

It takes one and a half as a rule. Told while it starts, it may not notice. Of a program that is
killed its own child takes leave.
"""
LEAVES_WITHIN: Final = 5.0
"""Seconds that `run` takes at most to end once it is cancelled."""
PATIENCE: Final = 2 * LEAVES_WITHIN
"""Seconds that another manager's keepalived gets to end before it is in the way."""


def missing() -> tuple[str, ...]:
    """Return the programs that are needed and not there."""
    return tuple(name for name in PROGRAMS if not shutil.which(name))


class Keepalived:
    """A keepalived with one configuration.

    Attributes:
        is_running: Whether the program runs.
        obstacle: What keeps it from running, with the remedy; "" if nothing does.
    """

    def __init__(
        self, configuration: Callable[[str, str], str], farewell: Callable[[str], str]
    ) -> None:
        """Keep the functions that make the files.

        Args:
            configuration: Makes keepalived's configuration, given the files of the handicap and of
                the farewell.
            farewell: Makes the script that runs at the end, given the file whose existence says
                that there are other gateways.
        """
        self.is_running = False
        self.obstacle = ""
        self._configuration = configuration
        self._farewell = farewell
        self._handicap = 0
        self._has_others = False
        self._place: Path | None = None
        self._told: tuple[int, bool] | None = None

    def weigh(self, handicap: int) -> None:
        """Add a number to all priorities from now on."""
        self._handicap = handicap
        self._tell()

    def meet(self, *, others: bool) -> None:
        """Note whether there are other gateways, to which addresses can be left."""
        self._has_others = others
        self._tell()

    def _tell(self) -> None:
        """Write for the program what it does not know yet; next time, if that is impossible."""
        try:
            self._write()
        except OSError as error:
            log.warning("keepalived could not be told how this gateway is: %s", error)

    def _write(self) -> None:
        news = (self._handicap, self._has_others)
        if self._place is not None and news != self._told:
            (self._place / "handicap").write_text(f"{self._handicap}\n", encoding="ascii")
            if self._has_others:
                (self._place / "others").touch()
            else:
                (self._place / "others").unlink(missing_ok=True)
            self._told = news

    async def run(self) -> None:
        """Run the program, again when it has ended, until cancelled."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as lock:
            await self._locked(lock)
            while True:
                with _directory() as place:
                    try:
                        await self._run_once(place)
                    except OSError as error:
                        log.warning("keepalived could not be run: %s", error)
                await asyncio.sleep(_PAUSE)

    async def _locked(self, lock: socket.socket) -> None:
        """Wait until no other keepalived of a manager runs in this network namespace.

        After a change of the cloud-config the last provider's still runs for a while.
        """
        begun, holder = time.monotonic(), os.getpid()
        while not locks.is_bound(lock, _LOCK):
            if self.obstacle and _has_gone(holder):
                begun, self.obstacle = time.monotonic(), ""  # and maybe a third one was quicker
            if time.monotonic() - begun >= PATIENCE and not self.obstacle:
                begun, holder = time.monotonic(), locks.holder(_LOCK)
                if holder != os.getpid():
                    self.obstacle = _in_the_way(holder)
                    log.error("VRRP waits: %s", self.obstacle)
            await asyncio.sleep(_LOOK)
        if self.obstacle:
            log.info("VRRP begins: the other manager is out of the way")
        self.obstacle = ""

    async def _run_once(self, place: Path) -> None:
        """Run the program until it ends.

        Raises:
            OSError: The program cannot be started.
        """
        file = place / "keepalived.conf"
        self._place, self._told = place, None
        self._write()
        script = place / "farewell"
        script.write_text(self._farewell(str(place / "others")), encoding="utf-8")
        script.chmod(0o700)
        text = self._configuration(str(place / "handicap"), str(script))
        file.write_text(text, encoding="utf-8")
        starting = asyncio.create_task(
            asyncio.create_subprocess_exec(
                # It would go on alone if the manager were killed, and say that all is well.
                *("setpriv", "--pdeathsig", "TERM", "keepalived", "--dont-fork", "--log-console"),
                *(f"--use-file={file}", "--vrrp", "--no-syslog"),
                *(f"--pid={place / 'main.pid'}", f"--vrrp_pid={place / 'vrrp.pid'}"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        )
        try:
            program = await asyncio.shield(starting)
        except asyncio.CancelledError:
            # In the middle of its start asyncio would kill the program, and not its child.
            await _undisturbed(_ended_once_begun(starting))
            raise
        last: deque[str] = deque(maxlen=3)
        self.is_running = True
        try:
            while program.stdout is not None and (line := await program.stdout.readline()):
                text = line.decode(errors="replace").strip()
                last.append(text)
                log.debug("keepalived: %s", text)
            log.warning("keepalived has ended and is started again: %s", "; ".join(last))
        finally:
            self.is_running = False
            await _undisturbed(_ended(program))
            self._place = None


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    """Make a directory that stays although it becomes old.

    Of /tmp systemd-tmpfiles removes what is, but not what has a lock (tmpfiles.d(5)).
    """
    with tempfile.TemporaryDirectory(prefix="proreus-keepalived-") as place:
        directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            yield Path(place)
        finally:
            os.close(directory)


async def _ended(program: asyncio.subprocess.Process) -> None:
    """Let the program take leave of the others, and wait until it and its child have ended."""
    try:
        for sign, seconds in _LEAVING:
            if await _has_ended(program, sign, seconds):
                return
        log.warning(
            "keepalived did not end and is killed: this machine goes on answering for its share of"
            " the addresses until the next keepalived runs here"
        )
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)


async def _ended_once_begun(starting: "asyncio.Task[asyncio.subprocess.Process]") -> None:
    with contextlib.suppress(OSError):
        await _ended(await starting)


async def _has_ended(
    program: asyncio.subprocess.Process, sign: signal.Signals, seconds: float
) -> bool:
    with contextlib.suppress(ProcessLookupError):
        program.send_signal(sign)
    try:
        async with asyncio.timeout(seconds):
            await program.communicate()  # until nobody has its output any more
    except TimeoutError:
        return False
    return True


async def _undisturbed(work: Coroutine[Any, Any, None]) -> None:
    """Await work to its end, even if that is cancelled meanwhile."""
    task, cancelled = asyncio.create_task(work), None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    await task


def _has_gone(holder: int) -> bool:
    return holder > 0 and not Path(f"/proc/{holder}").exists()


def _in_the_way(holder: int) -> str:
    """Say which process runs a keepalived here already, with the remedy."""
    return (
        f"another manager on this machine, {locks.process(holder)}, runs keepalived for its own"
        " gateway vrrp: let only one manager with vrrp run on a machine, and end the other one"
    )
