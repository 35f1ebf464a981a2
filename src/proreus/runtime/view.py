"""Show a part of a cache as if it were all there is, with changes to match."""

from collections.abc import Callable, Iterable, ValuesView
from typing import Generic, TypeVar

from proreus.kube.client import Written
from proreus.kube.objects import KubeObject, key
from proreus.runtime.informer import Cache, Handler, notify

T = TypeVar("T", bound=KubeObject)


class View(Generic[T]):
    """The objects of a cache that a function lets through, as it shows them.

    An object that it lets through no more is deleted for those who subscribe here, and one that it
    begins to let through is new.
    """

    def __init__(self, cache: Cache[T], show: Callable[[T], T | None], name: str) -> None:
        """Follow `cache`.

        Args:
            cache: The cache of all objects.
            show: Returns the object as it is to be seen, or None to hide it. Where its answer
                depends on more than the object, `recheck` has to be called when that changes.
            name: The name of the objects, for the log and metrics.
        """
        self._cache = cache
        self._show = show
        self._name = name
        self._shown: dict[str, T] = {}
        self._handlers: list[Handler[T]] = []
        cache.subscribe(self._on_change)

    @property
    def handlers(self) -> tuple[Handler[T], ...]:
        """The subscribed handlers."""
        return tuple(self._handlers)

    def subscribe(self, handler: Handler[T]) -> None:
        """Call the handler for every change from now on, and at once for the objects there are."""
        self._handlers.append(handler)
        for obj in tuple(self._shown.values()):
            notify(handler, None, obj, self._name)

    def unsubscribe(self, handlers: Iterable[object]) -> None:
        """Stop calling these handlers."""
        gone = list(handlers)
        self._handlers = [handler for handler in self._handlers if handler not in gone]

    def get(self, key: str) -> T | None:
        """Return the object with the key, or None."""
        return self._shown.get(key)

    def all(self) -> ValuesView[T]:
        """Return all objects; a view, valid until the task yields."""
        return self._shown.values()

    def everything(self) -> Iterable[T]:
        """Return all objects of the cache, those that are not shown here, too."""
        return self._cache.everything()

    def by(self, index: str, value: str) -> tuple[T, ...]:
        """Return the objects that have this value in the index of the cache."""
        found = (self._shown.get(key(obj)) for obj in self._cache.by(index, value))
        return tuple(obj for obj in found if obj is not None)

    async def wait_synced(self) -> None:
        """Wait until the first list is in the cache."""
        await self._cache.wait_synced()

    async def wait_seen(self, key: str, written: Written, /) -> None:
        """Wait until the cache reflects the write, or anything later."""
        await self._cache.wait_seen(key, written)

    def recheck(self) -> None:
        """Look at all objects again: something else has changed by which they are shown."""
        for obj in tuple(self._cache.all()):
            self._put(key(obj), self._show(obj))

    def _on_change(self, old: T | None, new: T | None) -> None:
        present = new or old
        if present is not None:
            self._put(key(present), self._show(new) if new is not None else None)

    def _put(self, name: str, new: T | None) -> None:
        old = self._shown.get(name)
        if new is None:
            self._shown.pop(name, None)
        else:
            self._shown[name] = new
        if old is not new:
            for handler in self.handlers:
                notify(handler, old, new, self._name)
