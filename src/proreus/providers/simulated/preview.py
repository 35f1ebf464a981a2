"""Foresees what `ensure` would do to a load balancer, step by step. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from proreus.cloudprovider.load_balancers import LoadBalancer, PartChange
from proreus.cloudprovider.steps import foresee
from proreus.providers.simulated.parts import Address, Balancer, Firewall, Listener, Part, Target
from proreus.providers.simulated.plan import (
    AddTargets,
    Change,
    Create,
    Delete,
    Observed,
    RemoveTargets,
    Step,
    plan,
)

_KINDS: Mapping[str, type[Part]] = {
    kind.collection: kind for kind in (Address, Balancer, Listener, Firewall)
}
_NOT_SHOWN = frozenset(
    {"name", "tags", "idempotency_token", "address_id", "load_balancer_id", "protocol", "port"}
)


def changes(desired: LoadBalancer, observed: Observed, region: str) -> tuple[PartChange, ...]:
    """Return every change that `ensure` would make, in its order; none if all is as desired."""
    steps, _ = foresee(observed, lambda observed: plan(desired, observed, region), pretend)
    return tuple(change for step in steps for change in part_changes(step))


def part_changes(step: Step) -> Iterator[PartChange]:
    """Return the lines of `proreus plan` about one step."""
    match step:
        case Create(collection, body):
            detail = _detail({key: value for key, value in body.items() if value not in ("", None)})
            yield PartChange("create", _named(_KINDS[collection], body), detail)
        case Change(part, new):
            yield PartChange("change", f"{_kind(part)} {part.id}", _detail(new) or "tags")
        case Delete(part):
            yield PartChange("delete", f"{_kind(part)} {part.id}")
        case AddTargets(_, targets):
            for target in targets:
                yield PartChange("create", f"target {target.instance_id}", target.address)
        case RemoveTargets(_, ids):
            for id_ in ids:
                yield PartChange("delete", f"target {id_}")


def _kind(part: Part) -> str:
    return str(part.__struct_config__.tag)


def _named(kind: type[Part], body: Mapping[str, Any]) -> str:
    name = str(kind.__struct_config__.tag)
    return f"{name} {body['protocol']}/{body['port']}" if kind is Listener else name


def _detail(fields: Mapping[str, Any]) -> str:
    shown = {key: value for key, value in fields.items() if key not in _NOT_SHOWN}
    return ", ".join(f"{key}={_text(value)}" for key, value in sorted(shown.items()))


def _text(value: Any) -> str:
    plain = msgspec.to_builtins(value)
    if isinstance(plain, dict):
        return " ".join(f"{key}:{one}" for key, one in plain.items())
    return " ".join(map(str, plain)) if isinstance(plain, list | tuple) else str(plain).lower()


def pretend(observed: Observed, step: Step) -> Observed:
    """Return what the cloud would have after a step, if it refuses nothing."""
    parts = dict(observed.parts)
    match step:
        case Create(collection, body):
            made = _made(collection, body)
            parts[made.id] = made
            return Observed(parts, observed.made | {made.id}, observed.refused)
        case Change(part, new):
            parts[part.id] = msgspec.structs.replace(parts[part.id], **new)
        case Delete(part):
            del parts[part.id]
        case AddTargets(balancer, targets):
            others = {one.instance_id: one for one in _targets(parts, balancer)}
            others.update({one.instance_id: one for one in targets})
            _retarget(parts, balancer, tuple(others.values()))
        case RemoveTargets(balancer, ids):
            kept = tuple(one for one in _targets(parts, balancer) if one.instance_id not in ids)
            _retarget(parts, balancer, kept)
    return msgspec.structs.replace(observed, parts=parts)


def _targets(parts: Mapping[str, Part], balancer: Balancer) -> tuple[Target, ...]:
    part = parts[balancer.id]
    return part.targets if isinstance(part, Balancer) else ()


def _retarget(parts: dict[str, Part], balancer: Balancer, targets: tuple[Target, ...]) -> None:
    parts[balancer.id] = msgspec.structs.replace(parts[balancer.id], targets=targets)


def _made(collection: str, body: Mapping[str, Any]) -> Part:
    """Return a part as it would be; only the cloud knows its id, and an address of the pool."""
    kind = _KINDS[collection]
    fields = {key: value for key, value in body.items() if key != "idempotency_token"}
    if kind is Balancer:
        fields["state"] = "active"
    return kind(id=f"new {body['name']}/{collection}", version=0, created=0.0, **fields)
