"""Decide which pools a load balancer has, and who is in those of addresses. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from proreus.cloudprovider.errors import CloudError
from proreus.cloudprovider.load_balancers import Host
from proreus.providers.azure.balancing.annotations import FAMILIES
from proreus.providers.azure.balancing.desired import base_of, local_pool, pool_by_uid
from proreus.providers.azure.balancing.documents import changed_parts, named_id, with_properties
from proreus.providers.azure.balancing.homes import ADDRESSES
from proreus.providers.azure.balancing.parts import Document, Job, Scene, State
from proreus.providers.azure.config import PoolType
from proreus.providers.azure.ids import last
from proreus.providers.azure.machines import Resource, part, properties

POOLS: Final = "backendAddressPools"
FILLED: Final = ("backendIPConfigurations", ADDRESSES)
"""The lists of who is in a pool."""
_RULES: Final = "loadBalancingRules"
_USERS: Final = (_RULES, "outboundRules", "inboundNatRules")
_OWN_POOL: Final = re.compile(r"a[0-9a-f]{31}(-ipv6)?")
"""The names that `pool_by_uid` gives."""
_LONGEST: Final = 80


def hosts(live: Sequence[Job], scene: Scene, family: str) -> list[Host]:
    """Return the nodes that Services have as hosts on a family, each once."""
    found = {
        host.node: host
        for job in live
        if job.lb is not None and family in job.lb.families
        for host in job.lb.hosts
        if host.addresses.get(family) and host.node not in scene.excluded
    }
    return list(found.values())


def filled(jobs: Sequence[Job], scene: Scene) -> Iterator[tuple[str, str, Sequence[Job]]]:
    """Yield the pools whose machines we choose: the id, the family, and the Services led there.

    There is one load balancer of a kind: with several, pools are of addresses.
    """
    for name, internal in scene.place.balancers.items():
        if scene.place.config.preconfigures(internal=internal):
            continue
        live = [job for job in jobs if job.lb is not None and job.options.internal is internal]
        families = {family for job in live if job.lb is not None for family in job.lb.families}
        for family in sorted(families):
            yield scene.place.pool_id(name, family), family, live


def pool_of(job: Job, jobs: Sequence[Job], state: State, scene: Scene, family: str) -> str:
    """Return the name of the pool that a Service's rules lead to.

    With several standard load balancers, one with `externalTrafficPolicy: Local` has a pool of its
    own, since its pods may be on the nodes of any. It is called as officially, but by the Service's
    UID where the official name is that of another pool, too, whosesoever that is.

    Args:
        job: The Service, placed.
        jobs: All Services of the pass; where several would give the pool the same name, only one
            gets it.
        state: The observed state.
        scene: The facts that do not change within the pass.
        family: IPv4 or IPv6.
    """
    place = scene.place
    several = place.config.multiple_standard_load_balancer_configurations
    if job.lb is None or not several or not job.lb.local_traffic:
        return place.pool_name(family)
    name = local_pool(job.ref, family)
    balancer = state.balancers.get(job.balancer) or {}
    used = {base_of(str(rule["name"])) for _, rule in _users(balancer, name, (_RULES,))}
    if not used and any(str(one["name"]).lower() == name for one in part(balancer, POOLS) or ()):
        return pool_by_uid(job.ref, family)
    asked = {
        one.ref.name
        for one in jobs
        if one.balancer == job.balancer and local_pool(one.ref, family) == name
    }
    is_free = name not in {place.pool_name(one).lower() for one in FAMILIES}
    has_it = is_free and len(name) <= _LONGEST and min(used or asked) == job.ref.name
    return name if has_it else pool_by_uid(job.ref, family)


def _users(balancer: Resource, pool: str, fields: Iterable[str]) -> Iterator[tuple[str, Resource]]:
    """Return the rules of a load balancer that lead to a pool, each with its type."""
    for field in fields:
        for rule in part(balancer, field) or ():
            if last(named_id(rule, "backendAddressPool")) == pool:
                yield field, rule


def pools(
    observed: Sequence[Resource], jobs: Sequence[Job], state: State, scene: Scene, balancer: str
) -> list[Document]:
    """Return the pools of a load balancer; all that are not a Service's own are kept.

    Args:
        observed: The pools that the load balancer has.
        jobs: The Services of the pass, placed.
        state: The observed state.
        scene: The facts that do not change within the pass.
        balancer: The name of the load balancer.
    """
    desired: dict[str, Mapping[str, Any]] = {}
    for family in FAMILIES:
        live = [
            job
            for job in jobs
            if job.lb is not None and job.balancer == balancer and family in job.lb.families
        ]
        shared = scene.place.pool_name(family)
        for job in live:
            name = pool_of(job, jobs, state, scene, family)
            if name != shared:
                wanted = _of_endpoints(job, scene, family)
                desired[name] = _pool(observed, name, wanted, state, scene, family=family)
            elif name not in desired:
                desired[name] = _shared_pool(
                    observed, live, state, scene, family=family, balancer=balancer
                )
    kept = changed_parts(observed, desired, lambda one: _is_left(one, jobs, state, scene, balancer))
    return [_without_others(one, jobs, state, scene, balancer) for one in kept]


def _shared_pool(
    observed: Sequence[Resource],
    live: Sequence[Job],
    state: State,
    scene: Scene,
    *,
    family: str,
    balancer: str,
) -> dict[str, Any]:
    """Return the properties of the pool with all nodes, or with the load balancer's own nodes."""
    place = scene.place
    by_address = place.config.pools is PoolType.NODE_IP
    if not by_address or place.config.preconfigures(internal=place.balancers[balancer]):
        return {}
    wanted = [one for one in hosts(live, scene, family) if not _is_elsewhere(one, scene, balancer)]
    return _pool(observed, place.pool_name(family), wanted, state, scene, family=family)


def _of_endpoints(job: Job, scene: Scene, family: str) -> list[Host]:
    """Return the nodes with ready pods of a Service."""
    with_pods = {one.node for one in job.lb.endpoints} if job.lb is not None else set()
    return [one for one in hosts([job], scene, family) if one.node in with_pods]


def _pool(
    observed: Sequence[Resource],
    name: str,
    wanted: Iterable[Host],
    state: State,
    scene: Scene,
    *,
    family: str,
) -> dict[str, Any]:
    """Return the properties of a pool that names the nodes' addresses.

    What it has already of a Node whose machine may be another one stays.
    """
    same = [one for one in observed if str(one["name"]).lower() == name.lower()]
    known = {
        str(properties(each).get("ipAddress"))
        for one in same
        for each in properties(one).get(ADDRESSES) or ()
    }
    by_address = {
        address: one.node
        for one in wanted
        if (address := one.addresses[family][0]) in known or one.node not in state.strangers
    }
    if same and known == set(by_address):
        return {}
    return {
        "virtualNetwork": {"id": scene.place.net_id()},
        ADDRESSES: [
            {"name": node, "properties": {"ipAddress": address}}
            for address, node in sorted(by_address.items(), key=lambda pair: pair[1])
        ],
    }


def _is_elsewhere(host: Host, scene: Scene, balancer: str) -> bool:
    """Tell whether a node is behind another load balancer than this one, or none."""
    if scene.homes is None:
        return False
    home = scene.homes.get(host.node, "")
    kinds = (False, True)
    return balancer not in {scene.place.balancer_name(home, internal=kind) for kind in kinds}


def check_emptied(balancer: str, left: Iterable[Resource], scene: Scene) -> None:
    """Refuse to delete a load balancer with pools that somebody else has filled.

    Args:
        balancer: The name of the load balancer, which is to have no frontend any more.
        left: Its pools, without those of Services that go.
        scene: The facts that do not change within the pass.

    Raises:
        CloudError: Somebody else has filled a pool; names it, and what to do.
    """
    place = scene.place
    own = {place.pool_name(one).lower() for one in FAMILIES}
    is_given = place.config.preconfigures(internal=place.balancers[balancer])
    for pool in left:
        name = str(pool["name"])
        is_ours = _OWN_POOL.fullmatch(name.lower()) or name.lower() in own
        if any(properties(pool).get(field) for field in FILLED) and (is_given or not is_ours):
            why = "by preConfiguredBackendPoolLoadBalancerTypes in the cloud-config " * is_given
            raise CloudError(
                f"the load balancer {balancer} would have no frontend any more, which Azure does"
                f" not allow, and is not deleted, for {why}the pool {name} is somebody else's: give"
                " the load balancer a frontend of its own, or delete the pool in Azure"
            )


def _is_left(
    pool: Resource, jobs: Sequence[Job], state: State, scene: Scene, balancer: str
) -> bool:
    """Tell whether a pool is one that a Service of the pass had of its own, and nobody else's.

    The official name could be that of anybody's pool: a rule of the Service that leads to it is the
    proof, or else the Service's UID in the name.
    """
    name = str(pool["name"]).lower()
    if name in {scene.place.pool_name(one).lower() for one in FAMILIES}:
        return False
    bases = {job.ref.name for job in jobs}
    users = [
        field == _RULES and base_of(str(rule["name"])) in bases
        for field, rule in _users(state.balancers.get(balancer) or {}, name, _USERS)
    ]
    named = {local_pool(job.ref, one) for job in jobs for one in FAMILIES}
    proven = {pool_by_uid(job.ref, one) for job in jobs for one in FAMILIES}
    return all(users) and (name in proven or (name in named and bool(users)))


def _without_others(
    pool: Document, jobs: Sequence[Job], state: State, scene: Scene, balancer: str
) -> Document:
    """Return a pool without the nodes that are behind another load balancer from now on.

    A kubelet can claim another node's address for its own.
    """
    name = str(pool["name"]).lower()
    if scene.homes is None or name not in {scene.place.pool_name(one).lower() for one in FAMILIES}:
        return pool
    gone = {
        host.addresses[family][0]
        for family in FAMILIES
        for host in hosts(jobs, scene, family)
        if _is_elsewhere(host, scene, balancer) and host.node not in state.strangers
    }
    known = properties(pool).get(ADDRESSES) or []
    left = [one for one in known if properties(one).get("ipAddress") not in gone]
    return pool if len(left) == len(known) else with_properties(pool, {ADDRESSES: left})
