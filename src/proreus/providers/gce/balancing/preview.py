"""Describe steps for `proreus plan`. Pure."""

from collections.abc import Iterator

from proreus.cloudprovider.load_balancers import PartChange
from proreus.providers.gce.balancing.parts import Kind, Part, Rule
from proreus.providers.gce.balancing.steps import (
    AddHosts,
    AttachCheck,
    Change,
    Delete,
    DetachCheck,
    Insert,
    RemoveHosts,
    Step,
)
from proreus.providers.gce.names import last_part


def part_changes(step: Step) -> Iterator[PartChange]:
    """Return what a step changes, in words."""
    match step:
        case Insert(kind, part):
            yield PartChange("create", f"{kind.word} {_name(kind, part.name)}", _detail(part))
        case Change(kind, part, fields):
            yield PartChange("change", f"{kind.word} {part.name}", ", ".join(fields))
        case Delete(kind, name):
            yield PartChange("delete", f"{kind.word} {name}")
        case AddHosts(kind, name, machines):
            part_name = f"{kind.word} {_name(kind, name)}"
            yield from (PartChange("create", f"{part_name} host {one}") for one in machines)
        case RemoveHosts(kind, name, machines):
            part_name = f"{kind.word} {_name(kind, name)}"
            yield from (PartChange("delete", f"{part_name} host {one}") for one in machines)
        case AttachCheck(pool, check):
            yield PartChange("change", f"target pool {pool}", f"health check {last_part(check)}")
        case DetachCheck(pool, check):
            yield PartChange("change", f"target pool {pool}", f"no health check {last_part(check)}")


def _name(kind: Kind, name: str) -> str:
    return f"of {name}" if kind is Kind.GROUP else name


def _detail(part: Part) -> str:
    if isinstance(part, Rule):
        ports = part.port_range or ",".join(part.ports) or "all ports"
        return f"{part.protocol} {ports}"
    return ""
