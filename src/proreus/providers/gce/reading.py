"""Read instances: one by one where that is cheaper, else by pages of all zones of the project.

Absence is what Google says of that very instance, as far as the quota allows. Where a list lacks
more than a few, some of them are read one by one, as a sample; if Google has none of these, the
others are gone when one more list of all zones, which is whole or fails, lacks them too. Else a
look at many that are gone would take more requests than a minute's quota has, and no node of the
batch would get an answer.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from proreus.cloudprovider.errors import CloudError, RetryAfter
from proreus.cloudprovider.lookups import attempt
from proreus.cloudprovider.refused import Refused
from proreus.providers.gce.api import Api
from proreus.providers.gce.machines import Described, node_tag
from proreus.providers.gce.names import Machine, instance_path, machine

SINGLES: Final = 4
"""Instances that are read one by one rather than by one page of a list, which costs more."""
CONCURRENCY: Final = 10
SAMPLE: Final = 20
"""The most instances that one look reads one by one because a list lacks them."""
AGAIN: Final = 5.0
"""Seconds until a list that lacked what there is may have it."""


class _Listed(msgspec.Struct, frozen=True):
    """The instances of a list, and the zones that it lacks."""

    found: Mapping[Machine, Described]
    lacking: frozenset[str]


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

        A list may leave out what is there: a zone that is down, an instance just made.

        Raises:
            CloudError: The list could not be read.
        """
        if len(keys) <= SINGLES * self._pages:
            return await self._singly(keys)
        listed = await self._list()
        found = {key: one for key, one in listed.found.items() if key in keys}
        return {**found, **await self._lacking(set(keys) - found.keys())}

    async def by_id(
        self, ids: Collection[Machine]
    ) -> Mapping[Machine, Described | CloudError | None]:
        """Read instances by zone and id, which finds them under any name; None as in `by_key`."""
        if len(ids) <= SAMPLE:
            return await self._singly(ids)
        listed = await attempt(self._list, whole=True)
        if isinstance(listed, CloudError):
            return dict.fromkeys(ids, listed)
        known = {machine(one.key.zone, one.id): one for one in listed.found.values()}
        return {key: known.get(key) for key in ids}

    async def by_name(
        self, names: Collection[str], zones: Collection[str]
    ) -> Mapping[str, list[Described] | CloudError]:
        """Read instances by name, in all these zones.

        One that a list shows may be another cluster's, and the node's own just made, or in a zone
        that the list lacks: so what the list does not show is asked for as in `by_key`. While it
        lacks a zone, only there, since a second list would say nothing then.

        Raises:
            CloudError: The list could not be read.
        """
        keys = {name: [machine(zone, name) for zone in sorted(zones)] for name in names}
        listed, ask = _Listed({}, frozenset(zones)), self._singly
        if len(names) * len(zones) > SINGLES * self._pages:
            listed, ask = await self._list(), self._lacking
        known = {key: one for key, one in listed.found.items() if key.name in keys}
        left = {key for of_name in keys.values() for key in of_name if key not in known}
        if listed.lacking:
            there = {key.name for key in known}
            left = {key for key in left if key.zone in listed.lacking or key.name not in there}
        read = {**known, **await ask(left)}
        return {
            name: _one_of((key for key in of_name if key in read), read)
            for name, of_name in keys.items()
        }

    async def tags_of(self, keys: Iterable[Machine]) -> Mapping[Machine, str | CloudError]:
        """Return the tag by which firewall rules name each instance; "" for one without.

        Instances that were read for other reasons are not read again.
        """
        every = set(keys)
        # A list that is read meanwhile replaces what is known, and may lack whole zones.
        known = {key: self.tags[key] for key in every & self.tags.keys()}
        new = every - known.keys()
        read = await self.by_key(new) if new else {}
        return {**known, **{key: _tag_in(one) for key, one in read.items()}}

    async def nowhere(self, keys: Iterable[Machine], zones: Collection[str]) -> Mapping[str, str]:
        """Return the zones of instances that Google does not know, with its words.

        A kubelet can name any. One instance of each is asked for, unless one was read before.

        Args:
            keys: The instances.
            zones: The zones that are known.
        """
        known = {*zones, *(one.zone for one in self.tags)}
        doubtful = {key.zone: key for key in sorted(keys) if key.zone not in known}
        read = await self._singly(doubtful.values())
        return {
            key.zone: str(one)
            for key, one in read.items()
            if isinstance(one, Refused)
            if one.status == HTTPStatus.BAD_REQUEST and f"'{key.zone}'" in one.text
        }

    async def _lacking(
        self, keys: Collection[Machine]
    ) -> Mapping[Machine, Described | CloudError | None]:
        """Read instances that a list lacks: a sample one by one, the others by one more list."""
        sample, rest = sampled(keys, SAMPLE)
        read = await self._singly(sample)
        if not rest:
            return read
        why = doubt(read)
        again: _Listed | CloudError
        again = await attempt(self._list, whole=True) if why is None else why
        if isinstance(again, CloudError):
            return {**read, **dict.fromkeys(rest, again)}
        return {**read, **{key: again.found.get(key) for key in rest}}

    async def _singly(
        self, keys: Collection[Machine]
    ) -> Mapping[Machine, Described | CloudError | None]:
        ordered = sorted(keys)
        answers = await asyncio.gather(*(attempt(self._one, key) for key in ordered))
        return dict(zip(ordered, answers, strict=True))

    async def _list(self, *, whole: bool = False) -> _Listed:
        """List the instances of all zones; if `whole`, it fails where a zone cannot be reached."""
        path = f"projects/{self._project}/aggregated/instances"
        listing = await self._api.aggregated("instances.aggregatedList", path, partial=not whole)
        self._pages = listing.pages
        every = (
            msgspec.json.decode(one, type=Described)
            for scope in listing.scopes
            for one in scope.instances
        )
        found = {one.key: one for one in every}
        # An instance that is gone may come back with other tags, under the same name.
        self.tags = {key: node_tag(one) for key, one in found.items()}
        return _Listed(found, listing.lacking)

    async def _one(self, key: Machine) -> Described | None:
        async with self._slots:
            path = instance_path(self._project, key)
            found = await self._api.find("instances.get", path, Described)
        if found is None:
            self.tags.pop(key, None)
        else:
            self.tags[key] = node_tag(found)
        return found


def sampled(keys: Collection[Machine], most: int) -> tuple[list[Machine], list[Machine]]:
    """Split keys into a sample, of all zones and sorts of names, and all others. Pure."""
    ordered = sorted(keys)
    step = -(-len(ordered) // most) or 1
    return ordered[::step], [key for index, key in enumerate(ordered) if index % step]


def doubt(sample: Mapping[Machine, Described | CloudError | None]) -> CloudError | None:
    """Return why a list proves no absence, by a sample of what it lacks; None if it does. Pure."""
    there = next((key for key, one in sample.items() if isinstance(one, Described)), None)
    if there is not None:
        why = f"the list of instances lacks {there}, which is there, so it may lack others, too"
        return RetryAfter(why, after=AGAIN)
    if any(one is None for one in sample.values()):
        return None
    return next((one for one in sample.values() if isinstance(one, CloudError)), None)


def _tag_in(answer: Described | CloudError | None) -> str | CloudError:
    """Return the tag of an instance, "" if it has none or is gone; an error as it is."""
    return node_tag(answer) if isinstance(answer, Described) else answer or ""


def _one_of(
    keys: Iterable[Machine], read: Mapping[Machine, Described | CloudError | None]
) -> list[Described] | CloudError:
    """Return what there is of a name in all zones; an error if one zone has no answer."""
    answers = [read[key] for key in keys]
    failed = next((one for one in answers if isinstance(one, CloudError)), None)
    return failed or [one for one in answers if isinstance(one, Described)]
