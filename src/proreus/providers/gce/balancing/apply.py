"""Take the steps of a plan, one call for each."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from proreus.cloudprovider.lookups import all_but_refused
from proreus.cloudprovider.refused import Refused
from proreus.providers.gce.api import Api
from proreus.providers.gce.balancing.observe import Observer
from proreus.providers.gce.balancing.parts import Group, Kind, Part, Pool, Rule
from proreus.providers.gce.balancing.steps import (
    AddHosts,
    AttachCheck,
    Change,
    Delete,
    DetachCheck,
    Insert,
    Observed,
    RemoveHosts,
    Step,
    pretend,
)
from proreus.providers.gce.names import Machine, instance_path, machine_in
from proreus.providers.gce.place import Place

Effect = Callable[[Observed], Observed]
"""A function from the state observed before a step to the state after it."""


class Applier:
    """A taker of steps."""

    def __init__(self, api: Api, place: Place, observer: Observer) -> None:
        """Keep the client of Google, and the project, region and network of the cluster."""
        self._api = api
        self._place = place
        self._observer = observer

    async def take(self, step: Step, group: str = "") -> Effect:
        """Take one step; return how it changes what was observed.

        Args:
            step: The step.
            group: The name of instance groups.

        Raises:
            CloudError: Google refuses.
        """
        match step:
            case Insert(kind, part):
                return await self._insert(kind, part, group)
            case Change(kind, part, _):
                await self._change(kind, part)
            case Delete(kind, name):
                await self._api.delete(f"{kind.method}.delete", self._observer.path(kind, name))
            case AddHosts() | RemoveHosts():
                return await self._hosts(step, group)
            case AttachCheck(pool, check) | DetachCheck(pool, check):
                verb = "addHealthCheck" if isinstance(step, AttachCheck) else "removeHealthCheck"
                body = {"healthChecks": [{"healthCheck": self._place.url(check)}]}
                path = f"{self._observer.path(Kind.POOL, pool)}/{verb}"
                await self._api.change(f"targetPools.{verb}", path, body)
        return lambda observed: pretend(observed, step)

    async def _insert(self, kind: Kind, part: Part, group: str) -> Effect:
        operation = f"{kind.method}.insert"
        if isinstance(part, Group):
            path = self._observer.path(kind, "", part.name)
            await self._api.change(operation, path, {"name": group})
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
        return lambda observed: pretend(observed, Insert(kind, part))

    async def _change(self, kind: Kind, part: Part) -> None:
        path = self._observer.path(kind, part.name)
        if kind is Kind.FIREWALL:
            # A patch leaves what others have set, such as a priority; lists are told in full.
            body: Mapping[str, Any] = {"destinationRanges": [], **msgspec.to_builtins(part)}
            await self._api.change("firewalls.patch", path, body)
            return
        await self._api.change(f"{kind.method}.update", path, part)

    async def _hosts(self, step: AddHosts | RemoveHosts, group: str) -> Effect:
        is_group, adds = step.kind is Kind.GROUP, isinstance(step, AddHosts)
        verb = "add" if adds else "remove"
        verb += "Instances" if is_group else "Instance"
        name, zone = (group, step.name) if is_group else (step.name, "")
        path = f"{self._observer.path(step.kind, name, zone)}/{verb}"

        async def send(machines: list[Machine]) -> None:
            urls = [self._url(one) for one in machines]
            body = {"instances": [{"instance": url} for url in urls]}
            await self._api.change(f"{step.kind.method}.{verb}", path, body)

        by_text = {str(one): one for one in step.machines}

        async def send_texts(texts: list[str]) -> None:
            await send([by_text[text] for text in texts])

        refused = await all_but_refused(send_texts, by_text, _named)
        if not adds:
            # What Google does not know any more is no host any more.
            return lambda observed: pretend(observed, step)
        why = {by_text[text]: reason for text, reason in refused.items()}
        added = AddHosts(
            step.kind, step.name, tuple(one for one in step.machines if one not in why)
        )
        return lambda observed: msgspec.structs.replace(
            pretend(observed, added), refused={**observed.refused, **why}
        )

    def _url(self, machine: Machine) -> str:
        return self._place.url(instance_path(self._place.project, machine))


def _named(error: Refused) -> set[str]:
    """Return the instances that a refusal names as missing."""
    if error.code not in {"notFound", "invalid", "memberNotFound"}:
        return set()
    parts = error.text.replace("'", " ").split()
    return {str(found) for part in parts if (found := machine_in(part)) is not None}
