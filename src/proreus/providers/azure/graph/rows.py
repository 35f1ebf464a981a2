"""Read the rows of Azure Resource Graph, as fast as its quota lets them be read."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.instances import Instance
from proreus.cloudprovider.paging import pages
from proreus.kube.objects import Node
from proreus.providers.azure import operations
from proreus.providers.azure.api import Arm, Resource
from proreus.providers.azure.graph import plan
from proreus.providers.azure.ids import MachineId

log = logging.getLogger(__name__)

_FOR_OPERATORS: Final = logging.INFO - 2
"""The level of what the log shows with `-v=2`."""
KEPT: Final = 60.0
"""Seconds for which rows serve further batches: a round of all nodes is several."""
PAUSE: Final = 60.0
"""Seconds for which the graph is not asked after it has failed."""
PATIENCE: Final = 15.0
"""Seconds for all rows of a batch, with what the quota asks to wait."""


class _Known(msgspec.Struct, frozen=True):
    at: float
    sets: frozenset[str]
    machines: Mapping[str, Instance]


class Graph:
    """The graph's word about machines of scale sets; where it has none, nothing is confirmed."""

    def __init__(self, arm: Arm) -> None:
        """Keep the client of Azure; ask nothing yet."""
        self._arm = arm
        self._turn = asyncio.Lock()
        self._known: list[_Known] = []
        self._not_before: float | None = None
        self._resumes = 0.0

    async def confirmed(self, wanted: Sequence[tuple[Node, MachineId]]) -> Collection[str]:
        """Return the names of those Nodes of which the rows say what they say themselves.

        Args:
            wanted: The Nodes of a batch, with the machines that their provider ids name.
        """
        sets = plan.sets_of(id_ for _, id_ in wanted)
        machines = await self._machines(sets) if sets else {}
        found = [
            node.metadata.name
            for node, id_ in wanted
            if (machine := machines.get(id_.resource)) and plan.is_same(node, machine)
        ]
        if sets:
            text = "Azure Resource Graph confirms %d of %d nodes"
            log.log(_FOR_OPERATORS, text, len(found), len(wanted))
        return found

    async def _machines(self, sets: Collection[str]) -> Mapping[str, Instance]:
        """Return the machines of scale sets by their ids, as far as the graph tells."""
        async with self._turn:
            now = self._arm.context.uptime()
            self._known = [one for one in self._known if now - one.at < KEPT]
            missing = frozenset(sets).difference(*(one.sets for one in self._known))
            is_open = self._not_before is None or now >= self._not_before
            if len(missing) >= plan.SETS and is_open:
                try:
                    async with asyncio.timeout(PATIENCE):
                        found = await self._read(missing)
                except (CloudError, TimeoutError) as error:
                    self._pause(error)
                else:
                    self._known.append(_Known(now, missing, found))
            return {id_: one for known in self._known for id_, one in known.machines.items()}

    def _pause(self, error: Exception) -> None:
        self._not_before = self._arm.context.uptime() + PAUSE
        why = str(error) or f"no answer in {PATIENCE:g} s"
        log.info("All nodes are looked up without Azure Resource Graph: %s", why)

    async def _read(self, sets: Collection[str]) -> dict[str, Instance]:
        """Read the rows of scale sets.

        Raises:
            CloudError: One of the queries was not answered.
        """
        machines = await self._rows(plan.machines_query(sets))
        interfaces = await self._rows(plan.interfaces_query(sets))
        is_public = plan.has_public(interfaces)
        addresses = await self._rows(plan.addresses_query(sets)) if is_public else []
        return plan.instances(machines, interfaces, addresses)

    async def _rows(self, query: str) -> list[Resource]:
        """Return the rows of a query, from all its pages; wait where the quota is used up.

        Raises:
            CloudError: A page could not be read.
        """
        loop = asyncio.get_running_loop()

        async def page(token: str) -> tuple[list[Resource], str]:
            await asyncio.sleep(self._resumes - loop.time())
            found = await self._arm.query(query, token)
            self._resumes = loop.time() + found.wait
            return found.rows, found.token

        return await pages(operations.GRAPH_QUERY.name, page)
