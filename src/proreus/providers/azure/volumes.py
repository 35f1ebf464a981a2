"""Label managed disks with their zone, so that pods stay near them."""

import re
from collections.abc import Mapping
from typing import Final

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.volumes import handle_of
from proreus.kube.objects import LABEL_REGION, LABEL_ZONE, PersistentVolume
from proreus.providers.azure import operations
from proreus.providers.azure.api import Arm
from proreus.providers.azure.ids import resource_id
from proreus.providers.azure.machines import region

DRIVER: Final = "disk.csi.azure.com"
"""The CSI driver whose volume handles are ids of managed disks."""
_KIND: Final = re.compile(r"Microsoft\.Compute/disks", re.IGNORECASE)


class AzureVolumes:
    """The labels of volumes of the provider `azure`."""

    def __init__(self, arm: Arm) -> None:
        """Keep the client of Azure."""
        self._arm = arm

    async def labels(self, volume: PersistentVolume) -> Mapping[str, str]:
        """Return zone and region of a managed disk; nothing for others.

        Args:
            volume: A PersistentVolume with `azureDisk`, or `csi` with the driver of
                Azure's disks.

        Raises:
            InvalidRequest: The id is not one of a managed disk, or there is no such disk.
            CloudError: Azure gives no usable answer.
        """
        source = volume.spec.get("azureDisk")
        in_tree = source.get("diskURI") if isinstance(source, Mapping) else None
        id_ = str(in_tree or "") or handle_of(volume, in_tree="", driver=DRIVER)
        if not id_:
            return {}
        found = resource_id(id_)
        if found is None or not _KIND.fullmatch(found.kind) or "/" in found.name:
            raise InvalidRequest(f"{id_!r} is not a managed disk of Azure")
        if found.subscription.lower() != self._arm.config.subscription_id.lower():
            raise InvalidRequest(f"the disk {id_} is in another subscription than the cluster")
        disk = await self._arm.find(operations.DISK_GET, id_)
        if disk is None:
            raise InvalidRequest(f"there is no disk {id_}")
        zones = disk.get("zones") or ()
        place = region(disk)
        zone = f"{place}-{zones[0]}" if zones else ""
        return {key: one for key, one in ((LABEL_ZONE, zone), (LABEL_REGION, place)) if one}
