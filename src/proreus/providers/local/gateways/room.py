"""The place where a gateway meets the others: VRRP by keepalived, and notes on a board.

It lasts as long as the provider, in replicas that lead and in those that stand by.
"""

import asyncio
import contextlib
import logging
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import Final

import msgspec

from proreus.cloudprovider.background import GRACE, Background
from proreus.cloudprovider.board import Board, Notice
from proreus.cloudprovider.errors import CloudError
from proreus.providers.local.config import Gateway
from proreus.providers.local.gateways import plan
from proreus.providers.local.gateways.keepalived import LEAVES_WITHIN, Keepalived, missing
from proreus.providers.local.gateways.plan import Holding, Namesake, Note, Share

log = logging.getLogger(__name__)

RENEWED_EVERY: Final = 5.0
"""Seconds between two notes that say nothing new."""
LIFETIME: Final = 15.0
"""Seconds after which a note that is not renewed is that of a dead gateway."""

_PROCESS: Final = secrets.token_hex(4)
_ADDRESSES_CHANGE: Final = 0x10  # RTMGRP_IPV4_IFADDR
_ELECTION: Final = 6
"""Advertisement intervals that the first election takes at most, with some to spare."""
_LARGEST: Final = 65536
_TOGETHER: Final = 0.1
"""Seconds for which changes are gathered for one note: VRRP moves many shares one by one."""


class Room:
    """A gateway's place among the others.

    Attributes:
        name: This gateway's name.
    """

    def __init__(self, gateway: Gateway, name: str) -> None:
        """Keep the settings for taking part; start nothing."""
        self.name = name
        self._interfaces = gateway.interfaces
        vrrp = gateway.vrrp
        interval = vrrp.interval.total_seconds()
        self._keepalived = Keepalived(
            lambda handicap, farewell: plan.configuration(
                name,
                gateway.interfaces,
                first_router=vrrp.first_router,
                interval=interval,
                handicap=handicap,
                farewell=farewell,
                named=vrrp.gateways,
            ),
            lambda others: plan.farewell(gateway.protocol, others),
        )
        self._election = _ELECTION * interval + 1.0
        self._opened = 0.0
        self._work: list[Background] = []
        self._board: Board | None = None
        self._own = Note(number=int(time.time() * 1000), named=vrrp.gateways, by=_PROCESS)
        self._posted = Note(by=_PROCESS)
        self._namesake = Namesake()
        self._posted_at = 0.0
        self._withheld: frozenset[Share] = frozenset()
        self._holds: frozenset[Share] = frozenset()
        self._reaches = True
        self._addresses: frozenset[str] = frozenset()
        self._wake = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []

    def obstacles(self) -> tuple[str, ...]:
        """Return what keeps this gateway from taking part, each with the remedy."""
        obstacle = self._keepalived.obstacle
        return (
            *(
                f"the program {name} is missing: install the packages keepalived and util-linux on"
                " the gateway, or take enabled out of gateway vrrp"
                for name in missing()
            ),
            *((obstacle,) if obstacle else ()),
        )

    @property
    def is_open(self) -> bool:
        """Whether this gateway takes part already."""
        return bool(self._opened)

    def open(self) -> None:
        """Begin to take part, if that has not begun yet: the kernel has what it needs."""
        if not self.is_open and not missing():
            self._opened = time.monotonic()
            self._start("local-keepalived", self._keepalived.run, grace=LEAVES_WITHIN)
            self._start("local-addresses", self._listen)
            self._start("local-election", self._settle)

    def meet(self, board: Board | None) -> None:
        """Exchange notes on a board from now on; None: there is no other replica."""
        if board is not None and self._board is None:
            self._board = board
            self._wake.set()
            self._start("local-notes", lambda: self._write_notes(board))
            self._start("local-board", lambda: self._read_notes(board))

    async def close(self) -> None:
        """Leave: others take over at once."""
        ended, self._work = self._work, []
        await asyncio.gather(*(one.close() for one in ended))

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` when the shares may have changed; return what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def holding(self, own_addresses: Collection[str]) -> Holding:
        """Return what may be announced by the machine's own addresses."""
        settled = self.is_open and time.monotonic() - self._opened >= self._election
        shares = plan.held(own_addresses, self._interfaces)
        return Holding(shares, self._withheld & shares, settled, self.is_heard())

    def tell(self, holding: Holding, announced: Collection[plan.Announcement]) -> None:
        """Set the contents of the next note."""
        said = (holding.shares, frozenset(address for address, _ in announced))
        if said != (self._holds, self._addresses):
            self._holds, self._addresses = said
            self._wake.set()

    def weigh(self, *, is_fit: bool) -> None:
        """Let this gateway come before others, or after them where it is not fit to serve."""
        if is_fit is not self._reaches:
            if is_fit:
                log.info("This gateway reaches nodes again, so it serves addresses as others do")
            else:
                log.warning("Nodes do not answer this gateway, so it leaves addresses to others")
            self._keepalived.weigh(0 if is_fit else plan.HANDICAP)
            self._reaches = is_fit
            self._wake.set()

    def is_heard(self) -> bool:
        """Tell whether a note has reached the others lately, or there is no board."""
        return self._board is None or time.monotonic() - self._posted_at < 2 * RENEWED_EVERY

    def notes(self) -> Mapping[str, Note]:
        """Return the notes of the gateways that are alive, this one's among them.

        Its own note says what it announces, without what it leaves to others.
        """
        others = dict(self._others())
        kept = {plan.key(one) for one in self._holds - self._withheld}
        claims = {one: since for one, since in self._own.claims.items() if one in kept}
        return {**others, self.name: msgspec.structs.replace(self._own, claims=claims)}

    def _start(
        self, name: str, work: Callable[[], Awaitable[None]], *, grace: float = GRACE
    ) -> None:
        self._work.append(Background(name, work, grace=grace))

    def _tell_listeners(self) -> None:
        for listener in [*self._listeners]:
            listener()

    async def _settle(self) -> None:
        await asyncio.sleep(self._election + 0.1)
        self._tell_listeners()

    async def _listen(self) -> None:
        """Tell listeners when an address of the machine comes or goes."""
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
            netlink.settimeout(0.0)
            netlink.bind((0, _ADDRESSES_CHANGE))
            while True:
                with contextlib.suppress(OSError):  # more changes than it has room for
                    await loop.sock_recv(netlink, _LARGEST)
                self._tell_listeners()

    async def _write_notes(self, board: Board) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RENEWED_EVERY):
                    await self._wake.wait()
            await asyncio.sleep(_TOGETHER)
            self._wake.clear()
            self._look_for_a_namesake(board)
            others = dict(self._others())
            self._keepalived.meet(others=bool(others))
            seen = {name: note.number for name, note in others.items()}
            note = plan.noted(
                self._own, self._holds, seen, reaches=self._reaches, addresses=self._addresses
            )
            is_due = time.monotonic() - self._posted_at >= RENEWED_EVERY
            if is_due or plan.is_news(self._posted, note, others):
                await self._post(board, note)
            self._weigh(others)

    async def _post(self, board: Board, note: Note) -> None:
        self._own = note  # whether or not it arrives: the next one has another number
        begun = time.monotonic()
        try:
            dated = msgspec.structs.replace(note, at=time.time())
            await board.post(self.name, msgspec.json.encode(dated).decode())
        except CloudError as error:
            log.warning("The other gateways could not be told what this one holds: %s", error)
            await asyncio.sleep(1.0)
            self._wake.set()
        else:
            self._posted, self._posted_at = note, begun

    async def _read_notes(self, board: Board) -> None:
        while True:
            await board.changed()
            self._wake.set()

    def _look_for_a_namesake(self, board: Board) -> None:
        """Say once if another gateway has this one's name: the two overwrite each other's notes."""
        notice = board.notices().get(self.name)
        shown = None if notice is None else _note(notice)
        before, now = self._namesake, time.monotonic()
        self._namesake = plan.namesake(before, self._posted, shown, now, LIFETIME)
        if self._namesake.is_there and not before.is_there:
            log.error(
                "Another manager writes its notes under this gateway's name, %s, so neither knows"
                " of the other: give each machine a host name of its own, or each manager another"
                " gateway vrrp name in its cloud-config; on one machine run one manager",
                self.name,
            )
        elif before.is_there and not self._namesake.is_there:
            log.info("No other manager writes notes under this gateway's name any more")

    def _others(self) -> Iterator[tuple[str, Note]]:
        for name, notice in self._board.notices().items() if self._board is not None else ():
            if name != self.name and notice.age < LIFETIME and (note := _note(notice)) is not None:
                yield name, note

    def _weigh(self, others: Mapping[str, Note]) -> None:
        found = plan.withheld(self.name, self._posted, others, self._holds)
        if found and not self._withheld:
            log.warning(
                "Other gateways (%s) are not heard by VRRP, and answer, too: some shares of the"
                " addresses are left to them; look for what keeps VRRP's packets from passing",
                ", ".join(sorted(others)),
            )
        self._withheld = found
        self._tell_listeners()


def _note(notice: Notice) -> Note | None:
    """Return what a notice says; None if another version wrote it, or somebody edited it."""
    try:
        return msgspec.json.decode(notice.text, type=Note)
    except msgspec.DecodeError:
        return None
