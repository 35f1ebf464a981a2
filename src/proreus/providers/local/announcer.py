"""Keep the addresses announced that this gateway is to announce, and tell neighbours of new ones.

Where gateways share the addresses, what VRRP says is followed at once, by the addresses that were
wanted last; the comparison of the whole kernel, which takes longer, follows.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import Any, Final

from proreus.cloudprovider.background import Background
from proreus.cloudprovider.context import Context
from proreus.cloudprovider.errors import CloudError
from proreus.providers.local import network
from proreus.providers.local.announce import announce
from proreus.providers.local.calls import Calls
from proreus.providers.local.config import Gateway, LocalConfig
from proreus.providers.local.gateways import plan
from proreus.providers.local.gateways.plan import Announcement, Fitness, Holding
from proreus.providers.local.gateways.room import Room
from proreus.providers.local.kernel import Kernel, Observed
from proreus.providers.local.netlink import own_addresses
from proreus.providers.local.network import Ways
from proreus.providers.local.plan import Condition, State

log = logging.getLogger(__name__)

_BETWEEN: Final = 1.0
_TIMES: Final = 3


class Announcer:
    """The announcer of one provider's addresses on this machine."""

    def __init__(
        self, context: Context, settings: LocalConfig, room: Room | None, moved: Callable[[], None]
    ) -> None:
        """Keep `room`, if gateways share addresses; `moved` is called when shares have changed."""
        self._context = context
        self._gateway = settings.gateway
        # In that time each node is asked again.
        checks = settings.health_checks
        # A check that began while the network was broken may fail for so long afterwards.
        self._patience = (checks.timeout + 2 * checks.interval).total_seconds()
        self._room = room
        self._moved = moved
        self._calls = Calls(context)
        self._kernel = Kernel(settings.gateway)
        self._wanted: frozenset[Announcement] = frozenset()
        self._announced: frozenset[Announcement] = frozenset()
        self._fitness = Fitness()
        self._news = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._unlisten: Callable[[], None] = lambda: None
        self._follower: Background | None = None

    def start(self) -> None:
        """Follow what VRRP says, and what it may have said lately."""
        if (room := self._room) is not None:
            self._unlisten = room.listen(self._news.set)
            self._news.set()
            self._follower = Background("local-vrrp", lambda: self._follow_vrrp(room))

    async def close(self) -> None:
        """Stop; what is announced stays so."""
        self._unlisten()
        self._unlisten = lambda: None
        if self._follower is not None:
            await self._follower.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def announced(self) -> frozenset[Announcement]:
        """What this machine announces."""
        return self._announced

    def holding(self, shown: Observed) -> Holding | None:
        """Return what may be announced as the kernel shows it; None: everything."""
        return self._room.holding(shown.own) if self._room is not None else None

    def follow(self, state: State, shown: Observed) -> None:
        """Take over the wanted and the announced addresses, now that the kernel is as desired."""
        wanted = network.ways(state, shown.interfaces, self._gateway)
        others = (one.others for one in shown.ways.values())
        self._wanted = _all(wanted).difference(*others)
        before = _all(shown.ways)
        self._announced = network.announced(self._wanted, before, self.holding(shown))
        self._tell(self.holding(shown))

    def weigh(self, answers: Collection[Condition], *, holds: bool) -> None:
        """Weigh whether this gateway is fit to have addresses: nodes answer, and it `holds`.

        A gateway that the others have not heard for a while does not hold: it lets traffic go by.
        """
        silent = sum(one is Condition.SILENT for one in answers)
        before, now = self._fitness, asyncio.get_running_loop().time()
        is_idle = bool(self._wanted) and not self._announced
        self._fitness = plan.fitness(
            before, silent, len(answers), now, self._patience, is_idle=is_idle
        )
        if self._room is not None:
            self._room.weigh(is_fit=self._fitness.is_fit and holds)

    async def announce(self, addresses: Iterable[Announcement]) -> None:
        """Announce addresses, which takes them from whoever has them; nobody confirms it."""
        given = sorted(addresses)
        if given:
            await self._calls.write("announce_addresses", lambda: announce(given))
            self._later(self._announce_again(given))

    async def _announce_again(self, addresses: Collection[Announcement]) -> None:
        """Repeat the announcement, as long as the gate is open.

        The last time is when a gateway that has lost its manager has fallen silent: whoever
        asked meanwhile may have had its answer.
        """
        hold = self._gateway.hold.total_seconds()
        pauses = [_BETWEEN] * (_TIMES - 1) + [hold + _BETWEEN] * bool(hold and self._room)
        for pause in pauses:
            await asyncio.sleep(pause)
            for each in addresses:
                if self._room is None or each in self._announced:
                    self._context.gate()
                    announce([each])  # a few packets without waiting
                    await asyncio.sleep(0)

    async def _follow_vrrp(self, room: Room) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._move(room)
            except CloudError as error:
                log.warning("Could not take or give up addresses that VRRP moved: %s", error)
                await asyncio.sleep(_BETWEEN)
            except Exception:
                self._news.set()  # what has moved is left to do when this begins again
                raise
            self._moved()

    async def _move(self, room: Room) -> None:
        """Take what VRRP has given this gateway, and leave what it has taken."""
        holding = room.holding(await self._calls.read("own_addresses", own_addresses))
        before, now = self._announced, plan.announced(self._wanted, self._announced, holding)
        if now - before:
            lines = _lines(network.added, now, before, self._gateway)
            await self._calls.write("take_addresses", lambda: self._kernel.take(lines))
            self._announced |= now
            await self.announce(now - before)
        self._tell(holding)
        if before - now:
            left = _lines(network.removed, now, before, self._gateway)
            self._announced = now
            await self._calls.write("leave_addresses", lambda: self._kernel.drop(left))
            self._tell(holding)

    def _tell(self, holding: Holding | None) -> None:
        if self._room is not None and holding is not None:
            self._room.tell(holding, self._announced)

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _all(ways: Mapping[str, Ways]) -> frozenset[Announcement]:
    return frozenset(each for one in ways.values() for each in one.announced)


def _lines(
    differing: Callable[[str, Ways, Ways, Gateway], Iterable[str]],
    now: Collection[Announcement],
    before: Collection[Announcement],
    gateway: Gateway,
) -> dict[str, tuple[str, ...]]:
    """Return the lines of `ip -batch` between two sets of announcements, by family's option."""
    found = {}
    for family, option in network.FAMILIES.items():
        desired, observed = (
            Ways(announced=frozenset(one for one in each if (":" in one[0]) == (family == "IPv6")))
            for each in (now, before)
        )
        if lines := tuple(differing(family, desired, observed, gateway)):
            found[option] = lines
    return found
