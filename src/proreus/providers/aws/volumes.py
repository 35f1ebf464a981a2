"""Label volumes of EBS with their zone, so that pods stay near them."""

import re
from collections.abc import Mapping

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.refused import Refused
from proreus.cloudprovider.volumes import handle_of
from proreus.kube.objects import LABEL_REGION, LABEL_ZONE
from proreus.providers.aws.api import Api

DRIVER = "ebs.csi.aws.com"
"""The CSI driver whose volume handles are ids of EBS."""

_ID = re.compile(r"(?:aws://[^/]*/(?:[^/]*/)?)?(vol-(?:[0-9a-f]{17}|[0-9a-f]{8}))")
_ABSENT = frozenset({"InvalidVolume.NotFound", "InvalidParameterValue"})


class AWSVolumes:
    """The capability `Volumes` of the provider `aws`."""

    def __init__(self, api: Api) -> None:
        """Keep the client of AWS."""
        self._api = api

    async def labels(self, volume_source: Mapping[str, object]) -> Mapping[str, str]:
        """Return zone and region of an EBS volume; nothing for others.

        Args:
            volume_source: The spec of a PersistentVolume: `awsElasticBlockStore`, or `csi` with
                EBS' driver.

        Raises:
            InvalidRequest: The id is none, or there is no such volume.
            CloudError: EC2 does not tell.
        """
        handle = handle_of(volume_source, in_tree="awsElasticBlockStore", driver=DRIVER)
        if not handle:
            return {}
        match = _ID.fullmatch(handle)
        if match is None:
            raise InvalidRequest(f"{handle!r} is no volume of EBS: it must be like vol-0123456789")
        try:
            found = await self._api.call("ec2", "DescribeVolumes", VolumeIds=[match[1]])
        except Refused as error:
            if error.code not in _ABSENT:
                raise
            raise InvalidRequest(f"there is no volume {match[1]} in {self._api.region}") from error
        volumes = list(found.get("Volumes") or ())
        if len(volumes) != 1:
            raise CloudError(
                f"EC2 describes {len(volumes)} volumes with the id {match[1]}, not one"
            )
        zone = str(volumes[0]["AvailabilityZone"])
        return {LABEL_ZONE: zone, LABEL_REGION: self._api.region}
