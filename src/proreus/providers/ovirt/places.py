"""Keep the names of clusters, data centers and instance types, which machines name by ids."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final
from xml.etree import ElementTree as ET

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.providers.ovirt.engine import Engine
from proreus.providers.ovirt.machines import names, parents

AGE: Final = 600.0
"""Seconds after which names are read anew."""
FRESH: Final = 10.0
"""The same in seconds, where an id is unknown."""


class Place(msgspec.Struct, frozen=True):
    """The names of a cluster and of its data center."""

    cluster: str
    data_center: str


class _Read(msgspec.Struct):
    """The names that were read, by id, and when."""

    places: Mapping[str, Place]
    types: Mapping[str, str]
    at: float

    def has(self, clusters: Collection[str], types: Collection[str]) -> bool:
        return set(clusters) <= set(self.places) and set(types) <= set(self.types)


class Places:
    """The names of one engine."""

    def __init__(self, engine: Engine) -> None:
        """Keep the engine's client; ask nothing yet."""
        self._engine = engine
        self._turn = asyncio.Lock()
        self._read: _Read | None = None

    async def known(
        self, clusters: Collection[str], types: Collection[str]
    ) -> tuple[Mapping[str, Place], Mapping[str, str]]:
        """Return the names of clusters with their data centers, and those of instance types.

        Args:
            clusters: The ids of clusters whose names are needed; unknown ones are looked up.
            types: The ids of instance types whose names are needed; unknown ones are looked up.

        Raises:
            CloudError: The names cannot be read, and were not known before.
        """
        async with self._turn:
            now, read = asyncio.get_running_loop().time(), self._read
            are_known = read is not None and read.has(clusters, types)
            if read is None or now - read.at >= (AGE if are_known else FRESH):
                try:
                    read = self._read = await self._renewed(now)
                except CloudError:
                    if read is None or not are_known:
                        raise
            return read.places, read.types

    async def _renewed(self, now: float) -> _Read:
        async def listed(name: str) -> ET.Element:
            return await self._engine.listed(name)

        clusters, centers, types = await asyncio.gather(
            listed("clusters.list"), listed("datacenters.list"), listed("instancetypes.list")
        )
        center_names = names(centers, "data_centers", "data_center")
        cluster_names, center_of = names(clusters, "clusters", "cluster"), parents(clusters)
        return _Read(
            {
                id_: Place(name, center_names.get(center_of[id_], ""))
                for id_, name in cluster_names.items()
            },
            names(types, "instance_types", "instance_type"),
            now,
        )
