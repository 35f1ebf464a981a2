"""Plan the steps that make a load balancer as desired, or delete it. Pure.

`plan` answers the steps that can be taken now, side by side; what they change goes into `Observed`
and `plan` is asked again, until nothing is left to do.

    target pool       health check -> pool -> forwarding rules -> firewall rule
    backend service   health check, instance groups -> service -> forwarding rules -> firewall rules

Neither forwarding rules nor the affinity of target pools can be changed. A rule that is to be made
anew keeps its address: that is reserved first, under the name of the load balancer, and released
when the new one has it. A process that ends in between finds it there. Two rules can share an
address only while it is reserved, so it is reserved, too, while the second one is made.
"""

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from proreus.providers.gce.balancing import naming
from proreus.providers.gce.balancing.addresses import held, is_useless, keeps_address
from proreus.providers.gce.balancing.annotations import Options
from proreus.providers.gce.balancing.desired import Desired
from proreus.providers.gce.balancing.firewalls import with_tags
from proreus.providers.gce.balancing.hosts import instance_urls
from proreus.providers.gce.balancing.members import endpoint_steps, member_steps, with_groups
from proreus.providers.gce.balancing.parts import (
    INTERNAL,
    IPV6,
    BackendService,
    Firewall,
    Form,
    Kind,
    Part,
    Pool,
    Rule,
    differing,
    merged,
)
from proreus.providers.gce.balancing.steps import (
    Key,
    Observed,
    Step,
    change,
    delete,
    insert,
    pool_check,
)
from proreus.providers.gce.names import last_part, path_in
from proreus.providers.gce.place import Place

MOST_AT_CREATION: Final = 200
"""Instances that a new target pool can have."""


def obsolete(desired: Desired, observed: Observed) -> tuple[Rule, ...]:
    """Return the forwarding rules that have to be made anew; some get another name then."""
    found, wanted = [], {one.name for one in desired.rules}
    for want in desired.rules:
        rule = observed.rule(want.name)
        if rule is not None and _is_obsolete(desired, observed, want, rule):
            found.append(rule)
    if desired.subset is not None:
        found += (one for one in observed.rules() if one.name not in wanted)
    return tuple(found)


def _is_obsolete(desired: Desired, observed: Observed, want: Rule, rule: Rule) -> bool:
    wrong = set(differing(want, rule)) - {"description", "address", "network"}
    if not desired.is_tier_given:
        wrong.discard("network_tier")
    if not want.subnetwork:
        wrong.discard("subnetwork")
    if wrong or desired.requested_of(want.family) not in {"", rule.ip}:
        return True
    first = _first(desired, observed, want)
    if first is not None and first.address != rule.address:
        return True
    pool = observed.pool(desired.name)
    # Google keeps a pool to which a rule leads: one that is not shown is there all the same.
    return desired.pool is not None and pool is not None and _has_other_affinity(desired, pool)


def _first(desired: Desired, observed: Observed, rule: Rule) -> Rule | None:
    """Return the first forwarding rule of a rule's family as it is: all have its address."""
    want = desired.first_of(rule.family)
    return None if want is None else observed.rule(want.name)


def plan(desired: Desired, observed: Observed, place: Place) -> tuple[Step, ...]:
    """Return the steps to take now; none when all is as desired."""
    steps = [*_checks(desired, observed)]
    if removal := (*_unwanted(desired, observed), *_removal(desired, observed)):
        return (*steps, *removal)
    if former := tuple(_former(desired, observed)):
        return (*steps, *former)
    if isinstance(desired.target, Pool):
        steps += _pool(desired, desired.target, observed, place)
    else:
        steps += _backend(desired, desired.target, observed, place)
        steps += endpoint_steps(desired, observed)
    for want in desired.rules:
        if observed.rule(want.name) is None:
            steps += _rule(desired, observed, want, place)
        else:
            steps += _clients(desired, observed, want)
    if all(observed.rule(one.name) is not None for one in desired.rules):
        steps += _leftovers(desired, observed)
    return tuple(steps)


def _unwanted(desired: Desired, observed: Observed) -> Iterator[Step]:
    """Plan to delete undesired forwarding rules, first the firewall rules that lead to them."""
    wanted = {one.name for one in desired.rules}
    for rule in observed.rules() if desired.subset is None else ():
        if rule.name not in wanted:
            firewalls = [key for key in naming.second_parts(rule.name) if key[0] is Kind.FIREWALL]
            yield from tuple(_gone(observed, *firewalls)) or (delete(Kind.RULE, rule.name),)


def _removal(desired: Desired, observed: Observed) -> Iterator[Step]:
    """Plan the end of forwarding rules that are to be made anew: their address is held first."""
    rules = obsolete(desired, observed)
    for want in desired.rules:
        family = [one for one in rules if one.family == want.family]
        if not family or desired.first_of(want.family) != want:
            continue
        first = _first(desired, observed, want) or family[0]
        keeps, name = first in family and keeps_address(desired, want, first), desired.held(want)
        is_held = observed.address(name) is not None or want.family in observed.reserved
        if keeps and not is_held:
            yield insert(Kind.ADDRESS, held(desired, name, first))
        else:
            yield from (delete(Kind.RULE, one.name) for one in family)


def _former(desired: Desired, observed: Observed) -> Iterator[Step]:
    """Plan to delete the target of rules that have just been removed: pool or backend service."""
    if desired.internal:
        return
    name, is_pool = desired.name, desired.form is Form.POOL
    yield from _gone(observed, (Kind.SERVICE if is_pool else Kind.POOL, name))
    check = Form.EXTERNAL.check if is_pool else Form.POOL.check
    firewall = naming.own_check_firewalls(name)[1 if is_pool else 0]
    if (Kind.SERVICE if is_pool else Kind.POOL, name) not in observed.parts:
        yield from _gone(observed, (check, name), (Kind.FIREWALL, firewall))


def _checks(desired: Desired, observed: Observed) -> Iterator[Step]:
    yield from _part(desired.form.check, desired.check, observed)
    for family, firewall in desired.check_firewalls.items():
        is_first = family == desired.rules[0].family
        if desired.shares_check:
            there = observed.parts.get((Kind.FIREWALL, firewall.name))
            whole = with_tags(firewall, there)
            yield from _part(Kind.FIREWALL, whole, observed, is_shared=True)
        elif is_first and not desired.has_own_external_check:
            yield from _part(Kind.FIREWALL, firewall, observed)


def _part(kind: Kind, part: Part, observed: Observed, *, is_shared: bool = False) -> Iterator[Step]:
    there = observed.parts.get((kind, part.name))
    if there is None:
        yield insert(kind, part)
    elif fields := differing(part, there):
        yield change(kind, merged(part, there), fields, is_shared=is_shared)


def _pool(desired: Desired, want: Pool, observed: Observed, place: Place) -> Iterator[Step]:
    name, rule = desired.name, observed.rule(desired.name)
    pool = observed.pool(name)
    if pool is not None and rule is None and _has_other_affinity(desired, pool):
        yield delete(Kind.POOL, name)
        return
    has_check = (Kind.HTTP_CHECK, desired.check.name) in observed.parts
    if pool is None:
        if has_check:
            first = sorted(desired.machines - observed.refused.keys())[:MOST_AT_CREATION]
            urls = instance_urls(first, place)
            yield insert(Kind.POOL, msgspec.structs.replace(want, instances=urls))
        return
    yield from _pool_check(want, pool, has_check=has_check)
    machines = desired.machines - observed.refused.keys()
    yield from member_steps(Kind.POOL, name, machines, pool.machines)


def _pool_check(desired: Pool, pool: Pool, *, has_check: bool) -> Iterator[Step]:
    """Plan another health check; a target pool has one at most."""
    want = path_in(desired.health_checks[0])
    have = {path_in(one) for one in pool.health_checks}
    if other := sorted(have - {want}):
        if has_check:
            yield pool_check(pool.name, other[0], adds=False)
    elif want not in have and has_check:
        yield pool_check(pool.name, want, adds=True)


def _has_other_affinity(desired: Desired, pool: Pool) -> bool:
    want = desired.pool.session_affinity if desired.pool is not None else ""
    return (pool.session_affinity or "NONE") != want


def _backend(
    desired: Desired, backend: BackendService, observed: Observed, place: Place
) -> Iterator[Step]:
    want = with_groups(backend, desired, observed, place)
    there = observed.backend(want.name)
    if there is None and (desired.form.check, desired.check.name) not in observed.parts:
        return
    yield from _part(Kind.SERVICE, want, observed)


def _rule(desired: Desired, observed: Observed, want: Rule, place: Place) -> Iterator[Step]:
    """Plan a forwarding rule, once there is what it leads to, and its address can be shared."""
    first = desired.first_of(want.family) or want
    name, others = desired.held(first), _same_family(observed, want)
    own = observed.address(name)
    if first != want and not others:
        return
    if own is not None and is_useless(desired, want, own):
        yield delete(Kind.ADDRESS, name)
        return
    if not _is_target_ready(desired, observed):
        return
    kept = own or observed.reserved.get(want.family)
    if kept is not None and not is_useless(desired, want, kept):
        tier = want.network_tier if desired.internal else kept.network_tier
        address = kept.address
        if want.family == IPV6:
            address = place.url(place.in_region("addresses", kept.name))
        made = msgspec.structs.replace(want, address=address, network_tier=tier)
        yield insert(Kind.RULE, made)
    elif others:
        yield insert(Kind.ADDRESS, held(desired, name, others[0]))
    else:
        asked = desired.requested_of(want.family)
        yield insert(Kind.RULE, msgspec.structs.replace(want, address=asked))


def _same_family(observed: Observed, want: Rule) -> list[Rule]:
    return [one for one in observed.rules() if one.family == want.family]


def _is_target_ready(desired: Desired, observed: Observed) -> bool:
    if desired.backend is not None:
        backend = observed.backend(desired.backend.name)
        return backend is not None and backend.protocol == desired.backend.protocol
    pool = observed.pool(desired.name)
    return pool is not None and not _has_other_affinity(desired, pool)


def _clients(desired: Desired, observed: Observed, want: Rule) -> Iterator[Step]:
    """Plan the firewall rules of a forwarding rule: for clients, and for an own health check."""
    rule, family = observed.rule(want.name), want.family
    if rule is None or desired.first_of(family) != want:
        return
    named = [desired.firewalls.get(family)]
    if desired.has_own_external_check:
        named.append(desired.check_firewalls.get(family))
    elif own := _own_second_check(desired, family):
        yield from _part(Kind.FIREWALL, own, observed)
    for firewall in filter(None, named):
        described = naming.described_with_address(desired.service, rule.ip)
        if desired.subset is not None:
            described = firewall.description
        whole = msgspec.structs.replace(
            firewall, description=described, destination_ranges=(rule.address,)
        )
        yield from _part(Kind.FIREWALL, whole, observed)


def _own_second_check(desired: Desired, family: str) -> Firewall | None:
    """Return the firewall rule for an own health check that a second family alone has."""
    is_second = family != desired.rules[0].family
    return desired.check_firewalls.get(family) if is_second and not desired.shares_check else None


def _leftovers(desired: Desired, observed: Observed) -> Iterator[Step]:
    """Plan to delete parts that the load balancer no longer needs."""
    name, own = desired.name, desired.own
    # The forwarding rules have the addresses: released, they stay with them.
    yield from (delete(*key) for key in observed.parts if key[0] is Kind.ADDRESS)
    if desired.backend is not None and desired.backend.name != own:
        yield from _gone(observed, (Kind.SERVICE, own))
    if desired.internal and (Kind.FIREWALL, naming.firewall(name)) in observed.parts:
        # So older official managers called it.
        yield from _gone(observed, (Kind.FIREWALL, name))
    if not desired.shares_check or _uses_check(desired, observed, own):
        return
    yield from _gone(observed, (desired.form.check, own))
    yield from _gone(observed, *((Kind.FIREWALL, one) for one in desired.own_check_firewalls))


def _uses_check(desired: Desired, observed: Observed, name: str) -> bool:
    """Tell whether the Service's own health check, no longer needed, is still attached."""
    user = (
        observed.pool(name) if desired.backend is None else observed.backend(desired.backend.name)
    )
    return user is not None and any(last_part(one) == name for one in user.health_checks)


def _gone(observed: Observed, *keys: Key) -> Iterator[Step]:
    yield from (delete(*key) for key in keys if key in observed.parts)


def leaves_shared_check(desired: Desired, observed: Observed) -> bool:
    """Tell whether the load balancer has the shared health check, but should no longer have it."""
    user: Pool | BackendService | None = observed.pool(desired.name)
    if desired.backend is not None:
        user = observed.backend(desired.backend.name)
    if desired.shares_check or user is None:
        return False
    return any(last_part(one) != desired.check.name for one in user.health_checks)


def wanted_form(
    options: Options, rule: Rule | None, *, is_default: bool, makes_subsets: bool = False
) -> Form:
    """Choose how a load balancer is to be built.

    Args:
        options: The options that its annotations choose.
        rule: Its first forwarding rule as it is.
        is_default: Whether new external load balancers get a backend service unasked.
        makes_subsets: Whether new internal load balancers get a subset of the nodes.
    """
    if options.internal:
        if rule is not None and rule.load_balancing_scheme == INTERNAL:
            return rule.form
        return Form.SUBSET if makes_subsets else Form.INTERNAL
    is_old = rule is not None and rule.form is Form.POOL
    return Form.EXTERNAL if options.backend_service or (is_default and not is_old) else Form.POOL


def former_form(desired: Desired, first: Rule | None, forms: Collection[Form]) -> Form | None:
    """Return the other form that an external load balancer had, or may have had; None if none.

    Args:
        desired: The desired state.
        first: The first forwarding rule as it is; a process that was killed may have left none.
        forms: The forms that this manager makes.
    """
    if first is not None:
        return None if first.form is desired.form else first.form
    others = {Form.POOL, Form.EXTERNAL} & {*forms} - {desired.form}
    may_have_had = bool(desired.last_addresses) and len(others) == 1
    return others.pop() if may_have_had else None


def other_scheme(desired: Desired, rule: Rule | None) -> bool:
    """Tell whether an external load balancer is to be internal or the reverse: that goes first."""
    scheme = desired.rules[0].load_balancing_scheme
    return rule is not None and rule.load_balancing_scheme != scheme


def deletion(observed: Observed) -> tuple[Step, ...]:
    """Return the steps to take down all parts that were observed; none if they are gone."""
    by_kind = dict.fromkeys(key[0] for key in observed.parts)
    first = next((kinds for kinds in _DELETED if by_kind.keys() & kinds), ())
    return tuple(delete(*key) for key in observed.parts if key[0] in first)


_DELETED: Final = (
    (Kind.RULE,),
    (Kind.POOL, Kind.SERVICE, Kind.ADDRESS),
    (Kind.HTTP_CHECK, Kind.CHECK, Kind.REGION_CHECK, Kind.FIREWALL, Kind.ENDPOINTS),
)
"""What goes before what: rules before what they lead to, users before their health checks."""
