"""Plan the steps that make a load balancer of NSX-T as desired, or delete it.

Each round holds steps that need not wait for one another; the next round is planned from what there
is then.

* Marks come first, those of virtual servers before others: what the official manager has made is
  known to be the Service's from then on, whatever else changes.
* What others refer to is made before them and deleted after them: NSX-T refuses it otherwise.
* Virtual servers that are not desired go before others are made, which may have their ports.
* An address stays as long as a virtual server has it, even if the class has another pool by now.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from proreus.cloudprovider.addresses import plain_address
from proreus.providers.vsphere.nsxt.balancing import documents, steps
from proreus.providers.vsphere.nsxt.balancing.documents import References, Want, differs
from proreus.providers.vsphere.nsxt.balancing.parts import (
    CLASS,
    IP_POOL,
    Desired,
    Observed,
    Part,
    Port,
    group_id,
    tags_of,
)
from proreus.providers.vsphere.nsxt.balancing.steps import Step
from proreus.providers.vsphere.nsxt.operations import (
    ALLOCATIONS,
    GROUPS,
    MONITORS,
    PERSISTENCE,
    POOLS,
    SERVERS,
)


class Kept(msgspec.Struct, frozen=True):
    """The parts that stay, each for what it is needed; all others are too much.

    Attributes:
        servers: The virtual servers by the key of their port.
        pools: The server pools by the key of their port.
        monitors: The monitor profiles by the key of their port.
        persistence: The persistence profile, or None.
        group: The group, or None.
        allocation: The allocation of the address, or None.
    """

    servers: dict[str, Part]
    pools: dict[str, Part]
    monitors: dict[str, Part]
    persistence: Part | None
    group: Part | None
    allocation: Part | None

    @property
    def ids(self) -> frozenset[tuple[str, str]]:
        """The kinds and ids of all."""
        single = (self.persistence, self.group, self.allocation)
        ported = (self.servers, self.pools, self.monitors)
        parts = [*(one for one in single if one), *(one for by in ported for one in by.values())]
        return frozenset((one.kind, one.id) for one in parts)


def plan(desired: Desired, observed: Observed, service_tags: Mapping[str, str]) -> tuple[Step, ...]:
    """Return the next steps; none if all is as desired.

    Args:
        desired: The desired state.
        observed: The observed state.
        service_tags: The tags for a load balancer service that is made.
    """
    if unmarked := withdrawal(observed, desired.tags):
        return unmarked
    kept = keep(desired, observed)
    others = (one for one in observed.parts if (one.kind, one.id) not in kept.ids)
    surplus = [one for one in others if not _may_hold(one, kept)]
    failed = [one for one in surplus if one.failure]
    for decided in (
        tuple(map(steps.delete, failed)),
        tuple(_first(desired, observed, kept, service_tags)),
        tuple(_pools(desired, kept)),
        (
            *(steps.delete(one) for one in surplus if one.kind == SERVERS),
            *_servers(desired, observed, kept, are_new=False),
        ),
        tuple(_servers(desired, observed, kept, are_new=True)),
        departure(surplus),
    ):
        if decided:
            return decided
    return tuple(_address(desired, observed, kept))


def withdrawal(observed: Observed, tags: Mapping[str, str]) -> tuple[Step, ...]:
    """Return the next steps that put our marks on all of a Service; none if they are there.

    Virtual servers get them first: where other parts have marks and none of these, they are gone.

    What the official manager has made is proven by the address in the Service's status, and a pool
    by its virtual server. Once a deletion has begun the address proves nothing, since another
    cluster of the name may have the same: by then marks alone tell what is left.

    Args:
        observed: The observed state.
        tags: The tags with our marks.
    """
    unmarked = [one for one in observed.parts if not one.is_marked]
    servers = [one for one in unmarked if one.kind == SERVERS]
    return tuple(steps.adopt(one, tags) for one in servers or unmarked)


def deletion(observed: Observed) -> tuple[Step, ...]:
    """Return the next steps to delete all that has the marks of a Service; none if it is gone."""
    if observed.parts:
        return departure(observed.parts)
    service = observed.service
    if service is not None and service.is_ours and not service.users:
        return (steps.delete(service.part),)
    return ()


def departure(parts: Collection[Part]) -> tuple[Step, ...]:
    """Return the next steps to delete parts: what refers to others goes first."""
    for kinds in ((SERVERS,), (POOLS,), (MONITORS, PERSISTENCE, GROUPS, ALLOCATIONS)):
        found = tuple(steps.delete(one) for one in parts if one.kind in kinds)
        if found:
            return found
    return ()


def keep(desired: Desired, observed: Observed) -> Kept:
    """Choose the parts that stay; of several for one purpose the one that is in use."""
    servers = {
        port.key: found
        for port in desired.ports
        if (found := _chosen(one for one in observed.of(SERVERS) if _serves(one, port)))
    }
    used = {
        str(one.document.get(field) or "")
        for one in servers.values()
        for field in ("pool_path", "lb_persistence_profile_path")
    }
    pools = {
        key: found
        for key in desired.keys
        if (found := _chosen((one for one in observed.of(POOLS) if one.key == key), used))
    }
    watched = {
        path for one in pools.values() for path in one.document.get("active_monitor_paths") or ()
    }
    monitors = {
        port.key: found
        for port in desired.ports
        if port.check
        and (
            found := _chosen((one for one in observed.of(MONITORS) if _checks(one, port)), watched)
        )
    }
    profiles = observed.of(PERSISTENCE) if desired.affinity is not None else ()
    return Kept(
        servers,
        pools,
        monitors,
        _chosen(profiles, used),
        _chosen(observed.of(GROUPS)),
        _allocation(observed),
    )


def _serves(server: Part, port: Port) -> bool:
    return server.key == port.key and server.document.get("ports") == [str(port.port)]


def _checks(monitor: Part, port: Port) -> bool:
    kind = (port.check or {}).get("resource_type")
    return monitor.key == port.key and monitor.document.get("resource_type") == kind


def _chosen(parts: Iterable[Part], used: Collection[str] = ()) -> Part | None:
    return min(parts, key=lambda one: (one.path not in used, one.id), default=None)


def _allocation(observed: Observed) -> Part | None:
    """Return the allocation that stays: of the address in use, or else the best there is.

    An allocation about which NSX-T says nothing now may be that of the address in use. Without such
    an address, an allocation that gets none is deleted: it would hold the next address that gets
    free.
    """
    in_use, there = observed.address, observed.of(ALLOCATIONS)
    if in_use:
        used = plain_address(in_use)
        there = tuple(one for one in there if plain_address(one.address) in {"", used})
    else:
        there = tuple(one for one in there if not one.failure)
    return min(there, key=lambda one: (not one.address, bool(one.failure), one.id), default=None)


def _may_hold(part: Part, kept: Kept) -> bool:
    """Tell whether an allocation of which nothing is told now may be that of the address in use.

    NSX-T would give the address to whoever comes next.
    """
    chosen = kept.allocation
    is_known = chosen is not None and bool(chosen.address) and not chosen.failure
    return part.kind == ALLOCATIONS and not (part.address or part.failure or is_known)


def _first(
    desired: Desired, observed: Observed, kept: Kept, service_tags: Mapping[str, str]
) -> Iterator[Step]:
    """Make the parts that others refer to: service, address, monitors, persistence, group."""
    if observed.service is None:
        want = documents.service_want(desired, service_tags)
        yield steps.create(want, desired.new_id(want.place.kind))
    if not observed.address:
        yield from _address(desired, observed, kept)
    for port in desired.ports:
        if port.check:
            want = documents.monitor_want(desired, port)
            yield from _as_wanted(kept.monitors.get(port.key), want, desired)
    if desired.affinity is not None:
        yield from _as_wanted(kept.persistence, documents.persistence_want(desired), desired)
    if desired.ranges:
        yield from _as_wanted(kept.group, documents.group_want(desired), desired)


def _address(desired: Desired, observed: Observed, kept: Kept) -> Iterator[Step]:
    """Allocate the address, or wait for it.

    An address that a virtual server has is claimed again if its allocation is gone. That is done
    last: it may take minutes, and traffic does not depend on it.
    """
    if kept.allocation is None:
        pool = _pool_in_use(observed) or desired.pool_id
        want = documents.allocation_want(desired, pool, observed.address or desired.requested)
        yield steps.create(want, desired.new_id(ALLOCATIONS))
    elif not kept.allocation.address:
        reason = kept.allocation.failure or "NSX-T allocates the address"
        yield steps.wait(kept.allocation, reason)


def _pool_in_use(observed: Observed) -> str:
    """Return the IP pool that virtual servers say they are of, or ""."""
    found = (tags_of(one.document).get(IP_POOL, "") for one in observed.of(SERVERS))
    return next(filter(None, found), "")


def _class_in_use(observed: Observed) -> str:
    """Return the class that virtual servers say they are of, or ""."""
    found = (tags_of(one.document).get(CLASS, "") for one in observed.of(SERVERS))
    return next(filter(None, found), "")


def _pools(desired: Desired, kept: Kept) -> Iterator[Step]:
    for port in desired.ports:
        monitor = kept.monitors.get(port.key)
        want = documents.pool_want(desired, port, monitor.path if monitor else "")
        yield from _as_wanted(kept.pools.get(port.key), want, desired)


def _servers(desired: Desired, observed: Observed, kept: Kept, *, are_new: bool) -> Iterator[Step]:
    """Make the virtual servers that are missing, or change those that differ."""
    address = observed.address or (kept.allocation.address if kept.allocation else "")
    in_use = kept.allocation.place.within if kept.allocation else desired.pool_id
    service = observed.service
    if service is None or not address:
        return
    for port in desired.ports:
        pool = kept.pools.get(port.key)
        server = kept.servers.get(port.key)
        if pool is None or are_new != (server is None):
            continue
        to = References(
            service.part.path,
            address,
            pool.path,
            kept.persistence.path if kept.persistence else "",
            kept.group.path if kept.group and desired.ranges else "",
        )
        want = documents.server_want(desired, port, to)
        if server is None:
            class_name = _class_in_use(observed) or desired.class_name
            want = documents.with_class(want, class_name, _pool_in_use(observed) or in_use)
        yield from _as_wanted(server, want, desired)


def _as_wanted(part: Part | None, want: Want, desired: Desired) -> Iterator[Step]:
    if part is None:
        is_group = want.place.kind == GROUPS
        id_ = group_id(desired.ref) if is_group else desired.new_id(want.place.kind, want.key)
        yield steps.create(want, id_)
    elif differs(want, part.document):
        yield steps.change(part, want)
