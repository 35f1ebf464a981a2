"""Read instances: one by one where that is cheaper, else by pages of all zones of the project."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.lookups import attempt
from proreus.providers.gce.api import Api
from proreus.providers.gce.machines import Described, node_tag
from proreus.providers.gce.names import Machine, instance_path, machine

SINGLES: Final = 4
"""Instances that are read one by one rather than by one page of a list, which costs more."""
CONCURRENCY: Final = 10


class Reader:
    """Reads instances of a project."""

    def __init__(self, api: Api, project: str) -> None:
        """Keep the client of Google."""
        self._api = api
        self._project = project
        self._pages = 1
        self._slots = asyncio.Semaphore(CONCURRENCY)
        self.tags: dict[Machine, str] = {}
        """The tag by which firewall rules name each instance, as it was read last."""

    async def by_key(
        self, keys: Collection[Machine]
    ) -> Mapping[Machine, Described | CloudError | None]:
        """Read instances by zone and name; None stands for one that Google says is not there.

        A list may leave out what is there: a zone that is down, an instance just made. So absence
        is what Google says of that very instance.

        Raises:
            CloudError: The list could not be had.
        """
        found: dict[Machine, Described | CloudError | None] = {}
        if len(keys) > SINGLES * self._pages:
            found.update({key: one for key, one in (await self._all()).items() if key in keys})
        rest = sorted(set(keys) - set(found))
        answers = await asyncio.gather(*(attempt(self._one(key)) for key in rest))
        return found | dict(zip(rest, answers, strict=True))

    async def by_name(
        self, names: Collection[str], zones: Collection[str]
    ) -> Mapping[str, list[Described] | CloudError]:
        """Read instances by name, in all these zones.

        Raises:
            CloudError: The list could not be had.
        """
        found: dict[str, list[Described] | CloudError] = {}
        if len(names) * len(zones) > SINGLES * self._pages:
            for key, one in (await self._all()).items():
                if key.name in names and key.zone in zones:
                    listed = found.setdefault(key.name, [])
                    if isinstance(listed, list):
                        listed.append(one)
        rest = sorted(set(names) - set(found))
        answers = await asyncio.gather(*(attempt(self._in_zones(name, zones)) for name in rest))
        return found | dict(zip(rest, answers, strict=True))

    async def tags_of(self, keys: Iterable[Machine]) -> Mapping[Machine, str | CloudError]:
        """Return the tag by which firewall rules name each instance; "" for one without.

        Those that were read for other reasons are not read again.
        """
        every = set(keys)
        new = every - self.tags.keys()
        read = await self.by_key(new) if new else {}
        failed: dict[Machine, str | CloudError] = {
            key: one for key, one in read.items() if isinstance(one, CloudError)
        }
        return {**{key: self.tags.get(key, "") for key in every}, **failed}

    async def _all(self) -> dict[Machine, Described]:
        path = f"projects/{self._project}/aggregated/instances"
        scopes, self._pages = await self._api.aggregated("instances.aggregatedList", path)
        every = (
            msgspec.json.decode(one, type=Described) for scope in scopes for one in scope.instances
        )
        found = {one.key: one for one in every}
        # An instance that is gone may come back with other tags, under the same name.
        self.tags = {key: node_tag(one) for key, one in found.items()}
        return found

    async def _in_zones(self, name: str, zones: Collection[str]) -> list[Described]:
        keys = [machine(zone, name) for zone in sorted(zones)]
        found = await asyncio.gather(*(self._one(key) for key in keys))
        return [one for one in found if one is not None]

    async def _one(self, key: Machine) -> Described | None:
        async with self._slots:
            path = instance_path(self._project, key)
            found = await self._api.find("instances.get", path, Described)
        if found is None:
            self.tags.pop(key, None)
        else:
            self.tags[key] = node_tag(found)
        return found
