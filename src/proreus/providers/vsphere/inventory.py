"""Read the virtual machines of one vCenter: all of them once, then only what has changed.

A filter of the property collector stands on views of the datacenters. Whenever somebody wants to
know, the collector is asked for the changes since the last answer, without waiting for any; so what
is known is as new as the question, and costs one call, whatever the number of machines.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec

from proreus.cloudprovider.errors import CallTimeout, CloudError
from proreus.cloudprovider.lookups import each
from proreus.cloudprovider.refused import Refused
from proreus.providers.vsphere import soap
from proreus.providers.vsphere.datastores import STORE_PATHS, Datastore, datastore
from proreus.providers.vsphere.filters import Filter, views_of
from proreus.providers.vsphere.machines import (
    PATHS,
    Machine,
    Proof,
    Snapshot,
    is_unreadable,
    machine,
)
from proreus.providers.vsphere.soap import Ref
from proreus.providers.vsphere.updates import Objects
from proreus.providers.vsphere.vcenter import Client, Session, collected, is_ended

PLACES: Final = ("Datacenter", "Folder", "ComputeResource", "HostSystem", "ResourcePool")
"""Types of the objects between a machine and the root, each with its subtypes."""
RENEWAL: Final = 1800.0
"""Seconds after which all is read anew, should a change ever have been lost."""

_MACHINE: Final = "VirtualMachine"
_IDENTITY: Final = ("name", "config.uuid", "runtime.connectionState")
_AT_ONCE: Final = 4
_VOLUMES: Final = Ref("CnsVolumeManager", "cns-volume-manager")


class _Watch(msgspec.Struct):
    """A filter and what it shows.

    `is_sound` is False as long as an answer is missing: then some change may be lost.
    """

    filter: Filter
    begun: float
    snapshot: Snapshot
    is_sound: bool = False


class Inventory:
    """The inventory of one vCenter."""

    def __init__(self, client: Client) -> None:
        """Keep the vCenter's client; ask nothing yet."""
        self.client = client
        self.name = client.vcenter.name
        self._turn = asyncio.Lock()
        self._watch: _Watch | None = None

    async def current(self) -> Snapshot:
        """Return what the vCenter shows now.

        Raises:
            CloudError: The vCenter gives no usable answer.
        """
        async with self._turn:
            return await self.client.in_session(self._current)

    async def prove(self, uuids: Collection[str], *, by_listing: bool = True) -> Proof:
        """Ask about UUIDs that `current` lacks in two other ways: a listing, and an index.

        Args:
            uuids: The UUIDs.
            by_listing: Whether the listing is asked, too; else the index alone.

        Raises:
            CloudError: The listing could not be read.
        """
        machines = await self.client.in_session(self._listed) if by_listing else ()
        missed = frozenset(uuids) & {one.uuid for one in machines}
        if missed:
            async with self._turn:
                if self._watch is not None:
                    self._watch.is_sound = False  # it has lost something: read all anew
        answers = await each(sorted(uuids), lambda uuid: uuid, self.indexed, _AT_ONCE)
        failed = {uuid: one for uuid, one in answers.items() if isinstance(one, CloudError)}
        found = {uuid: one for uuid, one in answers.items() if not isinstance(one, CloudError)}
        unreadable = sorted(filter(is_unreadable, machines), key=lambda one: (one.name, one.ref))
        return Proof(missed, found, failed, tuple(unreadable))

    async def indexed(self, uuid: str) -> tuple[Ref, ...]:
        """Return the machines that the index of the whole vCenter has for a BIOS UUID.

        Raises:
            CloudError: The vCenter gives no usable answer.
        """

        async def work(session: Session) -> tuple[Ref, ...]:
            parameters = {"uuid": uuid, "vmSearch": True, "instanceUuid": False}
            found = await self.client.call(session, session.index, "FindAllByUuid", parameters)
            return tuple(map(soap.reference, found))

        return await self.client.in_session(work)

    async def uuid_of(self, ref: Ref) -> str | None:
        """Read the BIOS UUID of one machine; None if the vCenter says that there is no such object.

        Raises:
            CloudError: The vCenter gives no usable answer, such as for want of a right.
        """
        specs = {
            "propSet": {"type": _MACHINE, "all": False, "pathSet": ["config.uuid"]},
            "objectSet": {"obj": ref, "skip": False},
        }
        try:
            found = await self.client.in_session(lambda one: self.client.retrieve(one, specs))
        except Refused as error:
            if error.is_absence:
                return None
            raise
        return "".join(machine(ref, properties).uuid for ref, properties in found)

    async def datastores(self) -> list[Datastore]:
        """Read the datastores of the datacenters, with the hosts that mount them.

        Raises:
            CloudError: The vCenter gives no usable answer.
        """
        found = await self.client.in_session(lambda one: self._read(one, "Datastore", STORE_PATHS))
        return [datastore(ref, properties) for ref, properties in found]

    async def datastore_of(self, volume: str) -> str | None:
        """Return the URL of the datastore with a volume of the CSI driver; None if there is none.

        Raises:
            CloudError: The vCenter gives no usable answer.
        """

        async def work(session: Session) -> str | None:
            # Filters of more have types of their own, so that of this one is said.
            filter_ = soap.Typed("CnsQueryFilter", {"volumeIds": {"id": volume}})
            returned = await self.client.call(
                session, _VOLUMES, "CnsQueryVolume", {"filter": filter_}, service=soap.CNS
            )
            for result in returned:
                for found in soap.children(result, "volumes"):
                    return soap.text_of(found, "datastoreUrl") or None
            return None

        return await self.client.in_session(work)

    async def _current(self, session: Session) -> Snapshot:
        watch, now = self._watch, asyncio.get_running_loop().time()
        if watch is not None and watch.filter.session == session:
            if watch.is_sound and now - watch.begun < RENEWAL:
                try:
                    return await self._catch_up(watch)
                except CloudError as error:
                    if isinstance(error, CallTimeout) or is_ended(error):
                        raise
                    # The filter is gone, or tells what it should not.
                    await self._end(watch)
            else:
                await self._end(watch)
        paths = {_MACHINE: PATHS, **dict.fromkeys(PLACES, ("parent",))}
        made = Filter(self.client, session, (*PATHS, "parent"))
        watch = self._watch = _Watch(made, now, Snapshot({}, {}))
        await made.begin(paths, PLACES)
        return await self._catch_up(watch)

    async def _catch_up(self, watch: _Watch) -> Snapshot:
        """Read the changes since the last answer; return the inventory as it is now."""
        watch.is_sound = False
        if await watch.filter.read() or not watch.snapshot.machines:
            watch.snapshot = _snapshot(watch.filter.objects)
        watch.is_sound = True
        return watch.snapshot

    async def _end(self, watch: _Watch) -> None:
        self._watch = None
        await watch.filter.end()

    async def _listed(self, session: Session) -> list[Machine]:
        """Read all machines anew, without the filter; only the properties that identify them."""
        found = await self._read(session, _MACHINE, _IDENTITY)
        return [machine(ref, properties) for ref, properties in found]

    async def _read(
        self, session: Session, kind: str, paths: Sequence[str]
    ) -> list[tuple[Ref, dict[str, Any]]]:
        """Read properties of all objects of a type in the datacenters."""
        views = await views_of(self.client, session, kind)
        try:
            return await self.client.retrieve(session, collected({kind: paths}, views))
        finally:
            for view in views:
                await self.client.call(session, view, "DestroyView", {})


def _snapshot(objects: Objects) -> Snapshot:
    parents: dict[Ref, Ref] = {}
    machines: dict[Ref, Machine] = {}
    for ref, properties in objects.of.items():
        above = properties.get("parent") or properties.get("parentVApp")
        if isinstance(above, Ref):
            parents[ref] = above
        if ref.type == _MACHINE:
            machines[ref] = machine(ref, properties)
    return Snapshot(machines, parents)
