"""Label volumes of Cinder with their zone, so that pods stay near them."""

from collections.abc import Mapping

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.names import LABEL_VALUE
from proreus.cloudprovider.volumes import handle_of
from proreus.kube.objects import LABEL_REGION, LABEL_ZONE
from proreus.providers.nova.names import is_uuid
from proreus.providers.openstack.api import Api

DRIVER = "cinder.csi.openstack.org"
"""The CSI driver whose volume handles are ids of Cinder."""


class OpenStackVolumes:
    """The capability `Volumes` of the provider `openstack`."""

    def __init__(self, api: Api) -> None:
        """Keep the client of OpenStack."""
        self._api = api

    async def labels(self, volume_source: Mapping[str, object]) -> Mapping[str, str]:
        """Return zone and region of a Cinder volume; nothing for others.

        Args:
            volume_source: The spec of a PersistentVolume: `cinder`, or `csi` with Cinder's driver.

        Raises:
            InvalidRequest: The id is none, or there is no such volume.
            CloudError: Cinder does not tell.
        """
        id_ = handle_of(volume_source, in_tree="cinder", driver=DRIVER)
        if not id_:
            return {}
        if not is_uuid(id_):
            raise InvalidRequest(f"{id_!r} is no volume of Cinder: its id must be a UUID")
        volume = await self._api.find("cinder", "volume_get", f"volumes/{id_}", "volume")
        if volume is None:
            raise InvalidRequest(f"there is no volume {id_} in this project")
        zone = LABEL_VALUE.clean(str(volume.get("availability_zone") or ""))
        found = {LABEL_ZONE: zone, LABEL_REGION: self._api.region}
        return {key: value for key, value in found.items() if value}
