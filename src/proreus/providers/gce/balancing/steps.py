"""Define the observed state of a load balancer, and the steps: values, no decisions. Pure."""

from collections.abc import Collection, Mapping

import msgspec

from proreus.providers.gce.balancing.parts import (
    Address,
    BackendService,
    Group,
    Kind,
    Part,
    Pool,
    Rule,
)
from proreus.providers.gce.names import Machine

Key = tuple[Kind, str]
"""A part by its kind and its name; an instance group by its zone."""


class Observed(msgspec.Struct, frozen=True):
    """The observed state of a load balancer.

    Attributes:
        parts: The parts, by kind and name.
        reserved: Whoever's reserved address it is to have, or has.
        refused: By instance why it could not be a host.
    """

    parts: Mapping[Key, Part] = {}
    reserved: Address | None = None
    refused: Mapping[Machine, str] = {}

    def rule(self, name: str) -> Rule | None:
        """Return the forwarding rule."""
        found = self.parts.get((Kind.RULE, name))
        return found if isinstance(found, Rule) else None

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
        """Return the instance groups by zone."""
        return {name: one for (_, name), one in self.parts.items() if isinstance(one, Group)}

    def with_part(self, key: Key, part: Part | None) -> "Observed":
        """Return a copy with a part put in, or taken out."""
        rest = {one: found for one, found in self.parts.items() if one != key}
        return msgspec.structs.replace(self, parts=rest if part is None else {**rest, key: part})


def without(observed: Observed, kinds: Collection[Kind]) -> Observed:
    """Return the observed state without the parts of some kinds."""
    parts = {key: one for key, one in observed.parts.items() if key[0] not in kinds}
    return msgspec.structs.replace(observed, parts=parts)


class Insert(msgspec.Struct, frozen=True):
    """The step to make a part."""

    kind: Kind
    part: Part


class Change(msgspec.Struct, frozen=True):
    """The step to change a part; `fields` are those that differ."""

    kind: Kind
    part: Part
    fields: tuple[str, ...]


class Delete(msgspec.Struct, frozen=True):
    """The step to delete a part."""

    kind: Kind
    name: str


class AddHosts(msgspec.Struct, frozen=True):
    """The step to add instances to the target pool, or to the group of a zone."""

    kind: Kind
    name: str
    machines: tuple[Machine, ...]


class RemoveHosts(msgspec.Struct, frozen=True):
    """The step to remove instances from the target pool, or from the group of a zone."""

    kind: Kind
    name: str
    machines: tuple[Machine, ...]


class AttachCheck(msgspec.Struct, frozen=True):
    """The step to give the target pool a health check."""

    pool: str
    check: str


class DetachCheck(msgspec.Struct, frozen=True):
    """The step to detach the health check from the target pool."""

    pool: str
    check: str


Step = Insert | Change | Delete | AddHosts | RemoveHosts | AttachCheck | DetachCheck


def key_of(kind: Kind, part: Part) -> Key:
    """Return the key of a part."""
    return kind, part.name


def pretend(observed: Observed, step: Step) -> Observed:
    """Return the state after a step; an address that Google chooses is not known before."""
    match step:
        case Insert(kind, part):
            return observed.with_part(key_of(kind, _new(part)), _new(part))
        case Change(kind, part):
            return observed.with_part(key_of(kind, part), part)
        case Delete(kind, name):
            return observed.with_part((kind, name), None)
        case AddHosts(kind, name, machines) | RemoveHosts(kind, name, machines):
            return _with_hosts(observed, (kind, name), machines, adds=isinstance(step, AddHosts))
        case AttachCheck(name, check_) | DetachCheck(name, check_):
            pool = observed.pool(name)
            if pool is None:
                return observed
            checks = (check_,) if isinstance(step, AttachCheck) else ()
            changed = msgspec.structs.replace(pool, health_checks=checks)
            return observed.with_part((Kind.POOL, name), changed)
    raise AssertionError(step)


def _new(part: Part) -> Part:
    if isinstance(part, Rule) and not part.address:
        return msgspec.structs.replace(part, address="(new)")
    return part


def _with_hosts(
    observed: Observed, key: Key, machines: tuple[Machine, ...], *, adds: bool
) -> Observed:
    part, these = observed.parts.get(key), frozenset(machines)
    if isinstance(part, Group):
        rest = part.machines | these if adds else part.machines - these
        return observed.with_part(key, Group(part.name, rest))
    if isinstance(part, Pool):
        rest = part.machines | these if adds else part.machines - these
        urls = tuple(f"zones/{one.zone}/instances/{one.name}" for one in sorted(rest))
        return observed.with_part(key, msgspec.structs.replace(part, instances=urls))
    return observed
