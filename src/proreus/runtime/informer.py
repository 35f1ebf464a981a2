"""Cache all objects of a resource, kept current by a watch, with handlers and indexes.

The cache and its handlers belong to one event loop. Handlers are plain functions that are called
for every change, in order, and must be quick: put a key into a queue, no more.

Read your own writes: `wait_seen` returns when the cache reflects a write. Versions are compared
as integers (KEP-5504): a watch delivers changes in their order, so once it has delivered any
change of a later version, it has delivered ours too.
"""

import asyncio
import heapq
import itertools
import math
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, ValuesView
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from proreus.kube.client import Client, Written
from proreus.kube.errors import KubeError, NotFound
from proreus.kube.requests import Resource
from proreus.kube.sharing import Texts
from proreus.kube.watch import (
    Applied,
    Check,
    Deleted,
    Event,
    HasMetadata,
    Restarted,
    get_checked,
    unchecked,
    watch,
)
from proreus.runtime import klog, metrics
from proreus.runtime.backoff import Backoff

log = klog.logger(__name__)

T = TypeVar("T", bound=HasMetadata)

Handler = Callable[[T | None, T | None], None]
"""A handler called with the old and the new object; None where it is absent."""


class _VersionMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _Versioned(msgspec.Struct, frozen=True):
    """An object of which only the version is decoded."""

    metadata: _VersionMeta


class Cache(Protocol[T]):
    """The part of an informer that reads, subscribes and waits; a `View` has it, too."""

    @property
    def handlers(self) -> tuple[Handler[T], ...]:
        """The subscribed handlers."""

    def subscribe(self, handler: Handler[T]) -> None:
        """Call the handler for every change from now on, and at once for the objects there are."""

    def unsubscribe(self, handlers: Iterable[object]) -> None:
        """Stop calling these handlers."""

    def get(self, key: str) -> T | None:
        """Return the object with the key, or None."""

    def all(self) -> ValuesView[T]:
        """Return all objects; a view, valid until the task yields."""

    def everything(self) -> Iterable[T]:
        """Return all objects, those that are not shown here, too; valid until the task yields."""

    def by(self, index: str, value: str) -> tuple[T, ...]:
        """Return the objects that have this value in the index."""

    async def wait_synced(self) -> None:
        """Wait until the first list is in the cache."""

    async def wait_seen(self, key: str, written: Written, /) -> None:
        """Wait until the cache reflects the write, or anything later."""


WATCH_BACKOFF: Final = Backoff(first=0.5, cap=30.0, jitter=0.5)


class Informer(Generic[T]):
    """A cache of one resource; keys are `namespace/name`, or `name` for cluster-wide objects."""

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        *,
        namespace: str = "",
        field_selector: str = "",
        indexes: Mapping[str, Callable[[T], Iterable[str]]] = {},
        backoff: Backoff = WATCH_BACKOFF,
        check: Check = unchecked,
    ) -> None:
        """Follow the resource in one namespace or all; `indexes` compute values of objects.

        What the API server says counts only once `check` has passed.
        """
        self.resource = resource
        self.generation = 0
        """How many changes the cache has seen."""
        self.failed = -math.inf
        """When lists or watches failed last, two or more in a row, on the event loop's clock."""
        self._client = client
        self._namespace = namespace
        self._field_selector = field_selector
        self._backoff = backoff
        self._check = check
        self._objects: dict[str, T] = {}
        self._texts = Texts()
        self._index_functions = dict(indexes)
        # Index name, value, key: object.
        self._indexes: dict[str, dict[str, dict[str, T]]] = {name: {} for name in indexes}
        self._handlers: list[Handler[T]] = []
        self._synced = asyncio.Event()
        self._version = -1
        # Keys that a GET has shown at a version which the watch has yet to reach.
        self._ahead: dict[str, int] = {}
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()
        self._size = metrics.INFORMER_OBJECTS.labels(resource.plural)

    def subscribe(self, handler: Handler[T]) -> None:
        """Call the handler for every change from now on, and at once for the objects there are."""
        self._handlers.append(handler)
        for obj in tuple(self._objects.values()):
            self._call(handler, None, obj)

    @property
    def handlers(self) -> tuple[Handler[T], ...]:
        """The subscribed handlers."""
        return tuple(self._handlers)

    def unsubscribe(self, handlers: Iterable[object]) -> None:
        """Stop calling these handlers."""
        gone = list(handlers)
        self._handlers = [handler for handler in self._handlers if handler not in gone]

    def get(self, key: str) -> T | None:
        """Return the object with the key, or None."""
        return self._objects.get(key)

    def all(self) -> ValuesView[T]:
        """Return all objects; a view, valid until the task yields."""
        return self._objects.values()

    def everything(self) -> ValuesView[T]:
        """Return all objects, as `all` does: here nothing is hidden."""
        return self._objects.values()

    def by(self, index: str, value: str) -> tuple[T, ...]:
        """Return the objects that have this value in the index.

        Raises:
            KeyError: There is no such index.
        """
        return tuple(self._indexes[index].get(value, {}).values())

    @property
    def synced(self) -> bool:
        """Whether the first list is in the cache."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Wait until the first list is in the cache."""
        await self._synced.wait()

    def seen(self, key: str, written: Written) -> bool:
        """Tell whether the cache reflects the write: that version or later, or its deletion."""
        reached = max(self._version, self._ahead.get(key, -1))
        return reached >= written.resource_version

    async def wait_seen(self, key: str, written: Written, timeout: float = 10.0) -> None:  # noqa: ASYNC109 - no error follows
        """Wait until the cache reflects the write, as `seen` tells.

        A watch that lags `timeout` seconds behind is overtaken by one GET of the object, whose
        answer goes into the cache and settles it. Should the GET fail, both are tried again.
        """
        settled = self.seen(key, written)
        while not settled:
            try:
                async with asyncio.timeout(timeout):
                    await self._reached(written.resource_version)
                settled = True
            except TimeoutError:
                settled = await self._refetch(key, written)

    async def catch_up(self) -> None:
        """Wait until the cache reflects all that had been written when this was called.

        Raises:
            KubeError: The API server does not say what there is.
        """
        kind = self.resource
        versions = Resource(
            kind.group, kind.version, kind.plural, kind.kind, kind.namespaced, type=_Versioned
        )
        async with self._client.apart() as one:
            present = await one.list(versions, self._namespace, field_selector=self._field_selector)
            await self._check(one)
        newest = max((int(one.metadata.resource_version) for one in present.items), default=-1)
        if self._version < newest:
            await self._reached(newest)

    async def run(self) -> None:
        """Watch the resource until cancelled."""
        events = watch(
            self._client,
            self.resource,
            self._namespace,
            field_selector=self._field_selector,
            each=self._texts.shared,
            check=self._check,
            begins=self._ahead.clear,
            backoff=self._pause,
            on_error=self._on_error,
        )
        try:
            async for event in events:
                self._handle(event)
        finally:
            # Closes the connection too; else a crash would leave that to the garbage collector.
            if isinstance(events, AsyncGenerator):
                await events.aclose()

    def _handle(self, event: Event[T]) -> None:
        match event:
            case Restarted(items, resource_version):
                self._replace(items, int(resource_version))
                # Not the maximum: versions go back when a backup of etcd has been restored.
                self._advance(int(resource_version))
                self._synced.set()
            case Applied(obj):
                self._follow(obj, self._texts.shared(obj, self._objects.get(_key(obj))))
            case Deleted(obj):
                self._follow(obj, None)

    def _replace(self, items: tuple[T, ...], version: int) -> None:
        """Make the cache hold these objects and no others.

        But what a GET has shown of a later version, while the list was under way, stays.
        """
        ahead = self._ahead
        for key in [key for key, reached in ahead.items() if reached <= version]:
            del ahead[key]
        present = {key: obj for obj in items if (key := _key(obj)) not in ahead}
        for key in [key for key in self._objects if key not in present and key not in ahead]:
            self._put(key, None)
        for key, obj in present.items():
            old = self._objects.get(key)
            if old is None or _identity(old) != _identity(obj):
                self._put(key, obj)

    def _follow(self, seen: T, new: T | None) -> None:
        """Apply one change of the watch, unless a GET has already shown a later state."""
        key, version = _key(seen), _version(seen)
        ahead = self._ahead.get(key, -1)
        # "Deleted" at the very version that the GET has shown: it left the field selector.
        if version > ahead or (version == ahead and new is None):
            self._ahead.pop(key, None)
            self._put(key, new)
        self._advance(version)

    async def _refetch(self, key: str, written: Written) -> bool:
        """GET the object into the cache, unless the watch is faster; False if that failed."""
        klog.warning(
            log, "The watch lags behind; reading the object", resource=self.resource.plural, key=key
        )
        namespace, _, name = key.rpartition("/")
        obj: T | None
        try:
            found = await get_checked(self._client, self.resource, name, namespace, self._check)
            obj = self._texts.shared(found, self._objects.get(key))
        except NotFound:
            obj, version = None, written.resource_version
        except KubeError as exc:
            self._on_error(exc)
            return False
        else:
            version = _version(obj)
        if not self.seen(key, written):
            self._ahead[key] = version
            self._put(key, obj)
        return True

    def _put(self, key: str, new: T | None) -> None:
        """Store or remove an object and call the handlers."""
        old = self._objects.get(key)
        if old is None and new is None:
            return
        if old is not None and new is not None and old.metadata.uid != new.metadata.uid:
            # Deleted and created again: no handler may take the one for the other.
            self._put(key, None)
            old = None
        self._index(key, old, new)
        if new is None:
            del self._objects[key]
        else:
            self._objects[key] = new
        self.generation += 1
        self._size.set(len(self._objects))
        for handler in tuple(self._handlers):
            self._call(handler, old, new)

    def _index(self, key: str, old: T | None, new: T | None) -> None:
        for name, function in self._index_functions.items():
            entries = self._indexes[name]
            for value in function(old) if old is not None else ():
                entries.get(value, {}).pop(key, None)
                if not entries.get(value, True):
                    del entries[value]
            if new is not None:
                for value in function(new):
                    entries.setdefault(value, {})[key] = new

    def _call(self, handler: Handler[T], old: T | None, new: T | None) -> None:
        notify(handler, old, new, self.resource.plural)

    async def _reached(self, version: int) -> None:
        """Wait until the watch has come to that version."""
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiters, (version, next(self._numbers), future))
        await future

    def _advance(self, version: int) -> None:
        """Note how far the watch has come, and wake those who wait for it."""
        self._version = version
        while self._waiters and self._waiters[0][0] <= version:
            _, _, future = heapq.heappop(self._waiters)
            if not future.done():
                future.set_result(None)

    def _pause(self, failures: int) -> float:
        """Return the seconds to wait after one more failure; a watch alone may just be cut off."""
        if failures:
            self.failed = asyncio.get_running_loop().time()
        return self._backoff.delay(failures)

    def _on_error(self, exc: Exception) -> None:
        metrics.INFORMER_ERRORS.labels(self.resource.plural, "watch").inc()
        klog.warning(log, "List or watch failed", err=exc, resource=self.resource.plural)


def notify(handler: Handler[T], old: T | None, new: T | None, resource: str) -> None:
    """Call a handler of changes; log and count what it raises, so that others are called, too."""
    try:
        handler(old, new)
    except Exception as exc:  # noqa: BLE001 - one handler's fault must not stop the others
        metrics.INFORMER_ERRORS.labels(resource, "handler").inc()
        klog.exception(
            log,
            "A handler of object changes raised an exception",
            err=exc,
            resource=resource,
        )


def _key(obj: HasMetadata) -> str:
    meta = obj.metadata
    return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name


def _version(obj: HasMetadata) -> int:
    return int(obj.metadata.resource_version)


def _identity(obj: HasMetadata) -> tuple[str, str]:
    return obj.metadata.uid, obj.metadata.resource_version
