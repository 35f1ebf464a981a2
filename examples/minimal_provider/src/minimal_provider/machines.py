"""Machines: the server behind a Node."""

import re
from collections.abc import Mapping, Sequence

from minimal_provider.api import Page, Server
from proreus.cloudprovider import (
    IdentityConflict,
    Instance,
    InstanceAnswer,
    Instances,
    InstanceState,
    InvalidRequest,
    NotFound,
    Ownership,
    Request,
    RestClient,
)
from proreus.kube.objects import Node, NodeAddress

PREFIX = "minimal://"
PROVIDER_ID = re.compile(rf"{PREFIX}(s[0-9]+)")
STATES = {"running": InstanceState.RUNNING, "off": InstanceState.STOPPED}


def instances(api: RestClient) -> Instances:
    """The machines of the cloud."""
    return Machines(api)


class Machines:
    """Implements `Instances`: one request for a whole batch of Nodes."""

    batch_size = 100

    def __init__(self, api: RestClient) -> None:
        """Speak through `api`."""
        self._api = api

    def owns(self, node: Node) -> Ownership:
        """Whether the machine is of this cloud, by the form of the provider id."""
        if not node.spec.provider_id:
            return Ownership.UNKNOWN
        return Ownership.YES if id_in(node.spec.provider_id) else Ownership.NO

    async def describe(self, nodes: Sequence[Node]) -> Mapping[str, InstanceAnswer]:
        """Look the Nodes up by id, or by name while they have none."""
        names = [node.metadata.name for node in nodes if not node.spec.provider_id]
        ids = [id_ for node in nodes if (id_ := id_in(node.spec.provider_id))]
        request = Request("servers.list", "GET", "servers", {"id": ids, "name": names})
        found = await self._api.call(request, Page[Server])
        return {node.metadata.name: answer(node, found.items) for node in nodes}


def id_in(provider_id: str) -> str | None:
    """The server's id in a provider id; None if it is not of this cloud's form. Pure."""
    found = PROVIDER_ID.fullmatch(provider_id)
    return found[1] if found else None


def answer(node: Node, servers: Sequence[Server]) -> InstanceAnswer:
    """What the cloud's answer says about one Node. Pure."""
    id_, name = id_in(node.spec.provider_id), node.metadata.name
    if node.spec.provider_id and id_ is None:
        return InvalidRequest(f"spec.providerID {node.spec.provider_id!r} is not {PREFIX}ID")
    same = [one for one in servers if (one.id == id_ if id_ else one.name == name)]
    if len(same) > 1:
        return IdentityConflict(f"there must be one server named {name}, the cloud has {same}")
    return instance(same[0]) if same else NotFound()


def instance(server: Server) -> Instance:
    """The machine as Proreus knows machines. Pure."""
    return Instance(
        provider_id=f"{PREFIX}{server.id}",
        name=server.name,
        instance_type=server.type,
        zone=server.zone,
        addresses=(NodeAddress("InternalIP", server.address),),
        state=STATES.get(server.status, InstanceState.UNKNOWN),
    )
