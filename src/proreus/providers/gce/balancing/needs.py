"""Decide what has to be read of a load balancer before a plan is made. Pure."""

from collections.abc import Collection

from proreus.providers.gce.balancing import naming
from proreus.providers.gce.balancing.desired import Desired
from proreus.providers.gce.balancing.parts import Form, Kind
from proreus.providers.gce.balancing.plan import obsolete
from proreus.providers.gce.balancing.steps import Key, Observed
from proreus.providers.gce.balancing.subsets.desired import needed_of_subset


def needed(desired: Desired, forms: Collection[Form]) -> tuple[Key, ...]:
    """Return what has to be read of a load balancer whose form may have been another one.

    Parts that only a second family of addresses has, or an own health check, are left out if they
    are not desired and nothing says that they exist.
    """
    if desired.subset is not None:
        return tuple(dict.fromkeys(needed_of_subset(desired, desired.subset.names)))
    second = naming.second_name(desired.rules[0])
    spared: set[Key] = set()
    if all(one.name != second for one in desired.rules):
        spared |= {key for key in naming.second_parts(second) if key[0] is not Kind.RULE}
    if len(forms) == 1:
        own = naming.own_check_firewalls(desired.name)
        spared |= {(Kind.FIREWALL, one) for one in own}
        if not desired.shares_check:
            spared.add((desired.form.check, desired.name))
    parts = naming.parts_of(desired.name, desired.rules[0], forms)
    keys = [key for key in parts if key not in spared]
    keys.append((desired.form.check, desired.check.name))
    if desired.backend is not None:
        keys.append((Kind.SERVICE, desired.backend.name))
    keys += ((Kind.FIREWALL, one.name) for one in desired.check_firewalls.values())
    return tuple(dict.fromkeys(keys))


def unexpected(desired: Desired, observed: Observed) -> tuple[Key, ...]:
    """Return the parts to read as well, since what was found shows undesired parts."""
    keys: list[Key] = []
    if desired.shares_check and (desired.form.check, desired.own) in observed.parts:
        keys += ((Kind.FIREWALL, one) for one in desired.own_check_firewalls)
    wanted = {one.name for one in desired.rules}
    for rule in observed.rules() if desired.subset is None else ():
        if rule.name not in wanted:
            keys += naming.second_parts(rule.name)
    return tuple(dict.fromkeys(key for key in keys if key not in observed.parts))


def is_held_for(desired: Desired, observed: Observed, family: str) -> bool:
    """Tell whether the address of a family must stay reserved while its rules are exchanged.

    New rules are made while old ones still have the address, or have just given it back.
    """
    wanted = [one for one in desired.rules if one.family == family]
    lacks = any(observed.rule(one.name) is None for one in wanted)
    return lacks or any(one.family == family for one in obsolete(desired, observed))
