"""Label volumes of CloudStack with their zone, so that pods stay near them."""

from collections.abc import Mapping
from typing import Final

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.names import LABEL_VALUE
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.volumes import handle_of
from proreus.kube.objects import LABEL_REGION, LABEL_ZONE, PersistentVolume
from proreus.providers.cloudstack.api import Api
from proreus.providers.cloudstack.config import UUID
from proreus.providers.cloudstack.errors import absent_id

DRIVER: Final = "csi.cloudstack.apache.org"
"""The CSI driver whose volume handles are ids of CloudStack."""


class CloudStackVolumes:
    """The labels of volumes of the provider `cloudstack`."""

    def __init__(self, api: Api, *, region: str) -> None:
        """Keep the client of CloudStack, and the region of the cloud-config or ""."""
        self._api = api
        self._region = region

    async def labels(self, volume: PersistentVolume) -> Mapping[str, str]:
        """Return zone and region of a volume; nothing for those of other clouds.

        Args:
            volume: A PersistentVolume with `csi` of CloudStack's driver.

        Raises:
            InvalidRequest: The PersistentVolume's id has another form, or there is no such volume.
            CloudError: CloudStack gives no usable answer.
        """
        id_ = handle_of(volume, in_tree="", driver=DRIVER)
        if not id_:
            return {}
        if not UUID.fullmatch(id_):
            raise InvalidRequest(f"{id_!r} is not a volume of CloudStack: its id must be a UUID")
        try:
            found = await self._api.listed("listVolumes", "volume", {"id": id_})
        except Refused as error:
            if absent_id(error.text) != id_.lower():
                raise
            found = []
        if not found:
            raise InvalidRequest(f"there is no volume {id_} in this account or project")
        zone = LABEL_VALUE.clean(str(found[0].get("zonename") or ""))
        labels = {LABEL_ZONE: zone, LABEL_REGION: LABEL_VALUE.clean(self._region) or zone}
        return {key: value for key, value in labels.items() if value}
