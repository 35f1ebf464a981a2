"""Read which server a Node is: by provider ids, server names and addresses. Pure."""

import re
from typing import Final

from proreus.cloudprovider.addresses import is_address, plain_address
from proreus.cloudprovider.instances import Ownership
from proreus.cloudprovider.lookups import foreign_id
from proreus.kube.objects import LABEL_REGION, LABEL_REGION_BETA, Node
from proreus.providers.nova.names import UUID, Target

SCHEME: Final = "rackspace://"
_PROVIDER_ID: Final = re.compile(rf"rackspace:///?(?P<id>{UUID.pattern})")
_REGION_LABELS: Final = (LABEL_REGION, LABEL_REGION_BETA)


def provider_id(id_: str) -> str:
    """Return the provider id of a server, as Kubernetes' own provider wrote it."""
    return f"{SCHEME}{id_}"


def parsed(text: str) -> str | None:
    """Return the id of the server in a provider id; None if it is not one of Rackspace.

    Of anything else, such as the number of a server of the first generation, Nova says that there
    is no such server, which proves nothing.
    """
    match = _PROVIDER_ID.fullmatch(text)
    return match["id"].lower() if match else None


def target(node: Node) -> Target:
    """Return the key by which a Node's server is looked up: the provider id, or else the name."""
    id_ = node.spec.provider_id
    if not id_:
        return Target(name=node.metadata.name)
    found = parsed(id_)
    if found is None:
        example = f"{SCHEME}2e8c1f0a-0000-4000-8000-000000000000"
        return Target(problem=foreign_id(id_, "Rackspace", example))
    return Target(id=found)


def ownership(node: Node, region: str) -> Ownership:
    """Tell whether a Node's server is in this region: by its provider id, and its label if any.

    The id names no region, so a Node without a label counts as one of ours.
    """
    if not node.spec.provider_id:
        return Ownership.UNKNOWN
    if parsed(node.spec.provider_id) is None:
        return Ownership.NO
    named = (node.metadata.labels.get(label, "") for label in _REGION_LABELS)
    return Ownership.NO if any(one not in {"", region} for one in named) else Ownership.YES


def address_of(name: str) -> str:
    """Return the address that a Node is called by, as Nova writes it; "" if that is a name."""
    return plain_address(name) if is_address(name) else ""
