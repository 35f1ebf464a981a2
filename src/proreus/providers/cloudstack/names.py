"""Match Nodes with machines of CloudStack by their provider ids and names. Pure."""

import re
from typing import Final

import msgspec

from proreus.cloudprovider.instances import Ownership
from proreus.cloudprovider.lookups import foreign_id, ownership_by_id, random_system_uuids
from proreus.kube.objects import Node
from proreus.providers.cloudstack.config import UUID

SCHEME: Final = "external-cloudstack://"
"""The prefix of the provider ids that today's official manager gives."""
_PROVIDER_ID = re.compile(rf"(?:external-)?cloudstack://(?:/[^/]+/)?(?P<id>{UUID.pattern})")


class Target(msgspec.Struct, frozen=True):
    """The key by which a Node's machine is looked up: an id, a name, or neither.

    Attributes:
        id: The machine's id.
        name: The Node's name.
        problem: Why there is nothing to look it up by.
        uuids: What the id of the machine may be on which the Node's kubelet runs, by its word.
    """

    id: str = ""
    name: str = ""
    problem: str = ""
    uuids: tuple[str, ...] = ()


def provider_id(id_: str) -> str:
    """Return the provider id of a machine."""
    return f"{SCHEME}{id_}"


def parsed(text: str) -> str | None:
    """Return the machine's id in a provider id; None if it is not of CloudStack.

    A bare id counts as a provider id, too, and so do those of the provider inside old Kubernetes:
    `cloudstack://<id>`, and `cloudstack:///<zone>/<id>` of kubelets.
    """
    if UUID.fullmatch(text):
        return text.lower()
    match = _PROVIDER_ID.fullmatch(text)
    return match["id"].lower() if match else None


def target(node: Node) -> Target:
    """Return the key by which a Node's machine is looked up: the provider id, or else the name."""
    id_ = node.spec.provider_id
    if not id_:
        return Target(name=node.metadata.name, uuids=random_system_uuids(node))
    found = parsed(id_)
    if found is None:
        example = f"{SCHEME}2e8c1f0a-0000-4000-8000-000000000000"
        return Target(problem=foreign_id(id_, "CloudStack", example))
    return Target(id=found, uuids=random_system_uuids(node))


def ownership(node: Node) -> Ownership:
    """Tell whether a Node's machine is of CloudStack, by its provider id."""
    return ownership_by_id(node, parsed)


def keys_of(name: str) -> tuple[str, str]:
    """Return what a Node's name matches: the name of a machine, or else the part before a dot."""
    lower = name.lower()
    return lower, lower.partition(".")[0]
