"""The framework's side of a provider: the gate for its calls, listers, events and the time.

`Context.call` is the one way to the cloud. Each call is counted, logged, held to the quota that
the bucket learns, and stopped when this replica no longer leads.
"""

import asyncio
import inspect
import math
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextvars import ContextVar
from datetime import datetime
from typing import Any, Final, Literal, Protocol, TypeVar, cast, overload

import msgspec

from proreus.cloudprovider.board import Board
from proreus.cloudprovider.calls import CallHooks, CallRecord, Outcome
from proreus.cloudprovider.errors import CallTimeout, CloudError, Throttled
from proreus.cloudprovider.hints import Hints
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.listers import Lister
from proreus.cloudprovider.refusals import Refusals
from proreus.cloudprovider.threads import Place, Threads
from proreus.kube.objects import KubeObject
from proreus.runtime import klog, metrics, priority
from proreus.runtime.bucket import AdaptiveBucket
from proreus.runtime.uptime import uptime

log = klog.logger(__name__)

T = TypeVar("T")

READ_RETRIES = 3
CALLS_KEPT = 10_000
CALL_VERBOSITY = 5

scope: Final[ContextVar[Hashable]] = ContextVar("proreus_scope", default=None)
"""The key or group that the running task works for; `Context.settled` waits by it."""


class EventSink(Protocol):
    """A receiver of events about objects; it never blocks."""

    def event(self, obj: KubeObject, type_: str, reason: str, message: str, /) -> None:
        """Record an event; `type_` is Normal or Warning, `reason` one CamelCase word."""


class _Call(msgspec.Struct, frozen=True):
    service: str
    operation: str
    read: bool
    quota: str

    @property
    def name(self) -> str:
        return f"{self.service}.{self.operation}"

    def who(self) -> Hashable:
        """Return on whose behalf the running task makes calls of this sort, or None."""
        return None if scope.get() is None else (scope.get(), self.name)


class Context:
    """A provider's link to the framework, given to `CloudProvider.start`.

    Attributes:
        cluster: Which cluster this is.
        now: The wall-clock time in UTC.
        uptime: The seconds of a clock that is never set and goes on while the machine sleeps: the
            age of what is kept goes by it.
        events: Where events about objects go.
        listers: The caches that the provider class declares in `needs`.
        flags: The values of the provider's own flags, by their names; only of those given.
        calls: The last calls, the oldest first.
        gate: Raises if this replica may not act any more; `call` asks it, clients may, too.
        board: Where replicas leave notices for one another, for a provider that needs "board";
            None if there are no others.
        hints: Where the provider says that machines may have changed.
    """

    def __init__(
        self,
        cluster: ClusterIdentity,
        *,
        now: Callable[[], datetime],
        events: EventSink,
        listers: Mapping[str, Lister[KubeObject]],
        flags: Mapping[str, Any] | None = None,
        gate: Callable[[], None] = lambda: None,
        hooks: CallHooks | None = None,
        bucket: Callable[[], AdaptiveBucket] = AdaptiveBucket,
        threads: Threads | None = None,
        cloud: str = "",
        board: Board | None = None,
        uptime: Callable[[], float] = uptime,
    ) -> None:
        """Keep what the provider may use; make no call.

        Args:
            cluster: Which cluster this is.
            now: The wall-clock time in UTC.
            events: Where events about objects go.
            listers: The caches that the provider may read.
            flags: The values given for the flags that the provider declares.
            gate: Called when a call is sent, in its thread too; raises if the call must not be
                sent.
            hooks: The hooks that see every call.
            bucket: Makes the bucket of each quota, one for reads and one for writes.
            threads: The threads that run blocking calls.
            cloud: The cloud's name in metrics, where there are several.
            board: The board of all replicas; None if there is only this one.
            uptime: The seconds of a clock that is never set.
        """
        self.cluster = cluster
        self.now = now
        self.uptime = uptime
        self.events = events
        self.listers = listers
        self.flags: Mapping[str, Any] = flags or {}
        self.calls: deque[CallRecord] = deque(maxlen=CALLS_KEPT)
        self.gate = gate
        self.board = board
        self.hints = Hints()
        self._prefix = f"{cloud}/" if cloud else ""
        self._hooks = hooks
        self._new_bucket = bucket
        self._buckets: dict[tuple[str, bool], AdaptiveBucket] = {}
        self._refusals: dict[tuple[str, bool], Refusals] = defaultdict(Refusals)
        self._threads = threads or Threads()
        self._running: dict[Hashable, set[asyncio.Future[Any]]] = {}
        self._outlasting: dict[Hashable, set[asyncio.Future[Any]]] = {}

    @overload
    async def call(
        self,
        service: str,
        operation: str,
        fn: Callable[[], Awaitable[T]],
        *,
        read: bool,
        deadline: float = 30.0,
        quota: str = "",
        blocking: Literal[False] = False,
    ) -> T: ...

    @overload
    async def call(
        self,
        service: str,
        operation: str,
        fn: Callable[[], T],
        *,
        read: bool,
        deadline: float = 30.0,
        quota: str = "",
        blocking: bool = False,
    ) -> T: ...

    async def call(
        self,
        service: str,
        operation: str,
        fn: Callable[[], Awaitable[T] | T],
        *,
        read: bool,
        deadline: float = 30.0,
        quota: str = "",
        blocking: bool = False,
    ) -> T:
        """Make one call to the cloud: `fn` sends exactly one request.

        Args:
            service: The cloud's service, such as "ec2"; few different values, since metrics have it
                as a label.
            operation: The service's operation, such as "DescribeInstances".
            fn: Sends the request. Raises `Throttled` when the cloud's quota refuses it.
            read: Whether the call changes nothing. Only such a call is repeated when it is
                throttled.
            deadline: Seconds to wait for the answer once the call is sent; waiting for the quota
                does not count. A read is not sent again later than this.
            quota: The quota that the call counts against, such as an operation; each has buckets of
                its own.
            blocking: Whether `fn` blocks: it is run in a thread, which goes on after the deadline.

        Raises:
            CallTimeout: No answer came in time; the outcome is unknown.
            Throttled: The cloud refused it, or asked to wait for longer than the deadline.
            CloudError: `fn` raised this error, or raised something that is no Exception.
        """
        call = _Call(service, operation, read, quota)
        bucket = self._bucket(quota, read=read)
        loop = asyncio.get_running_loop()
        first_sent = math.inf
        retries_left = READ_RETRIES if read else 0
        while True:
            place = await self._threads.reserve(deadline) if blocking else None
            try:
                grant = await self._admit(call, bucket, deadline)
                first_sent = min(first_sent, loop.time())
                return await self._send(call, fn, bucket, grant, place=place, deadline=deadline)
            except Throttled:
                passed = loop.time() + bucket.held_for - first_sent
                is_alone = self._refusals[quota, read].is_alone(call.who())
                if is_alone or not retries_left or not 0 <= passed < deadline:
                    raise
                retries_left -= 1
            finally:
                if place is not None:
                    place.release()

    async def settled(self, key: Hashable) -> None:
        """Wait until all threads and tasks that were started for `key` have ended.

        `key` is the `scope` of calls. The tasks are those that `outlasts` was called with.
        """
        while running := self._running.get(key, set()) | self._outlasting.get(key, set()):
            await asyncio.wait(running)

    def outlasts(self, work: "asyncio.Task[Any]") -> None:
        """Let `settled` wait for a task of the running scope although its caller does not."""
        key = scope.get()
        self._outlasting.setdefault(key, set()).add(work)
        work.add_done_callback(lambda _: _forget(self._outlasting, key, work))

    @property
    def threads_running(self) -> Mapping[Hashable, int]:
        """The number of running threads by scope."""
        return {key: len(running) for key, running in self._running.items()}

    def _bucket(self, quota: str, *, read: bool) -> AdaptiveBucket:
        bucket = self._buckets.get((quota, read))
        if bucket is None:
            made = bucket = self._buckets[quota, read] = self._new_bucket()
            labels = (self._prefix + quota, "read" if read else "write")
            metrics.CLOUD_RATE.labels(*labels).set_function(lambda: made.rate)
            metrics.CLOUD_WAITING.labels(*labels).set_function(lambda: made.waiting)
        return bucket

    async def _admit(self, call: _Call, bucket: AdaptiveBucket, patience: float) -> int:
        if (held := bucket.held_for) > patience:
            raise Throttled(
                f"{call.name}: not sent, the cloud asked to wait {held:.0f} s more", after=held
            )
        grant = await bucket.take(priority.current.get())
        try:
            self.gate()
            if self._hooks is not None:
                self._hooks.before(call.service, call.operation, read=call.read)
        except BaseException:
            bucket.abandoned()
            raise
        return grant

    async def _send(
        self,
        call: _Call,
        fn: Callable[[], Awaitable[T] | T],
        bucket: AdaptiveBucket,
        grant: int,
        *,
        place: Place | None,
        deadline: float,
    ) -> T:
        started = asyncio.get_running_loop().time()
        outcome, after = Outcome.ERROR, None
        try:
            async with asyncio.timeout(deadline):
                answer = await self._run(call, fn, place)
            outcome = Outcome.OK
        except Throttled as error:
            outcome, after = Outcome.THROTTLED, error.after
            raise
        except (TimeoutError, CallTimeout) as error:
            outcome = Outcome.TIMEOUT
            if isinstance(error, CallTimeout):
                raise
            raise CallTimeout(
                f"{call.name}: no answer in time ({deadline:g} s), the outcome is unknown"
            ) from error
        except (asyncio.CancelledError, GeneratorExit):
            outcome = Outcome.CANCELLED
            raise
        except BaseException as error:
            if isinstance(error, Exception):
                raise
            raise CloudError(f"{call.name}: the SDK raised {type(error).__name__}") from error
        finally:
            self._judge(call, bucket, grant, outcome, sent=started, after=after)
            self._record(call, started, outcome)
        return answer

    def _judge(
        self,
        call: _Call,
        bucket: AdaptiveBucket,
        grant: int,
        outcome: Outcome,
        *,
        sent: float,
        after: float | None,
    ) -> None:
        """Tell the bucket what a call's outcome says about the quota."""
        refusals, who = self._refusals[call.quota, call.read], call.who()
        if outcome is Outcome.THROTTLED:
            now = asyncio.get_running_loop().time()
            if refusals.refused(who, sent=sent, now=now):
                bucket.abandoned()
            else:
                bucket.refused(grant, after)
        elif outcome in {Outcome.OK, Outcome.ERROR}:
            refusals.admitted(who)
            bucket.succeeded()
        else:
            bucket.abandoned()

    async def _run(self, call: _Call, fn: Callable[[], Awaitable[T] | T], place: Place | None) -> T:
        if place is None:
            answer = fn()
            return await answer if inspect.isawaitable(answer) else answer
        key = scope.get()
        blocking = cast("Callable[[], T]", fn)

        def gated() -> T:
            self.gate()  # again, since the thread may have begun late
            return blocking()

        future, ended = place.start(gated, f"proreus {call.name}")
        self._running.setdefault(key, set()).add(ended)
        ended.add_done_callback(lambda _: _forget(self._running, key, ended))
        _counted("called", ended)
        try:
            return await future
        except asyncio.CancelledError:
            if not ended.done():
                _counted("abandoned", ended)
                klog.warning(log, "A blocking call outlives its caller", call=call.name)
            raise

    def _record(self, call: _Call, started: float, outcome: Outcome) -> None:
        record = CallRecord(
            service=call.service,
            operation=call.operation,
            read=call.read,
            quota=call.quota,
            started=started,
            seconds=asyncio.get_running_loop().time() - started,
            outcome=outcome,
        )
        self.calls.append(record)
        klog.v(
            log, CALL_VERBOSITY, "Called the cloud", call=call.name, code=outcome.value,
            seconds=round(record.seconds, 3),
        )  # fmt: skip
        metrics.CLOUD_REQUESTS.labels(call.service, call.operation, outcome.value).inc()
        metrics.CLOUD_DURATION.labels(call.service, call.operation).observe(record.seconds)
        if self._hooks is not None:
            self._hooks.after(record)


def _forget(
    kept: dict[Hashable, set["asyncio.Future[Any]"]], key: Hashable, ended: "asyncio.Future[Any]"
) -> None:
    kept[key].remove(ended)
    if not kept[key]:
        del kept[key]


def _counted(state: str, ended: "asyncio.Future[None]") -> None:
    """Count a thread until it has ended."""
    gauge = metrics.PROVIDER_THREADS.labels(state)
    gauge.inc()
    ended.add_done_callback(lambda _: gauge.dec())
