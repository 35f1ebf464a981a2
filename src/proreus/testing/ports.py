"""Choose ports for programs that cannot choose their own, or whose port must be known before."""

import secrets
import socket
from contextlib import suppress
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FIRST, _LINUX_FIRST = 10_000, 32_768


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free, and that the kernel gives to nobody.

    Until a program has the port, some other one may get it: a port from the kernel's own range
    often goes to the next connection. Drawn at random, the others are taken by nobody.
    """
    end = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else _LINUX_FIRST
    while True:
        port = _FIRST + secrets.randbelow(end - _FIRST)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
