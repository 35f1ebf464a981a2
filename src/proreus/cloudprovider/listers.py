"""The caches of Kubernetes objects that a provider may read."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

Object_co = TypeVar("Object_co", covariant=True)


class Lister(Protocol[Object_co]):
    """A read-only view of the objects in the cache."""

    def get(self, key: str) -> Object_co | None:
        """Return the object `namespace/name` (or `name`), or None."""

    def all(self) -> Iterable[Object_co]:
        """Return every object."""

    def by(self, index: str, value: str) -> Iterable[Object_co]:
        """Return the objects that an index holds under a value."""
