"""What tests give a provider in the place of the framework: events, caches and the time."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from proreus.kube.objects import KubeObject
from proreus.kube.objects import key as key_of
from proreus.runtime.uptime import uptime


class Events:
    """Events as reason and message."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []

    def event(self, obj: KubeObject, type_: str, reason: str, message: str, /) -> None:
        self.seen.append((reason, message))


class Objects:
    """A lister over what the test puts in."""

    def __init__(self, objects: Iterable[KubeObject] = ()) -> None:
        self.by_key = {key_of(one): one for one in objects}

    def get(self, key: str) -> KubeObject | None:
        return self.by_key.get(key)

    def all(self) -> Iterable[KubeObject]:
        return tuple(self.by_key.values())

    def by(self, index: str, value: str) -> Iterable[KubeObject]:
        return ()


class Clock:
    """The time, what a test adds to it, and by how much the wall clock is wrong."""

    def __init__(self) -> None:
        self.ahead = timedelta()
        self.wrong = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead + self.wrong

    def uptime(self) -> float:
        return uptime() + self.ahead.total_seconds()
