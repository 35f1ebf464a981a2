"""Plan the steps that make the load balancers of a Service as desired, or delete them. Pure.

A load balancer takes one change at a time, and only while it is ACTIVE: so each round holds at most
one step for each, and what is not ACTIVE is waited for.

* The first load balancer brings the address, the others share it. So the first is made alone, and
  none is deleted before all that are desired are there: with the last one its address goes.
* Who may connect is changed first. An access list is opened before it is closed, except for what
  it cannot hold twice; what keeps out all others goes in with the first item and out with the last.
* Nodes are added before others are taken out, as far as there is room.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

from proreus.cloudprovider.errors import CloudError, InvalidRequest
from proreus.providers.rackspace.balancing import steps
from proreus.providers.rackspace.balancing.parts import (
    ACTIVE,
    ENABLED,
    FAILED,
    GOING,
    MOST_ITEMS,
    Desired,
    Existing,
    Item,
    Key,
    Observed,
    Settings,
    Vip,
    can_share,
)
from proreus.providers.rackspace.balancing.steps import Step

BATCH: Final = 10
"""Items that one request deletes at most."""


def plan(desired: Desired, observed: Observed) -> tuple[Step, ...]:
    """Return the next steps; none if all is as desired, or Rackspace works on it."""
    kept, surplus = _sorted(desired, observed)
    beside = [one for one in surplus if one.vip_ids & _address(desired, observed)]
    in_the_way = [one for one in beside if any(_conflicts(one, new) for new in desired.balancers)]
    rivals = _rivals(desired, observed)
    leaving = rivals if in_the_way and rivals else in_the_way
    cleared = [steps.delete(one) for one in leaving if one.status == ACTIVE and kept]
    made = _creations(desired, observed, kept)
    changed = (
        step
        for settings in desired.balancers
        if (one := kept.get(settings.key)) and one.status == ACTIVE
        for step in _difference(settings, one, desired, beside)
    )
    first = (*cleared, *made, *changed)
    if first:
        return first
    if all(_is_there(settings, kept) for settings in desired.balancers):
        return tuple(steps.delete(one) for one in rivals or surplus if one.status == ACTIVE)
    return ()


def deletion(observed: Observed) -> tuple[Step, ...]:
    """Return the next steps to delete all load balancers of a Service.

    The deletion of a load balancer in the state ERROR is tried, too: the answer says what is to be
    done.
    """
    return tuple(steps.delete(one) for one in observed.existing if one.status in {ACTIVE, *FAILED})


def is_settled(desired: Desired, observed: Observed) -> bool:
    """Tell whether there is nothing to do and nothing to wait for."""
    kept, surplus = _sorted(desired, observed)
    is_there = all(_is_there(settings, kept) for settings in desired.balancers)
    return is_there and not surplus and not plan(desired, observed)


def check_observed(desired: Desired, observed: Observed) -> None:
    """Refuse a state that no step can mend.

    Raises:
        InvalidRequest: The Service's families have changed, or the protocol of its only port: no
            load balancer can follow and keep the address.
    """
    place = desired.place
    for one in observed.existing:
        types, versions = {vip.type for vip in one.vips}, {vip.version for vip in one.vips}
        is_here = not place.shared or one.vip_ids & place.shared
        if is_here and types == {place.type} and versions != place.versions:
            there = ", ".join(sorted(versions))
            raise InvalidRequest(
                f"spec.ipFamilies: load balancer {one.id} has addresses of {there}, and several"
                " cannot be given another one together: make the Service anew"
            )

    kept, surplus = _sorted(desired, observed)
    address = _address(desired, observed)
    alone = [one for one in surplus if one.vip_ids & address and one.status != GOING and not kept]
    for one, settings in itertools.product(alone, desired.balancers):
        if _conflicts(one, settings):
            raise InvalidRequest(
                f"spec.ports: port {settings.port} of {one.settings.protocol} cannot become one"
                f" of {settings.protocol} at the same address: add another port first, or make"
                " the Service anew"
            )


def check_states(observed: Observed) -> None:
    """Raise the error of load balancers that take no changes, once the others are as desired.

    Raises:
        CloudError: Rackspace's support has to end the state of a load balancer.
    """
    failed = [f"{one.id} ({one.status})" for one in observed.existing if one.status in FAILED]
    if failed:
        raise CloudError(
            f"load balancer {', '.join(failed)}: Rackspace's support has to repair it, since it"
            " takes no changes in this state; or delete the Service and create it again"
        )


def addresses(desired: Desired, observed: Observed) -> tuple[str, ...]:
    """Return the addresses of the load balancers that are kept, IPv4 first."""
    kept, _ = _sorted(desired, observed)
    one = next(iter(kept.values()), None)
    return tuple(vip.address for vip in one.vips) if one is not None else ()


def _sorted(
    desired: Desired, observed: Observed
) -> tuple[dict[Key, Existing], tuple[Existing, ...]]:
    """Return the load balancers that stay by key, all on one address, and all others.

    The address is that of the oldest load balancer that fits.
    """
    fitting = [one for one in _alive(observed) if desired.place.fits(one)]
    address = _address(desired, observed)
    wanted = {settings.key for settings in desired.balancers}
    kept: dict[Key, Existing] = {}
    for one in sorted(fitting, key=lambda one: one.id):
        if one.vip_ids == address and one.settings.key in wanted:
            kept.setdefault(one.settings.key, one)
    ids = {one.id for one in kept.values()}
    return kept, tuple(one for one in observed.existing if one.id not in ids)


def _address(desired: Desired, observed: Observed) -> frozenset[int]:
    """Return the ids of the virtual IPs that the Service has, or names; none if it has none yet."""
    fitting = [one for one in _alive(observed) if desired.place.fits(one)]
    oldest = min(fitting, key=lambda one: one.id, default=None)
    return desired.place.shared if oldest is None else oldest.vip_ids


def _rivals(desired: Desired, observed: Observed) -> list[Existing]:
    """Return surplus load balancers on other addresses that are older than all that stay.

    The address of the Service is that of the oldest one: if that goes before these, whether it is
    in the way or surplus, the next oldest would bring another address.
    """
    kept, surplus = _sorted(desired, observed)
    address = _address(desired, observed)
    oldest = min((one.id for one in kept.values()), default=0)
    return [
        one
        for one in surplus
        if one.id < oldest
        and one.status != GOING
        and one.vip_ids != address
        and desired.place.fits(one)
    ]


def _alive(observed: Observed) -> list[Existing]:
    return [one for one in observed.existing if one.status != GOING]


def _is_there(settings: Settings, kept: dict[Key, Existing]) -> bool:
    one = kept.get(settings.key)
    return one is not None and one.status == ACTIVE


def _creations(desired: Desired, observed: Observed, kept: dict[Key, Existing]) -> Iterator[Step]:
    missing = [settings for settings in desired.balancers if settings.key not in kept]
    ids = _address(desired, observed)
    there = [one for one in observed.existing if one.vip_ids & ids]
    vips = {vip.id: vip for one in there for vip in one.vips if vip.id in ids}
    for id_ in ids - vips.keys():
        vips[id_] = Vip(id_, "", desired.place.type, "")
    if not vips:
        missing = missing[:1]
    for settings in missing:
        if not any(_conflicts(one, settings) for one in there):
            yield steps.create(settings, desired, [vips[id_] for id_ in sorted(vips)])


def _conflicts(one: Existing, settings: Settings) -> bool:
    """Tell whether two load balancers cannot share an address."""
    if one.settings.port != settings.port:
        return False
    return not can_share(one.settings.protocol, settings.protocol)


def _difference(
    settings: Settings, one: Existing, desired: Desired, beside: Sequence[Existing]
) -> Sequence[Step]:
    """Return the next step to make a load balancer as desired; none if it is.

    Its own fields wait for those that are in the way of another protocol; what depends on the
    protocol waits for these.
    """
    fields = _fields(settings, one)
    is_free = not any(_conflicts(other, settings) for other in beside)
    for found in (
        _access(settings, one),
        fields if is_free else None,
        _members(settings, one, desired.max_nodes),
        None if fields else _rest(settings, one),
    ):
        if found is not None:
            return (found,)
    is_marked = desired.marks.items() <= one.marks.items()
    return () if is_marked else (steps.mark(one, desired.marks),)


def _access(settings: Settings, one: Existing) -> Step | None:
    there, wanted = one.settings.access, settings.access
    missing, surplus = sorted(wanted - there), sorted(there - wanted)
    if there and not wanted:
        return steps.remove_access(one, sorted(there))
    # An address can be in a list once; and a deny of others is no reason to let somebody in.
    twice = {item.address for item in missing}
    in_the_way = [item for item in surplus if item.address in twice]
    if in_the_way:
        return steps.remove_access(one, in_the_way[:BATCH])
    has_room = len(there) + len(missing) <= MOST_ITEMS
    if missing and (has_room or not surplus):
        return steps.add_access(one, missing)
    return steps.remove_access(one, _last_denied(surplus)[:BATCH]) if surplus else None


def _last_denied(items: Sequence[Item]) -> list[Item]:
    """Sort items of an access list so that ALLOW goes before DENY."""
    return sorted(items, key=lambda item: (item.type != "ALLOW", item))


def _fields(settings: Settings, one: Existing) -> Step | None:
    now = one.settings
    if now.protocol != settings.protocol and now.monitor and now.monitor != settings.monitor:
        # A monitor by HTTP keeps any other protocol out.
        return steps.set_monitor(one, None)
    own = (now.name, now.protocol, now.algorithm, now.timeout)
    if own != (settings.name, settings.protocol, settings.algorithm, settings.timeout):
        return steps.update(one, settings)
    return None


def _members(settings: Settings, one: Existing, most: int) -> Step | None:
    there = {(member.address, member.port): member for member in one.settings.members}
    wanted = {(member.address, member.port): member for member in settings.members}
    missing = [wanted[place] for place in sorted(wanted.keys() - there.keys())]
    surplus = [there[place] for place in sorted(there.keys() - wanted.keys())]
    room = max(most - len(there), 0)
    if missing and (room or not surplus):
        return steps.add_members(one, missing[: room or None])
    if surplus:
        return steps.remove_members(one, surplus[:BATCH])
    idle = [there[place] for place in sorted(wanted) if there[place].condition != ENABLED]
    return steps.enable_member(one, idle[0]) if idle else None


def _rest(settings: Settings, one: Existing) -> Step | None:
    now = one.settings
    if now.monitor != settings.monitor:
        return steps.set_monitor(one, settings.monitor)
    if now.persistence != settings.persistence:
        return steps.set_persistence(one, settings.persistence)
    if now.max_connections != settings.max_connections:
        return steps.set_throttle(one, settings.max_connections)
    return None
