"""Plan the steps that make a load balancer as desired, or delete it. Pure.

`plan` answers the steps that can be taken now, side by side; what they change goes into `Observed`
and `plan` is asked again, until nothing is left to do.

    external   health check -> target pool -> forwarding rule -> firewall rule
    internal   health check, instance groups -> backend service -> forwarding rule -> firewall rule

Neither forwarding rules nor the affinity of target pools can be changed. One that is to be made
anew keeps its address: that is reserved first, under the name of the load balancer, and released
when the new one has it. A process that ends in between finds it there.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from proreus.cloudprovider.errors import InvalidRequest
from proreus.cloudprovider.load_balancers import LoadBalancerRef
from proreus.cloudprovider.ownership import Tenants, refusal
from proreus.providers.gce.balancing import naming
from proreus.providers.gce.balancing.desired import Desired, by_zone, instance_urls
from proreus.providers.gce.balancing.parts import (
    EXTERNAL,
    INTERNAL,
    Address,
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


def check(desired: Desired, observed: Observed, ref: LoadBalancerRef, tenants: Tenants) -> None:
    """Refuse an address that the Service cannot have.

    Raises:
        InvalidRequest: Names the field and the remedy.
    """
    asked, rule = desired.requested_address, observed.rule(desired.rule.name)
    if not asked or (rule is not None and rule.address == asked):
        return
    reserved = observed.reserved
    if desired.internal and reserved is None:
        return  # any free address of the subnetwork will do
    problem = ""
    if reserved is None:
        problem = "it is not reserved in the region: reserve it, or leave the field out"
    elif desired.rule.network_tier not in {"", reserved.network_tier}:
        problem = (
            f"it is of the network tier {reserved.network_tier}, and the Service of"
            f" {desired.rule.network_tier}: change the annotation cloud.google.com/network-tier"
        )
    elif reserved.users:
        problem = f"{last_part(reserved.users[0])} has it"
    else:
        owners = [one for one in (naming.owner_in(reserved.description),) if one is not None]
        problem = refusal(owners, ref, tenants, (asked, reserved.name))
    if problem:
        raise InvalidRequest(f"spec.loadBalancerIP: {asked}: {problem}")


def is_obsolete(desired: Desired, observed: Observed) -> bool:
    """Tell whether the forwarding rule has to be made anew."""
    rule = observed.rule(desired.rule.name)
    if rule is None:
        return False
    wrong = set(differing(desired.rule, rule)) - {"description", "address", "network"}
    if not desired.is_tier_given:
        wrong.discard("network_tier")
    if not desired.rule.subnetwork:
        wrong.discard("subnetwork")
    if wrong or desired.requested_address not in {"", rule.address}:
        return True
    pool = observed.pool(desired.rule.name)
    return desired.pool is not None and (pool is None or _has_other_affinity(desired, pool))


def plan(desired: Desired, observed: Observed, place: Place) -> tuple[Step, ...]:
    """Return the steps to take now; none when all is as desired."""
    rule = observed.rule(desired.rule.name)
    if rule is not None and is_obsolete(desired, observed):
        return (*_checks(desired, observed), *_removal(desired, observed, rule))
    steps = [*_checks(desired, observed)]
    if isinstance(desired.target, Pool):
        steps += _pool(desired, desired.target, observed, place)
    else:
        steps += _backend(desired, desired.target, observed, place)
    steps += _rule(desired, observed, rule)
    if rule is not None:
        steps += _clients(desired, observed, rule)
        steps += _leftovers(desired, observed)
    return tuple(steps)


def _removal(desired: Desired, observed: Observed, rule: Rule) -> Iterator[Step]:
    """Plan to delete a forwarding rule that is to be made anew; its address is reserved first."""
    name, held = desired.rule.name, observed.address(desired.rule.name)
    keeps = _keeps_address(desired, rule)
    if keeps and held is None and observed.reserved is None:
        yield insert(
            Kind.ADDRESS,
            Address(
                name=name,
                description=naming.described(desired.service),
                address=rule.address,
                address_type=INTERNAL if desired.internal else EXTERNAL,
                subnetwork=rule.subnetwork if desired.internal else "",
                network_tier="" if desired.internal else rule.network_tier,
            ),
        )
        return
    yield delete(Kind.RULE, name)


def _keeps_address(desired: Desired, rule: Rule) -> bool:
    """Tell whether the next forwarding rule keeps the address of this one."""
    if rule.load_balancing_scheme != desired.rule.load_balancing_scheme:
        return False
    if desired.requested_address not in {"", rule.address}:
        return False
    if desired.internal:
        subnetwork = path_in(desired.rule.subnetwork)
        return not subnetwork or subnetwork == path_in(rule.subnetwork)
    return not desired.is_tier_given or rule.network_tier == desired.rule.network_tier


def _checks(desired: Desired, observed: Observed) -> Iterator[Step]:
    yield from _part(check_kind(desired), desired.check, observed)
    if desired.check_firewall is not None and not desired.has_own_external_check:
        yield from _part(Kind.FIREWALL, desired.check_firewall, observed)


def _part(kind: Kind, part: Part, observed: Observed) -> Iterator[Step]:
    there = observed.parts.get((kind, part.name))
    if there is None:
        yield insert(kind, part)
    elif fields := differing(part, there):
        yield change(kind, merged(part, there), fields)


def _pool(desired: Desired, want: Pool, observed: Observed, place: Place) -> Iterator[Step]:
    name, rule = desired.rule.name, observed.rule(desired.rule.name)
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


def _rule(desired: Desired, observed: Observed, rule: Rule | None) -> Iterator[Step]:
    """Plan the forwarding rule, once its target is there."""
    name = desired.rule.name
    held = observed.address(name)
    kept = held or observed.reserved
    if rule is not None:
        return
    if held is not None and _is_useless(desired, held):
        yield delete(Kind.ADDRESS, name)
        return
    leads_to = observed.pool(name)
    target: Pool | BackendService | None = leads_to
    if desired.pool is not None and leads_to is not None and _has_other_affinity(desired, leads_to):
        return
    if desired.backend is not None:
        target = observed.backend(desired.backend.name)
        if target is not None and target.protocol != desired.backend.protocol:
            return
    if target is not None:
        if kept is None or _is_useless(desired, kept):
            made = msgspec.structs.replace(desired.rule, address=desired.requested_address)
        else:
            made = msgspec.structs.replace(
                desired.rule,
                address=kept.address,
                network_tier=kept.network_tier if desired.pool else desired.rule.network_tier,
            )
        yield insert(Kind.RULE, made)


def _is_useless(desired: Desired, held: Address) -> bool:
    """Tell whether the address reserved before cannot serve the desired forwarding rule."""
    if desired.requested_address not in {"", held.address}:
        return True
    if desired.internal != (held.address_type == INTERNAL):
        return True
    if desired.internal:
        subnetwork = path_in(desired.rule.subnetwork)
        return bool(subnetwork) and subnetwork != path_in(held.subnetwork)
    return desired.is_tier_given and held.network_tier != desired.rule.network_tier


def is_still_free(desired: Desired, reserved: Address | None) -> bool:
    """Tell whether the Service may use again a reserved address that its status shows.

    It may if no mark names another Service, and nothing uses the address.
    """
    if reserved is None or reserved.users:
        return False
    owner = naming.owner_in(reserved.description)
    return owner is None or owner.key == desired.service


def _clients(desired: Desired, observed: Observed, rule: Rule) -> Iterator[Step]:
    """Plan the firewall rules that name the address: for clients, and for an own health check."""
    own = desired.check_firewall if desired.has_own_external_check else None
    for firewall in filter(None, (desired.firewall, own)):
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
    name = desired.rule.name
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
    user: Pool | BackendService | None = observed.pool(desired.rule.name)
    if desired.backend is not None:
        user = observed.backend(desired.rule.name)
    if desired.shares_check or user is None:
        return False
    return any(last_part(one) != desired.check.name for one in user.health_checks)


def other_kind(desired: Desired, observed: Observed) -> bool:
    """Tell whether there is a load balancer of the other kind (internal or external) to delete."""
    rule = observed.rule(desired.rule.name)
    return rule is not None and rule.load_balancing_scheme != desired.rule.load_balancing_scheme


def deletion(name: str, observed: Observed) -> tuple[Step, ...]:
    """Return the steps to delete the parts named after a load balancer; none if they are gone."""
    if observed.rule(name) is not None:
        return (delete(Kind.RULE, name),)
    users = tuple(_gone(observed, (Kind.POOL, name), (Kind.SERVICE, name), (Kind.ADDRESS, name)))
    firewalls = [key for key in sorted(observed.parts) if key[0] is Kind.FIREWALL]
    checks = _gone(observed, (Kind.HTTP_CHECK, name), (Kind.CHECK, name))
    return users or (*checks, *_gone(observed, *firewalls))
