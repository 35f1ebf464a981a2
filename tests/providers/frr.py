"""A real FRR in a network namespace: zebra, bgpd and bfdd, of Debian's package `frr`."""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from proreus.testing.waiting import block_until

from .traffic import Machine

PROGRAMS = Path("/usr/lib/frr")
LONGEST = "900"
"""Seconds after which a daemon ends even if the test could not end it."""

if not all((PROGRAMS / name).exists() for name in ("zebra", "bgpd", "bfdd")):
    pytest.skip("FRR is missing (Debian's package frr)", allow_module_level=True)
if os.geteuid():
    pytest.skip("network namespaces need root", allow_module_level=True)


class FRR:
    """The daemons of one machine; `directory` has their sockets.

    A node's bgpd takes no connections and no routes, as beside a speaker; a router's does. `rights`
    has what starts a daemon with fewer of them, by its name.
    """

    def __init__(
        self,
        stack: ExitStack,
        machine: Machine,
        *,
        is_router: bool = False,
        rights: Mapping[str, Sequence[str]] = {},
    ) -> None:
        self.machine = machine
        self._rights = rights
        # Not below pytest's own directory, which only root can enter.
        self.directory = Path(tempfile.mkdtemp(prefix="frr-"))
        stack.callback(shutil.rmtree, self.directory)
        shutil.chown(self.directory, "frr", "frr")
        self.directory.chmod(0o755)
        self._own = (
            [] if is_router else ["--listenon", "127.0.0.1", "--bgp_port", "0", "--no_kernel"]
        )
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        stack.callback(self._stop)
        for name in ("zebra", "bgpd", "bfdd"):
            self.start(name)

    def start(self, name: str) -> None:
        """Start a daemon, and wait until it takes commands."""
        at = self.directory
        more = {"bgpd": self._own, "bfdd": ["--bfdctl", f"{at}/bfdd.sock"]}.get(name, [])
        self._processes[name] = subprocess.Popen(
            self.machine.into(
                *self._rights.get(name, ()), "timeout", "--kill-after=1", LONGEST, str(PROGRAMS / name),
                *("--vty_socket", str(at), "--socket", f"{at}/zserv.api"),
                *("--pid_file", f"{at}/{name}.pid", "--vty_port", "0"),
                *("--config_file", f"{at}/none", "--log", f"file:{at}/{name}.log", *more),
            ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        block_until(f"{name} answers", lambda: self._answers(name), pause=0.02)

    def kill(self, name: str) -> None:
        """Kill a daemon, which leaves its socket behind."""
        os.kill(int((self.directory / f"{name}.pid").read_text()), 9)
        self._processes.pop(name).wait()

    def commands(self, name: str, *lines: str) -> str:
        """Run commands as an operator would, in a connection of their own; return what they show."""
        shown = ""
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(self.directory / f"{name}.vty"))
            for command in ("enable", *lines):
                line.sendall(command.encode() + b"\0")
                answer = b""
                while answer[-4:-1] != b"\0\0\0":
                    answer += line.recv(65536)
                assert answer[-1] in {0, 1}, (command, answer)
                shown += answer[:-4].decode()
        return shown

    def configuration(self, name: str = "bgpd") -> str:
        return self.commands(name, "show running-config")

    def _answers(self, name: str) -> bool:
        with contextlib.suppress(OSError):
            return "frr version" in self.configuration(name)
        return False

    def _stop(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.wait()


@contextmanager
def one_frr(names: Sequence[str] = ("one",)) -> Iterator[list[FRR]]:
    """FRRs of nodes in networks of their own, joined to nothing."""
    with ExitStack() as stack:
        yield [FRR(stack, Machine(stack, name)) for name in names]
