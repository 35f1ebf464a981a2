"""Read and write ids of Azure's resources and provider ids. Pure.

Azure keeps the case of names and does not mind it, so ids are compared in small letters.
"""

import re
from typing import Final

import msgspec

PREFIX: Final = "azure://"
_NAME = r"[^/?#\s%]+"
_GROUP = rf"/subscriptions/(?P<subscription>{_NAME})/resourceGroups/(?P<group>{_NAME})"
_MACHINE: Final = re.compile(
    rf"{_GROUP}/providers/Microsoft\.Compute/"
    rf"(?:virtualMachineScaleSets/(?P<set>{_NAME})/virtualMachines/(?P<number>{_NAME})"
    rf"|virtualMachines/(?P<name>{_NAME}))",
    re.IGNORECASE,
)
_RESOURCE: Final = re.compile(
    rf"{_GROUP}/providers/(?P<kind>{_NAME}/{_NAME})/(?P<name>[^?#\s%]+)", re.IGNORECASE
)


class MachineId(msgspec.Struct, frozen=True):
    """A machine's id in small letters; of a scale set's, `set` and its number."""

    subscription: str
    group: str
    name: str
    set: str = ""

    @property
    def resource(self) -> str:
        """The id as Azure has it, but for the case."""
        kind = f"virtualmachinescalesets/{self.set}/virtualmachines"
        head = f"/subscriptions/{self.subscription}/resourcegroups/{self.group}/providers"
        return f"{head}/microsoft.compute/{kind if self.set else 'virtualmachines'}/{self.name}"

    @property
    def scale_set(self) -> str:
        """The id of its scale set; "" if it is in none by its id."""
        return self.resource.partition("/virtualmachines/")[0] if self.set else ""


class ResourceId(msgspec.Struct, frozen=True):
    """The parts of a resource's id, as they are written: `name` may have further parts below it."""

    subscription: str
    group: str
    kind: str
    name: str

    @property
    def last(self) -> str:
        """The last part of its name."""
        return self.name.rpartition("/")[2]


def machine_id(provider_id: str) -> MachineId | None:
    """Read a provider id; None if it is not of the form that Azure's machines have."""
    found = _MACHINE.fullmatch(provider_id.removeprefix(PREFIX))
    if found is None or not provider_id.startswith(PREFIX):
        return None
    name = found["name"] or found["number"]
    return MachineId(
        found["subscription"].lower(), found["group"].lower(), name.lower(),
        (found["set"] or "").lower(),
    )  # fmt: skip


def machine_of(provider_id: str) -> str | None:
    """Return the machine in a provider id, in small letters; None if it is of another form."""
    found = machine_id(provider_id)
    return found.resource if found is not None else None


def provider_id(id_: str) -> str:
    """Write a provider id as the official manager does, with a small resource group."""
    found = _RESOURCE.fullmatch(id_)
    if found is None:
        return f"{PREFIX}{id_}"
    begin, end = found.span("group")
    return f"{PREFIX}{id_[:begin]}{found['group'].lower()}{id_[end:]}"


def resource_id(id_: str) -> ResourceId | None:
    """Read the id of a resource; None if the text has another form."""
    found = _RESOURCE.fullmatch(id_)
    if found is None:
        return None
    return ResourceId(found["subscription"], found["group"], found["kind"], found["name"])


def last(id_: str) -> str:
    """Return the last part of an id: the name of the resource."""
    return id_.rpartition("/")[2]


def same(one: str, other: str) -> bool:
    """Tell whether two ids or names are the same to Azure."""
    return one.lower() == other.lower()
