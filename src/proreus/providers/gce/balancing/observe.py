"""Read the parts of load balancers."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from proreus.providers.gce.api import Api
from proreus.providers.gce.balancing import naming
from proreus.providers.gce.balancing.addresses import is_still_free
from proreus.providers.gce.balancing.desired import Desired
from proreus.providers.gce.balancing.parts import FORMS, Address, Group, Kind, Part, Rule
from proreus.providers.gce.balancing.plan import check_kind, obsolete, own_check_firewalls
from proreus.providers.gce.balancing.steps import Key, Observed
from proreus.providers.gce.names import Machine, last_part, machine_in
from proreus.providers.gce.place import Place

_ALL_STATES: Final = {"instanceState": "ALL"}


class _Group(msgspec.Struct, frozen=True):
    name: str
    zone: str


class _Member(msgspec.Struct, frozen=True):
    instance: str


class Observer:
    """A reader of the parts of load balancers."""

    def __init__(self, api: Api, place: Place) -> None:
        """Keep the client of Google, and the project, region and network of the cluster."""
        self._api = api
        self._place = place

    def path(self, kind: Kind, name: str = "", zone: str = "") -> str:
        """Return the path of a part, or of its collection."""
        place = self._place
        if kind is Kind.GROUP:
            return place.in_zone(zone, kind, name)
        if kind is Kind.FIREWALL:
            return place.of_network(kind, name)
        if kind in {Kind.CHECK, Kind.HTTP_CHECK}:
            return place.everywhere(kind, name)
        return place.in_region(kind, name)

    async def find(self, kind: Kind, name: str) -> Any:
        """Return a part; None if there is none.

        Raises:
            CloudError: Google does not tell.
        """
        return await self._api.find(f"{kind.method}.get", self.path(kind, name), FORMS[kind])

    async def observe(self, desired: Desired, first: Rule | None = None) -> Observed:
        """Read the parts that a plan for the desired load balancer depends on.

        Args:
            desired: What is desired.
            first: The first forwarding rule, if it has just been read.

        Raises:
            CloudError: Google does not tell.
        """
        name = desired.name
        keys: list[Key] = [
            (Kind.RULE, name),
            (Kind.ADDRESS, name),
            (Kind.FIREWALL, naming.firewall(name)),
            (check_kind(desired), desired.check.name),
            *((Kind.FIREWALL, one.name) for one in desired.check_firewalls.values()),
        ]
        if desired.backend is None:
            keys += [(Kind.POOL, name), (Kind.RULE, naming.udp_rule(name))]
        else:
            keys += [(Kind.SERVICE, desired.backend.name), (Kind.FIREWALL, name)]
            if desired.backend.name != name:
                keys.append((Kind.SERVICE, name))
        if desired.shares_check:
            keys.append((check_kind(desired), name))
        observed = await self.parts(keys, first)
        if desired.shares_check and (check_kind(desired), name) in observed.parts:
            more = await self.parts((Kind.FIREWALL, one) for one in own_check_firewalls(name))
            observed = msgspec.structs.replace(observed, parts={**observed.parts, **more.parts})
        return msgspec.structs.replace(observed, reserved=await self._reserved(desired, observed))

    async def parts(self, keys: Iterable[Key], first: Rule | None = None) -> Observed:
        """Read some parts side by side, but for a forwarding rule that is known.

        Raises:
            CloudError: Google does not tell.
        """
        known: dict[Key, Part] = {} if first is None else {(Kind.RULE, first.name): first}
        asked = [key for key in dict.fromkeys(keys) if key not in known]
        found = await asyncio.gather(*(self.find(*key) for key in asked))
        parts: dict[Key, Part] = {
            key: one for key, one in zip(asked, found, strict=True) if one is not None
        }
        return Observed({**known, **parts})

    async def everything(self, name: str, first: Rule | None = None) -> Observed:
        """Read all parts that may be named after a load balancer, of both kinds.

        Args:
            name: Of the load balancer.
            first: Its first forwarding rule, if it has just been read.

        Raises:
            CloudError: Google does not tell.
        """
        kinds = (Kind.RULE, Kind.ADDRESS, Kind.POOL, Kind.SERVICE, Kind.HTTP_CHECK, Kind.CHECK)
        firewalls = (naming.firewall(name), name, *own_check_firewalls(name))
        keys = [*((kind, name) for kind in kinds), (Kind.RULE, naming.udp_rule(name))]
        return await self.parts([*keys, *((Kind.FIREWALL, one) for one in firewalls)], first)

    async def groups(self, name: str) -> Observed:
        """Read the instance groups of this name in all zones, with their members.

        Raises:
            CloudError: Google does not tell.
        """
        path = f"projects/{self._place.project}/aggregated/instanceGroups"
        scopes, _ = await self._api.aggregated(
            "instanceGroups.aggregatedList", path, {"filter": f"name={name}"}
        )
        found = [
            msgspec.json.decode(one, type=_Group)
            for scope in scopes
            for one in scope.instance_groups
        ]
        zones = sorted(last_part(one.zone) for one in found if one.name == name)
        members = await asyncio.gather(*(self._members(name, zone) for zone in zones))
        return Observed(
            {
                (Kind.GROUP, zone): Group(zone, machines)
                for zone, machines in zip(zones, members, strict=True)
            }
        )

    async def _members(self, name: str, zone: str) -> frozenset[Machine]:
        path = f"{self.path(Kind.GROUP, name, zone)}/listInstances"
        found = await self._api.listed(
            "instanceGroups.listInstances", path, _Member, body=_ALL_STATES
        )
        return frozenset(one for member in found if (one := machine_in(member.instance)))

    async def _reserved(self, desired: Desired, observed: Observed) -> Address | None:
        """Read the reserved address, whoever owns it, that the Service asks for or should keep."""
        rules, asked = observed.rules(), desired.requested_address
        if not asked and not rules:
            asked = desired.last_address
        elif not asked and (len(rules) < len(desired.rules) or obsolete(desired, observed)):
            asked = rules[0].address
        if not asked:
            return None
        path, query = self.path(Kind.ADDRESS), {"filter": f"address={asked}"}
        found = await self._api.listed("addresses.list", path, Address, query)
        others = (one for one in found if one.name != desired.name)
        reserved = next((one for one in others if one.address == asked), None)
        is_asked = bool(desired.requested_address) or bool(rules)
        return reserved if is_asked or is_still_free(desired, reserved) else None
