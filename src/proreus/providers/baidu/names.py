"""Match Nodes with machines of Baidu AI Cloud by their provider ids and names. Pure."""

import re
from typing import Final

import msgspec

from proreus.cloudprovider.addresses import is_address
from proreus.cloudprovider.instances import Ownership
from proreus.cloudprovider.lookups import foreign_id
from proreus.cloudprovider.names import LABEL_VALUE
from proreus.kube.objects import LABEL_REGION, LABEL_REGION_BETA, Node

SCHEME: Final = "cce://"
"""The prefix of provider ids."""
_ID = re.compile(r"i-[0-9A-Za-z_-]{1,60}")
_REGION_LABELS: Final = (LABEL_REGION, LABEL_REGION_BETA)


class Target(msgspec.Struct, frozen=True):
    """The key by which a Node's machine is looked up: exactly one of these.

    Attributes:
        id: The machine's id.
        name: The Node's name in small letters, where it is the machine's host name.
        address: The Node's name, where it is the machine's private address.
        problem: Why there is nothing to look it up by.
    """

    id: str = ""
    name: str = ""
    address: str = ""
    problem: str = ""


def provider_id(id_: str) -> str:
    """Return the provider id of a machine."""
    return f"{SCHEME}{id_}"


def parsed(text: str) -> str | None:
    """Return the machine's id in a provider id; None if it is not of this cloud.

    A bare id counts as a provider id, too, since the official manager tolerates it.
    """
    id_ = text.removeprefix(SCHEME)
    return id_ if _ID.fullmatch(id_) else None


def target(node: Node) -> Target:
    """Return the key by which a Node's machine is looked up: the provider id, or else the name."""
    id_ = node.spec.provider_id
    if id_:
        found = parsed(id_)
        if found is None:
            return Target(problem=foreign_id(id_, "Baidu AI Cloud", f"{SCHEME}i-Tkjq337f"))
        return Target(id=found)
    name = node.metadata.name
    if is_address(name):
        return Target(address=name)
    return Target(name=name.lower())


def ownership(node: Node, region: str) -> Ownership:
    """Tell whether a Node's machine is in this region: by its provider id, and its label if any.

    The id names no region, and another region's API says of it that there is no such machine. So a
    Node without a label counts as one of ours.
    """
    if not node.spec.provider_id:
        return Ownership.UNKNOWN
    if parsed(node.spec.provider_id) is None:
        return Ownership.NO
    ours = {"", LABEL_VALUE.clean(region)}
    named = (node.metadata.labels.get(label, "") for label in _REGION_LABELS)
    return Ownership.YES if ours.issuperset(named) else Ownership.NO
