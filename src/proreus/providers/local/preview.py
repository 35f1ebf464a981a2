"""Foresee what `ensure` would change of one load balancer in the kernel. Pure."""

from collections.abc import Mapping

from proreus.cloudprovider.load_balancers import PartChange
from proreus.providers.local.plan import State


def changes(before: State, after: State, uid: str, *, is_damaged: bool) -> tuple[PartChange, ...]:
    """Return what differs between two states about a Service's load balancer.

    Args:
        before: The state in the kernel.
        after: The desired state.
        uid: The UID of the Service.
        is_damaged: Whether the kernel lacks a part that it should have already, for whichever
            Service; that is repaired at once.
    """
    old, new = _parts(before, uid), _parts(after, uid)
    found = [
        PartChange("change" if part in old else "create", part, detail)
        for part, detail in new.items()
        if old.get(part) != detail
    ]
    found += (PartChange("delete", part) for part in old if part not in new)
    if is_damaged and uid in before.balancers:
        found.append(
            PartChange("change", "kernel", "rules and routes that are missing or too many")
        )
    return tuple(found)


def _parts(state: State, uid: str) -> Mapping[str, str]:
    """Return the parts of a load balancer by name, each with its details."""
    balancer = state.balancers.get(uid)
    if balancer is None:
        return {}
    affinity = f"affinity {balancer.affinity} s" if balancer.affinity else ""
    found = {f"address {address}": balancer.sharing_key for address in balancer.addresses.values()}
    found |= {f"port {protocol.upper()}/{port}": affinity for protocol, port in balancer.ports}
    for family, ranges in balancer.ranges.items():
        found |= {f"source range {one}": family for one in ranges}
    for family, key in balancer.pools.items():
        pool = state.pools[key]
        check = pool.check
        found[f"health check {family}"] = f"{check.port}{check.path}" if check.port else "none"
        # Nodes that are leaving keep their connections for a while, and get no new ones.
        staying = [member.node for member in pool.members if not member.leaving]
        found |= {
            f"node {node} {family}": state.machines[node].addresses.get(family, "")
            for node in staying
        }
    return found
