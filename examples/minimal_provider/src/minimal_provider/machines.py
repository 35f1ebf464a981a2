"""Machines: the server behind a Node."""

from urllib.parse import quote, urlencode

from minimal_provider.api import Api, Server, Servers
from proreus.cloudprovider import (
    IdentityConflict,
    Instance,
    InstanceAnswer,
    Instances,
    InstanceState,
    InvalidRequest,
    NotFound,
    Ownership,
    per_node,
)
from proreus.kube.objects import Node, NodeAddress

PREFIX = "minimal://"
STATES = {"running": InstanceState.RUNNING, "off": InstanceState.STOPPED}


def instances(api: Api) -> Instances:
    """The machines of the cloud, looked up one by one, ten at a time."""

    async def look_up(node: Node) -> InstanceAnswer:
        if owns(node) is Ownership.NO:
            return InvalidRequest(f"spec.providerID {node.spec.provider_id!r} is not {PREFIX}ID")
        if id_ := node.spec.provider_id.removeprefix(PREFIX):
            server = await api.call("GET servers", f"/servers/{quote(id_, safe='')}", Server)
            return NotFound() if server is None else instance(server)
        query = urlencode({"name": node.metadata.name})
        found = await api.call("GET servers", f"/servers?{query}", Servers)
        return by_name(node.metadata.name, found)

    return per_node(look_up, owns=owns, concurrency=10)


def owns(node: Node) -> Ownership:
    """Whether the machine is of this cloud, by the provider id. Pure."""
    if not node.spec.provider_id:
        return Ownership.UNKNOWN
    return Ownership.YES if node.spec.provider_id.startswith(PREFIX) else Ownership.NO


def by_name(name: str, found: Servers | None) -> InstanceAnswer:
    """The one machine of that name. Pure."""
    if found is None or len(found.servers) > 1:
        return IdentityConflict(f"there must be one server named {name}, the cloud has {found}")
    return instance(found.servers[0]) if found.servers else NotFound()


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
