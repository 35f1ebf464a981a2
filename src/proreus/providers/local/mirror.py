"""Decide the state of a gateway whose manager does not lead. Pure.

It is what the leader's would be by what all can see: Services with the addresses in their status.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from proreus.cloudprovider.load_balancers import LoadBalancer
from proreus.providers.local import plan, pools
from proreus.providers.local.addresses import Pool, contains, parse
from proreus.providers.local.plan import Reach, State

_PROTOCOLS: Final = frozenset({"TCP", "UDP", "SCTP"})


def mirrored(
    state: State,
    desired: Sequence[LoadBalancer],
    given: Sequence[Pool],
    reach: Reach,
    leave: float,
    *,
    cluster: str,
) -> State:
    """Return the state with these load balancers and no others of the cluster.

    One that has no address of a pool is another's, or not served yet; it is left out, and so is
    one that the leader refuses. Those of other clusters stay as they are.

    Args:
        state: What is there.
        desired: All load balancers of the cluster that have an address.
        given: The pools.
        reach: What this machine reaches.
        leave: When nodes that are no hosts any more lose their connections, 0 for at once.
        cluster: The cluster's UID.
    """
    foreign = {uid for uid, one in state.balancers.items() if one.cluster != cluster}
    wanted = {}
    for lb in desired:
        addresses = _addresses(lb, given)
        is_served = lb.ref.uid not in foreign
        if is_served and addresses and all(one.protocol in _PROTOCOLS for one in lb.frontends):
            wanted[lb.ref.uid] = (lb, addresses)
    for uid in state.balancers.keys() - wanted.keys() - foreign:
        state = plan.deleted(state, uid)
    for lb, addresses in wanted.values():
        key = pools.request_for(lb).sharing_key
        state, _ = plan.ensured(state, lb, addresses, reach, sharing_key=key, leave=leave)
    return state


def _addresses(lb: LoadBalancer, given: Sequence[Pool]) -> Mapping[str, str]:
    """Return the addresses of the Service's status that are of pools, by family."""
    found = {}
    for point in lb.ref.last_ingress:
        address = parse(point.ip)
        if address is not None and any(contains(pool, address) for pool in given):
            family = f"IPv{address.version}"
            if family in lb.families:
                found[family] = str(address)
    return found
