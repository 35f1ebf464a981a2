"""Choose the leases this process competes for, and what each lets it do.

There is one lease for all controllers; or a second one for those that migrate from
kube-controller-manager; or one for each controller, so that replicas share the work. A process
that loses any lease ends at once, so one gate is enough for all its writes and cloud calls,
whichever task or thread they come from: every lease that it holds must surely be its own.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, Protocol

import msgspec

from proreus.app.migration import Migration
from proreus.controllers.table import Descriptor
from proreus.kube.errors import RefusedByGate
from proreus.runtime import klog
from proreus.runtime.backoff import Backoff
from proreus.runtime.leaderelection import LeaderElector

log = klog.logger(__name__)

SHARED_IDENTITY: Final = "replicas-with-a-lease-per-controller"
"""The shared holder of the main lease while each controller has its own lease.

It keeps out replicas that want the main lease for themselves, such as those of an upgrade."""

DEFERENCE: Final = 0.25
"""Retry periods for which a free lease is left to other replicas, by each lease that is held.

So replicas share the controllers, and no controller waits for long. Preferred leases count as held.
"""

WATCH_BACKOFF: Final = Backoff(first=0.5, cap=30.0, jitter=0.5)


class Lock(msgspec.Struct, frozen=True):
    """A lease, and what holding it allows.

    Attributes:
        name: The name of the lease.
        controllers: The controllers that run while the lease is held, by canonical names.
        after: The lease that must be held before this one is tried for, or "".
        shared: Whether all replicas with lease-per-controller hold it together.
        modest: Whether a replica lets others that hold fewer leases take it first.
    """

    name: str
    controllers: frozenset[str]
    after: str = ""
    shared: bool = False
    modest: bool = False


def locks(
    main: str, chosen: Sequence[Descriptor], migration: Migration | None, *, per_controller: bool
) -> tuple[Lock, ...]:
    """Return the leases to compete for.

    Args:
        main: The name of the main lease.
        chosen: The controllers to run.
        migration: The leader migration: which controllers run under the shared lease of two
            managers, or elsewhere.
        per_controller: Whether each controller that is not migrated has a lease of its own.
    """
    here = [one for one in chosen if not (migration and migration.elsewhere(one.name))]
    migrated = {one.name for one in here if migration and migration.is_ours(one.name)}
    others = [one for one in here if one.name not in migrated]
    under_main = frozenset() if per_controller else frozenset(one.name for one in others)
    leases = [Lock(main, under_main, shared=per_controller)]
    if migration and migrated:
        leases.append(Lock(migration.lease, frozenset(migrated), after=main))
    if per_controller:
        leases.extend(
            Lock(f"{main}-{one.alias}", frozenset({one.name}), after=main, modest=True)
            for one in others
        )
    return tuple(leases)


class Elector(Protocol):
    """A function that makes the candidate for a lease.

    `deference` returns the seconds for which other candidates may go first.
    """

    def __call__(self, lock: Lock, deference: Callable[[], float], /) -> LeaderElector:
        """Return the candidate for a lease."""


class Election:
    """This process's candidates for its leases. Without leases it may do everything."""

    def __init__(
        self,
        leases: Sequence[Lock] = (),
        *,
        elector: Elector | None = None,
        follow: Callable[[Lock, Callable[[], None]], Awaitable[None]] | None = None,
        retry_period: float = 2.0,
        shuffle: Callable[[list[str]], None] = random.shuffle,
    ) -> None:
        """Prepare the election without competing yet.

        Args:
            leases: The leases to compete for.
            elector: Makes the elector of one lease.
            follow: Calls a function whenever a lease has changed, until cancelled.
            retry_period: The seconds between two tries of an elector.
            shuffle: Puts the leases in a random order, so that replicas prefer different ones.
        """
        self.locks = tuple(leases)
        self._follow = follow
        self._unit = retry_period * DEFERENCE
        self._electors: dict[str, LeaderElector] = {}
        if elector is not None:
            for lock in self.locks:
                defer = partial(self._deference, lock.name) if lock.modest else _none
                self._electors[lock.name] = elector(lock, defer)
        self._order = [lock.name for lock in self.locks if lock.modest]
        shuffle(self._order)
        self._won = {lock.name: asyncio.Event() for lock in self.locks}
        self._held: list[Lock] = []
        self._entered = asyncio.Event()
        self._news = asyncio.Event()

    def check(self) -> None:
        """Gate all writes and cloud calls: raise unless all held leases are surely ours.

        Raises:
            RefusedByGate: No lease is held, or it is not certain that it still is.
        """
        if self.locks and not self._held:
            raise RefusedByGate("this replica holds no lease")
        for lock in self._held:
            self._electors[lock.name].check()

    def overdue(self) -> str | None:
        """Return a problem if a lease that was won may be another's by now."""
        try:
            if self._held:
                self.check()
        except RefusedByGate as exc:
            return str(exc)
        return None

    def health(self) -> str | None:
        """Return a problem if a lease ran out long ago and this process has not noticed."""
        problems = (elector.health() for elector in self._electors.values())
        return next((problem for problem in problems if problem), None)

    def runs(self, controller: str) -> bool:
        """Tell whether the controller may run in this process now."""
        return not self.locks or any(controller in lock.controllers for lock in self._held)

    @property
    def held(self) -> tuple[tuple[Lock, LeaderElector], ...]:
        """The leases that this process holds, but for one that replicas hold together."""
        return tuple((it, self._electors[it.name]) for it in self._held if not it.shared)

    async def entered(self) -> None:
        """Wait until the first lease is held that lets a controller run."""
        await self._entered.wait()

    async def news(self) -> None:
        """Wait until a lease is won that was not held at the last call."""
        await self._news.wait()
        self._news.clear()

    async def run(
        self,
        stop: asyncio.Event,
        *,
        won: Callable[[Lock, LeaderElector], None],
        lost: Callable[[Exception], None],
    ) -> None:
        """Win leases until `stop` is set, and hold them until cancelled, which releases them.

        Args:
            stop: The event after which no more leases are taken.
            won: Called with each lease that is won.
            lost: Called with the reason when a lease is lost: it ends the process at once.
        """
        tasks = {
            lock.name: asyncio.create_task(self._led(lock, won, lost), name=f"lease {lock.name}")
            for lock in self.locks
        }
        try:
            await stop.wait()
            for name, task in tasks.items():
                if not self._won[name].is_set():
                    task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def _led(
        self,
        lock: Lock,
        won: Callable[[Lock, LeaderElector], None],
        lost: Callable[[Exception], None],
    ) -> None:
        try:
            await self._campaign(lock, won)
        except Exception as exc:  # noqa: BLE001 - whatever it is, the lease is not renewed
            lost(exc)

    async def _campaign(self, lock: Lock, won: Callable[[Lock, LeaderElector], None]) -> None:
        if lock.after:
            await self._won[lock.after].wait()
        elector = self._electors[lock.name]
        following = asyncio.create_task(self._followed(lock, elector.try_now))
        try:
            await elector.acquire()
        finally:
            following.cancel()  # not awaited: from here to `hold` nobody would give the lease back
        self._held.append(lock)
        self._won[lock.name].set()
        if lock.controllers:
            self._entered.set()
        self._news.set()
        won(lock, elector)
        await elector.hold()

    async def _followed(self, lock: Lock, on_change: Callable[[], None]) -> None:
        if self._follow is None:
            return
        try:
            await self._follow(lock, on_change)
        except Exception as exc:  # noqa: BLE001 - polling goes on, and is enough
            klog.exception(log, "The lease is no longer watched", err=exc, lease=lock.name)

    def _deference(self, name: str) -> float:
        """Return for how many seconds this lease is left to other candidates.

        The seconds grow with the leases that this process holds, and with the free leases that it
        prefers.
        """
        held = sum(lock.modest for lock in self._held)
        free = (it for it in self._order[: self._order.index(name)] if not self._won[it].is_set())
        preferred = sum(not self._electors[it].is_taken for it in free)
        return self._unit * (held + preferred)


def _none() -> float:
    return 0.0
