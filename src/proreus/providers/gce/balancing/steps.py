"""Make the steps that change a load balancer: call, effect and preview of each. Pure."""

from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from proreus.cloudprovider.load_balancers import PartChange
from proreus.cloudprovider.steps import PlannedCall
from proreus.providers.gce.balancing.parts import (
    Address,
    BackendService,
    Group,
    Kind,
    Part,
    Pool,
    Rule,
)
from proreus.providers.gce.names import Machine, last_part

Key = tuple[Kind, str]
"""A part by its kind and its name; a group by its zone."""
_ZONAL: Final = frozenset({Kind.GROUP, Kind.ENDPOINTS})


class Observed(msgspec.Struct, frozen=True):
    """The observed state of a load balancer.

    Attributes:
        parts: The parts, by kind and name.
        reserved: The reserved address, whoever has reserved it, that it has or is to have, by
            family.
        refused: By instance the reason why it could not be a host.
    """

    parts: Mapping[Key, Part] = {}
    reserved: Mapping[str, Address] = {}
    refused: Mapping[Machine, str] = {}

    def rule(self, name: str) -> Rule | None:
        """Return the forwarding rule."""
        found = self.parts.get((Kind.RULE, name))
        return found if isinstance(found, Rule) else None

    def rules(self) -> list[Rule]:
        """Return all forwarding rules."""
        return [one for one in self.parts.values() if isinstance(one, Rule)]

    def pool(self, name: str) -> Pool | None:
        """Return the target pool."""
        found = self.parts.get((Kind.POOL, name))
        return found if isinstance(found, Pool) else None

    def backend(self, name: str) -> BackendService | None:
        """Return a backend service."""
        found = self.parts.get((Kind.SERVICE, name))
        return found if isinstance(found, BackendService) else None

    def address(self, name: str) -> Address | None:
        """Return the address that is reserved for the load balancer."""
        found = self.parts.get((Kind.ADDRESS, name))
        return found if isinstance(found, Address) else None

    def groups(self) -> dict[str, Group]:
        """Return the groups by zone: instance groups, or groups of endpoints."""
        return {name: one for (_, name), one in self.parts.items() if isinstance(one, Group)}

    def grouped(self) -> frozenset[Machine]:
        """Return the instances that are in the groups."""
        return frozenset(one for group in self.groups().values() for one in group.machines)

    def with_parts(self, parts: Mapping[Key, Part]) -> "Observed":
        """Return a copy with more parts."""
        return msgspec.structs.replace(self, parts={**self.parts, **parts})

    def with_part(self, key: Key, part: Part | None) -> "Observed":
        """Return a copy with a part put in, or taken out."""
        rest = {one: found for one, found in self.parts.items() if one != key}
        return msgspec.structs.replace(self, parts=rest if part is None else {**rest, key: part})


def without(observed: Observed, kinds: Collection[Kind]) -> Observed:
    """Return the observed state without the parts of some kinds."""
    parts = {key: one for key, one in observed.parts.items() if key[0] not in kinds}
    return msgspec.structs.replace(observed, parts=parts)


class Insert(msgspec.Struct, frozen=True):
    """The call that makes a part."""

    kind: Kind
    part: Part


class Change(msgspec.Struct, frozen=True):
    """The call that changes a part; what others have put into one that `is_shared` stays."""

    kind: Kind
    part: Part
    is_shared: bool = False


class Delete(msgspec.Struct, frozen=True):
    """The call that deletes a part."""

    kind: Kind
    name: str


class Hosts(msgspec.Struct, frozen=True):
    """The call that adds instances to the target pool or the group of a zone, or removes them."""

    kind: Kind
    name: str
    machines: tuple[Machine, ...]
    adds: bool


class PoolCheck(msgspec.Struct, frozen=True):
    """The call that adds a health check to the target pool, or removes it."""

    pool: str
    check: str
    adds: bool


Step = PlannedCall[Insert | Change | Delete | Hosts | PoolCheck, Observed]
Effect = Callable[[Observed], Observed]
"""A function from the state observed before a step to the state after it."""


def insert(kind: Kind, part: Part) -> Step:
    """Return the step to make a part; an address that Google chooses is not known before."""
    made, detail = part, ""
    if isinstance(part, Rule):
        made = msgspec.structs.replace(part, address=part.address or "(new)")
        ports = part.port_range or ",".join(part.ports) or "all ports"
        detail = f"{part.protocol} {ports}"
    line = PartChange("create", _title(kind, part.name), detail)
    return PlannedCall(Insert(kind, part), _with(kind, part.name, made), (line,))


def change(kind: Kind, part: Part, fields: tuple[str, ...], *, is_shared: bool = False) -> Step:
    """Return the step to change a part; `fields` are those that differ."""
    line = PartChange("change", _title(kind, part.name), ", ".join(fields))
    return PlannedCall(Change(kind, part, is_shared), _with(kind, part.name, part), (line,))


def delete(kind: Kind, name: str) -> Step:
    """Return the step to delete a part."""
    line = PartChange("delete", _title(kind, name))
    return PlannedCall(Delete(kind, name), _with(kind, name, None), (line,))


def hosts(kind: Kind, name: str, machines: tuple[Machine, ...], *, adds: bool) -> Step:
    """Return the step to add instances to the target pool or the group of a zone, or remove."""
    these = frozenset(machines)

    def after(before: Observed) -> Observed:
        part = before.parts.get((kind, name))
        if not isinstance(part, Group | Pool):
            return before
        rest = part.machines | these if adds else part.machines - these
        changed: Part
        if isinstance(part, Group):
            changed = msgspec.structs.replace(part, machines=rest)
        else:
            urls = tuple(f"zones/{one.zone}/instances/{one.name}" for one in sorted(rest))
            changed = msgspec.structs.replace(part, instances=urls)
        return before.with_part((kind, name), changed)

    title = _title(kind, name)
    lines = (PartChange("create" if adds else "delete", f"{title} host {one}") for one in machines)
    return PlannedCall(Hosts(kind, name, machines, adds), after, tuple(lines))


def pool_check(pool: str, check: str, *, adds: bool) -> Step:
    """Return the step to add a health check to the target pool, or remove it."""

    def after(before: Observed) -> Observed:
        part = before.pool(pool)
        if part is None:
            return before
        changed = msgspec.structs.replace(part, health_checks=(check,) if adds else ())
        return before.with_part((Kind.POOL, pool), changed)

    detail = f"{'' if adds else 'no '}health check {last_part(check)}"
    line = PartChange("change", _title(Kind.POOL, pool), detail)
    return PlannedCall(PoolCheck(pool, check, adds), after, (line,))


def _with(kind: Kind, name: str, part: Part | None) -> Effect:
    return lambda before: before.with_part((kind, name), part)


def _title(kind: Kind, name: str) -> str:
    return f"{kind.word} {f'of {name}' if kind in _ZONAL else name}"
