"""Share nodes out among several standard load balancers. Pure.

A node is behind one of them: the one of its scale set, else one whose selector it fits, else any
without a selector. It stays where it is for as long as it may be there.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from proreus.cloudprovider.load_balancers import Host
from proreus.providers.azure.balancing.desired import Place
from proreus.providers.azure.balancing.parts import Job, Scene, State
from proreus.providers.azure.ids import last, machine_id
from proreus.providers.azure.machines import part, properties
from proreus.providers.azure.multiple import Configuration

ADDRESSES = "loadBalancerBackendAddresses"


def settled(jobs: Sequence[Job], state: State, scene: Scene) -> Scene:
    """Choose the load balancer that each node is behind, where there are several.

    Args:
        jobs: The Services, each placed on a load balancer.
        state: The observed state.
        scene: The facts that do not change within the pass.
    """
    several = scene.place.config.multiple_standard_load_balancer_configurations
    if not several:
        return scene
    used = {job.balancer for job in jobs} | {k for k, one in state.balancers.items() if one}
    up = [one for one in several if used & _balancers(scene.place, one)]
    hosts = {
        host.node: host
        for job in jobs
        if job.lb is not None
        for host in job.lb.hosts
        if host.node not in scene.excluded
    }
    now = _now(hosts.values(), state, scene.place, up)
    allowed = {
        name: _allowed(host, up, state, scene, now.get(name, ""))
        for name, host in sorted(hosts.items())
    }
    homes = _shared_out(allowed, now)
    return msgspec.structs.replace(scene, homes=homes)


def _balancers(place: Place, one: Configuration) -> set[str]:
    return {place.balancer_name(one.name, internal=kind) for kind in (False, True)}


def _now(
    hosts: Iterable[Host], state: State, place: Place, up: Sequence[Configuration]
) -> dict[str, str]:
    """Return the configurations in whose pools nodes are, by their names.

    An address that several claim is that of a node whose machine Azure shows to have it.
    """
    by_address = {
        of[0]: host.node
        for host in sorted(hosts, key=lambda host: host.node not in state.strangers)
        for of in host.addresses.values()
        if of
    }
    pools = {place.pool_name(family).lower() for family in ("IPv4", "IPv6")}
    found: dict[str, str] = {}
    for one in up:
        for name in sorted(_balancers(place, one)):
            for pool in part(state.balancers.get(name) or {}, "backendAddressPools") or ():
                if str(pool["name"]).lower() in pools:
                    for each in properties(pool).get(ADDRESSES) or ():
                        node = by_address.get(str(properties(each).get("ipAddress")))
                        if node is not None:
                            found.setdefault(node, one.name)
    return found


def _allowed(
    host: Host, up: Sequence[Configuration], state: State, scene: Scene, now: str
) -> tuple[str, ...]:
    """Return the configurations behind whose load balancers a node may be.

    While Azure does not tell the set of its machine, it stays behind its present one, `now`.
    """
    machine = machine_id(host.provider_id)
    set_: str | None = ""
    if machine is not None:
        set_ = last(machine.scale_set) or state.vm_sets.get(machine.resource)
    if set_ is None and now:
        return (now,)
    for one in up:
        if set_ and one.primary_vm_set.lower() == set_:
            return (one.name,)
    labels = scene.labels.get(host.node, {})
    selecting = [one for one in up if one.node_selector and one.node_selector.matches(labels)]
    return tuple(one.name for one in selecting or (one for one in up if not one.node_selector))


def _shared_out(allowed: Mapping[str, Collection[str]], now: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration of each node: where it is, or else where the fewest are.

    A configuration that has no node gets its share of the nodes that may be there. Officially it
    stays empty.
    """
    homes = {node: now[node] for node in allowed if now.get(node) in allowed[node]}
    for node, names in allowed.items():
        if node not in homes and names:
            homes[node] = min(names, key=lambda name: _count(homes, name))
    for empty in dict.fromkeys(name for names in allowed.values() for name in names):
        if _count(homes, empty):
            continue
        movable = [node for node, names in allowed.items() if empty in names]
        while True:
            fullest = max(movable, key=lambda node: (_count(homes, homes[node]), node))
            if _count(homes, homes[fullest]) <= _count(homes, empty) + 1:
                break
            homes[fullest] = empty
    return homes


def _count(homes: Mapping[str, str], name: str) -> int:
    return sum(one == name for one in homes.values())
