"""Doubt that a resource is gone because one answer of Azure says so.

What is written whole would lose what the write does not name, if it is there all the same. Azure
Resource Manager copies what it knows between regions, so that another region may answer 404 for a
while.
"""

from proreus.cloudprovider.waits import LONG, Looks


class Absences:
    """A memory of the resources that were there, and since when they are missing."""

    def __init__(self, confirm: float) -> None:
        """Begin with none.

        Args:
            confirm: Seconds for which Azure must say that a resource is gone which was there.
        """
        self._confirm = confirm
        self._there: set[str] = set()
        self._missing = Looks(LONG)

    def shown(self, name: str) -> None:
        """Note that a resource is there, or may be: a write has had no clear answer."""
        self._there.add(name)
        self._missing.forget(name)

    def deleted(self, name: str) -> None:
        """Note that a resource is gone, since it was deleted here."""
        self._there.discard(name)

    def doubt(self, name: str, now: float, *, is_known: bool = False) -> float:
        """Return the seconds for which a resource that is missing now may be there all the same.

        Args:
            name: The name of the resource.
            now: The time in seconds, on any clock that only goes forward.
            is_known: Whether anything else tells that it was there.
        """
        if name not in self._there and not is_known:
            return 0.0
        return max(self._confirm - (now - self._missing.note(name, now)), 0.0)
