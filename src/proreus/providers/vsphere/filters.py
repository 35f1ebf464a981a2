"""Follow the properties of all objects of some types by a filter of a property collector."""

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from proreus.cloudprovider.errors import CloudError, ConfigError
from proreus.providers.vsphere import soap
from proreus.providers.vsphere.soap import Ref
from proreus.providers.vsphere.updates import Objects
from proreus.providers.vsphere.vcenter import PAGE, Client, Session, collected

_MACHINE: Final = "VirtualMachine"


class Filter:
    """A filter with a collector of its own, within one session.

    A collector answers one `WaitForUpdatesEx` at a time, so each reader has one; a session may wait
    in several.

    Attributes:
        session: The session in which the filter was made, and with which it ends.
        objects: The objects that the filter has reported.
    """

    def __init__(self, client: Client, session: Session, paths: Collection[str]) -> None:
        """Ask nothing yet; all of `paths` are the properties that will be reported."""
        self.session = session
        self.objects = Objects(paths)
        self._client = client
        self._collector: Ref | None = None
        self._views: list[Ref] = []

    async def begin(self, paths: Mapping[str, Sequence[str]], above: Collection[str] = ()) -> None:
        """Create the filter in the vCenter; it has reported nothing yet.

        Args:
            paths: The properties to report, by the type of the object.
            above: The types of objects to look for from the root on, and not only in the
                datacenters.

        Raises:
            CloudError: The vCenter refuses.
        """
        client, session = self._client, self.session
        for made in await client.call(session, session.collector, "CreatePropertyCollector", {}):
            self._collector = soap.reference(made)
            break
        else:
            raise CloudError("vcenter.CreatePropertyCollector: the answer has no collector")
        self._views += await views_of(client, session)
        if above:
            self._views.append(await _view(client, session, session.root, above))
        spec = {"spec": collected(paths, self._views), "partialUpdates": False}
        await client.call(session, self._collector, "CreateFilter", spec)

    async def read(self, wait: int = 0) -> set[Ref]:
        """Read the changes since the last answer; return what has changed.

        Args:
            wait: Seconds that the vCenter may wait for a change.

        Raises:
            CloudError: An answer is missing, or cannot be understood: changes may be lost.
        """
        if self._collector is None:
            raise CloudError("vcenter.WaitForUpdatesEx: the filter has not begun")
        changed: set[Ref] = set()
        deadline = wait + self._client.deadline if wait else None
        while True:
            options = {"maxWaitSeconds": wait, "maxObjectUpdates": PAGE}
            parameters = {"version": self.objects.version, "options": options}
            returned = await self._client.call(
                self.session, self._collector, "WaitForUpdatesEx", parameters, deadline=deadline
            )
            changed |= self.objects.apply(returned)
            if not self.objects.is_partial:
                return changed

    async def end(self) -> None:
        """Destroy the filter in the vCenter; if that fails, it ends with the session."""
        with contextlib.suppress(CloudError):
            if self._collector is not None:
                await self._client.call(
                    self.session, self._collector, "DestroyPropertyCollector", {}
                )
            for view in self._views:
                await self._client.call(self.session, view, "DestroyView", {})


async def views_of(client: Client, session: Session, kind: str = _MACHINE) -> tuple[Ref, ...]:
    """Make a view of the objects of a type in each datacenter.

    Raises:
        CloudError: The vCenter refuses.
        ConfigError: The vCenter shows no datacenter of such a name.
    """
    datacenters = client.vcenter.datacenters
    roots = [await _datacenter(client, session, one) for one in datacenters] or [session.root]
    return tuple([await _view(client, session, root, (kind,)) for root in roots])


async def _view(client: Client, session: Session, root: Ref, kinds: Iterable[str]) -> Ref:
    parameters = {"container": root, "type": list(kinds), "recursive": True}
    for made in await client.call(session, session.views, "CreateContainerView", parameters):
        return soap.reference(made)
    raise CloudError("vcenter.CreateContainerView: the answer has no view")


async def _datacenter(client: Client, session: Session, text: str) -> Ref:
    """Find a datacenter by its id, such as Datacenter:datacenter-3, or its path.

    Raises:
        ConfigError: There is no such datacenter.
    """
    kind, colon, id_ = text.partition(":")
    if colon and kind == "Datacenter":
        return Ref(kind, id_)
    for found in await client.call(
        session, session.index, "FindByInventoryPath", {"inventoryPath": text.strip("/")}
    ):
        ref = soap.reference(found)
        if ref.type == "Datacenter":
            return ref
    problem = (
        f"datacenters: vCenter {client.vcenter.name} shows no datacenter {text!r}: give its name,"
        " its whole path if it is in a folder, and its user the right to read it"
    )
    raise ConfigError((problem,))
