"""Take the steps of a plan, one call for each."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from proreus.cloudprovider.lookups import all_but_refused
from proreus.cloudprovider.refused import Refused
from proreus.providers.gce.api import Api
from proreus.providers.gce.balancing.firewalls import with_tags
from proreus.providers.gce.balancing.observe import Observer
from proreus.providers.gce.balancing.parts import (
    Endpoints,
    Firewall,
    Group,
    Kind,
    Part,
    Pool,
    Rule,
)
from proreus.providers.gce.balancing.steps import (
    Change,
    Delete,
    Effect,
    Hosts,
    Insert,
    PoolCheck,
    Step,
    hosts,
)
from proreus.providers.gce.balancing.sweeping import sweeps_of
from proreus.providers.gce.names import Machine, instance_path, machine_in
from proreus.providers.gce.place import Place


class Applier:
    """A client of Google that takes the steps of a plan."""

    def __init__(self, api: Api, place: Place, observer: Observer) -> None:
        """Keep the client of Google, and the project, region and network of the cluster."""
        self._api = api
        self._place = place
        self._observer = observer
        self._sweeps = sweeps_of(place)

    async def take(self, step: Step, group: str = "") -> Effect:
        """Take one step; return how it changes what was observed.

        Args:
            step: The step.
            group: The name of instance groups, or of groups of endpoints.

        Raises:
            CloudError: Google refuses.
        """
        match step.call:
            case Insert(kind, part):
                return await self._insert(kind, part, group, step.after)
            case Change() as call:
                await self._change(call)
            case Delete(kind, name):
                resource, zone = (group, name) if kind is Kind.ENDPOINTS else (name, "")
                path = self._observer.path(kind, resource, zone)
                await self._api.delete(f"{kind.method}.delete", path)
            case Hosts() as call:
                return await self._hosts(call, group, step.after)
            case PoolCheck(pool, check, adds):
                verb = "addHealthCheck" if adds else "removeHealthCheck"
                body = {"healthChecks": [{"healthCheck": self._place.url(check)}]}
                path = f"{self._observer.path(Kind.POOL, pool)}/{verb}"
                await self._api.change(f"targetPools.{verb}", path, body)
        return step.after

    async def _insert(self, kind: Kind, part: Part, group: str, after: Effect) -> Effect:
        operation = f"{kind.method}.insert"
        if isinstance(part, Group):
            path = self._observer.path(kind, "", part.name)
            await self._api.change(operation, path, _made(part, group))
        else:
            try:
                await self._api.change(operation, self._observer.path(kind), part)
            except Refused as error:
                missing = {Machine(one) for one in _named(error)}
                if not isinstance(part, Pool) or not missing & part.machines:
                    raise
                why = dict.fromkeys(missing, error.text)
                return lambda observed: msgspec.structs.replace(
                    observed, refused={**observed.refused, **why}
                )
        if isinstance(part, Rule):
            made = await self._observer.find(kind, part.name)
            return lambda observed: observed.with_part((kind, part.name), made)
        return after

    async def _change(self, call: Change) -> None:
        kind, part = call.kind, call.part
        if call.is_shared and isinstance(part, Firewall):
            # Google takes the last list of tags, whatever it was made from.
            async with self._sweeps.turn:
                there = await self._observer.find(kind, part.name)
                await self._write(kind, with_tags(part, there))
        else:
            await self._write(kind, part)

    async def _write(self, kind: Kind, part: Part) -> None:
        path = self._observer.path(kind, part.name)
        if kind is Kind.FIREWALL:
            # A patch leaves what others have set, such as a priority; lists are told in full.
            body: Mapping[str, Any] = {"destinationRanges": [], **msgspec.to_builtins(part)}
            await self._api.change("firewalls.patch", path, body)
            return
        await self._api.change(f"{kind.method}.update", path, part)

    async def _hosts(self, call: Hosts, group: str, after: Effect) -> Effect:
        verb, field = _VERBS[call.kind, call.adds]
        name, zone = (call.name, "") if call.kind is Kind.POOL else (group, call.name)
        path = f"{self._observer.path(call.kind, name, zone)}/{verb}"
        by_text = {str(one): one for one in call.machines}

        async def send(texts: list[str]) -> None:
            body = {field: [{"instance": self._named(call.kind, by_text[text])} for text in texts]}
            await self._api.change(f"{call.kind.method}.{verb}", path, body)

        refused = await all_but_refused(send, by_text, _named)
        if not call.adds:
            # What Google does not know any more is no host any more.
            return after
        why = {by_text[text]: reason for text, reason in refused.items()}
        rest = tuple(one for one in call.machines if one not in why)
        added = hosts(call.kind, call.name, rest, adds=True)
        return lambda observed: msgspec.structs.replace(
            added.after(observed), refused={**observed.refused, **why}
        )

    def _named(self, kind: Kind, machine: Machine) -> str:
        """Return what an instance is called: by its name where the zone is the group's."""
        if kind is Kind.ENDPOINTS:
            return machine.name
        return self._place.url(instance_path(self._place.project, machine))


_VERBS: Final = {
    (Kind.ENDPOINTS, True): ("attachNetworkEndpoints", "networkEndpoints"),
    (Kind.ENDPOINTS, False): ("detachNetworkEndpoints", "networkEndpoints"),
    (Kind.GROUP, True): ("addInstances", "instances"),
    (Kind.GROUP, False): ("removeInstances", "instances"),
    (Kind.POOL, True): ("addInstance", "instances"),
    (Kind.POOL, False): ("removeInstance", "instances"),
}
"""The methods that let instances join and leave, and the field in their requests."""


def _made(part: Group, name: str) -> Mapping[str, str]:
    """Return the request that makes a group."""
    if not isinstance(part, Endpoints):
        return {"name": name}
    return {
        "name": name,
        "description": part.description,
        "networkEndpointType": "GCE_VM_IP",
        "network": part.network,
        "subnetwork": part.subnetwork,
    }


def _named(error: Refused) -> set[str]:
    """Return the instances that a refusal names as missing."""
    if error.code not in {"notFound", "invalid", "memberNotFound"}:
        return set()
    parts = error.text.replace("'", " ").split()
    return {str(found) for part in parts if (found := machine_in(part)) is not None}
