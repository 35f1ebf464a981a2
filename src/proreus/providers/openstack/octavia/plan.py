"""The next thing to do to a load balancer of Octavia.

Octavia changes one thing at a time: whatever is told to a load balancer before it is active again
is refused (409). So a plan has one step, and is made anew from what there is then; nobody waits.

* A load balancer is made in one request with all its parts, unless the provider needs them one by
  one.
* Members and monitors are asked for (`Look`) when all else is as wished.
* What nobody wishes goes first, since a port can be taken by one listener only.
* What cannot be changed is made anew: a listener of another protocol, a pool, a monitor.
* A load balancer in the state ERROR is deleted and made anew as long as it has no address that
  somebody may know; else it is told (`Broken`), as is one that the provider would have to delete in
  parts.
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
    """Octavia works on it."""

    status: str


class Broken(msgspec.Struct, frozen=True):
    """It is in the state ERROR and cannot be made anew: traffic may come to it, or it has parts."""


class Look(msgspec.Struct, frozen=True):
    """The members and the monitor of a pool must be known to go on."""

    pool: str


class Taken(msgspec.Struct, frozen=True):
    """Somebody else has a listener at that port."""

    transport: str
    port: int


class MakeBalancer(msgspec.Struct, frozen=True):
    """Make it: with all parts, or alone."""

    wanted: Balancer
    with_parts: bool


class DropBalancer(msgspec.Struct, frozen=True):
    """Delete it: with all its parts, or only if it has none left."""

    id: str
    cascade: bool


class MakeListener(msgspec.Struct, frozen=True):
    """Make a listener, without its pool."""

    wanted: Listener


class MakePool(msgspec.Struct, frozen=True):
    """Make the pool of a listener, without members."""

    wanted: Pool
    listener: str


class MakeMonitor(msgspec.Struct, frozen=True):
    """Make the monitor of a pool."""

    wanted: Monitor
    pool: str


class SetMembers(msgspec.Struct, frozen=True):
    """Give a pool exactly these members, in one request."""

    pool: str
    members: tuple[Member, ...]


class Change(msgspec.Struct, frozen=True):
    """Change fields of a part: `loadbalancers`, `listeners`, `pools` or `healthmonitors`."""

    collection: str
    id: str
    fields: Fields


class Drop(msgspec.Struct, frozen=True):
    """Delete a part; a pool goes with its members and its monitor."""

    collection: str
    id: str


Step = (
    Wait
    | Broken
    | Look
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


def plan(
    wanted: Balancer,
    actual: Balancer | None,
    *,
    at_once: bool,
    cascade: bool,
    is_known: bool,
) -> Step | None:
    """What to do next; None if all is as wished.

    Args:
        wanted: The wish.
        actual: What there is, or None.
        at_once: Whether the provider makes a load balancer with all its parts in one request.
        cascade: Whether the provider deletes all parts at once.
        is_known: Whether somebody may know its address, or it was not made for the Service.
    """
    if actual is None:
        return MakeBalancer(wanted, with_parts=at_once)
    if (kept := _kept(wanted, actual, cascade=cascade, is_known=is_known)) is not None:
        return kept
    if changed := _differing(wanted.fields, actual.fields):
        return Change("loadbalancers", actual.id, changed)
    if (surplus := _surplus(wanted, actual)) is not None:
        return surplus
    there = {one.key: one for one in actual.listeners}
    pairs = [(one, there.get(one.key)) for one in wanted.listeners]
    steps = (decide(*pair) for decide in (_listener, _hosts) for pair in pairs)
    return next((step for step in steps if step is not None), None)


def deletion(actual: Balancer | None, *, cascade: bool) -> Step | None:
    """What to do next to delete it; None if it is gone.

    Args:
        actual: What there is, or None.
        cascade: Whether the provider deletes all parts at once.
    """
    if actual is None or actual.status == DELETED:
        return None
    if actual.status not in {ACTIVE, ERROR}:
        return Wait(actual.status)
    part = None if cascade else _part(actual)
    if part is None:
        return DropBalancer(actual.id, cascade=cascade)
    # Octavia takes no part from one that is not active.
    return part if actual.status == ACTIVE else Broken()


def departure(actual: Balancer, tags: Sequence[str]) -> Step | None:
    """What to do next to leave it to others; None if nothing of the Service is left there.

    Args:
        actual: What there is; of the parts only the Service's.
        tags: Those that stay.
    """
    if actual.status != ACTIVE:
        return Broken() if actual.status == ERROR else Wait(actual.status)
    part = _part(actual)
    if part is not None:
        return part
    left = _differing({"tags": list(tags)}, actual.fields)
    return Change("loadbalancers", actual.id, left) if left else None


def _part(actual: Balancer) -> Step | None:
    """The next part to delete; pools can go when no listener uses them."""
    for listener in actual.listeners:
        return Drop("listeners", listener.id)
    for pool in actual.stray:
        return Drop("pools", pool)
    return None


def _kept(wanted: Balancer, actual: Balancer, *, cascade: bool, is_known: bool) -> Step | None:
    """What keeps it from being changed now."""
    if actual.status == ERROR:
        is_needed = is_known or actual.others
        return Broken() if is_needed else deletion(actual, cascade=cascade)
    if actual.status != ACTIVE:
        return Wait(actual.status)
    taken = [one.key for one in wanted.listeners if one.key in actual.taken]
    return Taken(*taken[0]) if taken else None


def _surplus(wanted: Balancer, actual: Balancer) -> Step | None:
    """A part that nobody wishes, or one that stands in the way of another."""
    protocols = {one.key: one.protocol for one in wanted.listeners}
    for one in actual.listeners:
        if protocols.get(one.key) != one.protocol:
            return Drop("listeners", one.id)
    return Drop("pools", actual.stray[0]) if actual.stray else None


def _listener(wanted: Listener, actual: Listener | None) -> Step | None:
    if actual is None:
        return MakeListener(wanted)
    if changed := _differing(wanted.fields, actual.fields):
        return Change("listeners", actual.id, changed)
    if wanted.pool is None:
        return None if actual.pool is None else Drop("pools", actual.pool.id)
    if actual.pool is None:
        return MakePool(wanted.pool, actual.id)
    if actual.pool.protocol != wanted.pool.protocol:
        return Drop("pools", actual.pool.id)
    changed = _differing(wanted.pool.fields, actual.pool.fields)
    return Change("pools", actual.pool.id, changed) if changed else None


def _hosts(wanted: Listener, actual: Listener | None) -> Step | None:
    """Members and monitor of a listener whose pool is as wished."""
    if wanted.pool is None or actual is None or actual.pool is None:
        return None
    if not actual.pool.is_read:
        return Look(actual.pool.id)
    step = _members(wanted.pool, actual.pool)
    return _monitor(wanted.pool.monitor, actual.pool) if step is None else step


def _members(wanted: Pool, actual: Pool) -> SetMembers | None:
    if _keys(wanted.members) == _keys(actual.members):
        return None
    return SetMembers(actual.id, wanted.members)


def _monitor(wanted: Monitor | None, pool: Pool) -> Step | None:
    actual = pool.monitor
    if actual is not None and (wanted is None or wanted.type != actual.type):
        return Drop("healthmonitors", actual.id)
    if wanted is None:
        return None
    if actual is None:
        return MakeMonitor(wanted, pool.id)
    changed = _differing(wanted.fields, actual.fields)
    return Change("healthmonitors", actual.id, changed) if changed else None


def _keys(of: Iterable[Member]) -> frozenset[tuple[str, int, str, int]]:
    return frozenset(one.key for one in of)


def _differing(wanted: Fields, actual: Fields) -> Mapping[str, object]:
    return {
        name: value for name, value in wanted.items() if name not in actual or actual[name] != value
    }
