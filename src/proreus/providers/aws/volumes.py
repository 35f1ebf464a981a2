"""Label volumes of EBS with their zone, so that pods stay near them."""

import re
from collections.abc import Collection, Mapping, Sequence

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.lookups import in_parts
from proreus.cloudprovider.volumes import handle_of
from proreus.kube.objects import LABEL_REGION, LABEL_ZONE, PersistentVolume
from proreus.providers.aws.api import Api

DRIVER = "ebs.csi.aws.com"
"""The CSI driver whose volume handles are ids of EBS."""

_ID = re.compile(r"(?:aws://[^/]*/(?:[^/]*/)?)?(vol-(?:[0-9a-f]{17}|[0-9a-f]{8}))")
MOST_IDS = 200
"""The most values of one filter of EC2."""


class AWSVolumes:
    """The capability `Volumes` of the provider `aws`."""

    def __init__(self, api: Api) -> None:
        """Keep the client of AWS."""
        self._api = api

    async def labels(
        self, volumes: Sequence[PersistentVolume]
    ) -> Mapping[str, Mapping[str, str] | CloudError]:
        """Return zone and region of EBS volumes, by one call for `MOST_IDS`; nothing for others.

        EBS volumes are `awsElasticBlockStore`, and `csi` with EBS' driver. A volume whose id has
        another form, or that does not exist, has `InvalidRequest`.

        Raises:
            CloudError: EC2 gives no usable answer.
        """
        answers: dict[str, Mapping[str, str] | CloudError] = {}
        ids: dict[str, str] = {}
        for volume in volumes:
            name = volume.metadata.name
            handle = handle_of(volume, in_tree="awsElasticBlockStore", driver=DRIVER)
            match = _ID.fullmatch(handle)
            if match is not None:
                ids[name] = match[1]
            elif handle:
                answers[name] = InvalidRequest(
                    f"{handle!r} is not a volume of EBS: it must be like vol-0123456789"
                )
            else:
                answers[name] = {}
        zones = await self._zones(set(ids.values()))
        for name, id_ in ids.items():
            answers[name] = (
                {LABEL_ZONE: zones[id_], LABEL_REGION: self._api.region}
                if id_ in zones
                else InvalidRequest(f"there is no volume {id_} in {self._api.region}")
            )
        return answers

    async def _zones(self, ids: Collection[str]) -> Mapping[str, str]:
        """Return the zones of the volumes that there are, by their ids."""
        zones: dict[str, str] = {}
        for part in in_parts(ids, MOST_IDS):
            # A filter leaves out what is not there; by `VolumeIds` one such id refuses them all.
            filters = [{"Name": "volume-id", "Values": part}]
            found = await self._api.pages("ec2", "DescribeVolumes", "Volumes", Filters=filters)
            zones |= {str(one["VolumeId"]): str(one["AvailabilityZone"]) for one in found}
        return zones
