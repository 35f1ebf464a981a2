"""Guard the capability that names clusters: what it answers is printed as it is."""

from collections.abc import Sequence
from typing import Final

from proreus.cloudprovider import Clusters
from proreus.containment.answers import Verb
from proreus.containment.guard import Guard

SECONDS: Final = 50.0
"""Seconds for an answer."""


class GuardedClusters:
    """A guard of `Clusters`: every name and address is one line of text."""

    def __init__(self, clusters: Clusters, guard: Guard) -> None:
        """Guard `clusters`."""
        self._clusters = clusters
        self._list = Verb(guard, "list_clusters", seconds=SECONDS)
        self._master = Verb(guard, "master", seconds=SECONDS)

    async def list(self) -> Sequence[str]:
        """Call the provider's `list`, and check each name.

        Raises:
            CloudError: The call failed, or its answer is no list of names.
        """
        answer = await self._list.call(self._clusters.list)
        if isinstance(answer, str | bytes) or not isinstance(answer, Sequence):
            raise self._list.wrong(f"answered with a {type(answer).__name__}; it must be a list")
        return [_line(self._list, name) for name in answer]

    async def master(self, name: str) -> str:
        """Call the provider's `master`, and check the address.

        Raises:
            CloudError: The call failed, or its answer is no address.
        """
        return _line(self._master, await self._master.call(lambda: self._clusters.master(name)))


def _line(verb: Verb, answer: object) -> str:
    """Return a text without characters that a terminal would obey."""
    if isinstance(answer, str) and answer and answer.isprintable():
        return answer
    raise verb.wrong(f"gave an invalid answer: {answer!a:.100} is not a line of text")
