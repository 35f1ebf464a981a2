"""Label volumes of Cloud Block Storage with their region, so that pods stay near them."""

from collections.abc import Mapping
from typing import Final

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.volumes import handle_of
from proreus.kube.objects import LABEL_REGION, PersistentVolume
from proreus.providers.nova.machines import id_of
from proreus.providers.nova.names import is_uuid
from proreus.providers.rackspace.api import Api

DRIVER: Final = "cinder.csi.openstack.org"
"""The CSI driver whose volume handles are ids of Cinder, which Cloud Block Storage is."""


class RackspaceVolumes:
    """The labels of volumes of the provider `rackspace`."""

    def __init__(self, api: Api) -> None:
        """Keep the client of Cloud Block Storage."""
        self._api = api

    async def labels(self, volume: PersistentVolume) -> Mapping[str, str]:
        """Return the region of a volume; nothing for those of other clouds.

        No zone: servers have none, so no node could have the volume's.

        Args:
            volume: A PersistentVolume with `cinder`, or `csi` with Cinder's driver.
                Kubernetes' own provider took a volume's name, too, and a part of its id.

        Raises:
            InvalidRequest: There is no such volume, or there are several.
            CloudError: Cloud Block Storage gives no usable answer.
        """
        handle = handle_of(volume, in_tree="cinder", driver=DRIVER)
        if not handle:
            return {}
        found = await self._found(handle)
        if len(found) != 1:
            many = f"{len(found)} volumes" if found else "no volume"
            raise InvalidRequest(
                f"there is {many} {handle!r} in region {self._api.region}: give the volume's id"
            )
        return {LABEL_REGION: self._api.region}

    async def _found(self, handle: str) -> list[str]:
        """Return the ids of the volumes that a handle may mean."""
        if is_uuid(handle):
            one = await self._api.find("cbs", "volume_get", f"volumes/{handle}", "volume")
            return [] if one is None else [id_of(one)]
        listed = await self._api.listed("cbs", "volume_list", "volumes", "volumes")
        named = [id_of(one) for one in listed if one.get("display_name") == handle]
        return named or [id_of(one) for one in listed if handle in id_of(one)]
