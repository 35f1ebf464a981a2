"""Plan the next step that makes a load balancer of Octavia as desired, or deletes it.

Octavia changes one thing at a time: whatever is told to a load balancer before it is active again
is refused (409). So a plan has one step, and is made anew from what there is then; nobody waits.

* A load balancer is made in one request with all its parts, unless the provider needs them one by
  one.
* Members and monitors are asked for (`Look`) when all else is as desired.
* What is not desired goes first, since a port can be taken by one listener only.
* What cannot be changed is made anew: a listener of another protocol, a pool, a monitor.
* A listener that somebody has given a pool of his own gets one of ours again; that pool stays.
* A load balancer in the state ERROR is deleted and made anew as long as it has no address that
  somebody may know; else an error says so (`Broken`), as for one that the provider would have to
  delete in parts.
* One that others use, or that was not made for a Service, is never deleted: the Service's own parts
  go, and then its tags.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from proreus.providers.openstack.octavia.parts import (
    Balancer,
    Fields,
    Listener,
    Member,
    Monitor,
    Pool,
)


class Wait(msgspec.Struct, frozen=True):
    """The result that Octavia still works on the load balancer."""

    status: str


class Broken(msgspec.Struct, frozen=True):
    """The result that a load balancer in the state ERROR cannot be made anew: it is in use."""


class ReadPool(msgspec.Struct, frozen=True):
    """The step to read the members and the monitor of a pool, without which no plan is possible."""

    pool: str


class Taken(msgspec.Struct, frozen=True):
    """The result that somebody else has a listener at that port."""

    transport: str
    port: int


class MakeBalancer(msgspec.Struct, frozen=True):
    """The step to make a load balancer: with all parts, or alone."""

    desired: Balancer
    with_parts: bool


class DropBalancer(msgspec.Struct, frozen=True):
    """The step to delete a load balancer: with all its parts, or only if it has none."""

    id: str
    cascade: bool


class MakeListener(msgspec.Struct, frozen=True):
    """The step to make a listener, without its pool."""

    desired: Listener


class MakePool(msgspec.Struct, frozen=True):
    """The step to make the pool of a listener, without members."""

    desired: Pool
    listener: str


class MakeMonitor(msgspec.Struct, frozen=True):
    """The step to make the monitor of a pool."""

    desired: Monitor
    pool: str


class SetMembers(msgspec.Struct, frozen=True):
    """The step to give a pool exactly these members, in one request."""

    pool: str
    members: tuple[Member, ...]


class Change(msgspec.Struct, frozen=True):
    """The step to change fields of a load balancer, listener, pool or monitor."""

    collection: str
    id: str
    fields: Fields


class Drop(msgspec.Struct, frozen=True):
    """The step to delete a part; with a pool go its members and its monitor."""

    collection: str
    id: str


Step = (
    Wait
    | Broken
    | ReadPool
    | Taken
    | MakeBalancer
    | DropBalancer
    | MakeListener
    | MakePool
    | MakeMonitor
    | SetMembers
    | Change
    | Drop
)

ACTIVE = "ACTIVE"
ERROR = "ERROR"
DELETED = "DELETED"
DELETING = "PENDING_DELETE"


def plan(
    desired: Balancer,
    observed: Balancer | None,
    *,
    at_once: bool,
    cascade: bool,
    is_known: bool,
) -> Step | None:
    """Return the next step; None if all is as desired.

    Args:
        desired: The desired load balancer.
        observed: The observed load balancer; None if there is none.
        at_once: Whether the provider makes a load balancer with all its parts in one request.
        cascade: Whether the provider deletes all parts at once.
        is_known: Whether somebody may know the load balancer's address, or it was not made for the
            Service.
    """
    if observed is None:
        return MakeBalancer(desired, with_parts=at_once)
    if (kept := _kept(desired, observed, cascade=cascade, is_known=is_known)) is not None:
        return kept
    if changed := _differing(desired.fields, observed.fields):
        return Change("loadbalancers", observed.id, changed)
    if (surplus := _surplus(desired, observed)) is not None:
        return surplus
    there = {listener.key: listener for listener in observed.listeners}
    pairs = [(listener, there.get(listener.key)) for listener in desired.listeners]
    steps = (decide(*pair) for decide in (_listener, _hosts) for pair in pairs)
    return next((step for step in steps if step is not None), None)


def deletion(observed: Balancer | None, *, cascade: bool) -> Step | None:
    """Return the next step to delete a load balancer; None if it is gone.

    Args:
        observed: The observed load balancer; None if there is none.
        cascade: Whether the provider deletes all parts at once.
    """
    if observed is None or observed.status == DELETED:
        return None
    if observed.status not in {ACTIVE, ERROR}:
        return Wait(observed.status)
    part = None if cascade else _part(observed)
    if part is None:
        return DropBalancer(observed.id, cascade=cascade)
    # Octavia takes no part from one that is not active.
    return part if observed.status == ACTIVE else Broken()


def departure(observed: Balancer, tags: Sequence[str]) -> Step | None:
    """Return the next step to take a Service's parts from a load balancer that stays, or None.

    Args:
        observed: The observed load balancer, with no parts but the Service's.
        tags: The tags that the load balancer keeps.
    """
    if observed.status != ACTIVE:
        return Broken() if observed.status == ERROR else Wait(observed.status)
    part = _part(observed)
    if part is not None:
        return part
    left = _differing({"tags": list(tags)}, observed.fields)
    return Change("loadbalancers", observed.id, left) if left else None


def is_last(step: Step) -> bool:
    """Tell whether nothing of the Service is left after a step of `deletion` or `departure`."""
    return isinstance(step, DropBalancer | Change) or step == Wait(DELETING)


def _part(observed: Balancer) -> Step | None:
    """Return the next part to delete; pools can go when no listener uses them."""
    for listener in observed.listeners:
        return Drop("listeners", listener.id)
    for pool in observed.stray:
        return Drop("pools", pool)
    return None


def _kept(desired: Balancer, observed: Balancer, *, cascade: bool, is_known: bool) -> Step | None:
    """Return why the load balancer cannot be changed now, if so."""
    if observed.status == ERROR:
        is_needed = is_known or observed.others
        return Broken() if is_needed else deletion(observed, cascade=cascade)
    if observed.status != ACTIVE:
        return Wait(observed.status)
    taken = [listener.key for listener in desired.listeners if listener.key in observed.taken]
    return Taken(*taken[0]) if taken else None


def _surplus(desired: Balancer, observed: Balancer) -> Step | None:
    """Return a part that is not desired, or that keeps a desired one from being made."""
    protocols = {listener.key: listener.protocol for listener in desired.listeners}
    for listener in observed.listeners:
        if protocols.get(listener.key) != listener.protocol:
            return Drop("listeners", listener.id)
    return Drop("pools", observed.stray[0]) if observed.stray else None


def _listener(desired: Listener, observed: Listener | None) -> Step | None:
    if observed is None:
        return MakeListener(desired)
    if changed := _differing(desired.fields, observed.fields):
        return Change("listeners", observed.id, changed)
    if desired.pool is None:
        return None if observed.pool is None else Drop("pools", observed.pool.id)
    if observed.pool is None:
        free = Change("listeners", observed.id, {"default_pool_id": None})
        return free if observed.has_strange_pool else MakePool(desired.pool, observed.id)
    if observed.pool.protocol != desired.pool.protocol:
        return Drop("pools", observed.pool.id)
    changed = _differing(desired.pool.fields, observed.pool.fields)
    return Change("pools", observed.pool.id, changed) if changed else None


def _hosts(desired: Listener, observed: Listener | None) -> Step | None:
    """Plan members and monitor of a listener whose pool is as desired."""
    if desired.pool is None or observed is None or observed.pool is None:
        return None
    if not observed.pool.is_read:
        return ReadPool(observed.pool.id)
    step = _members(desired.pool, observed.pool)
    return _monitor(desired.pool.monitor, observed.pool) if step is None else step


def _members(desired: Pool, observed: Pool) -> SetMembers | None:
    if _keys(desired.members) == _keys(observed.members):
        return None
    return SetMembers(observed.id, desired.members)


def _monitor(desired: Monitor | None, pool: Pool) -> Step | None:
    observed = pool.monitor
    if observed is not None and (desired is None or desired.type != observed.type):
        return Drop("healthmonitors", observed.id)
    if desired is None:
        return None
    if observed is None:
        return MakeMonitor(desired, pool.id)
    changed = _differing(desired.fields, observed.fields)
    return Change("healthmonitors", observed.id, changed) if changed else None


def _keys(members: Iterable[Member]) -> frozenset[tuple[str, int, str, int]]:
    return frozenset(member.key for member in members)


def _differing(desired: Fields, observed: Fields) -> Mapping[str, object]:
    return {
        name: value
        for name, value in desired.items()
        if name not in observed or observed[name] != value
    }
