"""Ping machines, so that a dead one is doubted long before its health checks would say so.

One echo a machine takes a hundredth of the work of its health checks, which are asked for each
Service, so it can be sent several times a second. A firewall may swallow or limit echoes: their
silence is no verdict, it only has the health checks asked at once. A machine that has never
answered one is not doubted.
"""

import asyncio
import contextlib
import logging
import os
import socket
import struct
from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

log = logging.getLogger(__name__)

MISSES: Final = 2
"""Echoes in a row without an answer that make a machine doubtful."""

_REQUEST: Final = {socket.AF_INET: 8, socket.AF_INET6: 128}
_REPLY: Final = {socket.AF_INET: 0, socket.AF_INET6: 129}
_PROTOCOL: Final = {socket.AF_INET: socket.IPPROTO_ICMP, socket.AF_INET6: socket.IPPROTO_ICMPV6}
_LARGEST: Final = 2048
_MOST_IPV4_HEADER: Final = 60
_ROOM: Final = 1 << 20
_WORDS: Final = struct.Struct("!BBHHH")


class Echo(msgspec.Struct, frozen=True):
    """What is known of a machine's echoes: whether it ever answered, and the misses since."""

    answered: bool = False
    misses: int = 0

    @property
    def is_doubtful(self) -> bool:
        """Whether a machine that used to answer is silent."""
        return self.answered and self.misses >= MISSES


def weighed(before: Mapping[str, Echo], answered: Collection[str]) -> dict[str, Echo]:
    """Return the state after one more round, in which these addresses have answered. Pure."""
    return {
        address: Echo(answered=True)
        if address in answered
        else Echo(answered=echo.answered, misses=echo.misses + 1)
        for address, echo in before.items()
    }


class Pinger:
    """A pinger of many machines, all in one round."""

    def __init__(self, interval: float, doubted: Callable[[frozenset[str]], None]) -> None:
        """Ping every `interval` seconds; tell `doubted` all doubtful addresses when they change."""
        self._interval = interval
        self._doubted = doubted
        self._echoes: dict[str, Echo] = {}
        self._told: frozenset[str] = frozenset()
        self._task: asyncio.Task[None] | None = None
        self._identity = int.from_bytes(os.urandom(2), "big")

    def watch(self, addresses: Collection[str]) -> None:
        """Ping these addresses from now on, and no others."""
        self._echoes = {one: self._echoes.get(one, Echo()) for one in addresses}
        if self._task is None and self._interval and addresses:
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop pinging."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        with contextlib.ExitStack() as stack:
            sockets = {}
            for family, protocol in _PROTOCOL.items():
                try:
                    one = socket.socket(family, socket.SOCK_RAW, protocol)
                except OSError as error:
                    log.info("Nodes are not pinged with %s: %s", family.name, error.strerror)
                    continue
                sockets[family] = stack.enter_context(one)
                one.settimeout(0.0)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _ROOM)
            number = 0
            while sockets:
                number = (number + 1) % 0x10000
                asked = frozenset(self._echoes)
                for address in asked:
                    family = socket.AF_INET6 if ":" in address else socket.AF_INET
                    # Unreachable, or its neighbour entry has failed: it will not answer.
                    with contextlib.suppress(OSError, KeyError):
                        sockets[family].sendto(self._request(family, number), (address, 0))
                await asyncio.sleep(self._interval)
                answered = {
                    address
                    for family, one in sockets.items()
                    for address in _answers(one, family, self._identity, number)
                }
                judged = {one: echo for one, echo in self._echoes.items() if one in asked}
                self._echoes |= weighed(judged, answered)
                doubtful = frozenset(one for one, echo in self._echoes.items() if echo.is_doubtful)
                if doubtful != self._told:
                    self._told = doubtful
                    self._doubted(doubtful)

    def _request(self, family: socket.AddressFamily, number: int) -> bytes:
        """Return an echo request; of ICMPv6 the kernel computes the checksum."""
        kind = _REQUEST[family]
        total = (kind << 8) + self._identity + number
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        return _WORDS.pack(kind, 0, ~total & 0xFFFF, self._identity, number)


def _answers(
    one: socket.socket, family: socket.AddressFamily, identity: int, number: int
) -> set[str]:
    """Read what has come in, without waiting; return who has answered the last request."""
    found = set()
    with contextlib.suppress(OSError):  # nothing more is there
        while True:
            packet, sender = one.recvfrom(_LARGEST)
            start = (packet[0] & 0xF) * 4 if family == socket.AF_INET else 0
            if len(packet) < start + _WORDS.size or start > _MOST_IPV4_HEADER:
                continue
            kind, _, _, whose, which = _WORDS.unpack_from(packet, start)
            if (kind, whose, which) == (_REPLY[family], identity, number):
                found.add(str(sender[0]))
    return found
