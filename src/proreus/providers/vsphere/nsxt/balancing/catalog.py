"""Look up the IP pools and application profiles that classes name."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from proreus.cloudprovider.lookups import Recent
from proreus.providers.vsphere.nsxt.api import Api
from proreus.providers.vsphere.nsxt.balancing.described import id_of_name
from proreus.providers.vsphere.nsxt.balancing.desired import Material
from proreus.providers.vsphere.nsxt.config import LoadBalancerClass, Reference
from proreus.providers.vsphere.nsxt.operations import APP_PROFILES, IP_POOLS, Document, Place

AGE: Final = 60.0
"""Seconds for which names are kept."""

_TYPES: Final = {"TCP": "LBFastTcpProfile", "UDP": "LBFastUdpProfile"}
"""The types of profiles that a port can have, as officially."""


class Catalog:
    """The IP pools and application profiles of NSX-T, by their names.

    Nothing is asked for where the cloud-config has ids and paths.
    """

    def __init__(self, api: Api, classes: Collection[LoadBalancerClass]) -> None:
        """Keep the client and all classes."""
        self._api = api
        self._classes = tuple(classes)
        self._pools: Recent[Sequence[Document]] = Recent(self._ask, seconds=AGE)
        self._profiles: Recent[Sequence[Document]] = Recent(self._ask, seconds=AGE)

    async def material(self, chosen: LoadBalancerClass, protocols: Collection[str]) -> Material:
        """Return what NSX-T has for a class.

        Raises:
            CloudError: An object that the cloud-config names does not exist, or more than once.
        """
        pool = chosen.pool.id
        if not pool:
            what = f"the IP pool of the class {chosen.name!r}"
            pool = id_of_name(chosen.pool.name, await self._listed_pools(), what)
        profiles = {}
        for protocol in sorted(protocols):
            profiles[protocol] = await self._profile(chosen, protocol)
        return Material(pool, profiles)

    async def pools(self) -> set[str]:
        """Return the ids of the IP pools of all classes; of those by name that are there."""
        found = {one.pool.id for one in self._classes}
        names = {one.pool.name for one in self._classes if not one.pool.id}
        if names:
            listed = await self._listed_pools()
            found |= {str(one["id"]) for one in listed if one.get("display_name") in names}
        return found - {""}

    async def profile_names(self) -> Mapping[str, str]:
        """Return application profiles as `Reference.token` has them, by their paths.

        Nothing is asked for where all classes give paths.
        """
        if all(one.id for chosen in self._classes for one in chosen.profiles.values()):
            return {}
        listed = (await self._profiles.find((APP_PROFILES,)))[APP_PROFILES]
        return {
            str(one["path"]): Reference(name=str(one.get("display_name"))).token for one in listed
        }

    async def _profile(self, chosen: LoadBalancerClass, protocol: str) -> str:
        reference = chosen.profiles[protocol]
        if reference.id:
            return reference.id
        listed = (await self._profiles.find((APP_PROFILES,)))[APP_PROFILES]
        usable = [one for one in listed if one.get("resource_type") == _TYPES[protocol]]
        what = f"the application profile for {protocol} of the class {chosen.name!r}"
        return id_of_name(reference.name, usable, what, field="path")

    async def _listed_pools(self) -> Sequence[Document]:
        return (await self._pools.find((IP_POOLS,)))[IP_POOLS]

    async def _ask(self, kinds: Collection[str]) -> Mapping[str, Sequence[Document]]:
        return {kind: await self._api.listed(Place(kind)) for kind in kinds}
