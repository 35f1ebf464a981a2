"""Read the parts of load balancers."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from proreus.cloudprovider.addresses import family_of
from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.cloudprovider.listers import Lister
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.lookups import attempt
from proreus.kube.objects import KubeObject
from proreus.providers.gce.api import Api, Listing
from proreus.providers.gce.balancing import naming
from proreus.providers.gce.balancing.addresses import is_still_free, is_within_reach, lacks_shown
from proreus.providers.gce.balancing.desired import Desired
from proreus.providers.gce.balancing.members import without_strangers
from proreus.providers.gce.balancing.needs import is_held_for, needed, unexpected
from proreus.providers.gce.balancing.parts import (
    FORMS,
    Address,
    Endpoints,
    Form,
    Group,
    Kind,
    Part,
    Rule,
)
from proreus.providers.gce.balancing.steps import Key, Observed
from proreus.providers.gce.balancing.subsets.desired import subset_keys
from proreus.providers.gce.balancing.subsets.names import SubsetNames, is_others
from proreus.providers.gce.names import Machine, last_part, machine, machine_in, region_of
from proreus.providers.gce.place import Place

_ALL_STATES: Final = {"instanceState": "ALL"}


class _Group(msgspec.Struct, frozen=True):
    name: str
    zone: str
    description: str = ""


class _Member(msgspec.Struct, frozen=True):
    instance: str


class _Endpoint(msgspec.Struct, frozen=True):
    instance: str = ""


class _Attached(msgspec.Struct, frozen=True, rename="camel"):
    network_endpoint: _Endpoint = _Endpoint()


class Observer:
    """A reader of the parts of load balancers."""

    def __init__(self, api: Api, place: Place, *, has_forms: bool = False) -> None:
        """Keep how to call Google, and the project, region and network of the cluster.

        Args:
            api: The session with Google.
            place: Where the cluster is.
            has_forms: Whether external load balancers may have a backend service.
        """
        self._api = api
        self._place = place
        self._has_forms = has_forms

    def path(self, kind: Kind, name: str = "", zone: str = "") -> str:
        """Return the path of a part, or of its collection."""
        place = self._place
        if kind in {Kind.GROUP, Kind.ENDPOINTS}:
            return place.in_zone(zone, kind, name)
        if kind is Kind.FIREWALL:
            return place.of_network(kind, name)
        if kind in {Kind.CHECK, Kind.HTTP_CHECK}:
            return place.everywhere(kind, name)
        return place.in_region(kind.collection, name)

    async def find(self, kind: Kind, name: str) -> Any:
        """Return a part; None if there is none.

        Raises:
            CloudError: Google gives no usable answer.
        """
        return await self._api.find(f"{kind.method}.get", self.path(kind, name), FORMS[kind])

    async def observe(self, desired: Desired, first: Rule | None = None) -> Observed:
        """Read the parts that a plan for the desired load balancer depends on.

        Args:
            desired: The desired state.
            first: The first forwarding rule, if it has just been read.

        Raises:
            InvalidRequest: A part with a name of the Service is another Service's.
            CloudError: Google gives no usable answer.
        """
        forms = {desired.form} if first is None else {desired.form, first.form}
        if first is None and self._has_forms and not desired.internal:
            forms = {Form.POOL, Form.EXTERNAL}
        observed = await self.parts(needed(desired, forms), first)
        if desired.subset is not None:
            _check_names(observed, desired.subset.names)
        if more := unexpected(desired, observed):
            parts = {**observed.parts, **(await self.parts(more)).parts}
            observed = msgspec.structs.replace(observed, parts=parts)
        if desired.subset is not None:
            names = desired.subset.names
            observed = _without_others(observed, names)
            groups = await self.endpoints(names)
            observed = without_strangers(desired, observed.with_parts(groups.parts))
        return msgspec.structs.replace(observed, reserved=await self._reserved(desired, observed))

    async def lacks_shown(
        self,
        desired: Desired,
        ref: LoadBalancerRef,
        services: Lister[KubeObject],
        find: Callable[[], Awaitable[Rule | None]],
    ) -> bool:
        """Tell whether a Service shows an address that it has given up; not if nobody can tell.

        `find` finds its forwarding rule, also that of a former scheme or form.
        """
        if not desired.last_addresses:
            return False
        former = await attempt(find)
        if isinstance(former, CloudError) or (former and former.ip in desired.last_addresses):
            return False
        observed = await attempt(self.observe, desired)
        if isinstance(observed, CloudError):
            return False
        return lacks_shown(desired, observed, ref, services.all())

    async def parts(self, keys: Iterable[Key], first: Rule | None = None) -> Observed:
        """Read some parts side by side, but for a forwarding rule that is known.

        Raises:
            CloudError: Google gives no usable answer.
        """
        known: dict[Key, Part] = {} if first is None else {(Kind.RULE, first.name): first}
        asked = [key for key in dict.fromkeys(keys) if key not in known]
        found = await asyncio.gather(*(self.find(*key) for key in asked))
        parts: dict[Key, Part] = {
            key: one for key, one in zip(asked, found, strict=True) if one is not None
        }
        return Observed({**known, **parts})

    async def everything(self, name: str, first: Rule | None = None) -> Observed:
        """Read all that there may be of a load balancer alone.

        Args:
            name: The name of the load balancer.
            first: Its first forwarding rule, if it has just been read, which tells its form.

        Raises:
            CloudError: Google gives no usable answer.
        """
        forms = tuple(Form) if first is None else (first.form,)
        return await self.parts(naming.parts_of(name, first, forms), first)

    async def everything_of_subset(self, names: SubsetNames, first: Rule | None = None) -> Observed:
        """Read all that there may be of a load balancer with a subset of the nodes.

        Raises:
            CloudError: Google gives no usable answer.
        """
        observed = await self.subset(names, first)
        return observed.with_parts((await self.endpoints(names, partial=False)).parts)

    async def subset(self, names: SubsetNames, first: Rule | None = None) -> Observed:
        """Read what there may be of a load balancer with a subset of the nodes, but its groups.

        Raises:
            CloudError: Google gives no usable answer.
        """
        return _without_others(await self.parts(subset_keys(names), first), names)

    async def endpoints(self, names: SubsetNames, *, partial: bool = True) -> Observed:
        """Read the groups of endpoints of a Service in all zones, with their members.

        Args:
            names: The names of the Service's parts.
            partial: Whether zones that Google does not reach may be left out.

        Raises:
            CloudError: Google gives no usable answer.
        """
        name = names.own
        listing = await self._zonal(Kind.ENDPOINTS, name, partial=partial)
        found = [one for scope in listing.scopes for one in scope.endpoint_groups]
        zones = _zones_of(found, name, names.service)
        members = await asyncio.gather(*(self._attached(name, zone) for zone in zones))
        return Observed(
            {
                (Kind.ENDPOINTS, zone): Endpoints(zone, machines)
                for zone, machines in zip(zones, members, strict=True)
            }
        )

    async def _attached(self, name: str, zone: str) -> frozenset[Machine]:
        operation = "listNetworkEndpoints"
        path = f"{self.path(Kind.ENDPOINTS, name, zone)}/{operation}"
        body = {"healthStatus": "SKIP"}
        found = await self._api.listed(f"{Kind.ENDPOINTS}.{operation}", path, _Attached, body=body)
        names = (one.network_endpoint.instance for one in found)
        return frozenset(machine(zone, last_part(one)) for one in names if one)

    async def groups(self, name: str) -> Observed:
        """Read the instance groups of this name in the region's zones, with their members.

        Those of other regions are another cluster's, which has the same id, or this cluster's in
        another cloud.

        Raises:
            CloudError: Google gives no usable answer.
        """
        found = _zones_with(await self._zonal(Kind.GROUP, name), name)
        zones = [zone for zone in found if region_of(zone) == self._place.region]
        members = await asyncio.gather(*(self._members(name, zone) for zone in zones))
        return Observed(
            {
                (Kind.GROUP, zone): Group(zone, machines)
                for zone, machines in zip(zones, members, strict=True)
            }
        )

    async def has_check_elsewhere(self, name: str, group: str) -> bool:
        """Tell whether another region has the shared health check of backend services, too.

        It is of a region, and its firewall rule of all. Who uses it has instance groups.

        Args:
            name: The name of the health check, the same in all regions.
            group: The name of the instance groups.

        Raises:
            CloudError: Google gives no usable answer.
        """
        kind, listing = Kind.REGION_CHECK, await self._zonal(Kind.GROUP, group)
        zones = {*_zones_with(listing, group), *listing.lacking}
        others = {region_of(zone) for zone in zones} - {self._place.region}
        places = [msgspec.structs.replace(self._place, region=one) for one in sorted(others)]
        paths = [one.in_region(kind.collection, name) for one in places]
        method = f"{kind.method}.get"
        found = await asyncio.gather(*(self._api.find(method, one, FORMS[kind]) for one in paths))
        return any(one is not None for one in found)

    async def _zonal(self, kind: Kind, name: str, *, partial: bool = True) -> Listing:
        path = f"projects/{self._place.project}/aggregated/{kind}"
        query = {"filter": f"name={name}"}
        operation = f"{kind}.aggregatedList"
        return await self._api.aggregated(operation, path, query, partial=partial)

    async def _members(self, name: str, zone: str) -> frozenset[Machine]:
        path = f"{self.path(Kind.GROUP, name, zone)}/listInstances"
        found = await self._api.listed(
            "instanceGroups.listInstances", path, _Member, body=_ALL_STATES
        )
        return frozenset(one for member in found if (one := machine_in(member.instance)))

    async def _reserved(self, desired: Desired, observed: Observed) -> dict[str, Address]:
        """Read the reserved addresses that it is to have, or keeps while it is made anew."""
        families = list(dict.fromkeys(one.family for one in desired.rules))
        found = await asyncio.gather(
            *(self._reserved_of(family, desired, observed) for family in families)
        )
        pairs = zip(families, found, strict=True)
        return {family: address for family, address in pairs if address is not None}

    async def _reserved_of(
        self, family: str, desired: Desired, observed: Observed
    ) -> Address | None:
        rules = [one for one in observed.rules() if one.family == family]
        asked = requested = desired.requested_of(family)
        if not asked and not rules:
            asked = next((one for one in desired.last_addresses if family_of(one) == family), "")
        elif not asked and is_held_for(desired, observed, family):
            asked = rules[0].ip
        if not asked:
            return None
        reserved = next(
            (
                one
                for one in await self.reserved_at(asked)
                if (Kind.ADDRESS, one.name) not in observed.parts
                and is_within_reach(desired, family, one)
            ),
            None,
        )
        is_asked = bool(requested) or bool(rules)
        return reserved if is_asked or is_still_free(desired, reserved) else None

    async def reserved_at(self, address: str) -> Sequence[Address]:
        """Read who has reserved an address: several may have the same in networks apart.

        Raises:
            CloudError: Google gives no usable answer.
        """
        path, query = self.path(Kind.ADDRESS), {"filter": f"address={address}"}
        found = await self._api.listed("addresses.list", path, Address, query)
        return [one for one in found if one.address == address]


def _zones_with(listing: Listing, name: str) -> list[str]:
    """Return the zones of the instance groups of this name. Pure."""
    return _zones_of([one for scope in listing.scopes for one in scope.instance_groups], name)


def _zones_of(groups: Iterable[msgspec.Raw], name: str, service: str = "") -> list[str]:
    """Return the zones of the groups of this name, but those of other Services. Pure."""
    found = [msgspec.json.decode(one, type=_Group) for one in groups]
    if service:
        found = [one for one in found if not is_others(one.description, service)]
    return sorted(last_part(one.zone) for one in found if one.name == name)


def _others(observed: Observed, names: SubsetNames) -> list[Key]:
    """Return the parts that are another Service's; whose a rule is, its labels tell first. Pure."""
    return [
        key
        for key, one in observed.parts.items()
        if not isinstance(one, Rule | Group) and is_others(one.description, names.service)
    ]


def _without_others(observed: Observed, names: SubsetNames) -> Observed:
    others = _others(observed, names)
    parts = {key: one for key, one in observed.parts.items() if key not in others}
    return msgspec.structs.replace(observed, parts=parts)


def _check_names(observed: Observed, names: SubsetNames) -> None:
    """Refuse names that are taken: what is there would be changed, and later be deleted. Pure.

    Raises:
        InvalidRequest: A part is another Service's; names it.
    """
    for kind, name in _others(observed, names):
        raise InvalidRequest(
            f"metadata.name: the {kind.word} {name} is another Service's, as its description says,"
            " and the name of this one gives the same: make the Service anew by another name"
        )
