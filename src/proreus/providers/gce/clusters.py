"""Name the clusters of Kubernetes Engine in the project and the region.

`proreus clusters` asks for them, the manager does not: so the role of its account lacks the right
(`container.clusters.list`) that this needs.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from proreus.cloudprovider.credential import Credential
from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.requests import Request
from proreus.cloudprovider.rest import RestClient
from proreus.providers.gce import errors
from proreus.providers.gce.names import region_of
from proreus.providers.gce.place import Place

if TYPE_CHECKING:
    from proreus.cloudprovider.context import Context

ENDPOINT: Final = "https://container.googleapis.com/"


class Cluster(msgspec.Struct, frozen=True):
    """A cluster as Google describes it; its location is a region or a zone."""

    name: str
    location: str = ""
    endpoint: str = ""


class _Clusters(msgspec.Struct, frozen=True, rename="camel"):
    clusters: tuple[Cluster, ...] = ()
    missing_zones: tuple[str, ...] = ()


class GCEClusters:
    """The capability `Clusters` of the provider `gce`."""

    def __init__(
        self, context: "Context", credential: Credential[str], place: Place, endpoint: str
    ) -> None:
        """Keep where the Kubernetes Engine API is; ask nothing yet."""
        self._place = place
        self._rest = RestClient(
            context, endpoint or ENDPOINT, credential=credential, read_error=errors.read_error
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._rest.close()

    async def list(self) -> Sequence[str]:
        """Return the names of the clusters in the region and its zones, in their order.

        Raises:
            CloudError: Google gives no usable answer, or not of all zones.
        """
        return sorted(one.name for one in await self._clusters())

    async def master(self, name: str) -> str:
        """Return the address of the control plane of a cluster.

        Raises:
            InvalidRequest: There is no such cluster, or there are several of this name.
            CloudError: Google gives no usable answer.
        """
        found = [one for one in await self._clusters() if one.name == name]
        if len(found) != 1:
            many = ", ".join(one.location for one in found) or "none"
            raise InvalidRequest(
                f"there is not one cluster {name!r} in the region {self._place.region}, but {many}:"
                " see `proreus clusters list`"
            )
        if not found[0].endpoint:
            raise CloudError(f"the cluster {name!r} has no address yet")
        return found[0].endpoint

    async def _clusters(self) -> tuple[Cluster, ...]:
        path = f"v1/projects/{self._place.project}/locations/-/clusters"
        found = await self._rest.call(
            Request("container.clusters.list", "GET", path, quota="container"), _Clusters
        )
        region = self._place.region
        if unknown := [one for one in found.missing_zones if one.startswith(f"{region}-")]:
            raise CloudError(f"Google does not show the clusters of {', '.join(unknown)}")
        return tuple(
            one
            for one in found.clusters
            if one.location == region or region_of(one.location) == region
        )
