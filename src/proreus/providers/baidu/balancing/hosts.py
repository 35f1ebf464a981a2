"""Finds the machines of hosts; many Services that are ensured at once ask for them once."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from proreus.cloudprovider.errors import CloudError
from proreus.providers.baidu.api import Described
from proreus.providers.baidu.instances import Machines

FRESH: Final = 10.0
"""Seconds for which an answer about a machine counts."""

Known = Described | CloudError | None
"""A machine; None for one that is gone, or why nobody knows."""


class Hosts:
    """A short memory of machines."""

    def __init__(self, machines: Machines) -> None:
        """Keep how to read machines."""
        self._machines = machines
        self._known: dict[str, tuple[float, Known]] = {}
        self._turn = asyncio.Lock()

    async def find(self, ids: Collection[str]) -> Mapping[str, Known]:
        """Return machines by id; None for those that are gone.

        Raises:
            CloudError: The cloud does not tell.
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
