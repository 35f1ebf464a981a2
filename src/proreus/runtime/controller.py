"""Run the controller loop: take every ready key, observe the batch once, plan and apply each.

    queue.take(keys) ─► reconciler.observe(keys) ─► reconciler.plan(key) ─► reconciler.apply(group)

The loop holds every rule that controllers share, so that none of them has to:

* An observation counts for the object that it was made of, not for another one under its key: a
  Node that was made anew meanwhile, for one, has another machine. It is observed again.
* A key stays in flight until the informer has seen what was written for it, so no plan is made
  from a cache older than our own writes. `plan` is called with the newest object, right before
  `apply`.
* A batch whose observation fails backs off the observer, not its keys; from the third failure in
  a row on, the keys are planned with the error, so that the objects can say what is wrong.
* Changes of equal group go in one `apply`, and a group never runs twice at once, nor beside what
  a controller that was ended before this one has left running.
* Apply slots are bounded; a call that outlives `SLOW_AFTER` leaves the normal slots for slow ones.
* Nothing a reconciler raises leaves the loop, not even SystemExit: it is that key's failure.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Generic, Protocol, TypeVar

import msgspec

from proreus.kube.client import Written
from proreus.kube.errors import Conflict
from proreus.kube.watch import HasMetadata
from proreus.runtime import klog, metrics, priority
from proreus.runtime.backoff import Backoff
from proreus.runtime.priority import Priority
from proreus.runtime.workqueue import ShutDown, WorkQueue

log = klog.logger(__name__)

SLOW_AFTER = 30.0
CONFLICT_DELAY = 0.1
REPORT_AFTER_FAILURES = 3
OBSERVER_BACKOFF = Backoff(first=0.5, cap=30.0, factor=2.0, jitter=0.5)
T = TypeVar("T", bound=HasMetadata)
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)
Observed = TypeVar("Observed")
Change = TypeVar("Change")
Result = TypeVar("Result")


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of the work on a key.

    `written` is the last write to its object, `after` the seconds until it is due again (None:
    when something changes), `error` its failure. A failed key is retried with backoff, or after
    exactly `after` seconds where that is given.
    """

    written: Written | None = None
    after: float | None = None
    error: Exception | None = None


class Failed(Exception):
    """The error in place of one that a reconciler raised and is no Exception, as SystemExit."""


class Reconciler(Protocol[T_contra, Observed, Change]):
    """A controller's part of the loop. Keys are those of its informer."""

    def group(self, key: str, obj: T_contra | None) -> Hashable:
        """Return a key's group: changes of one group are applied in one call, never in parallel."""

    async def observe(self, keys: Sequence[str]) -> Mapping[str, Observed]:
        """Ask the cloud once for the batch; an exception fails the batch, not its keys."""

    def plan(self, key: str, obj: T_contra | None, observed: Observed | Exception) -> Change | None:
        """Decide what to do; None means nothing. `observed` may be the batch's error."""

    async def apply(self, group: Hashable, changes: Mapping[str, Change]) -> Mapping[str, Outcome]:
        """Apply the changes of one group; a key without an outcome has failed."""

    async def settled(self, group: Hashable) -> None:
        """Return when no call for the group still runs in a thread."""


class Cache(Protocol[T_co]):
    """The part of an informer that the loop needs."""

    def get(self, key: str) -> T_co | None:
        """Return the newest known object, or None."""

    async def wait_seen(self, key: str, written: Written, /) -> None:
        """Wait until the cache reflects the write, or anything later."""


async def contained(work: Awaitable[Result]) -> Result | Exception:
    """Await `work`; return what it raises as a value, unless this task is cancelled."""
    try:
        return await work
    except asyncio.CancelledError as exc:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return Failed(f"the work cancelled itself: {exc!r}")
    except Exception as exc:  # noqa: BLE001 - this is the one place that contains anything
        return exc
    except BaseException as exc:  # noqa: BLE001 - SDKs call sys.exit()
        return Failed(f"{type(exc).__name__}: {exc}")


class _Answer(msgspec.Struct, Generic[Observed], frozen=True):
    """What was observed of a key, or the error, and the uid of its object then; "" for none."""

    uid: str
    observed: Observed | Exception


class _NoGroup:
    """The group of a key whose `group` failed."""

    def __init__(self, raised: BaseException) -> None:
        self.error = (
            raised
            if isinstance(raised, Exception)
            else Failed(f"{type(raised).__name__}: {raised}")
        )


class Slots:
    """A bound on changes applied at once, and another for those slower than `SLOW_AFTER`."""

    def __init__(self, normal: int, slow: int) -> None:
        """Allow `normal` applies at once, and `slow` more that have become slow."""
        self._normal = asyncio.Semaphore(normal)
        self._slow_free = slow

    @asynccontextmanager
    async def slot(self, leave: Callable[[], None]) -> AsyncIterator[None]:
        """Hold a slot while the body runs; call `leave` at its end, or once it is slow."""
        await self._normal.acquire()
        is_slow = False

        def become_slow() -> None:
            nonlocal is_slow
            if self._slow_free > 0:
                self._slow_free -= 1
                is_slow = True
                self._normal.release()
                leave()

        timer = asyncio.get_running_loop().call_later(SLOW_AFTER, become_slow)
        try:
            yield
        finally:
            timer.cancel()
            if is_slow:
                self._slow_free += 1
            else:
                self._normal.release()
                leave()


class Controller(Generic[T, Observed, Change]):
    """A loop that runs one reconciler on one queue."""

    def __init__(
        self,
        name: str,
        reconciler: Reconciler[T, Observed, Change],
        queue: WorkQueue[str],
        informer: Cache[T],
        *,
        batch: int,
        slots: int,
        linger: float = 0.05,
        observe_deadline: float = 60.0,
        observers: int = 2,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Take up to `batch` keys, waiting `linger` seconds for more; apply them in `slots`."""
        self.name = name
        self._reconciler = reconciler
        self._queue = queue
        self._informer = informer
        self._batch = batch
        self._slot_count = slots
        self._slots = Slots(slots, slow=slots)
        self._linger = linger
        self._observe_deadline = observe_deadline
        self._observers = asyncio.Semaphore(observers)
        self._chance = chance
        self._observer_failures = 0
        self._resume_at = 0.0
        self._outstanding = 0
        self._room = asyncio.Event()
        self._room.set()
        self._parked: dict[Hashable, dict[str, Priority]] = {}

    async def run(self) -> None:
        """Run until cancelled, or until the queue is shut down and running work has ended."""
        async with asyncio.TaskGroup() as group:
            while keys := await self._next():
                self._hand_out(len(keys))
                group.create_task(self._handle(keys, group))

    @property
    def is_busy(self) -> bool:
        """Whether keys are ready, or handed out and not yet applied."""
        return self._outstanding > 0 or len(self._queue) > 0

    async def _next(self) -> Sequence[str]:
        """Return the next batch once there is room for it; None after the shut-down."""
        loop = asyncio.get_running_loop()
        await self._observers.acquire()
        await self._room.wait()
        await asyncio.sleep(max(0.0, self._resume_at - loop.time()))
        try:
            return await self._queue.take(self._batch, self._linger)
        except ShutDown:
            return ()

    def _hand_out(self, count: int) -> None:
        """Track how many keys are handed out; pause takes while more wait than there are slots."""
        self._outstanding += count
        if self._outstanding <= self._slot_count:
            self._room.set()
        else:
            self._room.clear()

    async def _handle(self, keys: Sequence[str], group: asyncio.TaskGroup) -> None:
        priorities = {key: self._queue.priority(key) for key in keys}
        priority.current.set(max(priorities.values(), default=Priority.RESYNC))
        uids = {key: self._uid(key) for key in keys}
        try:
            observed = await contained(self._observe(keys))
        finally:
            self._observers.release()
        error = observed if isinstance(observed, Exception) else None
        delay = self._observer_result(error)
        if error is not None and self._observer_failures < REPORT_AFTER_FAILURES:
            for key in keys:
                self._release(key, priorities[key], delay)
            self._hand_out(-len(keys))
            return
        each = observed if not isinstance(observed, Exception) else dict.fromkeys(keys, observed)
        answers = {key: _Answer(uids[key], each[key]) for key in keys if key in each}
        for name, members in self._grouped(keys).items():
            if name in self._parked:
                for key in members:
                    self._parked[name][key] = priorities[key]
                    self._queue.done(key)
                self._hand_out(-len(members))
                continue
            self._parked[name] = {}
            group.create_task(self._run_group(name, members, answers, delay))

    def _uid(self, key: str) -> str:
        obj = self._informer.get(key)
        return "" if obj is None else obj.metadata.uid

    async def _observe(self, keys: Sequence[str]) -> Mapping[str, Observed]:
        async with asyncio.timeout(self._observe_deadline):
            return await self._reconciler.observe(keys)

    def _observer_result(self, error: Exception | None) -> float | None:
        """Count failed observations in a row; return the delay for the keys, if failed."""
        if error is None:
            self._observer_failures = 0
            return None
        self._observer_failures += 1
        metrics.OBSERVE_FAILURES.labels(self.name).inc()
        delay = OBSERVER_BACKOFF.delay(self._observer_failures - 1, self._chance())
        self._resume_at = asyncio.get_running_loop().time() + delay
        klog.error(
            log,
            "Failed to observe a batch of objects",
            controller=self.name,
            err=error,
            retry_seconds=round(delay, 1),
        )
        return delay

    def _grouped(self, keys: Sequence[str]) -> dict[Hashable, list[str]]:
        groups: dict[Hashable, list[str]] = {}
        for key in keys:
            groups.setdefault(self._group(key), []).append(key)
        return groups

    def _group(self, key: str) -> Hashable:
        try:
            group = self._reconciler.group(key, self._informer.get(key))
            hash(group)
        except BaseException as exc:  # noqa: BLE001 - nothing is awaited: it is the key's failure
            return _NoGroup(exc)
        return group

    async def _run_group(
        self,
        name: Hashable,
        keys: Sequence[str],
        answers: Mapping[str, _Answer[Observed]],
        delay: float | None,
    ) -> None:
        """Plan and apply one group; retry after `delay` seconds if the observation failed."""
        async with self._slots.slot(lambda: self._hand_out(-len(keys))):
            # A controller before this one may have left a call behind.
            await contained(self._reconciler.settled(name))
            planned_on = {key: self._informer.get(key) for key in keys}
            with klog.bound(controller=self.name, **_named(planned_on)):
                outcomes = await self._plan_and_apply(name, planned_on, answers)
        await contained(self._reconciler.settled(name))
        for key, prior in self._parked.pop(name).items():
            self._queue.add(key, prior)
        for key in keys:
            outcome = outcomes.get(
                key, Outcome(error=Failed("the controller gave no outcome for this key"))
            )
            await self._finish(key, planned_on[key], outcome, delay)

    async def _plan_and_apply(
        self,
        name: Hashable,
        objects: Mapping[str, T | None],
        answers: Mapping[str, _Answer[Observed]],
    ) -> Mapping[str, Outcome]:
        if isinstance(name, _NoGroup):
            return dict.fromkeys(objects, Outcome(error=name.error))
        changes: dict[str, Change] = {}
        outcomes: dict[str, Outcome] = {}
        for key, obj in objects.items():
            if key not in answers:
                outcomes[key] = Outcome(error=Failed("the observation lacks this key"))
                continue
            if obj is not None and obj.metadata.uid != answers[key].uid:
                outcomes[key] = Outcome(after=0.0)
                continue
            change = await contained(self._plan(key, obj, answers[key].observed))
            if isinstance(change, Exception):
                outcomes[key] = Outcome(error=change)
            elif change is None:
                outcomes[key] = Outcome()
            else:
                changes[key] = change
        if changes:
            applied = await contained(self._reconciler.apply(name, changes))
            if isinstance(applied, Exception):
                applied = {key: Outcome(error=applied) for key in changes}
            outcomes.update(applied)
        return outcomes

    async def _plan(self, key: str, obj: T | None, observed: Observed | Exception) -> Change | None:
        return self._reconciler.plan(key, obj, observed)

    async def _finish(
        self, key: str, planned_on: T | None, outcome: Outcome, delay: float | None
    ) -> None:
        """Decide when the key is due again; it stays in flight until the cache has caught up."""
        error = outcome.error
        result = "ok" if error is None else "conflict" if isinstance(error, Conflict) else "error"
        metrics.RECONCILES.labels(self.name, result).inc()
        if delay is not None:
            self._queue.add(key, Priority.CHECK, after=delay)
        elif error is None:
            self._queue.forget(key)
            if outcome.after is not None:
                self._queue.add(key, Priority.CHECK, after=outcome.after)
        elif isinstance(error, Conflict):
            self._queue.add(key, Priority.USER, after=CONFLICT_DELAY)
        else:
            wait = self._queue.retry(key, priority=Priority.CHECK, after=outcome.after)
            with klog.bound(**_named({key: planned_on})):
                klog.error(
                    log, "Reconciling failed", controller=self.name, err=error,
                    retry_seconds=round(wait, 2),
                )  # fmt: skip
        await contained(self._caught_up(key, planned_on, outcome))
        self._queue.done(key)

    async def _caught_up(self, key: str, planned_on: T | None, outcome: Outcome) -> None:
        """Wait until the informer holds our write or, after a conflict, anything newer."""
        if outcome.written is not None:
            await self._informer.wait_seen(key, outcome.written)
        elif isinstance(outcome.error, Conflict) and planned_on is not None:
            meta = planned_on.metadata
            newer = Written(uid=meta.uid, resource_version=int(meta.resource_version) + 1)
            await self._informer.wait_seen(key, newer)

    def _release(self, key: str, prior: Priority, delay: float | None) -> None:
        """Give a key back without counting a failure against it."""
        self._queue.add(key, prior, after=delay or 0.0)
        self._queue.done(key)


def _named(objects: Mapping[str, object | None]) -> dict[str, str]:
    """Return the log field that names the objects: `node`, or `nodes` if several."""
    kinds = (type(obj).__name__.lower() for obj in objects.values() if obj is not None)
    kind = next(kinds, "key") + ("" if len(objects) == 1 else "s")
    return {kind: ",".join(objects)}
