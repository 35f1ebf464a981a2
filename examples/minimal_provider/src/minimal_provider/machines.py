"""Finds machines: the server behind a Node."""

import re
from collections.abc import Iterable, Sequence

from minimal_provider.api import Page, Server
from proreus.cloudprovider import (
    Instance,
    Instances,
    InstanceState,
    Request,
    RestClient,
    in_bulk,
)
from proreus.kube.objects import NodeAddress

PREFIX = "minimal://"
PROVIDER_ID = re.compile(rf"{PREFIX}(s[0-9]+)")
STATES = {"running": InstanceState.RUNNING, "off": InstanceState.STOPPED}


def instances(api: RestClient) -> Instances:
    """Make the capability: one request finds the machines of a whole batch of Nodes."""

    async def search(ids: Sequence[str], names: Sequence[str]) -> Iterable[Instance]:
        request = Request("servers.list", "GET", "servers", {"id": ids, "name": names})
        found = await api.call(request, Page[Server])
        return map(instance, found.items)

    return in_bulk(search, parse=id_in, batch_size=100)


def id_in(provider_id: str) -> str | None:
    """Return the server's id in a provider id; None if it is not of this cloud's form. Pure."""
    found = PROVIDER_ID.fullmatch(provider_id)
    return found[1] if found else None


def instance(server: Server) -> Instance:
    """Return a server as Proreus has machines. Pure."""
    return Instance(
        provider_id=f"{PREFIX}{server.id}",
        name=server.name,
        instance_type=server.type,
        zone=server.zone,
        addresses=(NodeAddress("InternalIP", server.address),),
        state=STATES.get(server.status, InstanceState.UNKNOWN),
        powered_off=server.status == "off",
    )
