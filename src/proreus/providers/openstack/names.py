"""Which server a Node is: provider ids and server names. Pure."""

import re
from collections.abc import Sequence

import msgspec

from proreus.cloudprovider.instances import Ownership
from proreus.kube.objects import Node

SCHEME = "openstack://"
UUID = re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
"""The form of the id of anything in OpenStack."""
_PROVIDER_ID = re.compile(rf"openstack://(?P<region>[^/]*)/(?P<id>{UUID.pattern})")
_REGION_LABEL = "topology.kubernetes.io/region"


class Target(msgspec.Struct, frozen=True):
    """What to look a Node up by: exactly one of these.

    Attributes:
        id: The server's id.
        name: Its name.
        problem: Why there is nothing to look it up by.
    """

    id: str = ""
    name: str = ""
    problem: str = ""


def provider_id(id_: str, region: str = "") -> str:
    """The provider id of a server; `region` only where ids are regional."""
    return f"{SCHEME}{region}/{id_}"


def parsed(of: str) -> tuple[str, str] | None:
    """The region ("" if it names none) and the server in a provider id; None if it is not ours.

    A bare id is one: Nodes of old clusters have it. Ids are told as OpenStack writes them, in small
    letters: a machine may tell its own in capitals, and Nova need not find that.
    """
    if "://" not in of:
        return ("", of.lower()) if UUID.fullmatch(of) else None
    match = _PROVIDER_ID.fullmatch(of)
    return (match["region"], match["id"].lower()) if match else None


def is_uuid(text: str) -> bool:
    """Whether it can be the id of anything in OpenStack."""
    return UUID.fullmatch(text) is not None


def target(node: Node, region: str) -> Target:
    """By the provider id if there is one, and never by the name then."""
    of = node.spec.provider_id
    if not of:
        return Target(name=node.metadata.name)
    found = parsed(of)
    if found is None:
        return Target(
            problem=f"spec.providerID {of!r} is none of OpenStack: it must be like"
            " openstack:///2e8c1f0a-0000-4000-8000-000000000000"
        )
    if found[0] and found[0] != region:
        return Target(problem=f"spec.providerID {of!r} is of another region than {region!r}")
    return Target(id=found[1])


def ownership(node: Node, region: str) -> Ownership:
    """By the region in the provider id, else by the Node's label.

    Args:
        node: The Node.
        region: Ours; "" where the cloud has one only.
    """
    if not node.spec.provider_id:
        return Ownership.UNKNOWN
    found = parsed(node.spec.provider_id)
    if found is None:
        return Ownership.NO
    named = found[0] or node.metadata.labels.get(_REGION_LABEL, "")
    if named:
        return Ownership.YES if named == region else Ownership.NO
    # Where there are several regions, nothing says that it is this one.
    return Ownership.UNKNOWN if region else Ownership.YES


def pattern(names: Sequence[str]) -> str:
    """Nova's filter of names is a regular expression: exactly these, in one request.

    Names of Nodes hold letters, digits, dashes and dots only. Databases differ in what else they
    understand, so nothing else is used.
    """
    escaped = [name.replace(".", r"\.") for name in names]
    return f"^{escaped[0]}$" if len(escaped) == 1 else f"^({'|'.join(escaped)})$"
