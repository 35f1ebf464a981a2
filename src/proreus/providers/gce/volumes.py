"""Label persistent disks with their zones, so that pods stay near them."""

import asyncio
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.volumes import BETWEEN_ZONES
from proreus.kube.objects import LABEL_REGION, LABEL_ZONE, PersistentVolume
from proreus.providers.gce.api import Api
from proreus.providers.gce.names import last_part, region_of
from proreus.providers.gce.place import Place

DRIVER: Final = "pd.csi.storage.gke.io"
IN_TREE: Final = "gcePersistentDisk"
BEING_MADE: Final = "placeholder-for-provisioning"

_HANDLE: Final = re.compile(r"projects/([^/]+)/(zones|regions)/([^/]+)/disks/([^/]+)")
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


class Disk(msgspec.Struct, frozen=True, rename="camel"):
    """A persistent disk as Google describes it."""

    name: str
    zone: str = ""
    region: str = ""
    replica_zones: tuple[str, ...] = ()


class Named(msgspec.Struct, frozen=True):
    """The disk that a PersistentVolume names; `place` is its zone or region, or ""."""

    name: str
    place: str = ""
    is_regional: bool | None = None


def named_disk(volume: PersistentVolume) -> Named | None:
    """Return the disk of a PersistentVolume; None if it is none of Google's, or not made yet. Pure.

    Raises:
        InvalidRequest: The disk's name is not valid.
    """
    source, csi = volume.spec.get(IN_TREE), volume.spec.get("csi")
    if isinstance(source, Mapping):
        name = str(source.get("pdName") or "")
        if not name or name == BEING_MADE:
            return None
        found: Named | None = Named(name) if _NAME.fullmatch(name) else None
    elif isinstance(csi, Mapping) and csi.get("driver") == DRIVER:
        name = str(csi.get("volumeHandle") or "")
        handle = _HANDLE.fullmatch(name)
        found = Named(handle[4], handle[3], handle[2] == "regions") if handle else None
    else:
        return None
    if found is None:
        raise InvalidRequest(
            f"{name!r} is not a persistent disk: give its name, or to the CSI driver"
            " projects/PROJECT/zones/ZONE/disks/NAME"
        )
    return found


def labels_of(disk: Disk) -> Mapping[str, str]:
    """Return the labels of a disk: its zone, or those of a regional one, and its region. Pure."""
    if disk.replica_zones:
        zones = sorted(last_part(one) for one in disk.replica_zones)
        return {LABEL_ZONE: BETWEEN_ZONES.join(zones), LABEL_REGION: region_of(zones[0])}
    zone = last_part(disk.zone)
    return {LABEL_ZONE: zone, LABEL_REGION: region_of(zone)}


class GCEVolumes:
    """The labels of volumes of the provider `gce`."""

    def __init__(self, api: Api, place: Place) -> None:
        """Keep the client of Google, and where disks are."""
        self._api = api
        self._place = place

    async def labels(self, volume: PersistentVolume) -> Mapping[str, str]:
        """Return zone and region of a persistent disk; nothing for other volumes.

        A disk that is named without its zone is looked for in the region and its managed zones;
        of several, it is the one in the zone that the PersistentVolume is labelled with.

        Raises:
            InvalidRequest: There is no such disk, or there are several.
            CloudError: Google gives no usable answer.
        """
        named = named_disk(volume)
        if named is None:
            return {}
        paths = self._paths(named)
        found = await asyncio.gather(*(self._find(path) for path in paths))
        disks = [one for one in found if one is not None]
        if not disks:
            where = named.place or f"the region {self._place.region} and its managed zones"
            raise InvalidRequest(f"there is no persistent disk {named.name} in {where}")
        if len(disks) > 1:
            label = volume.metadata.labels.get(LABEL_ZONE)
            disks = [one for one in disks if labels_of(one)[LABEL_ZONE] == label] or disks
        if len(disks) > 1:
            places = ", ".join(sorted(last_part(one.zone or one.region) for one in disks))
            raise InvalidRequest(
                f"there are several persistent disks {named.name}, in {places}: label the volume"
                f" with {LABEL_ZONE}, or name it by the CSI driver {DRIVER}"
            )
        return labels_of(disks[0])

    def _paths(self, named: Named) -> list[str]:
        if named.place:
            kind = "regions" if named.is_regional else "zones"
            return [f"projects/{self._place.project}/{kind}/{named.place}/disks/{named.name}"]
        zonal = [self._place.in_zone(zone, "disks", named.name) for zone in self._place.zones]
        return [self._place.in_region("disks", named.name), *sorted(zonal)]

    async def _find(self, path: str) -> Disk | None:
        operation = "regionDisks.get" if "/regions/" in path else "disks.get"
        return await self._api.find(operation, path, Disk)
