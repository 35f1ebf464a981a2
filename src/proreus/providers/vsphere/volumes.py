"""Label virtual disks with the zones of the hosts that mount their datastore."""

import asyncio
from collections.abc import Mapping

from proreus.cloudprovider.errors import InvalidRequest
from proreus.kube.objects import PersistentVolume
from proreus.providers.vsphere.datastores import (
    Datastore,
    Volume,
    chosen,
    named_volume,
    zone_labels,
)
from proreus.providers.vsphere.inventory import Inventory
from proreus.providers.vsphere.tags import AGE, Tags
from proreus.providers.vsphere.zones import Marks, shared_zones

VCenter = tuple[Inventory, Tags]


class VSphereVolumes:
    """The labels of volumes of the provider `vsphere`, where zones are configured."""

    def __init__(self, vcenters: Mapping[str, VCenter]) -> None:
        """Keep inventories and tags, by the vCenters' names."""
        self._vcenters = vcenters

    async def labels(self, volume: PersistentVolume) -> Mapping[str, str]:
        """Return zone and region of a virtual disk; nothing for others, and where it has none.

        Raises:
            InvalidRequest: The volume names no disk, or one of no datastore, or one of several.
            CloudError: A vCenter gives no usable answer.
        """
        asked = named_volume(volume)
        if asked is None:
            return {}
        if asked.problem:
            raise InvalidRequest(asked.problem)
        asking = (_zones(*one, asked) for one in self._vcenters.values())
        answers = dict(zip(self._vcenters, await asyncio.gather(*asking), strict=True))
        found = [(name, store, zones) for name, it in answers.items() for store, zones in it]
        what = f"datastore {asked.store!r}" if asked.store else f"volume {asked.id}"
        if not found:
            raise InvalidRequest(f"none of the configured vCenters and datacenters has the {what}")
        labels = [zone_labels(zones) for _, _, zones in found]
        if any(one != labels[0] for one in labels):
            places = ", ".join(f"{store.ref} of vCenter {name}" for name, store, _ in found)
            raise InvalidRequest(
                f"the {what} may be any of {places}, which are in different zones: give datastores"
                " names of their own"
            )
        return labels[0]


async def _zones(
    inventory: Inventory, tags: Tags, asked: Volume
) -> list[tuple[Datastore, list[Marks]]]:
    """Return the datastores of a vCenter that a volume may be in, with their zones."""
    url = ""
    if asked.id:
        url = await inventory.datastore_of(asked.id) or ""
        if not url:
            return []
    stores = chosen(await inventory.datastores(), name=asked.store, url=url)
    if not stores:
        return []
    snapshot, tagged = await asyncio.gather(inventory.current(), tags.marks(AGE))
    return [(one, shared_zones(one.hosts, snapshot.parents, tagged)) for one in stores]
