"""Read the virtual machines of one vCenter: all of them once, then only what has changed.

A filter of the property collector stands on views of the datacenters. Whenever somebody wants to
know, the collector is asked for the changes since the last answer, without waiting for any; so what
is known is as new as the question, and costs one call, whatever the number of machines.
"""

import asyncio
import contextlib
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import msgspec

from proreus.cloudprovider.errors import CallTimeout, CloudError, ConfigError
from proreus.cloudprovider.lookups import each
from proreus.cloudprovider.refused import Refused
from proreus.providers.vsphere import soap
from proreus.providers.vsphere.datastores import STORE_PATHS, Datastore, datastore
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
from proreus.providers.vsphere.vcenter import PAGE, Client, Session, collected, is_ended

PLACES: Final = ("Datacenter", "Folder", "ComputeResource", "HostSystem", "ResourcePool")
"""Types of the objects between a machine and the root, each with its subtypes."""
RENEWAL: Final = 1800.0
"""Seconds after which all is read anew, should a change ever have been lost."""

_MACHINE: Final = "VirtualMachine"
_IDENTITY: Final = ("name", "config.uuid", "runtime.connectionState")
_AT_ONCE: Final = 4
_VOLUMES: Final = Ref("CnsVolumeManager", "cns-volume-manager")


class _Watch(msgspec.Struct):
    """A filter of a collector within one session, and the objects that it has reported.

    `is_sound` is False as long as an answer is missing: then some change may be lost.
    """

    session: Session
    begun: float
    collector: Ref
    views: list[Ref]
    objects: Objects
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
            CloudError: It does not tell.
        """
        async with self._turn:
            return await self.client.in_session(self._current)

    async def prove(self, uuids: Collection[str]) -> Proof:
        """Ask about UUIDs that `current` lacks in two other ways: a listing, and an index.

        Raises:
            CloudError: The listing could not be had.
        """
        machines = await self.client.in_session(self._listed)
        missed = frozenset(uuids) & {one.uuid for one in machines}
        if missed:
            async with self._turn:
                if self._watch is not None:
                    self._watch.is_sound = False  # it has lost something: read all anew
        answers = await each(sorted(uuids), lambda uuid: uuid, self._indexed, _AT_ONCE)
        failed = {uuid: one for uuid, one in answers.items() if isinstance(one, CloudError)}
        found = {uuid: one for uuid, one in answers.items() if not isinstance(one, CloudError)}
        unreadable = sorted(one.name for one in machines if is_unreadable(one))
        return Proof(missed, found, failed, tuple(unreadable))

    async def uuid_of(self, ref: Ref) -> str | None:
        """Read the BIOS UUID of one machine; None if the vCenter says that there is no such object.

        Raises:
            CloudError: It does not tell, such as for want of a right.
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
        return "".join(str(properties.get("config.uuid", "")).lower() for _, properties in found)

    async def datastores(self) -> list[Datastore]:
        """Read the datastores of the datacenters, with the hosts that mount them.

        Raises:
            CloudError: The vCenter does not tell.
        """
        found = await self.client.in_session(lambda one: self._read(one, "Datastore", STORE_PATHS))
        return [datastore(ref, properties) for ref, properties in found]

    async def datastore_of(self, volume: str) -> str | None:
        """Return the URL of the datastore with a volume of the CSI driver; None without such a one.

        Raises:
            CloudError: The vCenter does not tell.
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
        if watch is not None and watch.session == session:
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
        return await self._catch_up(await self._begin(session, now))

    async def _begin(self, session: Session, now: float) -> _Watch:
        """Create a filter, which has reported nothing yet."""
        call = self.client.call
        for made in await call(session, session.collector, "CreatePropertyCollector", {}):
            collector = soap.reference(made)
            break
        else:
            raise CloudError("vcenter.CreatePropertyCollector: the answer has no collector")
        watch = self._watch = _Watch(
            session, now, collector, [], Objects((*PATHS, "parent")), Snapshot({}, {})
        )
        watch.views += await self._views(session)
        watch.views.append(await self._view(session, session.root, PLACES))
        paths = {_MACHINE: PATHS, **dict.fromkeys(PLACES, ("parent",))}
        filter_ = {"spec": collected(paths, watch.views), "partialUpdates": False}
        await call(session, collector, "CreateFilter", filter_)
        return watch

    async def _catch_up(self, watch: _Watch) -> Snapshot:
        """Read the changes since the last answer; return the inventory as it is now."""
        watch.is_sound = False
        options = {"maxWaitSeconds": 0, "maxObjectUpdates": PAGE}
        while True:
            parameters = {"version": watch.objects.version, "options": options}
            returned = await self.client.call(
                watch.session, watch.collector, "WaitForUpdatesEx", parameters
            )
            watch.objects.apply(returned)
            if not watch.objects.is_partial:
                break
        if returned or not watch.snapshot.machines:
            watch.snapshot = _snapshot(watch.objects)
        watch.is_sound = True
        return watch.snapshot

    async def _end(self, watch: _Watch) -> None:
        """Destroy a filter in the vCenter; one that cannot be destroyed ends with the session."""
        self._watch = None
        with contextlib.suppress(CloudError):
            await self.client.call(watch.session, watch.collector, "DestroyPropertyCollector", {})
            for view in watch.views:
                await self.client.call(watch.session, view, "DestroyView", {})

    async def _views(self, session: Session, kind: str = _MACHINE) -> tuple[Ref, ...]:
        """Make a view of the objects of a type in each datacenter."""
        datacenters = self.client.vcenter.datacenters
        roots = [await self._datacenter(session, one) for one in datacenters] or [session.root]
        return tuple([await self._view(session, root, (kind,)) for root in roots])

    async def _view(self, session: Session, root: Ref, kinds: Iterable[str]) -> Ref:
        parameters = {"container": root, "type": list(kinds), "recursive": True}
        for made in await self.client.call(
            session, session.views, "CreateContainerView", parameters
        ):
            return soap.reference(made)
        raise CloudError("vcenter.CreateContainerView: the answer has no view")

    async def _datacenter(self, session: Session, text: str) -> Ref:
        """Find a datacenter by its id, such as Datacenter:datacenter-3, or its path.

        Raises:
            ConfigError: There is none.
        """
        kind, colon, id_ = text.partition(":")
        if colon and kind == "Datacenter":
            return Ref(kind, id_)
        for found in await self.client.call(
            session, session.index, "FindByInventoryPath", {"inventoryPath": text.strip("/")}
        ):
            ref = soap.reference(found)
            if ref.type == "Datacenter":
                return ref
        problem = (
            f"datacenters: vCenter {self.name} shows no datacenter {text!r}: give its name, its"
            " whole path if it is in a folder, and its user the right to read it"
        )
        raise ConfigError((problem,))

    async def _listed(self, session: Session) -> list[Machine]:
        """Read all machines anew, without the filter; only the properties that identify them."""
        found = await self._read(session, _MACHINE, _IDENTITY)
        return [machine(ref, properties) for ref, properties in found]

    async def _read(
        self, session: Session, kind: str, paths: Sequence[str]
    ) -> list[tuple[Ref, dict[str, Any]]]:
        """Read properties of all objects of a type in the datacenters."""
        views = await self._views(session, kind)
        try:
            return await self.client.retrieve(session, collected({kind: paths}, views))
        finally:
            for view in views:
                await self.client.call(session, view, "DestroyView", {})

    async def _indexed(self, uuid: str) -> tuple[Ref, ...]:
        """Return the machines that the index of the whole vCenter has for a BIOS UUID."""

        async def work(session: Session) -> tuple[Ref, ...]:
            parameters = {"uuid": uuid, "vmSearch": True, "instanceUuid": False}
            found = await self.client.call(session, session.index, "FindAllByUuid", parameters)
            return tuple(map(soap.reference, found))

        return await self.client.in_session(work)


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
