"""Match Nodes with virtual machines of oVirt by provider id, system UUID and name. Pure."""

import re
from typing import Final

import msgspec

from proreus.cloudprovider.instances import Ownership
from proreus.cloudprovider.lookups import foreign_id, ownership_by_id, system_uuids
from proreus.kube.objects import Node

IN_TREE: Final = "ovirt:///"
"""The prefix of the provider ids that the provider inside old Kubernetes gives."""
EXTERNAL: Final = "ovirt-cloud-provider://"
"""The prefix of the provider ids that the external provider gives."""

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PROVIDER_ID = re.compile(r"(?:ovirt(?:-cloud-provider)?://)?/?(?P<id>[0-9a-f-]+)")


class Target(msgspec.Struct, frozen=True):
    """The keys by which a Node's virtual machine is looked up.

    Attributes:
        id: The machine's id, from the provider id; if it is given, the other keys find nothing.
        system_uuids: The UUID that the kubelet reports, which is the machine's id, too, in both
            byte orders. Beside `id` only those of another machine.
        turned: The id in the other byte order, if the kubelet reports that machine.
        name: The Node's name in small letters, which may be the machine's domain name or its name.
        problem: Why there is nothing to look it up by.
    """

    id: str = ""
    system_uuids: tuple[str, ...] = ()
    turned: tuple[str, ...] = ()
    name: str = ""
    problem: str = ""


def parsed(text: str) -> str | None:
    """Return the machine's id in a provider id; None if it is not of oVirt.

    Besides the two official forms there is that of OpenShift, with one slash less, and the bare
    id, by which the external provider looks machines up.
    """
    match = _PROVIDER_ID.fullmatch(text.strip().lower())
    return match["id"] if match and _UUID.fullmatch(match["id"]) else None


def target(node: Node) -> Target:
    """Return the keys by which a Node's machine is looked up: its provider id, or all others."""
    known = system_uuids(node)
    if node.spec.provider_id:
        id_ = parsed(node.spec.provider_id)
        if id_ is not None:
            if id_ not in known:
                return Target(id=id_, system_uuids=known)
            return Target(id=id_, turned=tuple(one for one in known if one != id_))
        example = f"{IN_TREE}2e8c1f0a-0000-4000-8000-000000000000"
        return Target(problem=foreign_id(node.spec.provider_id, "oVirt", example))
    return Target(system_uuids=known, name=node.metadata.name.lower())


def ownership(node: Node) -> Ownership:
    """Tell whether a Node's machine is of oVirt, by its provider id."""
    return ownership_by_id(node, parsed)
