"""Match Nodes with agents of Mesos by provider id, or by host name. Pure."""

import re
from typing import Final

import msgspec

from proreus.cloudprovider.instances import Ownership
from proreus.cloudprovider.lookups import foreign_id, ownership_by_id
from proreus.kube.objects import Node

SCHEME: Final = "mesos://"
_AGENT_ID = re.compile(r"[^/\s]+-S\d+")


class Target(msgspec.Struct, frozen=True):
    """The key by which a Node's agent is looked up: exactly one of these.

    Attributes:
        id: The agent's id.
        host: The Node's name in small letters, which is the agent's host name.
        problem: Why there is nothing to look it up by.
    """

    id: str = ""
    host: str = ""
    problem: str = ""


def provider_id(agent: str) -> str:
    """Return the provider id of an agent."""
    return f"{SCHEME}{agent}"


def parsed(text: str) -> str | None:
    """Return the agent's id in a provider id; None if it is not of Mesos."""
    id_ = text.removeprefix(SCHEME)
    return id_ if id_ != text and _AGENT_ID.fullmatch(id_) else None


def target(node: Node) -> Target:
    """Return the key by which a Node's agent is looked up: the provider id, or else the name."""
    text = node.spec.provider_id
    if not text:
        return Target(host=node.metadata.name.lower())
    id_ = parsed(text)
    if id_ is None:
        example = f"{SCHEME}2d7a7c2c-0000-4000-8000-000000000000-S0"
        return Target(problem=foreign_id(text, "Mesos", example))
    return Target(id=id_)


def ownership(node: Node) -> Ownership:
    """Tell whether a Node's machine is of Mesos, by its provider id."""
    return ownership_by_id(node, parsed)
