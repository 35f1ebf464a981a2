"""Write and read the record of what a load balancer was made from, as a tag of it. Pure.

To change a tag is a change as any other: Octavia works on the load balancer for a while and refuses
everything else. So a record that had to be taken away before hosts are changed would cost as many
requests as that change itself. Therefore it says, too, which members it was written beside, and
counts only as long as the list of pools shows just these: Octavia gives a new member a new id, so
to set members makes the record void in the same request. Before all other changes it is taken away.

    proreus/fingerprint=<cluster uid>/<Service uid>/<made from>.<members>
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Final

from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.providers.nova.machines import Described, id_of
from proreus.providers.openstack.octavia import owners
from proreus.providers.openstack.octavia.parts import Balancer
from proreus.providers.openstack.octavia.plan import Change, DropBalancer, SetMembers, Step

_LENGTH: Final = 16


def hosts_of(pools: Iterable[Described]) -> str:
    """Return a digest of the pools of one Service, and of the ids of their members."""
    shown = sorted(
        (id_of(pool), sorted(id_of(member) for member in pool.get("members") or ()))
        for pool in pools
    )
    return hashlib.sha256(repr(shown).encode()).hexdigest()[:_LENGTH]


def by_balancer(pools: Iterable[Described]) -> Mapping[str, list[Described]]:
    """Return the pools of each load balancer that has any, by its id."""
    found: dict[str, list[Described]] = {}
    for pool in pools:
        for balancer in pool.get("loadbalancers") or ():
            found.setdefault(id_of(balancer), []).append(pool)
    return found


def written(made_from: str, hosts: str) -> str:
    """Return a record: what a load balancer was made from, and the digest of its members."""
    return f"{made_from}.{hosts}"


def valid(record: str, hosts: str) -> str:
    """Return the digest in a record; "" if the members are not those that it was written with."""
    made_from, _, beside = record.partition(".")
    return made_from if beside == hosts else ""


def before(step: Step, described: Described, observed: Balancer, ref: LoadBalancerRef) -> Step:
    """Return a step that also deletes the record, if the step would make that untrue.

    Args:
        step: The next step of the plan.
        described: The load balancer as Octavia describes it.
        observed: The load balancer with its parts.
        ref: The Service.
    """
    record = owners.record_of(described, ref.cluster.uid, ref.uid)
    is_void = not valid(record, observed.hosts)
    # With the load balancer goes its record.
    if is_void or isinstance(step, DropBalancer) or _changes_members(step, observed):
        return step
    fields: Mapping[str, object] = {}
    if isinstance(step, Change) and step.collection == "loadbalancers":
        fields = step.fields
    given = fields.get("tags")
    tags = map(str, given) if isinstance(given, list) else owners.tags_of(described)
    return Change("loadbalancers", observed.id, {**fields, "tags": owners.recorded(tags, ref, "")})


def _changes_members(step: Step, observed: Balancer) -> bool:
    """Tell whether a step adds a member or takes one away.

    Octavia knows members by address and port.
    """
    if not isinstance(step, SetMembers):
        return False
    members = {
        (member.address, member.port)
        for listener in observed.listeners
        if listener.pool is not None and listener.pool.id == step.pool
        for member in listener.pool.members
    }
    return members != {(member.address, member.port) for member in step.members}
