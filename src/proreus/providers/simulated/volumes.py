"""Label volumes of the simulated cloud with their zones: one bulk read for a batch."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.lookups import in_parts
from proreus.cloudprovider.volumes import BETWEEN_ZONES, handle_of
from proreus.kube.objects import LABEL_REGION, LABEL_ZONE, PersistentVolume
from proreus.providers.simulated.api import Api, Volume

DRIVER: Final = "csi.simulated.example"
"""The CSI driver whose volume handles are ids of the simulated cloud."""

_ID: Final = re.compile(r"vol-[0-9a-f]{12}")


class SimulatedVolumes:
    """The capability `Volumes` of the provider `simulated`."""

    def __init__(self, api: Api, batch_size: int) -> None:
        """Keep the client of the cloud, `batch_size` volumes a call."""
        self._api = api
        self._batch_size = batch_size

    async def labels(
        self, volumes: Sequence[PersistentVolume]
    ) -> Mapping[str, Mapping[str, str] | CloudError]:
        """Read a batch at once; the answer for another cloud's volume is empty."""
        handles = {
            volume.metadata.name: handle_of(volume, in_tree="", driver=DRIVER) for volume in volumes
        }
        found: dict[str, Volume] = {}
        for part in in_parts(
            {id_ for id_ in handles.values() if _ID.fullmatch(id_)}, self._batch_size
        ):
            answer = await self._api.batch_get_volumes(part)
            found.update((volume.id, volume) for volume in answer.volumes)
        return {name: _labels(id_, found.get(id_)) if id_ else {} for name, id_ in handles.items()}


def _labels(id_: str, volume: Volume | None) -> Mapping[str, str] | CloudError:
    if volume is None:
        return InvalidRequest(f"there is no volume {id_!r}")
    zones = {LABEL_ZONE: BETWEEN_ZONES.join(sorted(volume.zones))} if volume.zones else {}
    return {**zones, LABEL_REGION: volume.region}
