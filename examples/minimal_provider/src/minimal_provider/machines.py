"""Machines: the server behind a Node."""

import re

from minimal_provider.api import Server, Servers
from proreus.cloudprovider import (
    IdentityConflict,
    Instance,
    InstanceAnswer,
    Instances,
    InstanceState,
    NotFound,
    Request,
    RestClient,
    per_node,
)
from proreus.kube.objects import Node, NodeAddress

PREFIX = "minimal://"
PROVIDER_ID = re.compile(rf"{PREFIX}(s[0-9]+)")
STATES = {"running": InstanceState.RUNNING, "off": InstanceState.STOPPED}


def instances(api: RestClient) -> Instances:
    """The machines of the cloud, looked up one by one, ten at a time."""

    async def by_id(id_: str) -> InstanceAnswer:
        server = await api.find(Request("servers.get", "GET", f"servers/{id_}"), Server)
        return NotFound() if server is None else instance(server)

    async def by_name(node: Node) -> InstanceAnswer:
        request = Request("servers.list", "GET", "servers", {"name": node.metadata.name})
        return the_one(node.metadata.name, await api.call(request, Servers))

    return per_node(by_id, by_name, parse=id_in, concurrency=10)


def id_in(provider_id: str) -> str | None:
    """The server's id in a provider id; None if it is not of this cloud's form. Pure."""
    found = PROVIDER_ID.fullmatch(provider_id)
    return found[1] if found else None


def the_one(name: str, found: Servers) -> InstanceAnswer:
    """The one machine of that name. Pure."""
    if len(found.servers) > 1:
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
