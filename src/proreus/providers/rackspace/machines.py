"""Convert Nova's description of a Rackspace server to Kubernetes' terms. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from proreus.cloudprovider.addresses import plain_address
from proreus.cloudprovider.instances import Instance
from proreus.kube.objects import NodeAddress
from proreus.providers.nova.machines import (
    Described,
    flavor_of,
    id_of,
    is_powered_off,
    state_of,
    type_of,
)
from proreus.providers.rackspace.names import provider_id

SERVICENET: Final = "private"
"""What Nova calls Rackspace's network inside a region."""
PUBLICNET: Final = "public"
"""What Nova calls the network outside."""
_OFF: Final = frozenset(
    {"DELETED", "SHELVED", "SHELVED_OFFLOADED", "SHUTOFF", "SOFT_DELETED", "SUSPENDED"}
)
"""States in which no kubelet runs."""


def instance(server: Described, *, region: str, known_as: str) -> Instance:
    """Make the framework's `Instance` from the description of a server.

    Args:
        server: The server as Nova describes it.
        region: The region of the server. There are no zones.
        known_as: The Node's provider id; "" if it has none.
    """
    return Instance(
        provider_id=known_as or provider_id(id_of(server)),
        name=str(server.get("name", "")),
        instance_type=type_of("", flavor_of(server)[1]),
        zone="",
        region=region,
        addresses=addresses(server),
        state=state_of(server),
        powered_off=is_powered_off(server),
    )


def addresses(server: Described) -> tuple[NodeAddress, ...]:
    """Return a server's addresses: internal on ServiceNet and Cloud Networks, else external.

    Addresses of ServiceNet come first, since Kubernetes' own provider knew nodes by the first of
    them. A server without any has its public addresses as internal ones, too, as there.
    """
    networks: Mapping[str, Sequence[Described]] = server.get("addresses") or {}
    own = sorted(networks.keys() - {SERVICENET, PUBLICNET})
    inside = list(_texts(networks, (SERVICENET, *own)))
    outside = [*_texts(networks, (PUBLICNET,)), *_access(server)]
    found = [NodeAddress("InternalIP", text) for text in inside or outside]
    found += [NodeAddress("ExternalIP", text) for text in outside]
    return tuple(dict.fromkeys(found))


def by_address(servers: Iterable[Described]) -> dict[str, list[Described]]:
    """Return servers by the addresses by which Kubernetes' own provider found them."""
    found: dict[str, list[Described]] = {}
    for server in servers:
        networks: Mapping[str, Sequence[Described]] = server.get("addresses") or {}
        first = (next(_texts(networks, (name,)), "") for name in (SERVICENET, PUBLICNET))
        for text in {*first, *_access(server)} - {""}:
            found.setdefault(text, []).append(server)
    return found


def running_first(alike: Iterable[Described]) -> list[Described]:
    """Return the servers of one name that may be meant: those that may run, if any may.

    Kubernetes' own provider asked Nova for active ones only; but the kubelet of one that is built,
    rebooted or resized may run, too, and a server that is shut down is still there.
    """
    alike = list(alike)
    return [one for one in alike if str(one.get("status")).upper() not in _OFF] or alike


def _texts(networks: Mapping[str, Sequence[Described]], names: Iterable[str]) -> Iterator[str]:
    for name in names:
        for one in networks.get(name) or ():
            yield plain_address(str(one["addr"]))


def _access(server: Described) -> Iterator[str]:
    for field in ("accessIPv4", "accessIPv6"):
        if server.get(field):
            yield plain_address(str(server[field]))
