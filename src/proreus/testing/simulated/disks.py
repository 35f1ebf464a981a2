"""Keep the simulated cloud's volumes: how they are read, and what the admin API makes."""

import random
import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from proreus.testing.simulated.model import ApiError, Settings, Volume
from proreus.testing.simulated.store import Table

_ID = re.compile(r"vol-[0-9a-f]{12}")


class Disks:
    """The volumes of the simulated cloud; `settings` is called anew each time."""

    def __init__(
        self, table: Table[Volume], settings: Callable[[], Settings], chance: random.Random
    ) -> None:
        """Keep the table; ids come from `chance`."""
        self._table = table
        self._settings = settings
        self._chance = chance

    def batch_get(self, ids: Sequence[str]) -> tuple[list[Volume], list[str]]:
        """Return the volumes found, and the ids not found."""
        limit = self._settings().batch_limit
        if len(ids) > limit:
            raise ApiError(400, "BadRequest", f"more than {limit} ids in one call")
        _check(ids)
        found = {id_: self._table.get(id_) for id_ in ids}
        there = [one for one in found.values() if one is not None]
        return there, [id_ for id_, one in found.items() if one is None]

    def create(self, volumes: Iterable[Volume]) -> list[Volume]:
        """Make volumes, filling in what was left empty."""
        made = [
            msgspec.structs.replace(
                one,
                id=one.id or f"vol-{self._chance.getrandbits(48):012x}",
                region=one.region or self._settings().region,
            )
            for one in volumes
        ]
        _check([one.id for one in made])
        self._table.put(made)
        return made


def _check(ids: Iterable[str]) -> None:
    bad = next((id_ for id_ in ids if not _ID.fullmatch(id_)), None)
    if bad is not None:
        raise ApiError(400, "BadRequest", f"malformed volume id {bad!r}")
