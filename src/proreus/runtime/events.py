"""Record events: what users read with `kubectl describe`.

They are the least urgent of all writes: one at a time, behind other writes while these are
queued, and the same event again only counts the one there is. An error is written at once, and
while it lasts every ten minutes with the count. Similar ones are combined and floods are cut
(`runtime.correlation`). Recording never waits; when the API server cannot keep up, the oldest
events are dropped.
"""

import asyncio
import contextlib
import math
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

import msgspec

from proreus.kube.client import Written
from proreus.kube.errors import (
    AlreadyExists,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from proreus.kube.messages import MESSAGE_LIMIT, scrub
from proreus.kube.objects import (
    CertificateSigningRequest,
    ConfigMap,
    EndpointSlice,
    KubeObject,
    Namespace,
    Node,
    PersistentVolume,
    Secret,
    Service,
)
from proreus.kube.patch import Patch, PatchType
from proreus.kube.requests import EVENTS, Resource
from proreus.runtime import klog, metrics
from proreus.runtime.backoff import Backoff
from proreus.runtime.correlation import COMBINED, Aggregator, Recent, SpamFilter, is_repeat

log = klog.logger(__name__)

COUNTED_FOR: Final = timedelta(hours=1)
"""How long an event is counted up: the API server drops events after an hour by default."""
QUEUE_LIMIT: Final = 10_000
PATIENCE: Final = 5.0
"""Seconds that an event waits behind other writes at most."""
POLL: Final = 0.05
RETRY: Final = Backoff(first=1.0, cap=30.0, jitter=0.5)
TRIES: Final = 10
NAME_LIMIT: Final = 253

_API: Final[dict[type[KubeObject], tuple[str, str]]] = {
    Node: ("v1", "Node"),
    Service: ("v1", "Service"),
    EndpointSlice: ("discovery.k8s.io/v1", "EndpointSlice"),
    Secret: ("v1", "Secret"),
    ConfigMap: ("v1", "ConfigMap"),
    Namespace: ("v1", "Namespace"),
    CertificateSigningRequest: ("certificates.k8s.io/v1", "CertificateSigningRequest"),
    PersistentVolume: ("v1", "PersistentVolume"),
}


class ObjectReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A reference to the object that an event is about (`involvedObject`)."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""


class Writer(Protocol):
    """The part of a client that the recorder needs."""

    async def create(
        self, resource: Resource[Any], body: dict[str, Any], namespace: str
    ) -> Written:
        """Create an object."""

    async def patch(
        self, resource: Resource[Any], name: str, patch: Patch, namespace: str
    ) -> Written:
        """Change an object."""


class _EventKey(msgspec.Struct, frozen=True):
    """The identity of equal events; the combined event of many has no message."""

    component: str
    ref: ObjectReference
    type: str
    reason: str
    message: str = ""

    @property
    def source(self) -> tuple[str, ObjectReference]:
        return self.component, self.ref


class _Pending(msgspec.Struct):
    """An event that waits to be written, `count` times.

    `number` is unique among the recorder's events, `queued` is the loop's time.
    """

    number: int
    message: str
    first: datetime
    last: datetime
    queued: float
    count: int = 1


class _Sent(msgspec.Struct, frozen=True):
    """An event object that was written."""

    name: str
    count: int
    last: datetime


class _LastQueued(msgspec.Struct):
    """The time at which an event was last queued (of the loop), and how many since were dropped.

    The event is noted before the write, so that the decision does not depend on how quick writes
    are.
    """

    at: float
    held: int = 0


def ref_of(obj: KubeObject) -> ObjectReference:
    """Return the reference to an object."""
    api_version, kind = _API[type(obj)]
    meta = obj.metadata
    return ObjectReference(api_version, kind, meta.name, meta.namespace, meta.uid)


class EventSource:
    """A recorder of the events of one component of the process."""

    def __init__(self, recorder: "EventRecorder", component: str) -> None:
        """Record with `recorder` in the name of `component`."""
        self._recorder = recorder
        self._component = component

    def event(
        self, about: ObjectReference | KubeObject, type_: str, reason: str, message: str
    ) -> None:
        """Queue an event about an object; never waits.

        `type_` is Normal or Warning, `reason` one CamelCase word.
        """
        self._recorder.record(self._component, about, type_, reason, message)


class EventRecorder:
    """A recorder of events of the process's components; `run` writes them."""

    def __init__(
        self,
        client: Writer,
        *,
        host: str,
        busy: Callable[[], bool] = lambda: False,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Record on `host`; while `busy()`, events wait behind other writes."""
        self._client = client
        self._host = host
        self._busy = busy
        self._now = now
        self._queue: OrderedDict[_EventKey, _Pending] = OrderedDict()
        self._arrived = asyncio.Event()
        self._last_number = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._sent: Recent[_EventKey, _Sent] = Recent()
        self._last_queued: Recent[_EventKey, _LastQueued] = Recent()
        self._latest: Recent[tuple[str, ObjectReference], _EventKey] = Recent()
        self._aggregator = Aggregator()
        self._spam = SpamFilter()

    def source(self, component: str) -> EventSource:
        """Return the recorder of `component` (`source.component` of its events)."""
        return EventSource(self, component)

    def record(
        self,
        component: str,
        about: ObjectReference | KubeObject,
        type_: str,
        reason: str,
        message: str,
    ) -> None:
        """Queue an event of a component; see `EventSource.event`."""
        ref = about if isinstance(about, ObjectReference) else ref_of(about)
        # Ids vary in errors; in other texts they say which thing is meant.
        message = scrub(message) if type_ == "Warning" else message[:MESSAGE_LIMIT]
        loop_time = asyncio.get_running_loop().time()
        event_key = _EventKey(component, ref, type_, reason)
        if self._aggregator.is_combined(event_key, message, loop_time):
            message = (COMBINED + message)[:MESSAGE_LIMIT]
        else:
            event_key = msgspec.structs.replace(event_key, message=message)
        self._queue_unless_repeated(event_key, message, loop_time)
        self._latest.put(event_key.source, event_key)

    def _queue_unless_repeated(self, event_key: _EventKey, message: str, now: float) -> None:
        """Queue an event, unless it repeats another or its source has written too many."""
        last, pending = self._last_queued.get(event_key), self._queue.get(event_key)
        if last is not None and is_repeat(
            is_warning=event_key.type == "Warning",
            is_latest=self._latest.get(event_key.source) == event_key,
            last=last.at,
            now=now,
        ):
            last.held += 1
            metrics.EVENTS.labels("held").inc()
        elif pending is not None:
            pending.count += 1
            pending.last = self._now()
            pending.message = message
        elif self._spam.admits(event_key.source, now):
            self._enqueue(event_key, message, now, count=1 + (last.held if last else 0))
            self._last_queued.put(event_key, _LastQueued(now))
        else:
            if last is not None:
                last.held += 1
            metrics.EVENTS.labels("filtered").inc()

    def _enqueue(self, event_key: _EventKey, message: str, queued: float, *, count: int) -> None:
        if len(self._queue) >= QUEUE_LIMIT:
            self._requeue_next_time(*self._queue.popitem(last=False))
            metrics.EVENTS.labels("dropped").inc()
        # Microseconds; but two events of one object must not have one name.
        now = self._now()
        self._last_number = max(self._last_number + 1, int(now.timestamp() * 1_000_000))
        self._queue[event_key] = _Pending(self._last_number, message, now, now, queued, count)
        self._arrived.set()
        self._idle.clear()

    async def flush(self, seconds: float) -> None:
        """Wait until all events are written, at most `seconds`; `run` must be running."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()

    async def run(self) -> None:
        """Write the queued events, one after the other, until cancelled."""
        while True:
            await self._arrived.wait()
            await self._let_others_go_first(next(iter(self._queue.values())).queued)
            event_key, pending = self._queue.popitem(last=False)
            if not self._queue:
                self._arrived.clear()
            await self._write(event_key, pending)
            if not self._queue:
                self._idle.set()

    async def _let_others_go_first(self, queued: float) -> None:
        loop = asyncio.get_running_loop()
        while loop.time() - queued < PATIENCE:
            if not self._busy():
                return
            await asyncio.sleep(POLL)

    async def _write(self, event_key: _EventKey, pending: _Pending) -> None:
        """Write one event; while the API server fails, try again, then drop it."""
        error: KubeError
        for failures in range(TRIES):
            try:
                result = await self._send(event_key, pending)
            except (Unreachable, ServerError, TooManyRequests) as exc:
                error = exc
                await asyncio.sleep(RETRY.delay(failures))
            except KubeError as exc:
                error = exc
                break
            else:
                metrics.EVENTS.labels(result).inc()
                return
        self._requeue_next_time(event_key, pending)
        metrics.EVENTS.labels("failed").inc()
        klog.warning(
            log, "An event could not be written", err=error,
            object=f"{event_key.ref.kind} {event_key.ref.name}", reason=event_key.reason,
        )  # fmt: skip

    def _requeue_next_time(self, event_key: _EventKey, pending: _Pending) -> None:
        """Let an event that could not be written be written next time, with its count."""
        last = self._last_queued.get(event_key)
        if last is not None:
            last.at = -math.inf
            last.held += pending.count

    async def _send(self, event_key: _EventKey, pending: _Pending) -> str:
        sent = self._sent.get(event_key)
        if sent is not None and pending.last - sent.last < COUNTED_FOR:
            count = sent.count + pending.count
            body: dict[str, Any] = {"count": count, "lastTimestamp": _timestamp(pending.last)}
            if not event_key.message:
                body["message"] = pending.message
            try:
                await self._client.patch(
                    EVENTS, sent.name, Patch(PatchType.MERGE, body), _namespace(event_key.ref)
                )
            except NotFound:
                klog.v(log, 4, "The event has expired; a new one is written", event=sent.name)
            else:
                self._sent.put(event_key, _Sent(sent.name, count, pending.last))
                return "counted"
        name = _name(event_key.ref, pending.number)
        try:
            await self._client.create(
                EVENTS, self._body(name, event_key, pending), _namespace(event_key.ref)
            )
        except AlreadyExists:
            klog.v(log, 4, "The event was written by a try that got no answer", event=name)
        self._sent.put(event_key, _Sent(name, pending.count, pending.last))
        return "created"

    def _body(self, name: str, event_key: _EventKey, pending: _Pending) -> dict[str, Any]:
        return {
            "metadata": {"name": name, "namespace": _namespace(event_key.ref)},
            "involvedObject": msgspec.to_builtins(event_key.ref),
            "type": event_key.type,
            "reason": event_key.reason,
            "message": pending.message,
            "count": pending.count,
            "firstTimestamp": _timestamp(pending.first),
            "lastTimestamp": _timestamp(pending.last),
            "source": {"component": event_key.component, "host": self._host},
            "reportingComponent": event_key.component,
            "reportingInstance": self._host,
        }


def _namespace(ref: ObjectReference) -> str:
    """Return the event's namespace: its object's, or "default" for cluster-wide objects."""
    return ref.namespace or "default"


def _name(ref: ObjectReference, number: int) -> str:
    """Name an event by object and number, as client-go; cut, since names have a limit."""
    suffix = f".{number:x}"
    return ref.name[: NAME_LIMIT - len(suffix)].rstrip(".-") + suffix


def _timestamp(when: datetime) -> str:
    # Three times as quick as strftime.
    return when.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
