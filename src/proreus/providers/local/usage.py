"""Find out which addresses are in use, and report in `/metrics` how full the pools are."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec
from prometheus_client import Gauge

from proreus.cloudprovider import Lister
from proreus.cloudprovider.metrics import REGISTRY
from proreus.kube.objects import KubeObject, Node, Service
from proreus.providers.local.addresses import IP_TYPES, Pool, contains, parse, size
from proreus.providers.local.asked import taken_by
from proreus.providers.local.plan import Machine, Reach, State
from proreus.providers.local.taken import Occupied, Taken, ages_of

TOTAL: Final = Gauge(
    "proreus_local_pool_addresses",
    "Addresses of the pool.",
    ["pool"],
    registry=REGISTRY,
)
USED: Final = Gauge(
    "proreus_local_pool_addresses_used",
    "Addresses of the pool that the status of a Service shows; a shared one counts once.",
    ["pool"],
    registry=REGISTRY,
)


async def _nobody() -> Mapping[str, str]:
    return {}


class Named:
    """The machines that an inventory names.

    Attributes:
        addresses: Their addresses, with the machines in words, as they were read last.
    """

    def __init__(self, read: Callable[[], Awaitable[Mapping[str, str]]] = _nobody) -> None:
        """Keep what reads the addresses; without it there is no inventory."""
        self._read = read
        self.addresses: Mapping[str, str] = {}

    async def look(self) -> None:
        """Read the addresses: a machine may be named by now that is no node yet."""
        self.addresses = await self._read()


NONE: Final = Named()
"""No machines: there is no inventory."""


def watch_pools(pools: Sequence[Pool], services: Lister[KubeObject]) -> None:
    """Serve the figures of these pools, and of no others, from now on."""
    TOTAL.clear()
    USED.clear()
    for pool in pools:
        TOTAL.labels(pool.name).set(size(pool))
        USED.labels(pool.name).set_function(
            lambda pool=pool: used(pool, services.all())  # type: ignore[misc]
        )


def used(pool: Pool, objects: Iterable[KubeObject]) -> int:
    """Count the addresses of the pool that Services have. Pure."""
    shown = taken_by(one for one in objects if isinstance(one, Service))
    addresses = {parse(one.address) for one in shown}
    return sum(address is not None and contains(pool, address) for address in addresses)


def taken(state: State, cluster: str) -> Iterator[Taken]:
    """Return the addresses that Services have by the kernel's state.

    Args:
        state: The state.
        cluster: The uid of the cluster whose Services are not foreign.
    """
    for uid in state.balancers:
        yield from taken_of(state, uid, cluster)


def taken_of(state: State, uid: str, cluster: str) -> Iterator[Taken]:
    """Return the addresses that one Service has by the kernel's state; `cluster` as in `taken`."""
    one = state.balancers[uid]
    ports = frozenset((protocol.upper(), port) for protocol, port in one.ports)
    for address in one.addresses.values():
        yield Taken(
            address=address,
            uid=uid,
            service=one.service,
            ports=ports,
            sharing_key=one.sharing_key,
            is_foreign=one.cluster != cluster,
        )


def occupied(
    state: State,
    cluster: str,
    services: Iterable[KubeObject],
    used: Mapping[str, str],
    machines: Iterable[str],
) -> Occupied:
    """Return the addresses in the kernel, and those in statuses that it lacks.

    A kernel may be out of date, as on a gateway where another one has led for a while: whoever has
    moved then shows an address that it does not know. Or a status is late, or its Service was left
    out here since it asked for what another one has: then that takes nothing from those who have
    the address by both. Where the kernel knows nobody, as after a boot, nobody can tell which ports
    they had: the older one counts.

    Args:
        state: The state in the kernel.
        cluster: The uid of the cluster whose Services are not foreign.
        services: All Services of the cluster.
        used: What is in use otherwise, as `in_use` returns it.
        machines: The addresses among these that `of_machines` returns.
    """
    known = tuple(taken(state, cluster))
    had = {(one.uid, parse(one.address)) for one in known}
    every = [one for one in services if isinstance(one, Service)]
    told, others = set(), []
    for one in taken_by(every):
        if (at := (one.uid, parse(one.address))) in had:
            told.add(at)
        else:
            others.append(msgspec.structs.replace(one, is_left=True))
    ages = ages_of(every, state.balancers)
    return Occupied((*known, *others), used, machines, ages, told)


def of_machines(
    nodes: Iterable[KubeObject],
    machines: Iterable[Machine] = (),
    named: Mapping[str, str] = MappingProxyType({}),
) -> Mapping[str, str]:
    """Return the addresses of nodes and of machines that may be nodes, with their owners.

    All nodes are read and not a Service's hosts alone, which leave out nodes of the control plane
    and drained ones. `machines` are those that the kernel leads to, other clusters' among them, and
    `named` the addresses in the inventory, whose machines may be about to become nodes.
    """
    found = dict(named)
    found |= {
        address: "a node of another cluster"
        for machine in machines
        for address in machine.addresses.values()
    }
    return found | {
        one.address: f"the node {node.metadata.name}"
        for node in nodes
        if isinstance(node, Node)
        for one in node.status.addresses
        if one.type in IP_TYPES
    }


def in_use(
    machines: Mapping[str, str], reach: Reach, routed: Iterable[str] = ()
) -> Mapping[str, str]:
    """Return the addresses of machines and of this one, and `routed` ones, with their owners."""
    found = dict(machines)
    found |= dict.fromkeys(routed, "a route of another program on this machine")
    return found | dict.fromkeys(reach.own, "this machine")
