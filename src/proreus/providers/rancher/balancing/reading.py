"""Observe the load balancer of a Service: its service, its links, and external services."""

from collections.abc import Collection, Iterable
from typing import Final

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.identity import ClusterIdentity
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.ownership import Owner
from proreus.cloudprovider.waits import Working
from proreus.providers.rancher.api import SETTINGS, Api, Described
from proreus.providers.rancher.balancing import documents, owners
from proreus.providers.rancher.balancing.desired import name_of
from proreus.providers.rancher.balancing.parts import (
    BALANCERS,
    EXTERNALS,
    REMOVING,
    Balancer,
    External,
    Observed,
    Target,
)
from proreus.providers.rancher.balancing.sharing import Sharing
from proreus.providers.rancher.names import external_name
from proreus.providers.rancher.operations import creation

STACK: Final = "kubernetes-loadbalancers"
"""The official stack of load balancers. It is made if it is missing, and stays."""
STACK_ID: Final = f"{STACK}://"
"""Its external id."""
_MAPS: Final = "serviceconsumemaps"
_IMAGE: Final = "lb.instance.image"
_BROKEN: Final = frozenset({"error", "erroring"})


class Reader:
    """A reader of services."""

    def __init__(self, api: Api, sharing: Sharing) -> None:
        """Keep the Rancher client, and the record of which Service needs which nodes."""
        self._api = api
        self._sharing = sharing

    async def balancer(self, ref: LoadBalancerRef) -> Balancer | None:
        """Return the load balancer that belongs to a Service.

        Raises:
            CloudError: There are several, its name is another's, or Rancher gives no usable answer.
        """
        name = name_of(ref)
        named = [
            one
            for one in await self._api.listed(BALANCERS, name=name)
            if str(one.get("name") or "").lower() == name
        ]
        ours = [one for one in named if owners.verdict_of(one, ref).is_ours]
        if len(ours) > 1:
            ids = ", ".join(sorted(str(one["id"]) for one in ours))
            raise CloudError(f"several load balancers are called {name}: {ids}: remove all but one")
        if not ours:
            return None
        links = () if self._api.version.has_rules else await self._links(str(ours[0]["id"]))
        owner = Owner(ref.cluster.uid, service_uid=ref.uid)
        return documents.balancer(ours[0], self._api.version, owner, links)

    async def observe(self, ref: LoadBalancerRef, targets: Iterable[Target] | None) -> Observed:
        """Observe the load balancer of a Service.

        Args:
            ref: The Service.
            targets: The nodes that it should lead to; None if it is to be removed: then neither the
                image of a new one is asked for, nor what other clusters share with it.

        Raises:
            CloudError: Rancher gives no usable answer.
        """
        found = await self.balancer(ref)
        stack = found.stack if found is not None else await self.stack()
        externals = await self._externals(stack) if stack else ()
        is_wanted = targets is not None
        needs_image = is_wanted and found is None and self._api.version.has_rules
        shared = await self._shared(externals, found, targets or ()) if found and is_wanted else ()
        return Observed(
            stack=stack,
            image=await self._image() if needs_image else "",
            balancer=found,
            externals=externals,
            unused=await self.unused(externals, ref.cluster, found.id if found else ""),
            shared=frozenset(shared),
        )

    async def stack(self) -> str:
        """Return the id of the stack that holds load balancers, or "".

        Raises:
            Working: Rancher is removing the stack.
            CloudError: The stack is in an error state, or Rancher gives no usable answer.
        """
        listed = await self._api.listed(self._api.version.stacks, name=STACK)
        named = [one for one in listed if str(one.get("name") or "").lower() == STACK]
        usable = [one for one in named if one.get("state") not in REMOVING | _BROKEN]
        official = [one for one in usable if one.get("externalId") == STACK_ID] or usable
        if official:
            return min(str(one["id"]) for one in official)
        if any(one.get("state") in _BROKEN for one in named):
            raise CloudError(f"the stack {STACK} is in an error state: remove it in Rancher")
        if named:
            raise Working(f"Rancher removes the stack {STACK}")
        return ""

    async def make_stack(self) -> str:
        """Make the stack; return its id.

        Raises:
            CloudError: Rancher refuses, or does not answer.
        """
        fields: Described = {"name": STACK, "externalId": STACK_ID}
        made = await self._api.change(creation(self._api.version.stacks, fields))
        return str(made["id"])

    async def all(self) -> tuple[list[Described], dict[str, frozenset[str]], dict[str, External]]:
        """Return all load balancers, the links of each by its id, and all external services.

        Raises:
            CloudError: Rancher gives no usable answer.
        """
        services = await self._api.listed(BALANCERS)
        found = await self._api.listed(EXTERNALS)
        has_links = not self._api.version.has_rules and services
        maps = await self._api.listed(_MAPS) if has_links else []
        externals = {str(one["id"]): documents.external(one) for one in found}
        return services, documents.links(maps), externals

    async def unused(
        self, externals: Iterable[External], cluster: ClusterIdentity, own: str
    ) -> frozenset[str]:
        """Return this cluster's external services that no Service needs and nothing else leads to.

        A link that Rancher is removing still counts: the service that it leads to is removed
        another time.

        Args:
            externals: All external services of the stack.
            cluster: This cluster.
            own: The id of the Service's own load balancer, which stops leading to them first, or
                "".

        Raises:
            CloudError: Rancher gives no usable answer.
        """
        needed = self._sharing.needed()
        spare = {
            one.id
            for one in externals
            if one.owner is not None
            and one.owner.cluster_uid == cluster.uid
            and one.owner.service_uid not in needed
        }
        if not spare:
            return frozenset()
        spare -= _consumed(await self._api.listed(_MAPS), own)
        return frozenset(spare - await self._led_to(spare, own))

    async def _shared(
        self, externals: Iterable[External], found: Balancer, targets: Iterable[Target]
    ) -> frozenset[str]:
        """Return external services without marks that others lead to, too, with other addresses."""
        clear = {(external_name(one.node).lower(), (one.address,)) for one in targets}
        doubtful = frozenset(
            one.id
            for one in externals
            if one.owner is None and (one.name.lower(), one.addresses) not in clear
        )
        doubtful &= found.links
        if not doubtful:
            return doubtful
        shared = doubtful & _consumed(await self._api.listed(_MAPS), found.id)
        return shared | doubtful & await self._led_to(doubtful - shared, found.id)

    async def _led_to(self, ids: Collection[str], own: str) -> frozenset[str]:
        """Return those of these external services to which any other load balancer leads after all.

        A list in pages passes rows over where others are removed while it is read; so the links to
        each are asked for alone. Where there are rules, links follow them by themselves, and later.

        Raises:
            CloudError: Rancher gives no usable answer.
        """
        found = frozenset[str]()
        for id_ in sorted(ids):
            found |= _consumed(await self._api.listed(_MAPS, consumedServiceId=id_), own)
        if ids and self._api.version.has_rules:
            services = await self._api.listed(BALANCERS)
            read = [documents.balancer(one, self._api.version, None) for one in services]
            found |= {id_ for one in read if one.id != own for _, _, id_ in one.rules}
        return found

    async def _links(self, id_: str) -> frozenset[str]:
        maps = await self._api.listed(_MAPS, serviceId=id_)
        return documents.links(maps).get(id_, frozenset())

    async def _externals(self, stack: str) -> tuple[External, ...]:
        field = self._api.version.stack_id
        listed = await self._api.listed(EXTERNALS, **{field: stack})
        return tuple(documents.external(one) for one in listed if one.get(field) == stack)

    async def _image(self) -> str:
        """Return the image of load balancers, as the server's settings say.

        Raises:
            CloudError: The settings name no image.
        """
        for one in await self._api.listed(SETTINGS, name=_IMAGE):
            value = one.get("activeValue") or one.get("value")
            if one.get("name") == _IMAGE and value:
                return f"docker:{value}"
        raise CloudError(
            f"Rancher's setting {_IMAGE} is empty or is not shown: give the manager the keys of an"
            " environment that may read settings"
        )


def _consumed(maps: Iterable[Described], own: str) -> frozenset[str]:
    """Return the ids of the services that others lead to than the load balancer `own`."""
    others = (one for one in maps if str(one.get("serviceId")) != own)
    return frozenset(str(one.get("consumedServiceId")) for one in others)
