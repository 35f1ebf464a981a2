"""Name the cluster of Mesos and its leading master."""

from collections.abc import Sequence

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.providers.mesos.api import Api


class MesosClusters:
    """The capability `Clusters` of the provider `mesos`."""

    def __init__(self, api: Api) -> None:
        """Keep the client of the masters."""
        self._api = api

    async def list(self) -> Sequence[str]:
        """Return the name of the only cluster.

        Raises:
            CloudError: No leading master gives a usable answer.
        """
        return (await self._api.cluster(),)

    async def master(self, name: str) -> str:
        """Return the host name of the leading master, or else its IP address.

        Raises:
            InvalidRequest: The cluster has another name.
            CloudError: No leading master gives a usable answer.
        """
        known = await self._api.cluster()
        if name != known:
            raise InvalidRequest(f"there is no cluster {name!r}: this one is called {known!r}")
        host = (await self._api.master()).host
        if not host:
            raise CloudError("the leading master tells neither its host name nor its IP address")
        return host
