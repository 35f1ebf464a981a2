"""Keep objects, their versions and their history. No I/O: times and ids come from outside."""

import bisect
import random
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from proreus.kube.requests import NAMESPACES, Resource
from proreus.testing.memory import rules
from proreus.testing.memory.rules import Fault, Object

Key = tuple[str, str]
"""Namespace (or "") and name."""
Matches = Callable[[Object], bool]
"""Whether an object fits a selector; None instead of it is every object."""

HISTORY: Final = 200_000
"""Changes of one resource that a watch can go back, unless a store is told otherwise."""
LISTS: Final = 64
"""Lists that are read page by page at the same time."""


class ApiError(Exception):
    """An error that the API answers: HTTP status, reason, message and the object's mistakes."""

    def __init__(
        self, code: int, reason: str, message: str, causes: tuple[Fault, ...] = ()
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.causes = code, reason, message, causes


class Stored(msgspec.Struct, frozen=True):
    """An object as it is kept and sent: as JSON text, a tenth of its size as values."""

    namespace: str
    version: int
    encoded: bytes

    @property
    def body(self) -> Object:
        """The object, decoded anew each time."""
        body: Object = msgspec.json.decode(self.encoded)
        return body

    @property
    def metadata(self) -> Object:
        """The object's metadata, without decoding the rest."""
        return _METADATA.decode(self.encoded).metadata


class _Metadata(msgspec.Struct, frozen=True):
    metadata: Object


_METADATA = msgspec.json.Decoder(_Metadata)


class Change(msgspec.Struct, frozen=True):
    """A step of history; `new` is None for a deletion, `last` the object at its end."""

    version: int
    old: Stored | None
    new: Stored | None
    last: Stored


class Page(msgspec.Struct, frozen=True):
    """A part of a list; `token` leads to the next one, "" is the end."""

    items: tuple[Stored, ...]
    version: int
    token: str
    remaining: int


class _Table:
    """A table of all objects of a resource, with what happened to them.

    What is known of the past is each resource's own, as it is in the caches of kube-apiserver: a
    busy resource makes no other one forget.
    """

    def __init__(self) -> None:
        self.objects: dict[Key, Stored] = {}
        self.keys: list[Key] = []
        self.versions: list[int] = []
        self.changes: list[Change] = []
        self.oldest = 1


class Store:
    """A store of all objects, with one version that grows with every change."""

    def __init__(
        self,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        history: int = HISTORY,
        chance: random.Random | None = None,
    ) -> None:
        """Hold the first namespaces only; UIDs come from `chance`, else from the system's."""
        self._chance = chance or random.SystemRandom()
        self.version = 1
        self._now = now
        self._history = history
        self._tables: dict[str, _Table] = {}
        self._ports = rules.Ports()
        self._lists: OrderedDict[str, tuple[int, list[Stored], int]] = OrderedDict()
        self._listeners: dict[str, list[Callable[[], None]]] = {}
        for name in ("default", "kube-system", "kube-public"):
            self.create(NAMESPACES, "", {"metadata": {"name": name}})

    def subscribe(self, plural: str, listener: Callable[[], None]) -> Callable[[], None]:
        """Call the listener after every change of a resource; return how to end that."""
        listeners = self._listeners.setdefault(plural, [])
        listeners.append(listener)
        return lambda: listeners.remove(listener)

    def get(self, resource: Resource[Any], namespace: str, name: str) -> Stored:
        """Return an object, or raise NotFound.

        Raises:
            ApiError: There is no such object (404).
        """
        found = self._table(resource).objects.get((namespace, name))
        if found is None:
            raise ApiError(404, "NotFound", f'{resource.plural} "{name}" not found')
        return found

    def count(self, resource: Resource[Any]) -> int:
        """Return how many objects of a resource there are."""
        return len(self._table(resource).objects)

    def first_page(
        self, resource: Resource[Any], namespace: str, matches: Matches | None, limit: int
    ) -> Page:
        """Return the first page of a list; limit 0 is all."""
        table = self._table(resource)
        found = [table.objects[key] for key in table.keys if namespace in {"", key[0]}]
        if matches is not None:
            found = [stored for stored in found if matches(stored.body)]
        return self._page(self.version, found, 0, limit)

    def go_on(self, token: str, limit: int) -> Page:
        """Return the next page of a list, of the same version.

        Raises:
            ApiError: The version is forgotten (410).
        """
        known = self._lists.pop(token, None)
        if known is None:
            raise ApiError(410, "Expired", "The provided continue parameter is too old")
        return self._page(*known, limit)

    def changes(self, resource: Resource[Any], after: int) -> list[Change]:
        """Return what happened to a resource after a version, the oldest first.

        Raises:
            ApiError: The version is forgotten (410).
        """
        table = self._table(resource)
        if after < table.oldest:
            raise ApiError(410, "Expired", f"too old resource version: {after} ({table.oldest})")
        return table.changes[bisect.bisect_right(table.versions, after) :]

    def create(self, resource: Resource[Any], namespace: str, body: Object) -> Stored:
        """Make an object.

        Raises:
            ApiError: There is an object of that name (409), or something is wrong with the new one
                (422).
        """
        meta = dict(body.get("metadata") or {})
        key = (namespace, meta.get("name", ""))
        if key in self._table(resource).objects:
            raise ApiError(409, "AlreadyExists", f'{resource.plural} "{key[1]}" already exists')
        made = {"uid": str(self._uuid()), "creationTimestamp": _seconds(self._now())}
        meta = {**meta, **({"namespace": namespace} if namespace else {}), **made}
        new = rules.on_create(resource, {**body, "metadata": meta}, self._ports)
        self._check(resource, None, new)
        return self._write(resource, key, None, new)

    def update(
        self, resource: Resource[Any], old: Stored, new: Object, *, status: bool = False
    ) -> Stored:
        """Write an object over the one that it was made from.

        Raises:
            ApiError: The object names another version (409), or something is wrong with it (422).
        """
        before = old.body
        meta = new.get("metadata") or {}
        stated = meta.get("resourceVersion", "")
        if stated and stated != str(old.version):
            raise ApiError(409, "Conflict", "the object has been modified")
        new = rules.on_update(resource, before, new, self._ports, status=status)
        self._check(resource, before, new)
        new["metadata"]["resourceVersion"] = str(old.version)
        if new == before:
            return old
        key = _key(before)
        if "deletionTimestamp" in new["metadata"] and not new["metadata"].get("finalizers"):
            return self._remove(resource, key, new)
        return self._write(resource, key, old, new)

    def delete(
        self, resource: Resource[Any], old: Stored, preconditions: Mapping[str, str]
    ) -> Stored:
        """Delete an object, or mark it as to be deleted while it has finalizers.

        Raises:
            ApiError: A precondition does not hold (409).
        """
        body = old.body
        meta = body["metadata"]
        for field in ("uid", "resourceVersion"):
            expected = preconditions.get(field)
            if expected and expected != meta[field]:
                raise ApiError(409, "Conflict", f"Precondition failed: {field} is {meta[field]}")
        if not meta.get("finalizers"):
            return self._remove(resource, _key(body), body)
        if "deletionTimestamp" in meta:
            return old
        marked = {**meta, "deletionTimestamp": _seconds(self._now())}
        return self._write(resource, _key(body), old, {**body, "metadata": marked})

    def forget(self) -> None:
        """Forget all history, as a compaction of etcd does."""
        self._lists.clear()
        for table in self._tables.values():
            table.oldest = self.version
            table.versions.clear()
            table.changes.clear()

    def _uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._chance.getrandbits(128), version=4)

    def _table(self, resource: Resource[Any]) -> _Table:
        return self._tables.setdefault(resource.plural, _Table())

    def _page(self, version: int, items: list[Stored], start: int, limit: int) -> Page:
        end = start + limit if limit else len(items)
        page, rest = tuple(items[start:end]), len(items) - end
        if rest <= 0:
            return Page(page, version, "", 0)
        token = self._uuid().hex
        self._lists[token] = (version, items, end)
        if len(self._lists) > LISTS:
            self._lists.popitem(last=False)
        return Page(page, version, token, rest)

    def _check(self, resource: Resource[Any], old: Object | None, new: Object) -> None:
        found = rules.faults(resource, old, new)
        if found:
            texts = "; ".join(f"{one.field}: {one.message}" for one in found)
            raise ApiError(422, "Invalid", f"{resource.kind} is invalid: {texts}", tuple(found))

    def _write(self, resource: Resource[Any], key: Key, old: Stored | None, new: Object) -> Stored:
        stored = self._stored(new)
        table = self._table(resource)
        if old is None:
            bisect.insort(table.keys, key)
        table.objects[key] = stored
        self._note(resource, Change(stored.version, old, stored, stored))
        return stored

    def _remove(self, resource: Resource[Any], key: Key, last: Object) -> Stored:
        stored = self._stored(last)
        table = self._table(resource)
        old = table.objects.pop(key)
        del table.keys[bisect.bisect_left(table.keys, key)]
        self._note(resource, Change(stored.version, old, None, stored))
        return stored

    def _stored(self, body: Object) -> Stored:
        self.version += 1
        meta = {**body["metadata"], "resourceVersion": str(self.version)}
        body = {**body, "metadata": meta}
        return Stored(meta.get("namespace", ""), self.version, msgspec.json.encode(body))

    def _note(self, resource: Resource[Any], change: Change) -> None:
        table = self._table(resource)
        table.versions.append(change.version)
        table.changes.append(change)
        if len(table.versions) > self._history:
            half = self._history // 2
            table.oldest = table.versions[half - 1]
            del table.versions[:half], table.changes[:half]
        for listener in self._listeners.get(resource.plural, ()):
            listener()


def _key(body: Object) -> Key:
    meta = body["metadata"]
    return meta.get("namespace", ""), meta["name"]


def _seconds(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
