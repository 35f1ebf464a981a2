"""Plan the steps that make a load balancer as desired, or delete it. Pure.

`plan` answers the steps that can be taken now, side by side; what they change goes into `Observed`
and `plan` is asked again, until nothing is left to do.

    external   health check -> target pool -> forwarding rules -> firewall rule
    internal   health check, instance groups -> backend service -> forwarding rule -> firewall rule

Neither forwarding rules nor the affinity of target pools can be changed. A rule that is to be made
anew keeps its address: that is reserved first, under the name of the load balancer, and released
when the new one has it. A process that ends in between finds it there. Two rules can share an
address only while it is reserved, so it is reserved, too, while the second one is made.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from proreus.providers.gce.balancing import naming
from proreus.providers.gce.balancing.addresses import held, is_useless, keeps_address
from proreus.providers.gce.balancing.desired import Desired
from proreus.providers.gce.balancing.hosts import by_zone, instance_urls
from proreus.providers.gce.balancing.parts import (
    Backend,
    BackendService,
    Group,
    HttpCheck,
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
    hosts,
    insert,
    pool_check,
)
from proreus.providers.gce.names import Machine, last_part, path_in
from proreus.providers.gce.place import Place

MOST_AT_CREATION: Final = 200
"""Instances that a new target pool can have."""
MOST_AT_ONCE: Final = 1000
"""Instances that one call adds or removes."""


def check_kind(desired: Desired) -> Kind:
    """Return the kind of the health check."""
    return Kind.HTTP_CHECK if isinstance(desired.check, HttpCheck) else Kind.CHECK


def obsolete(desired: Desired, observed: Observed) -> tuple[Rule, ...]:
    """Return the forwarding rules that have to be made anew."""
    first = observed.rule(desired.name)
    found = []
    for want in desired.rules:
        rule = observed.rule(want.name)
        if rule is None:
            continue
        has_other = first is not None and rule.address != first.address
        if has_other or _is_obsolete(desired, observed, want, rule):
            found.append(rule)
    return tuple(found)


def _is_obsolete(desired: Desired, observed: Observed, want: Rule, rule: Rule) -> bool:
    wrong = set(differing(want, rule)) - {"description", "address", "network"}
    if not desired.is_tier_given:
        wrong.discard("network_tier")
    if not want.subnetwork:
        wrong.discard("subnetwork")
    if wrong or desired.requested_address not in {"", rule.address}:
        return True
    pool = observed.pool(desired.name)
    return desired.pool is not None and (pool is None or _has_other_affinity(desired, pool))


def plan(desired: Desired, observed: Observed, place: Place) -> tuple[Step, ...]:
    """Return the steps to take now; none when all is as desired."""
    steps = [*_checks(desired, observed)]
    wanted = {one.name: one for one in desired.rules}
    unwanted = [one for one in observed.rules() if one.name not in wanted]
    if (old := obsolete(desired, observed)) or unwanted:
        steps += (delete(Kind.RULE, one.name) for one in unwanted)
        return (*steps, *_removal(desired, observed, old))
    if isinstance(desired.target, Pool):
        steps += _pool(desired, desired.target, observed, place)
    else:
        steps += _backend(desired, desired.target, observed, place)
    rules = [rule for name in wanted if (rule := observed.rule(name)) is not None]
    for want in desired.rules[: len(rules) + 1]:
        if observed.rule(want.name) is None:
            steps += _rule(desired, observed, want, rules)
    if rules:
        steps += _clients(desired, observed, rules[0])
    if len(rules) == len(wanted):
        steps += _leftovers(desired, observed)
    return tuple(steps)


def _removal(desired: Desired, observed: Observed, rules: Sequence[Rule]) -> Iterator[Step]:
    """Plan the end of forwarding rules that are to be made anew: their address is held first."""
    wanted = {one.name: one for one in desired.rules}
    first = observed.rule(desired.name)
    kept = [
        one
        for one in rules
        if keeps_address(desired, wanted[one.name], one)
        and one.address == (one if first is None else first).address
    ]
    if kept and observed.address(desired.name) is None and observed.reserved is None:
        yield insert(Kind.ADDRESS, held(desired, kept[0]))
        return
    yield from (delete(Kind.RULE, one.name) for one in rules)


def _checks(desired: Desired, observed: Observed) -> Iterator[Step]:
    yield from _part(check_kind(desired), desired.check, observed)
    if not desired.has_own_external_check:
        for firewall in desired.check_firewalls.values():
            yield from _part(Kind.FIREWALL, firewall, observed)


def _part(kind: Kind, part: Part, observed: Observed) -> Iterator[Step]:
    there = observed.parts.get((kind, part.name))
    if there is None:
        yield insert(kind, part)
    elif fields := differing(part, there):
        yield change(kind, merged(part, there), fields)


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
    yield from _hosts(Kind.POOL, name, machines, pool.machines)


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


def _hosts(
    kind: Kind, name: str, desired: frozenset[Machine], observed: frozenset[Machine]
) -> Iterator[Step]:
    for machines, adds in ((desired - observed, True), (observed - desired, False)):
        if machines:
            yield hosts(kind, name, tuple(sorted(machines)[:MOST_AT_ONCE]), adds=adds)


def group_steps(machines: frozenset[Machine], observed: Observed) -> tuple[Step, ...]:
    """Return the steps that make the instance groups of all zones as desired."""
    groups, steps = observed.groups(), list[Step]()
    zones = by_zone(machines)
    for zone in sorted({*zones, *groups}):
        wanted = zones.get(zone, frozenset()) - observed.refused.keys()
        group = groups.get(zone)
        if group is None:
            steps.append(insert(Kind.GROUP, Group(zone)))
        else:
            steps += _hosts(Kind.GROUP, zone, wanted, group.machines)
    return tuple(steps)


def _backend(
    desired: Desired, backend: BackendService, observed: Observed, place: Place
) -> Iterator[Step]:
    want = with_groups(backend, desired, observed, place)
    there = observed.backend(want.name)
    if there is None and (Kind.CHECK, desired.check.name) not in observed.parts:
        return
    yield from _part(Kind.SERVICE, want, observed)


def with_groups(
    backend: BackendService, desired: Desired, observed: Observed, place: Place
) -> BackendService:
    """Return the desired backend service with the instance groups of the zones that have hosts."""
    zones = sorted(by_zone(desired.machines).keys() & observed.groups().keys())
    groups = tuple(
        Backend(place.url(place.in_zone(zone, "instanceGroups", desired.group))) for zone in zones
    )
    return msgspec.structs.replace(backend, backends=groups)


def _rule(
    desired: Desired, observed: Observed, want: Rule, others: Sequence[Rule]
) -> Iterator[Step]:
    """Plan a forwarding rule, once there is what it leads to, and its address can be shared."""
    own = observed.address(desired.name)
    if own is not None and is_useless(desired, want, own):
        yield delete(Kind.ADDRESS, desired.name)
        return
    if not _is_target_ready(desired, observed):
        return
    kept = own or observed.reserved
    if kept is not None and not is_useless(desired, want, kept):
        tier = kept.network_tier if desired.pool else want.network_tier
        made = msgspec.structs.replace(want, address=kept.address, network_tier=tier)
        yield insert(Kind.RULE, made)
    elif others:
        yield insert(Kind.ADDRESS, held(desired, others[0]))
    else:
        yield insert(Kind.RULE, msgspec.structs.replace(want, address=desired.requested_address))


def _is_target_ready(desired: Desired, observed: Observed) -> bool:
    if desired.backend is not None:
        backend = observed.backend(desired.backend.name)
        return backend is not None and backend.protocol == desired.backend.protocol
    pool = observed.pool(desired.name)
    return pool is not None and not _has_other_affinity(desired, pool)


def _clients(desired: Desired, observed: Observed, rule: Rule) -> Iterator[Step]:
    """Plan the firewall rules that name the address: for clients, and for an own health check."""
    own = desired.check_firewalls if desired.has_own_external_check else {}
    for firewall in (*desired.firewalls.values(), *own.values()):
        described = naming.described_with_address(desired.service, rule.address)
        named = msgspec.structs.replace(
            firewall, description=described, destination_ranges=(rule.address,)
        )
        yield from _part(Kind.FIREWALL, named, observed)


def own_check_firewalls(name: str) -> tuple[str, str]:
    """Return the names of the firewall rules for a Service's own health check, of both kinds."""
    return (
        naming.external_check_firewall(name, "", shared=False),
        naming.internal_check_firewall(name, "", shared=False),
    )


def _leftovers(desired: Desired, observed: Observed) -> Iterator[Step]:
    """Plan to delete parts that the load balancer no longer needs."""
    name = desired.name
    if observed.address(name) is not None:
        # The forwarding rule has the address: released, it stays with it.
        yield delete(Kind.ADDRESS, name)
    if desired.backend is not None and desired.backend.name != name:
        yield from _gone(observed, (Kind.SERVICE, name))
    if desired.backend is not None and (Kind.FIREWALL, naming.firewall(name)) in observed.parts:
        # So older official managers called it.
        yield from _gone(observed, (Kind.FIREWALL, name))
    if not desired.shares_check or _uses_check(desired, observed, name):
        return
    yield from _gone(observed, (check_kind(desired), name))
    for firewall in own_check_firewalls(name):
        yield from _gone(observed, (Kind.FIREWALL, firewall))


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
        user = observed.backend(desired.name)
    if desired.shares_check or user is None:
        return False
    return any(last_part(one) != desired.check.name for one in user.health_checks)


def other_kind(desired: Desired, observed: Observed) -> bool:
    """Tell whether there is a load balancer of the other kind (internal or external) to delete."""
    rule = observed.rule(desired.name)
    return rule is not None and rule.load_balancing_scheme != desired.rules[0].load_balancing_scheme


def deletion(name: str, observed: Observed) -> tuple[Step, ...]:
    """Return the steps to delete the parts named after a load balancer; none if they are gone."""
    if rules := observed.rules():
        return tuple(delete(Kind.RULE, one.name) for one in rules)
    users = tuple(_gone(observed, (Kind.POOL, name), (Kind.SERVICE, name), (Kind.ADDRESS, name)))
    firewalls = [key for key in sorted(observed.parts) if key[0] is Kind.FIREWALL]
    checks = _gone(observed, (Kind.HTTP_CHECK, name), (Kind.CHECK, name))
    return users or (*checks, *_gone(observed, *firewalls))
