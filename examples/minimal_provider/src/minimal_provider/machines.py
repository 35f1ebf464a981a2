"""Machines: the server behind a Node."""

import re
from urllib.parse import urlencode

from minimal_provider.api import Api, Server, Servers
from proreus.cloudprovider import (
    IdentityConflict,
    Instance,
    InstanceAnswer,
    Instances,
    InstanceState,
    NotFound,
    per_node,
)
from proreus.kube.objects import Node, NodeAddress

PREFIX = "minimal://"
PROVIDER_ID = re.compile(rf"{PREFIX}(s[0-9]+)")
STATES = {"running": InstanceState.RUNNING, "off": InstanceState.STOPPED}


def instances(api: Api) -> Instances:
    """The machines of the cloud, looked up one by one, ten at a time."""

    async def by_id(id_: str) -> InstanceAnswer:
        server = await api.call("GET servers", f"/servers/{id_}", Server)
        return NotFound() if server is None else instance(server)

    async def by_name(node: Node) -> InstanceAnswer:
        query = urlencode({"name": node.metadata.name})
        found = await api.call("GET servers", f"/servers?{query}", Servers)
        return the_one(node.metadata.name, found)

    return per_node(by_id, by_name, parse=id_in, concurrency=10)


def id_in(provider_id: str) -> str | None:
    """The server's id in a provider id; None if it is not of this cloud's form. Pure."""
    found = PROVIDER_ID.fullmatch(provider_id)
    return found[1] if found else None


def the_one(name: str, found: Servers | None) -> InstanceAnswer:
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
