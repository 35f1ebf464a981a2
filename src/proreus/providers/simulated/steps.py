"""Make the steps that change a load balancer of the simulated cloud. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from proreus.cloudprovider.load_balancers import LoadBalancer, PartChange
from proreus.cloudprovider.requests import Request
from proreus.cloudprovider.steps import PlannedCall
from proreus.providers.simulated import api
from proreus.providers.simulated.parts import Balancer, Listener, Observed, Part, Target

Step = PlannedCall[Request, Observed]

_NOT_SHOWN = frozenset({"tags", "address_id", "load_balancer_id", "protocol", "port"})


def create(desired: LoadBalancer, kind: type[Part], suffix: str, fields: Mapping[str, Any]) -> Step:
    """Return the step to make a part, which has our marks from its creation."""
    ref, collection = desired.ref, kind.collection
    common: dict[str, Any] = {
        "name": f"{ref.name}-{suffix}" if suffix else ref.name,
        "tags": dict(desired.marks),
        **fields,
    }
    token = f"{ref.cluster.uid}/{ref.uid}/{collection}/{suffix}"
    # Only the cloud knows its id, and an address of the pool.
    unknown: dict[str, Any] = {
        "id": f"new {common['name']}/{collection}",
        "version": 0,
        "created": 0.0,
    }
    if kind is Balancer:
        unknown["state"] = "active"
    part = kind(**common, **unknown)
    shown = {key: value for key, value in fields.items() if value not in ("", None)}
    port = f" {part.protocol}/{part.port}" if isinstance(part, Listener) else ""
    line = PartChange("create", f"{_kind(part)}{port}", _detail(shown))
    return Step(
        api.create(collection, {**common, "idempotency_token": token}),
        lambda before: before.having(part),
        (line,),
    )


def changed(desired: LoadBalancer, part: Part, fields: Mapping[str, Any]) -> list[Step]:
    """Return the step to give a part these fields and our marks; none if it has them."""
    changes = {name: value for name, value in fields.items() if getattr(part, name) != value}
    if any(part.tags.get(key) != value for key, value in desired.marks.items()):
        changes["tags"] = {**part.tags, **desired.marks}
    if not changes:
        return []
    line = PartChange("change", f"{_kind(part)} {part.id}", _detail(changes) or "tags")
    return [Step(api.update(part, changes), lambda before: _with(before, part, changes), (line,))]


def delete(part: Part) -> Step:
    """Return the step to delete a part."""
    line = PartChange("delete", f"{_kind(part)} {part.id}")
    return Step(api.delete(part), lambda before: before.without(part), (line,))


def add_targets(balancer: Balancer, targets: tuple[Target, ...]) -> Step:
    """Return the step to add targets, or to change their addresses."""

    def after(before: Observed) -> Observed:
        current = {target.instance_id: target for target in _targets(before, balancer)}
        current.update({target.instance_id: target for target in targets})
        return _with(before, balancer, {"targets": tuple(current.values())})

    lines = (PartChange("create", f"target {t.instance_id}", t.address) for t in targets)
    return Step(api.change_targets(balancer.id, "add", {"targets": targets}), after, tuple(lines))


def remove_targets(balancer: Balancer, ids: tuple[str, ...]) -> Step:
    """Return the step to take targets off."""

    def after(before: Observed) -> Observed:
        kept = tuple(t for t in _targets(before, balancer) if t.instance_id not in ids)
        return _with(before, balancer, {"targets": kept})

    lines = (PartChange("delete", f"target {id_}") for id_ in ids)
    return Step(
        api.change_targets(balancer.id, "remove", {"instance_ids": ids}), after, tuple(lines)
    )


def _with(before: Observed, part: Part, changes: Mapping[str, Any]) -> Observed:
    return before.having(msgspec.structs.replace(before.parts[part.id], **changes))


def _targets(before: Observed, balancer: Balancer) -> tuple[Target, ...]:
    part = before.parts[balancer.id]
    return part.targets if isinstance(part, Balancer) else ()


def _kind(part: Part) -> str:
    return str(part.__struct_config__.tag)


def _detail(fields: Mapping[str, Any]) -> str:
    shown = {key: value for key, value in fields.items() if key not in _NOT_SHOWN}
    return ", ".join(f"{key}={_text(value)}" for key, value in sorted(shown.items()))


def _text(value: Any) -> str:
    plain = msgspec.to_builtins(value)
    if isinstance(plain, dict):
        return " ".join(f"{key}:{part}" for key, part in plain.items())
    return " ".join(map(str, plain)) if isinstance(plain, list | tuple) else str(plain).lower()
