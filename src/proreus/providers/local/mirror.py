"""Decide the state of a gateway whose manager does not lead. Pure.

It is the state that the leader would have, from what all gateways see: Services with the addresses
in their status.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from proreus.cloudprovider import Lister
from proreus.cloudprovider.load_balancers import LoadBalancer, LoadBalancerRef
from proreus.cloudprovider.ports import ports_of
from proreus.kube.objects import KubeObject
from proreus.providers.local import plan, pools
from proreus.providers.local.addresses import Address, Pool, contains, parse
from proreus.providers.local.asked import request_for
from proreus.providers.local.given import given, is_refused
from proreus.providers.local.plan import Reach, State
from proreus.providers.local.refusals import unforwarded
from proreus.providers.local.taken import Occupied
from proreus.providers.local.usage import taken, taken_of

_Wanted = tuple[LoadBalancer, Mapping[str, str]]
"""A load balancer with its addresses by family."""


def mirrored(
    state: State,
    desired: Sequence[LoadBalancer],
    refused: Sequence[LoadBalancerRef],
    ranges: Sequence[Pool],
    reach: Reach,
    *,
    machines: Iterable[str] = (),
    namespaces: Lister[KubeObject] | None = None,
    leave: float,
    cluster: str,
) -> State:
    """Return the state with these load balancers and no others of the cluster.

    One that the leader refuses stays as it is, as with the leader: one of `refused`, one with ports
    that are not forwarded, one that wants a port which another one has on a shared address, or has
    another key than others there, one that asks for addresses it cannot have beside those it shows,
    and one with an address that no pool has any more. What shows not all that it has here has moved
    before: that goes, for another one may have it. What the kernel has nothing of is left out; of
    two new ones that cannot both be there that one is which was not refused, or else the older.
    What has no address of a pool is not served yet, or by others. Other clusters' stay.

    Args:
        state: The state before.
        desired: All load balancers of the cluster that have an address.
        refused: Those whose Services ask for something impossible.
        ranges: The pools of addresses.
        reach: The networks and addresses that this machine reaches.
        machines: The addresses of machines, which a new load balancer does not have.
        namespaces: The namespaces, if pools are kept for some by their labels.
        leave: When nodes that are no longer hosts lose their connections; 0 for at once.
        cluster: The cluster's UID.
    """
    foreign = {uid for uid, one in state.balancers.items() if one.cluster != cluster}
    shown = (*refused, *(one.ref for one in desired))
    staying = foreign.union(ref.uid for ref in shown if _shows_all(state, ref))
    wanted, others = {}, frozenset(map(parse, machines))
    for lb in desired:
        before = state.balancers.get(lb.ref.uid)
        own = map(parse, before.addresses.values() if before is not None else ())
        addresses = _addresses(lb, ranges, others.difference(own))
        asks_others = addresses and not _may_have(lb, addresses, ranges, namespaces)
        stays = unforwarded(lb) or _keeps_others(state, lb, addresses) or asks_others
        if addresses and not stays and lb.ref.uid not in foreign:
            wanted[lb.ref.uid] = (lb, addresses)
    for uid in state.balancers.keys() - staying:
        state = plan.deleted(state, uid)

    def place(state: State, one: _Wanted) -> State:
        lb, addresses = one
        key = request_for(lb).sharing_key
        return plan.ensured(state, lb, addresses, reach, sharing_key=key, leave=leave)[0]

    state, colliding = _placed(state, sorted(wanted.values(), key=_rank), place, cluster)
    bare = state
    for lb, _ in colliding:
        bare = plan.deleted(bare, lb.ref.uid)
    # Services that have exchanged ports, step by step, are in nobody's way but their own.
    exchanged, still_colliding = _placed(bare, colliding, place, cluster)
    return state if still_colliding else exchanged


def _placed(
    state: State,
    waiting: Sequence[_Wanted],
    place: Callable[[State, _Wanted], State],
    cluster: str,
) -> tuple[State, Sequence[_Wanted]]:
    """Return the state with those that are in nobody's way, and the others.

    They are tried until no more get in: one may wait for a port that another one leaves.
    """
    occupied = Occupied(taken(state, cluster))
    while True:
        colliding = []
        for one in waiting:
            if _collides(one, occupied):
                colliding.append(one)
            else:
                state = place(state, one)
                occupied.give(one[0].ref.uid, taken_of(state, one[0].ref.uid, cluster))
        if len(colliding) == len(waiting):
            return state, colliding
        waiting = colliding


def _collides(one: _Wanted, occupied: Occupied) -> bool:
    """Tell whether another load balancer has an address of this one that they cannot share."""
    lb, addresses = one
    ports, key = ports_of(lb.service), request_for(lb).sharing_key
    return any(
        not key or key != other.sharing_key or not ports.isdisjoint(other.ports)
        for address in map(parse, addresses.values())
        if address is not None
        for other in occupied.by_others(address, lb.ref.uid)
    )


def _rank(one: _Wanted) -> tuple[bool, datetime, str]:
    """Return what to sort by: those that the leader refused come last, then the younger ones."""
    service = one[0].service
    created = service.metadata.creation_timestamp or datetime.max.replace(tzinfo=UTC)
    return is_refused(service), created, service.metadata.uid


def _keeps_others(state: State, lb: LoadBalancer, addresses: Mapping[str, str]) -> bool:
    """Tell whether a load balancer has addresses that it could not get now.

    While the status shows them all, the leader has not found others, and goes on with them.
    """
    before = state.balancers.get(lb.ref.uid)
    has = before.addresses.values() if before is not None else ()
    return _shows_all(state, lb.ref) and not set(has) <= set(addresses.values())


def _shows_all(state: State, ref: LoadBalancerRef) -> bool:
    """Tell whether a Service's status shows all addresses that its load balancer has here."""
    before = state.balancers.get(ref.uid)
    shown = {str(parse(point.ip)) for point in ref.last_ingress}
    return before is None or shown.issuperset(before.addresses.values())


def _may_have(
    lb: LoadBalancer,
    addresses: Mapping[str, str],
    ranges: Sequence[Pool],
    namespaces: Lister[KubeObject] | None,
) -> bool:
    """Tell whether a load balancer would get these addresses if nobody else had any."""
    request = request_for(lb, addresses.values(), namespaces)
    found = pools.assign(request, Occupied(), ranges)
    return not isinstance(found, pools.Refused) and {*addresses.values()} <= {*found.addresses}


def _addresses(
    lb: LoadBalancer, pools: Sequence[Pool], machines: Collection[Address | None]
) -> Mapping[str, str]:
    """Return the addresses of the Service's status that are of pools, by family."""
    found = {}
    for address in map(parse, given(lb, machines)):
        if address is not None and any(contains(pool, address) for pool in pools):
            family = f"IPv{address.version}"
            if family in lb.families:
                found[family] = str(address)
    return found
