"""Keep the simulated cloud's state in memory, and write it to sqlite3 before each answer.

sqlite runs without fsync: what was committed survives the end of the process (`kill -9`), though
not of the machine. Recent versions of objects are kept in memory to answer stale reads.
"""

import itertools
import sqlite3
from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from proreus.testing.simulated.model import AnyPart, Instance, Volume

_Row = TypeVar("_Row", Instance, Volume, AnyPart)

Key = tuple[str, ...]
"""What objects are found by: `("name", NAME)`; parts also by `("tag", KEY, VALUE)` and
`("kind", KIND)`."""


def kind_key(kind: type[AnyPart]) -> Key:
    """Return the key of all parts of a kind."""
    return "kind", str(kind.__struct_config__.tag)


def instance_keys(instance: Instance) -> Iterator[Key]:
    """Return the keys of an instance."""
    yield "name", instance.name


def part_keys(part: AnyPart) -> Iterator[Key]:
    """Return the keys of a part."""
    yield "name", part.name
    yield kind_key(type(part))
    yield from (("tag", key, value) for key, value in part.tags.items())


class Table(Generic[_Row]):
    """The objects of one kind by id, with their recent past.

    `remember` is how long versions are kept for stale reads, in seconds.
    """

    def __init__(
        self,
        database: sqlite3.Connection,
        name: str,
        decoder: msgspec.json.Decoder[_Row],
        now: Callable[[], float],
        keys: Callable[[_Row], Iterable[Key]],
    ) -> None:
        """Load the table from the database; objects are found by their `keys`."""
        self.remember = 0.0
        self._database = database
        self._name = name
        self._now = now
        self._rows: dict[str, _Row] = {}
        self._keys: Callable[[_Row], Iterable[Key]] = keys
        self._by_key: defaultdict[Key, set[str]] = defaultdict(set)
        self._names: list[tuple[str, str]] = []  # with ids, sorted, for prefixes
        self._past: dict[str, list[tuple[float, _Row | None]]] = {}
        rows = database.execute("SELECT body FROM objects WHERE sort = ?", (name,))
        for (body,) in rows:
            row = decoder.decode(body)
            self._rows[row.id] = row
            self._index(row)

    def get(self, id_: str, *, lag: float = 0.0) -> _Row | None:
        """Return the object as it was `lag` seconds ago, or None."""
        if lag <= 0 or id_ not in self._past:
            return self._rows.get(id_)
        return self._at(id_, self._now() - lag)

    def all(self, *, lag: float = 0.0, only: Callable[[_Row], bool] = lambda _: True) -> list[_Row]:
        """Return every object that `only` lets through, by id, as it was `lag` seconds ago."""
        found: Iterator[_Row | None]
        if lag <= 0:
            found = iter(self._rows.values())
        else:
            ids = self._rows.keys() | self._past.keys()
            found = (self.get(id_, lag=lag) for id_ in ids)
        kept = (row for row in found if row is not None and only(row))
        return sorted(kept, key=lambda row: row.id)

    def keyed(self, *keys: Key, prefix: str = "", lag: float = 0.0) -> list[_Row]:
        """Return the objects with all the keys and a name that begins with `prefix`, by id.

        They are shown as they were `lag` seconds ago.
        """

        def fits(row: _Row) -> bool:
            return self._name_of(row).startswith(prefix) and {*keys} <= {*self._keys(row)}

        if lag > 0 and self._past:
            return self.all(lag=lag, only=fits)
        found = [self._by_key.get(key, set()) for key in keys]
        if prefix:
            found.append(self._named(prefix))
        if not found:
            return self.all()
        # The fewest first: what is in all of them is looked for in these.
        return [self._rows[id_] for id_ in sorted(set.intersection(*sorted(found, key=len)))]

    def put(self, rows: Iterable[_Row]) -> None:
        """Store the objects in one transaction."""
        rows = list(rows)
        values = [(self._name, row.id, msgspec.json.encode(row)) for row in rows]
        with self._database:
            self._database.executemany("INSERT OR REPLACE INTO objects VALUES (?, ?, ?)", values)
        self._forget()
        for row in rows:
            self._replace(row.id, row)

    def delete(self, id_: str) -> None:
        """Remove the object if it is there."""
        with self._database:
            self._database.execute(
                "DELETE FROM objects WHERE sort = ? AND id = ?", (self._name, id_)
            )
        self._forget()
        self._replace(id_, None)

    def _at(self, id_: str, when: float) -> _Row | None:
        seen: _Row | None = None
        for time, row in self._past[id_]:
            if time <= when:
                seen = row
        return seen

    def _replace(self, id_: str, new: _Row | None) -> None:
        old = self._rows.pop(id_, None)
        for key in () if old is None else self._keys(old):
            self._by_key[key].discard(id_)
            if not self._by_key[key]:
                del self._by_key[key]
        if old is not None:
            del self._names[bisect_left(self._names, (self._name_of(old), id_))]
        if new is not None:
            self._rows[id_] = new
            self._index(new)
        self._record(id_, old, new)

    def _name_of(self, row: _Row) -> str:
        return next((key[1] for key in self._keys(row) if key[0] == "name"), "")

    def _named(self, prefix: str) -> set[str]:
        first = bisect_left(self._names, (prefix, ""))
        following = map(self._names.__getitem__, range(first, len(self._names)))
        return {id_ for _, id_ in itertools.takewhile(lambda n: n[0].startswith(prefix), following)}

    def _index(self, row: _Row) -> None:
        insort(self._names, (self._name_of(row), row.id))
        for key in self._keys(row):
            self._by_key[key].add(row.id)

    def _forget(self) -> None:
        if not self._past:
            return
        limit = self._now() - self.remember
        self._past = {i: past for i, past in self._past.items() if past[-1][0] > limit}

    def _record(self, id_: str, old: _Row | None, new: _Row | None) -> None:
        if self.remember > 0:
            past = self._past.setdefault(id_, [(float("-inf"), old)])
            past.append((self._now(), new))


class Store:
    """The tables `instances`, `volumes` and `parts` of one state file."""

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        """Open the state file or make it."""
        self._database = sqlite3.connect(path)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = OFF")
        with self._database:
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS objects"
                " (sort TEXT, id TEXT, body BLOB, PRIMARY KEY (sort, id))"
            )
        self.instances: Table[Instance] = Table(
            self._database, "instances", msgspec.json.Decoder(Instance), now, instance_keys
        )
        self.volumes: Table[Volume] = Table(
            self._database, "volumes", msgspec.json.Decoder(Volume), now, lambda _: ()
        )
        self.parts: Table[AnyPart] = Table(
            self._database, "parts", msgspec.json.Decoder(AnyPart), now, part_keys
        )

    def remember(self, seconds: float) -> None:
        """Keep old versions for so many seconds, for stale reads."""
        self.instances.remember = self.parts.remember = seconds

    def close(self) -> None:
        """Close the file."""
        self._database.close()
