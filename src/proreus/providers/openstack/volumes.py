"""Label volumes of Cinder with their zone, so that pods stay near them."""

from collections.abc import Mapping

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.names import LABEL_VALUE
from proreus.cloudprovider.volumes import handle_of
from proreus.kube.objects import LABEL_REGION, LABEL_ZONE, PersistentVolume
from proreus.providers.nova.names import is_uuid
from proreus.providers.openstack.api import Api

DRIVER = "cinder.csi.openstack.org"
"""The CSI driver whose volume handles are ids of Cinder."""


class OpenStackVolumes:
    """The labels of volumes of the provider `openstack`."""

    def __init__(self, api: Api) -> None:
        """Keep the client of OpenStack."""
        self._api = api

    async def labels(self, volume: PersistentVolume) -> Mapping[str, str]:
        """Return zone and region of a Cinder volume; nothing for others.

        Args:
            volume: A PersistentVolume with `cinder`, or `csi` with Cinder's driver.

        Raises:
            InvalidRequest: The PersistentVolume's id has another form, or there is no such volume.
            CloudError: Cinder gives no usable answer.
        """
        id_ = handle_of(volume, in_tree="cinder", driver=DRIVER)
        if not id_:
            return {}
        if not is_uuid(id_):
            raise InvalidRequest(f"{id_!r} is not a volume of Cinder: its id must be a UUID")
        found = await self._api.find("cinder", "volume_get", f"volumes/{id_}", "volume")
        if found is None:
            raise InvalidRequest(f"there is no volume {id_} in this project")
        zone = LABEL_VALUE.clean(str(found.get("availability_zone") or ""))
        labels = {LABEL_ZONE: zone, LABEL_REGION: self._api.region}
        return {key: value for key, value in labels.items() if value}
