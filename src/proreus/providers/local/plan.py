"""Decide what this machine's kernel does with the load balancers' traffic. Pure.

`State` is the whole of it: which Service has which address and ports, which nodes may get its
connections, and under which mark. It is kept in the kernel (`memo.py`), rendered as an nftables
program (`nft.py`) and as routes (`network.py`); what the kernel shows is compared with that.

Services with the same nodes and the same health check share a pool, so that one dead node is one
change, however many Services it serves. Nodes of several clusters on one gateway may have one name:
then those of the cluster that came later have its uid behind it.

A connection stays with its node, by the connection's mark, as long as that node keeps
connections: while it serves, while it answers that it takes no new ones, and for the time of
draining after it is no host any more. It is given to another node only when its own is silent.
"""

import hashlib
import ipaddress
from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from proreus.cloudprovider.load_balancers import LoadBalancer
from proreus.providers.local.addresses import parse

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

HERE: Final = 0
"""The mark of a node that is this very machine: kube-proxy takes its connections unmarked."""

_SHORT: Final = 12
_OF: Final = "@"
"""What stands between a node's name and its cluster's uid where clusters have nodes of one name."""


class Condition(StrEnum):
    """The result of a node's health check."""

    UNKNOWN = "unknown"
    SERVING = "serving"
    REFUSING = "refusing"
    SILENT = "silent"


class Check(msgspec.Struct, frozen=True, order=True):
    """The health check of a pool's nodes: HTTP on `port` and `path`, TCP without a path.

    Port 0: not at all. `needed`: without a good answer a node gets no connections; else all
    nodes get some if none of them answers, for then it is the check that is at fault.
    """

    port: int = 0
    path: str = ""
    needed: bool = False


class Member(msgspec.Struct, frozen=True):
    """A node of a pool; `leaving` is when it loses its connections (Unix time), 0 if it stays."""

    node: str
    condition: Condition = Condition.UNKNOWN
    leaving: float = 0.0


class Pool(msgspec.Struct, frozen=True):
    """The nodes that one or more Services have in common; `family` is IPv4 or IPv6."""

    family: str
    check: Check
    members: tuple[Member, ...] = ()


class Machine(msgspec.Struct, frozen=True):
    """A node with its mark's number (or `HERE`) and its address of each family."""

    mark: int
    addresses: Mapping[str, str] = MappingProxyType({})


class Balancer(msgspec.Struct, frozen=True):
    """The load balancer of one Service; mappings are by IP family, pools by their key."""

    cluster: str
    service: str
    addresses: Mapping[str, str]
    ports: tuple[tuple[str, int], ...]
    ranges: Mapping[str, tuple[str, ...]]
    pools: Mapping[str, str]
    affinity: int | None = None
    sharing_key: str = ""


class State(msgspec.Struct, frozen=True):
    """The state of this gateway: balancers by the Service's uid, pools by key, machines by node."""

    balancers: Mapping[str, Balancer] = MappingProxyType({})
    pools: Mapping[str, Pool] = MappingProxyType({})
    machines: Mapping[str, Machine] = MappingProxyType({})


class Reach(msgspec.Struct, frozen=True):
    """The networks and addresses that this machine reaches directly.

    Attributes:
        networks: The networks of its interfaces.
        own: The addresses of this machine.
        marks: How many nodes the packet marks can tell apart.
    """

    networks: tuple[Network, ...]
    own: frozenset[str] = frozenset()
    marks: int = 255

    def is_near(self, address: str) -> bool:
        """Tell whether a machine with an address is reached without a router between."""
        found = parse(address)
        near = [net for net in self.networks if found is not None and found in net]
        wide = [net for net in near if net.prefixlen < net.max_prefixlen - 1]
        # The network's own address, and broadcast: the kernel takes neither for a way.
        return bool(near) and all(found not in (net[0], net[-1]) for net in wide)


def digest(*parts: object) -> str:
    """Return a short digest of a value."""
    text = msgspec.json.encode(parts, order="sorted")
    return hashlib.sha256(text).hexdigest()[:_SHORT]


def check_of(lb: LoadBalancer) -> Check:
    """Return the health check for the nodes of a Service."""
    health_check = lb.health_check
    if health_check.port:
        return Check(health_check.port, health_check.path, lb.local_traffic)
    # The node port itself answers only where a pod is; of UDP nobody can tell.
    ports = [port.node_port for port in lb.frontends if port.protocol == "TCP" and port.node_port]
    return Check(ports[0], "", lb.local_traffic) if ports else Check()


def ensured(
    state: State,
    lb: LoadBalancer,
    addresses: Mapping[str, str],
    reach: Reach,
    *,
    sharing_key: str = "",
    leave: float = 0.0,
) -> tuple[State, Mapping[str, str]]:
    """Return the state with one load balancer as desired.

    Args:
        state: The state before.
        lb: The desired load balancer, as the framework describes it.
        addresses: The Service's addresses by family.
        reach: The networks and addresses that this machine reaches.
        sharing_key: The Service's key for sharing its addresses, or "".
        leave: When nodes that are no longer hosts lose their connections, as Unix time; nodes that
            are leaving already keep their time. 0: at once.

    Returns:
        The new state, and by node the reason why it cannot be a host.
    """
    before = state.balancers.get(lb.ref.uid)
    machines, rejected, names = _machines(state, lb, addresses, reach)
    check = check_of(lb)
    found = dict(state.pools)
    keys = {}
    for family in addresses:
        nodes = [one for one in names if family in machines[one].addresses]
        key = digest(family, check, sorted(nodes))
        old = found.get(before.pools.get(family, "")) if before is not None else None
        found[key] = _pool(found, key, Pool(family, check), nodes, old=old, leave=leave)
        keys[family] = key
    balancer = Balancer(
        cluster=lb.ref.cluster.uid,
        service=lb.ref.key,
        addresses=dict(addresses),
        ports=tuple(sorted({(port.protocol.lower(), port.port) for port in lb.frontends})),
        ranges={family: _merged(lb.source_ranges.get(family, ())) for family in addresses},
        pools=keys,
        affinity=lb.affinity_seconds,
        sharing_key=sharing_key,
    )
    balancers = {**state.balancers, lb.ref.uid: balancer}
    return State(balancers, found, machines), rejected


def _merged(cidrs: tuple[str, ...]) -> tuple[str, ...]:
    """Return the ranges of one family without those within others, which the kernel refuses."""
    networks = [ipaddress.ip_network(cidr) for cidr in cidrs]
    # All are of one version, which their type does not say.
    return tuple(str(network) for network in ipaddress.collapse_addresses(networks))  # type: ignore[type-var]


def _machines(
    state: State, lb: LoadBalancer, addresses: Mapping[str, str], reach: Reach
) -> tuple[dict[str, Machine], dict[str, str], list[str]]:
    """Return the machines with the hosts added, why some are rejected, the others' names in it."""
    machines, rejected, names = dict(state.machines), {}, []
    others = _of_others(state, lb.ref.cluster.uid)
    for host in lb.hosts:
        every = {family: host.addresses.get(family, ()) for family in addresses}
        near = {
            family: next(iter(one for one in listed if reach.is_near(one)), "")
            for family, listed in every.items()
        }
        usable = {family: one for family, one in near.items() if one}
        if not usable:
            rejected[host.node] = _unusable(every)
            continue
        name = host.node
        if name in others and not usable.items() <= others[name].addresses.items():
            name = f"{name}{_OF}{lb.ref.cluster.uid}"
        machine = machines.get(name)
        kept = machine.addresses if machine is not None else {}
        mark = machine.mark if machine is not None else _free_mark(machines, reach.marks)
        if any(one in reach.own for one in usable.values()):
            mark = HERE
        elif mark == HERE:
            mark = _free_mark(machines, reach.marks)
        if mark is None:
            most = f"the gateway can mark {reach.marks} nodes only"
            rejected[host.node] = f"{most}: set more bits in gateway mark-mask"
            continue
        machines[name] = Machine(mark, {**kept, **usable})
        names.append(name)
    return machines, rejected, names


def _of_others(state: State, cluster: str) -> Mapping[str, Machine]:
    """Return the machines of other clusters, whose nodes may have the names of this one's."""
    pools = {
        key
        for one in state.balancers.values()
        if one.cluster != cluster
        for key in one.pools.values()
    }
    nodes = {member.node for key in pools for member in state.pools[key].members}
    return {node: state.machines[node] for node in nodes}


def _unusable(every: Mapping[str, tuple[str, ...]]) -> str:
    if not any(every.values()):
        return f"it has no {' or '.join(every)} address"
    shown = ", ".join(one for listed in every.values() for one in listed)
    return f"{shown} is not a machine's address in a network of this gateway's interfaces"


def _free_mark(machines: Mapping[str, Machine], most: int) -> int | None:
    """Return a mark that no node had lately, since old connections still carry it."""
    used = {machine.mark for machine in machines.values()}
    last = max(used, default=0)
    every = (*range(last + 1, most + 1), *range(1, last))
    return next((one for one in every if one not in used), None)


def _pool(
    known: Mapping[str, Pool],
    key: str,
    empty: Pool,
    nodes: list[str],
    *,
    old: Pool | None,
    leave: float,
) -> Pool:
    """Return the pool of these nodes with their conditions; nodes of `old` leave after a while."""
    same = known.get(key)
    conditions = {
        member.node: member.condition
        for pool in known.values()
        if pool.family == empty.family and pool.check == empty.check
        for member in pool.members
    }
    leaving = {member.node: member for member in (same.members if same else ()) if member.leaving}
    for member in old.members if old is not None and leave else ():
        if member.node not in nodes:
            when = member.leaving or leave
            condition = conditions.get(member.node, member.condition)
            leaving[member.node] = Member(member.node, condition, when)
    staying = [Member(node, conditions.get(node, Condition.UNKNOWN)) for node in nodes]
    members = sorted((*staying, *leaving.values()), key=lambda one: one.node)
    return msgspec.structs.replace(empty, members=tuple(members))


def deleted(state: State, uid: str) -> State:
    """Return the state without a Service's load balancer."""
    left = {key: one for key, one in state.balancers.items() if key != uid}
    return State(left, state.pools, state.machines)


def sketch(state: State, uid: str) -> str:
    """Return a digest of one load balancer without its address and its nodes' conditions."""
    one = state.balancers[uid]
    hosts = {
        family: sorted(
            (each.node.partition(_OF)[0], state.machines[each.node].addresses.get(family, ""))
            for each in state.pools[key].members
            if not each.leaving
        )
        for family, key in one.pools.items()
    }
    checks = {family: state.pools[key].check for family, key in one.pools.items()}
    return digest(one.ports, one.ranges, one.affinity, one.sharing_key, hosts, checks)


def swept(state: State, now: float) -> State:
    """Return the state without members whose time to leave is over."""
    used = {key for balancer in state.balancers.values() for key in balancer.pools.values()}
    found = {
        key: msgspec.structs.replace(
            pool, members=tuple(member for member in pool.members if not 0 < member.leaving <= now)
        )
        for key, pool in state.pools.items()
        if key in used
    }
    nodes = {member.node for pool in found.values() for member in pool.members}
    machines = {node: one for node, one in state.machines.items() if node in nodes}
    return State(state.balancers, found, machines)


class Target(msgspec.Struct, frozen=True, order=True):
    """A health check to make: of `address`, by `check`."""

    address: str
    check: Check


def _targets(state: State, pool: Pool) -> Iterator[tuple[Member, Target]]:
    for member in pool.members:
        address = state.machines[member.node].addresses.get(pool.family, "")
        yield member, Target(address, pool.check)


def targets(state: State) -> frozenset[Target]:
    """Return the health checks to make."""
    return frozenset(
        target
        for pool in state.pools.values()
        if pool.check.port
        for _, target in _targets(state, pool)
    )


def judged(state: State, verdicts: Mapping[Target, Condition]) -> State:
    """Return the state with the results of health checks; other nodes stay as they are."""
    found = {}
    for key, pool in state.pools.items():
        members = tuple(
            msgspec.structs.replace(one, condition=verdicts.get(target, one.condition))
            for one, target in _targets(state, pool)
        )
        found[key] = msgspec.structs.replace(pool, members=members)
    return State(state.balancers, found, state.machines)


def chosen(pool: Pool) -> tuple[str, ...]:
    """Return the nodes that get new connections."""
    good = {Condition.SERVING}
    if not pool.check.port or not pool.check.needed:
        good.add(Condition.UNKNOWN)
    staying = [member for member in pool.members if not member.leaving]
    serving = tuple(one.node for one in staying if one.condition in good)
    if serving or (pool.check.port and pool.check.needed):
        return serving
    # Nobody answers: more likely it is the question that is wrong than every node.
    alive = tuple(one.node for one in staying if one.condition is not Condition.SILENT)
    return alive or tuple(one.node for one in staying)


def is_asking(pool: Pool) -> bool:
    """Tell whether no node gets connections only because first checks are not answered yet.

    A gateway that takes over must not refuse what belongs to connections of the last one.
    """
    conditions = (member.condition for member in pool.members if not member.leaving)
    return not chosen(pool) and Condition.UNKNOWN in conditions


def keeping(pool: Pool) -> tuple[str, ...]:
    """Return the nodes that keep the connections they have."""
    alive = {member.node for member in pool.members if member.condition is not Condition.SILENT}
    return tuple(sorted(alive.union(chosen(pool))))
