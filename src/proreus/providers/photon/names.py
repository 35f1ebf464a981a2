"""Match Nodes with machines of Photon Controller by their provider ids and names. Pure."""

import re
from typing import Final

import msgspec

from proreus.cloudprovider.instances import Ownership
from proreus.cloudprovider.lookups import foreign_id, ownership_by_id
from proreus.kube.objects import Node

SCHEME: Final = "photon://"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
"""Ids are parts of addresses: nothing else may be in them."""


class Target(msgspec.Struct, frozen=True):
    """The key by which a Node's machine is looked up: exactly one of these.

    Attributes:
        id: The machine's id.
        name: The Node's name, where it is the machine's name.
        address: The Node's name, where it is one of the machine's addresses.
        problem: Why there is nothing to look it up by.
    """

    id: str = ""
    name: str = ""
    address: str = ""
    problem: str = ""


def is_id(text: str) -> bool:
    """Tell whether a text may be an id of Photon Controller."""
    return _ID.fullmatch(text) is not None


def provider_id(id_: str) -> str:
    """Return the provider id of a machine."""
    return f"{SCHEME}{id_}"


def parsed(text: str) -> str | None:
    """Return the machine's id in a provider id; None if it is not of Photon Controller."""
    id_ = text.removeprefix(SCHEME)
    return id_ if text.startswith(SCHEME) and is_id(id_) else None


def target(node: Node, *, override_ip: bool) -> Target:
    """Return the key by which a Node's machine is looked up: the provider id, or else the name.

    Args:
        node: The Node.
        override_ip: Whether Nodes are called by IP addresses.
    """
    id_ = node.spec.provider_id
    if not id_:
        name = node.metadata.name
        return Target(address=name) if override_ip else Target(name=name)
    found = parsed(id_)
    if found is None:
        example = f"{SCHEME}2e8c1f0a-0000-4000-8000-000000000000"
        return Target(problem=foreign_id(id_, "Photon Controller", example))
    return Target(id=found)


def ownership(node: Node) -> Ownership:
    """Tell whether a Node's machine is of Photon Controller, by its provider id."""
    return ownership_by_id(node, parsed)
