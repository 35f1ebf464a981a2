"""Plan the steps that make a load balancer of Baidu AI Cloud as desired, or delete it.

Each round holds steps that need not wait for one another; the next round is planned from what there
is then.

* The mark comes first: what the official manager has made, and what a Service names, is known to be
  the Service's from then on, whatever else changes.
* What is not desired goes before what is missing comes, since a port has one listener.
* An address that is bought bears its tags from the start. It is bound once both are available, and
  released only once nothing holds it, if it is surely the Service's and not paid in advance.
* A load balancer that stays is emptied; the mark, which says whose it was, goes last. It keeps the
  address that its owner had bound to it before the Service named it.
"""

from collections.abc import Collection, Iterable, Iterator

from msgspec.structs import replace

from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.names import digest_of
from proreus.providers.baidu.balancing import steps
from proreus.providers.baidu.balancing.annotations import PREPAID
from proreus.providers.baidu.balancing.owners import named
from proreus.providers.baidu.balancing.parts import (
    Balancer,
    Desired,
    Eip,
    Listener,
    Mark,
    Observed,
)
from proreus.providers.baidu.balancing.steps import Step

_MOVING = frozenset({"binding", "creating", "unbinding", "updating"})
"""States that end by themselves. What is paused, since it is not paid for, is tried: the cloud's
own refusal says what to do."""


def plan(desired: Desired, observed: Observed) -> tuple[Step, ...]:
    """Return the next steps; none if all is as desired."""
    balancer = observed.balancer
    wanted = _wanted(desired, observed)
    is_missing = not (desired.is_internal or wanted)
    bought = (steps.create_eip(desired, _eip_name(desired, balancer)),) if is_missing else ()
    if balancer is None:
        return (steps.create_balancer(desired, _mark(desired, None, "")), *bought)
    if balancer.status in _MOVING:
        return (*bought, steps.wait(f"the {balancer.title} is {balancer.status}"))
    for decided in (
        tuple(_marks(desired, balancer, observed)),
        tuple(_surplus(desired, balancer)),
        (
            *_listeners(desired, balancer),
            *_members(desired, balancer, observed.refused),
            *(bought or _address(desired, balancer, observed, wanted)),
        ),
    ):
        if decided:
            return decided
    return _departure(observed.spare, observed, "" if desired.is_internal else wanted)


def deletion(
    ref: LoadBalancerRef, observed: Observed, requested: str, *, given: str, is_kept: bool
) -> tuple[Step, ...]:
    """Return the next steps to delete all that belongs to a Service; none if it is gone.

    A load balancer that the official manager has made gets our mark first: it is proven by the
    address in the Service's status, which it loses on the way.

    Args:
        ref: The Service.
        observed: The observed state, in which every load balancer is a spare one.
        requested: The address that the Service names, which is never released, or "".
        given: The id of the load balancer that an annotation names, or "": it is never deleted,
            although it may have the official name from an earlier Service.
        is_kept: Whether an annotation says that the load balancer stays.
    """
    unmarked = tuple(
        steps.update_balancer(
            one,
            one.name,
            _farewell_mark(one, ref, observed, is_given=one.id == given, is_kept=is_kept),
        )
        for one in observed.spare
        if not one.mark.cluster_uid
    )
    return unmarked or _departure(observed.spare, observed, requested)


def _farewell_mark(
    balancer: Balancer, ref: LoadBalancerRef, observed: Observed, *, is_given: bool, is_kept: bool
) -> Mark:
    bound = observed.bound_to(balancer.id)
    is_bought = bound is not None and bound.is_ours and not bound.is_tagged
    mark = replace(
        balancer.mark,
        cluster_uid=ref.cluster.uid,
        service_uid=ref.uid,
        is_given=is_given,
        is_kept=is_kept,
        eip=bound.ip if bound is not None and is_bought else "",
    )
    return named(mark, ref.key)


def marked(mark: Mark, desired: Desired) -> Mark:
    """Return the mark that makes a load balancer the Service's.

    A load balancer without our mark is one that the Service names, unless its name is the one we
    give.
    """
    cluster, uid = desired.ref.cluster.uid, desired.ref.uid
    is_given = mark.is_given or not desired.name
    found = replace(mark, cluster_uid=cluster, service_uid=uid, is_given=is_given)
    return named(found, desired.ref.key)


def chosen(
    candidates: Collection[str], there: Collection[str], most: int, uid: str
) -> frozenset[str]:
    """Return the back ends to use, at most as many as a load balancer takes.

    Present back ends stay; others are chosen by a digest of their id and the Service's uid, so that
    many Services do not all use the same ones.
    """
    in_order = sorted(candidates, key=lambda id_: (id_ not in there, digest_of((uid, "\0", id_))))
    return frozenset(in_order[:most])


def _mark(desired: Desired, balancer: Balancer | None, eip: str) -> Mark:
    mark = Mark(desired.text) if balancer is None else balancer.mark
    return replace(marked(mark, desired), eip=eip, is_kept=desired.is_kept)


def _marks(desired: Desired, balancer: Balancer, observed: Observed) -> Iterator[Step]:
    """Write the mark and the name, if they differ from the desired ones."""
    officially = [one.ip for one in observed.eips if one.is_ours and not one.is_tagged]
    held = balancer.mark.eip
    eip = held if held in officially else min(officially, default="")
    mark = _mark(desired, balancer, eip)
    if mark.is_given and not balancer.mark.cluster_uid:
        mark = replace(mark, own=_own_address(balancer, observed))
    name = balancer.name if mark.is_given else desired.name or balancer.name
    if (name, mark) != (balancer.name, balancer.mark):
        yield steps.update_balancer(balancer, name, replace(mark, made=""))


def _own_address(balancer: Balancer, observed: Observed) -> str:
    """Return the address that its owner has bound to a load balancer that is not in use, or "".

    To one that the Service uses the official manager may have bound the one that the Service names.
    """
    bound = observed.bound_to(balancer.id)
    return "" if bound is None or bound.is_ours or balancer.listeners else bound.ip


def _surplus(desired: Desired, balancer: Balancer) -> Iterator[Step]:
    """Delete listeners that are not desired, or that speak another protocol."""
    protocols = {one.key: one.protocol for one in desired.listeners}
    gone = [one for one in balancer.listeners if protocols.get(one.key) != one.protocol]
    if gone:
        yield steps.delete_listeners(balancer, gone)


def _listeners(desired: Desired, balancer: Balancer) -> Iterator[Step]:
    there = {one.key: one for one in balancer.listeners}
    for one in desired.listeners:
        found = there.get(one.key)
        if found is None:
            yield steps.create_listener(balancer, one)
        elif _differs(one, found):
            yield steps.update_listener(balancer, one)


def _differs(desired: Listener, found: Listener) -> bool:
    if (desired.node_port, desired.scheduler) != (found.node_port, found.scheduler):
        return True
    return any(found.settings.get(key) != value for key, value in desired.settings.items())


def _members(desired: Desired, balancer: Balancer, refused: Collection[str]) -> Iterator[Step]:
    """Add back ends, then remove others; the other way round where there is no room.

    The cloud refuses all for one of another VPC: those of which nobody tells the VPC come last, and
    each alone.
    """
    candidates = desired.candidates - set(refused) | (desired.uncertain & balancer.members)
    wanted = chosen(candidates, balancer.members, desired.most, desired.ref.uid)
    new, old = wanted - balancer.members, balancer.members - wanted
    has_room = len(wanted | balancer.members) <= desired.most
    if old and not (new and has_room):
        yield steps.remove_members(balancer, old)
    if new and not (old and not has_room):
        sure = new - desired.bare
        for ids in (sure,) if sure else ({one} for one in sorted(new)):
            yield steps.add_members(balancer, ids)


def _wanted(desired: Desired, observed: Observed) -> str:
    """Return the desired public address; "" for none, or for one that is still to be bought."""
    if desired.is_internal:
        return ""
    if desired.requested:
        return desired.requested
    balancer = observed.balancer
    bound = observed.bound_to(balancer.id) if balancer is not None else None
    if bound is not None:
        return bound.ip
    ids = {one.id for one in observed.spare}
    ours = [
        one.ip for one in observed.eips if one.is_ours and (not one.holder or one.holder in ids)
    ]
    return min(ours, default="")


def _eip_name(desired: Desired, balancer: Balancer | None) -> str:
    return desired.eip.name or desired.name or (balancer.name if balancer is not None else "")


def _address(
    desired: Desired, balancer: Balancer, observed: Observed, wanted: str
) -> Iterator[Step]:
    """Bind the desired public address, unbind any other, and set its bandwidth."""
    bound = observed.bound_to(balancer.id)
    if bound is not None and bound.status in _MOVING:
        yield _wait_for(bound)
        return
    if bound is not None and bound.ip != wanted:
        # What somebody has bound to a load balancer that a Service names without one, stays.
        if wanted or bound.is_ours or not balancer.mark.is_given:
            yield steps.unbind_eip(bound)
        return
    eip = observed.eip(wanted)
    if eip is None:
        return
    if bound is None:
        yield from _binding(eip, balancer, observed)
    elif eip.is_ours and desired.eip.is_asked and eip.megabits != desired.eip.megabits:
        yield steps.resize_eip(eip, desired.eip.megabits)


def _binding(eip: Eip, balancer: Balancer, observed: Observed) -> Iterator[Step]:
    if eip.status in _MOVING:
        yield _wait_for(eip)
    elif eip.holder in {one.id for one in observed.spare}:
        yield steps.unbind_eip(eip)
    else:
        yield steps.bind_eip(eip, balancer)


def _departure(spare: Iterable[Balancer], observed: Observed, kept: str) -> tuple[Step, ...]:
    """Give up load balancers and addresses that are not needed: unbind, release, delete."""
    spare = tuple(spare)
    ids = {one.id for one in spare}
    bound = [one for one in observed.eips if one.holder in ids]
    free = [one for one in observed.eips if one.is_ours and not one.holder and one.ip != kept]
    unsettled = [one for one in (*bound, *free) if one.status in _MOVING]
    marks = {one.id: one.mark for one in spare}
    unbound = [
        steps.unbind_eip(one)
        for one in bound
        if one not in unsettled and _may_unbind(one, marks[one.holder], kept)
    ]
    released = [
        steps.release_eip(one) for one in free if one not in unsettled and one.payment != PREPAID
    ]
    first = (*unbound, *released, *map(_wait_for, unsettled))
    return first or tuple(step for one in spare for step in _farewell(one))


def _may_unbind(eip: Eip, mark: Mark, kept: str) -> bool:
    if eip.is_ours or not mark.is_given:
        return True
    return eip.ip == kept != mark.own


def _farewell(balancer: Balancer) -> Iterator[Step]:
    """Delete a load balancer, or empty one that stays."""
    if not balancer.mark.stays:
        yield steps.delete_balancer(balancer)
        return
    if balancer.listeners:
        yield steps.delete_listeners(balancer, balancer.listeners)
    if balancer.members:
        yield steps.remove_members(balancer, balancer.members)
    if not (balancer.listeners or balancer.members):
        yield steps.leave_balancer(balancer)


def _wait_for(eip: Eip) -> Step:
    return steps.wait(f"the {eip.title} is {eip.status}")
