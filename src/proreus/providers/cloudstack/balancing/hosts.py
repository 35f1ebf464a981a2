"""Finds the machines of hosts; many Services that are ensured at once ask for them once."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from proreus.providers.cloudstack.api import Described
from proreus.providers.cloudstack.instances import Machines

FRESH: Final = 10.0
"""Seconds for which an answer about a machine counts."""


class Hosts:
    """A short memory of machines."""

    def __init__(self, machines: Machines) -> None:
        """Keep how to read machines."""
        self._machines = machines
        self._known: dict[str, tuple[float, Described | None]] = {}
        self._turn = asyncio.Lock()

    async def find(self, ids: Collection[str]) -> Mapping[str, Described | None]:
        """Return machines by id; None for those that are gone.

        Raises:
            CloudError: CloudStack does not tell.
        """
        async with self._turn:
            now = asyncio.get_running_loop().time()
            self._known = {
                id_: known for id_, known in self._known.items() if now - known[0] < FRESH
            }
            if not self._known.keys() >= set(ids):
                found = await self._machines.by_id(ids)
                self._known |= {id_: (now, one) for id_, one in found.items()}
            return {id_: self._known[id_][1] for id_ in ids}

    def forget(self) -> None:
        """Forget all machines, after one of them turned out to be gone."""
        self._known.clear()
