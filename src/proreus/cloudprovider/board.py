"""The notice board that the replicas of one manager share, leading or not."""

from collections.abc import Mapping
from typing import Protocol

import msgspec


class Notice(msgspec.Struct, frozen=True):
    """A replica's text on the board; `age` is the seconds since it was last seen to change.

    Of a text that is a JSON object, `proreus status` shows `addresses`, a list of those that are
    served by the replica, `more`, the number of others, and `at`, when it was written (Unix time).
    """

    text: str
    age: float


class Board(Protocol):
    """A board in the cluster on which each replica has one notice, under a name of its own.

    The board is read as it changes, so notices are known while the API server is away; their age
    tells.
    """

    async def post(self, name: str, text: str) -> None:
        """Put the notice `text` in the place of the one under `name`.

        Raises:
            CloudError: The API server did not take it, or has not said that it did.
        """

    def notices(self) -> Mapping[str, Notice]:
        """Return all notices that have been read, by name."""

    async def changed(self) -> None:
        """Wait until a notice has changed since the last call."""
