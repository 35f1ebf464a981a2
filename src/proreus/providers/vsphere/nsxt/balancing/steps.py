"""Make the steps that change a load balancer: call, effect and preview of each. Pure."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from proreus.cloudprovider.load_balancers import PartChange
from proreus.cloudprovider.steps import PlannedCall
from proreus.providers.vsphere.nsxt.balancing.documents import Want, marking, normal, written
from proreus.providers.vsphere.nsxt.balancing.parts import NEW, Observed, Part, Service
from proreus.providers.vsphere.nsxt.operations import ALLOCATIONS, SERVICES, Document, Place

_UNSHOWN: Final = frozenset({"resource_type"})


class Put(msgspec.Struct, frozen=True):
    """The call that makes an object, or replaces it."""

    place: Place
    id: str
    document: Document


class Delete(msgspec.Struct, frozen=True):
    """The call that deletes an object."""

    place: Place
    id: str


class Wait(msgspec.Struct, frozen=True):
    """The step that calls nothing: NSX-T still works on something."""

    reason: str


Step = PlannedCall[Put | Delete | Wait, Observed]


def create(want: Want, id_: str) -> Step:
    """Return the step to make a part."""
    document = written(want, None)
    address = ""
    if want.place.kind == ALLOCATIONS:
        address = str(want.fields.get("allocation_ip") or NEW)
    part = Part(want.place, id_, document, address=address)
    return PlannedCall(
        Put(want.place, id_, document),
        lambda before: _with(before, part),
        (PartChange("create", want.title, _text(want.fields)),),
    )


def change(part: Part, want: Want) -> Step:
    """Return the step to change a part."""
    document = written(want, part.document)
    changed = {
        field: value
        for field, value in want.fields.items()
        if normal(field, part.document.get(field)) != normal(field, value)
    }
    return PlannedCall(
        Put(part.place, part.id, document),
        lambda before: _with(before, replace(part, document=document)),
        (PartChange("change", want.title, _text(changed) or "our marks"),),
    )


def adopt(part: Part, tags: Mapping[str, str]) -> Step:
    """Return the step to add our marks to a part that the official manager has made."""
    document = marking(part, tags)
    return PlannedCall(
        Put(part.place, part.id, document),
        lambda before: _with(before, replace(part, document=document, is_marked=True)),
        (PartChange("change", part.title, "our marks"),),
    )


def delete(part: Part) -> Step:
    """Return the step to delete a part."""
    return PlannedCall(
        Delete(part.place, part.id),
        lambda before: _without(before, part),
        (PartChange("delete", part.title, part.address),),
    )


def wait(part: Part, reason: str) -> Step:
    """Return the step to wait for a part."""
    return PlannedCall(
        Wait(reason), lambda before: _with(before, replace(part, address=NEW, failure=""))
    )


def _with(before: Observed, part: Part) -> Observed:
    if part.kind == SERVICES:
        found = before.service or Service(part, is_ours=True)
        return replace(before, service=replace(found, part=part))
    others = tuple(one for one in before.parts if (one.place, one.id) != (part.place, part.id))
    return replace(before, parts=(*others, part))


def _without(before: Observed, part: Part) -> Observed:
    if part.kind == SERVICES:
        return replace(before, service=None)
    kept = (one for one in before.parts if (one.place, one.id) != (part.place, part.id))
    return replace(before, parts=tuple(kept))


def _text(fields: Mapping[str, Any]) -> str:
    shown = {key: _shown(key, value) for key, value in fields.items() if key not in _UNSHOWN}
    return ", ".join(f"{key} {value}" for key, value in shown.items())


def _shown(field: str, value: Any) -> str:
    found = normal(field, value)
    if found is None:
        return "none"
    if isinstance(found, list):
        return " ".join(str(one) for one in found)
    return str(found)
