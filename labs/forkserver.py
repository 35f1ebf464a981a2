"""Forks a process that has imported Proreus already, when `labs.forks` asks for it.

`python -P forkserver.py FD` reads one request at a time from that socket. A fork goes on as
`python -m MODULE` would: with its own arguments, environment, working directory and output, up to
the end of the interpreter.
"""

import contextlib
import ctypes
import gc
import importlib
import os
import pkgutil
import runpy
import select
import signal
import socket
import sys
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

PACKAGES: Final = (
    "proreus.app",
    "proreus.cloudprovider",
    "proreus.controllers",
    "proreus.kube",
    "proreus.providers.simulated",
    "proreus.runtime",
    "proreus.testing.simulated",
)
"""What is imported before the first fork, with all modules in it."""
LARGEST: Final = 1 << 20
"""Bytes of a request."""
_PR_SET_PDEATHSIG: Final = 1


class Request(msgspec.Struct, frozen=True):
    """A module to run; its standard streams and a socket come with it as descriptors.

    To the socket go the process id, and at the end the exit code, below zero for a signal: each a
    line. When the other end is closed, the program is killed.
    """

    module: str
    arguments: list[str]
    environment: dict[str, str]
    directory: str


class _Fork(NamedTuple):
    pid: int
    status_socket: socket.socket


class Server:
    """A server that forks for each request on a socket, and reports how the forks end."""

    def __init__(self, control: socket.socket) -> None:
        """Keep the socket; read nothing yet."""
        self._control = control
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._forks: dict[int, _Fork] = {}

    def serve(self) -> Request | None:
        """Fork until the other end of the socket is closed.

        Returns:
            In a fork, what it shall be; None when there is nothing more to do.
        """
        while True:
            # The control comes first: no number in this list is one that has been used again.
            for ready, _ in self._poll.poll():
                if ready == self._control.fileno():
                    data, descriptors, _, _ = socket.recv_fds(self._control, LARGEST, 4)
                    if not data:
                        return None
                    request = msgspec.json.decode(data, type=Request)
                    if self._fork(descriptors):
                        return request
                elif ready in self._forks:
                    self._heard(ready)

    def _fork(self, descriptors: list[int]) -> bool:
        """Tell whether this is the fork."""
        *streams, status_socket = descriptors
        if not (pid := os.fork()):
            for one in self._forks.values():
                one.status_socket.detach()
            self._control.detach()
            _leave(streams)
            return True
        for number in streams:
            os.close(number)
        fork = _Fork(pid, socket.socket(fileno=status_socket))
        _send_number(fork.status_socket, pid)
        for number in (os.pidfd_open(pid), status_socket):
            self._forks[number] = fork
            self._poll.register(number, select.POLLIN)
        return False

    def _heard(self, ready: int) -> None:
        """Handle that a fork has ended, or that nobody needs it any more."""
        fork = self._forks.pop(ready)
        self._poll.unregister(ready)
        if ready == fork.status_socket.fileno():
            os.kill(fork.pid, signal.SIGKILL)  # not reaped yet: the number is its own
            return
        _send_number(fork.status_socket, os.waitstatus_to_exitcode(os.waitpid(fork.pid, 0)[1]))
        if self._forks.pop(fork.status_socket.fileno(), None):
            self._poll.unregister(fork.status_socket)
        fork.status_socket.close()
        os.close(ready)


def _send_number(status_socket: socket.socket, number: int) -> None:
    try:
        status_socket.sendall(b"%d\n" % number)
    except OSError:  # nobody wants to know any more
        return


def _leave(streams: Iterable[int]) -> None:
    """Leave what is the server's, and end with it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - numbers, not paths
        if (number := int(name)) > 2:  # noqa: PLR2004 - the standard streams
            with contextlib.suppress(OSError):  # that of the listing
                os.close(number)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _become(request: Request) -> None:
    """Take what is the program's."""
    os.chdir(request.directory)
    os.environ.clear()
    os.environ.update(request.environment)
    path = request.environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [request.directory, *(one for one in path if one and one not in sys.path)]
    sys.argv = [request.module, *request.arguments]
    sys.modules.pop(f"{request.module}.__main__", None)  # or runpy would warn


def preload() -> None:
    """Import all that the programs may need."""
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(module.name)
    # What is there stays as it is in every fork: the collector need not look at it.
    gc.collect()
    gc.freeze()


def main() -> None:
    """Serve, and be what was asked for in the forks."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    preload()
    request = Server(socket.socket(fileno=int(sys.argv[1]))).serve()
    if request is not None:
        _become(request)
        runpy.run_module(request.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
