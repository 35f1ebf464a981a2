"""Label volumes of CDS with their zone, so that pods stay near them."""

import re
from collections.abc import Mapping
from typing import Final

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.names import LABEL_VALUE
from proreus.cloudprovider.volumes import handle_of
from proreus.kube.objects import LABEL_REGION, LABEL_ZONE, PersistentVolume
from proreus.providers.baidu.api import Api, Call
from proreus.providers.baidu.machines import zone_of

DRIVER: Final = "csi-cdsplugin"
"""The CSI driver whose volume handles are ids of CDS."""
_ID: Final = re.compile(r"v-[0-9A-Za-z]{1,60}")


class BaiduVolumes:
    """The labels of volumes of the provider `baidu`."""

    def __init__(self, api: Api, *, region: str) -> None:
        """Keep the client of the cloud, and the region of the cloud-config."""
        self._api = api
        self._region = region

    async def labels(self, volume: PersistentVolume) -> Mapping[str, str]:
        """Return zone and region of a volume; nothing for those of other clouds.

        Args:
            volume: A PersistentVolume with `csi` of the driver of CDS.

        Raises:
            InvalidRequest: The PersistentVolume's id has another form, or there is no such volume.
            CloudError: The cloud gives no usable answer.
        """
        id_ = handle_of(volume, in_tree="", driver=DRIVER)
        if not id_:
            return {}
        if not _ID.fullmatch(id_):
            raise InvalidRequest(f"{id_!r} is not a volume of CDS: its id must be like v-trb3rQXa")
        answer = await self._api.find(Call("getVolume", (id_,)))
        if answer is None:
            raise InvalidRequest(f"there is no volume {id_} in the region {self._region}")
        found = answer.get("volume")
        if not isinstance(found, dict):
            raise CloudError("baidu.getVolume: the answer has no volume")
        zone = zone_of(str(found.get("zoneName") or ""))
        labels = {LABEL_ZONE: zone, LABEL_REGION: LABEL_VALUE.clean(self._region)}
        return {key: value for key, value in labels.items() if value}
