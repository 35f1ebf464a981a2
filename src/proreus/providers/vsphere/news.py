"""Hear from a vCenter what changes, and hint it to the controllers, which then ask themselves.

A property collector of its own waits in the vCenter (`WaitForUpdatesEx`), beside the one that
`inventory` asks. So nothing is decided by what it tells; what it fails to tell is seen at the next
round. It begins once somebody listens.
"""

from collections.abc import Iterable
from typing import Final

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.hints import Hints
from proreus.cloudprovider.lookups import swapped
from proreus.providers.vsphere.filters import Filter
from proreus.providers.vsphere.machines import ENCODING, METADATA, Machine, machine
from proreus.providers.vsphere.names import provider_id
from proreus.providers.vsphere.soap import Ref
from proreus.providers.vsphere.vcenter import Client, Session

WAIT: Final = 30
"""Seconds for which the vCenter waits for a change: less than firewalls keep idle connections."""
PATHS: Final = (
    "config.uuid", "guest.hostName", "guest.ipAddress", "guest.net", "runtime.powerState",
    "runtime.connectionState", "runtime.host", METADATA, ENCODING,
)  # fmt: skip
"""The properties of machines of which a change matters to a Node."""


class News:
    """The news of one vCenter."""

    def __init__(self, client: Client, hints: Hints) -> None:
        """Hear nothing yet."""
        self._client = client
        self._hints = hints
        self._filter: Filter | None = None
        self._known: dict[Ref, Machine] = {}
        self._is_begun = False

    async def follow(self) -> None:
        """Hint at each machine that changes, until cancelled.

        Changes while the vCenter gave no answer are hinted once it answers again.

        Raises:
            CloudError: The vCenter gives no usable answer; this is to be called again.
        """
        while True:
            await self._hints.heard()
            try:
                await self._client.in_session(self._hear)
            except CloudError:
                if self._filter is not None:
                    await self._filter.end()
                    self._filter = None
                raise

    async def _hear(self, session: Session) -> None:
        """Wait for the next changes in this session."""
        if self._filter is None or self._filter.session != session:
            self._filter = Filter(self._client, session, PATHS)
            await self._filter.begin({"VirtualMachine": PATHS})
            self._compare(await self._filter.read() | self._known.keys())
            self._is_begun = True
        else:
            self._compare(await self._filter.read(WAIT))

    def _compare(self, refs: Iterable[Ref]) -> None:
        """Hint at those of these machines that are not as they were."""
        shown = self._filter.objects.of if self._filter is not None else {}
        for ref in refs:
            before = self._known.pop(ref, None)
            after = machine(ref, shown[ref]) if ref in shown else None
            if after is not None:
                self._known[ref] = after
            if before != after and self._is_begun:
                self._hints.changed(*names_of(before), *names_of(after))


def names_of(found: Machine | None) -> frozenset[str]:
    """Return what a Node may know a machine by: provider id, UUIDs, host name, address. Pure."""
    if found is None:
        return frozenset()
    names = {found.host_name, found.address}
    if found.uuid:
        names |= {provider_id(found.uuid), found.uuid, swapped(found.uuid)}
    return frozenset(names - {""})
